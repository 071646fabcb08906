//! What merges and rewrites do on a disk that is nearly full.

use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::kv::Condition;
use hubbub_core::store::StoreHealth;
use hubbub_core::{Change, KvOp, Op, OpBatch, RandomSource, RoomChange};
use hubbub_store::embedded::disk::Disk;
use hubbub_store::embedded::{Engine, EngineOptions, MergeOptions};

use crate::faults::{Bench, fill, message, options, send};
use crate::model::{Sent, batch};

/// A merge that has no space for what it writes is not begun, and begun when there is.
#[test]
fn merges_leave_the_reserve_alone() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    let reserve = 1_000_000;
    let bench = Bench::new(EngineOptions { merge, reserve_bytes: reserve, ..options() });
    let engine = bench.open();
    for sealed in 0..4 {
        (sealed * 8..sealed * 8 + 8).for_each(|id| drop(send(&engine, id).unwrap()));
        let key = sealed.to_string();
        let mut put = OpBatch::default();
        for round in 0..3 {
            let (key, value) = (format!("{key}{round}"), vec![7; 900]);
            let (key, value) = (key.as_bytes(), &*value);
            put.push(&Op::Kv(KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always }));
            engine.apply(&put).unwrap();
            engine.begin_backup("seal").unwrap();
            engine.end_backup("seal");
        }
    }
    let files = |dir: &str| {
        let mut names = bench.disk.list(dir).unwrap();
        names.sort_unstable();
        names
    };
    let before = (files("segments"), files("kv"));
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + reserve + 300));
    while engine.merge_step().unwrap() {}
    assert_eq!((files("segments"), files("kv")), before);
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + reserve + 100_000));
    while engine.merge_step().unwrap() {}
    assert!(files("segments").len() < before.0.len() && files("kv").len() < before.1.len());
}

fn seal(engine: &Engine) {
    engine.begin_backup("seal").unwrap();
    engine.end_backup("seal");
    while engine.seal_step().unwrap() {}
}

/// What is hidden in a segment that does not fit beside itself stays there for now; nothing else waits for that.
#[test]
fn a_rewrite_that_has_no_space_holds_up_nothing() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, bytes_max: 8_000 };
    let (reserve_bytes, scrub_interval) = (2_000, Duration::from_secs(60));
    let bench = Bench::new(EngineOptions { merge, scrub_interval, reserve_bytes, ..options() });
    let engine = bench.open();
    let contents = || {
        let names = bench.disk.list("segments").unwrap().into_iter();
        let content = |name: String| {
            let file = bench.disk.open(&format!("segments/{name}")).unwrap();
            let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        names.map(content).collect::<Vec<_>>()
    };
    let holds_eve = || contents().iter().any(|bytes| bytes.windows(7).any(|part| part == b"eve-eve"));
    let large = |id: u64| Sent { text: random_text(id, 1_000), ..message(id) };
    let mut sent: Vec<Sent> = (0..12).map(large).collect();
    sent.push(Sent { user: "eve-eve".into(), ..large(12) });
    engine.apply(&batch(&sent)).unwrap();
    seal(&engine);
    let mut erase = OpBatch::default();
    erase.push(&Op::Change(Change { by: None, what: RoomChange::EraseUser { user: "eve-eve" } }));
    engine.apply(&erase).unwrap();
    for id in 20..23 {
        engine.apply(&batch(&[message(id)])).unwrap();
        seal(&engine);
    }
    assert!(contents().len() == 4 && holds_eve());
    // Enough for merging small ones, and not for the large one.
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + reserve_bytes + 3_000));
    while engine.merge_step().unwrap() {}
    assert!(holds_eve());
    engine.seal_step().unwrap();
    assert_eq!((contents().len(), engine.health()), (3, StoreHealth::Up));
    // The reserve counts, but it is looked again only after a while.
    let largest = contents().iter().map(Vec::len).max().unwrap() as u64;
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + largest + 500));
    while engine.merge_step().unwrap() {}
    assert!(holds_eve());
    bench.clock.advance_micros(60_000_000);
    while engine.merge_step().unwrap() {}
    assert!(!holds_eve());
}

/// Text that hardly becomes shorter by compressing it.
fn random_text(seed: u64, length: usize) -> String {
    let random = SeededRandom::new(seed);
    (0..length).map(|_| char::from(b'!' + (random.next_u64() % 94) as u8)).collect()
}

/// It may have the space that the next attempt needs.
#[test]
fn a_file_that_cannot_be_finished_is_removed() {
    let bench = Bench::new(options());
    let engine = bench.open();
    engine.seal_step().unwrap();
    fill(&engine, 0);
    while engine.prepare_step().unwrap() {}
    bench.disk.fail_sync_in(1);
    assert!(engine.seal_step().is_err());
    assert_eq!(bench.disk.list("segments").unwrap(), [""; 0]);
    while engine.seal_step().unwrap() {}
    assert_eq!(bench.disk.list("segments").unwrap().len(), 1);
}
