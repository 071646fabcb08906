//! What a start makes of slots that are lost or cannot be read.

use hubbub_store::embedded::disk::Disk;
use hubbub_store::embedded::{Durability, EngineOptions, OpenError};

use crate::faults::{Bench, SLOT_BYTES, fill, ids, options, send, stored};

/// A data directory whose first journal is sealed, and whose manifest was written when the second one had batches.
fn sealed_beside_a_journal(options: EngineOptions) -> (Bench, u64) {
    let bench = Bench::new(options);
    let engine = bench.open();
    engine.prepare_step().unwrap();
    let (sent, _) = fill(&engine, 0);
    assert_eq!(engine.figures().unsealed_slots, 1);
    while engine.seal_step().unwrap() {}
    assert_eq!(engine.figures().unsealed_slots, 0);
    drop(engine);
    bench.disk.kill();
    (bench, sent)
}

fn clear(bench: &Bench, path: &str, from: u64) {
    let file = bench.disk.open(path).unwrap();
    file.write_all_at(&vec![0; usize::try_from(SLOT_BYTES - from).unwrap()], from).unwrap();
    file.sync_data().unwrap();
}

/// What the manifest says of rooms goes further than the journal that is there.
#[test]
fn a_journal_that_only_the_manifest_knows_is_missed() {
    for from in [0, SLOT_BYTES / 2] {
        let (bench, _) = sealed_beside_a_journal(options());
        clear(&bench, "journal/slot-2", from);
        let Err(OpenError::Damaged { file, what, .. }) = bench.try_open() else { panic!("{from}") };
        assert!(file.starts_with("journal") && what.contains("of journal 2 is missing"), "{file}: {what}");
    }
    // Where nobody waits for the disk, power may take it.
    for from in [0, SLOT_BYTES / 2] {
        let (bench, sent) =
            sealed_beside_a_journal(EngineOptions { durability: Durability::Os, ..options() });
        clear(&bench, "journal/slot-2", from);
        let engine = bench.open();
        let left = stored(&engine);
        assert!((1..sent).contains(&(left.len() as u64)) && left == ids(0..left.len() as u64), "{left:?}");
        send(&engine, sent).unwrap();
        drop(engine);
        bench.disk.kill();
        let new = ids(sent..sent + 1);
        assert_eq!(stored(&bench.open()), [left, new].concat());
    }
}

/// A sector that went bad where nothing stands that counts.
#[test]
fn what_is_sealed_need_not_be_readable_in_the_journal() {
    let (bench, sent) = sealed_beside_a_journal(options());
    bench.disk.set_unreadable(Some(("journal/slot-2", 9_000)));
    let Err(OpenError::Unreadable { path, source, .. }) = bench.try_open() else { panic!("it was read") };
    assert!(path.ends_with("slot-2") && source.to_string().contains("at byte "), "{source}");
    bench.disk.set_unreadable(Some(("journal/slot-1", 9_000)));
    let engine = bench.open();
    assert_eq!(stored(&engine), ids(0..sent));
    send(&engine, sent).unwrap();
}
