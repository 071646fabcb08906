//! What must be on the disk: what was recorded as durable is missed when it is not there, and after a failed sync nothing
//! is believed that is not written again.

use std::time::Duration;

use hubbub_core::change::{Change, RoomChange};
use hubbub_core::store::{ApplyError, StoreHealth};
use hubbub_core::{Op, OpBatch, Outcome};
use hubbub_store::embedded::disk::Disk;
use hubbub_store::embedded::{Engine, EngineOptions, MergeOptions, OpenError};

use crate::faults::{Bench, ids, message, options, send, stored};
use crate::model::{Sent, batch};

/// After a failed replacement of the manifest nobody knows which one is on the disk: neither may lose a file.
#[test]
fn a_merge_that_failed_is_not_overwritten_by_the_next_one() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    for (fails_at, seed) in (1..=4).flat_map(|sync| (0..40).map(move |seed| (sync, seed))) {
        let bench = Bench::new(EngineOptions { merge, scrub_interval: Duration::ZERO, ..options() });
        let engine = bench.open();
        for segment in [0..8, 8..16, 16..36] {
            if segment.end == 36 {
                engine.apply(&batch(&[Sent { user: "eve".into(), ..message(36) }])).unwrap();
            }
            segment.for_each(|id| drop(send(&engine, id).unwrap()));
            engine.begin_backup("seal").unwrap();
            engine.end_backup("seal");
        }
        // How many operations there were decides what reaches the disk nevertheless.
        for _ in 0..seed % 4 {
            engine.record_end().unwrap();
        }
        bench.disk.fail_sync_in(fails_at);
        assert!(engine.merge_step().is_err());
        // The next one to be written is another segment, in which something is erased.
        erase_eve(&engine);
        bench.disk.crash_in(1 + seed / 2);
        while engine.merge_step().is_ok_and(|merged| merged) {}
        drop(engine);
        bench.disk.crash(seed);
        let engine = bench.open();
        assert_eq!(stored(&engine), ids(0..36), "sync {fails_at} fails, seed {seed}");
    }
}

/// Erases what eve sent.
fn erase_eve(engine: &Engine) {
    let mut erase = OpBatch::default();
    erase.push(&Op::Change(Change { by: None, what: RoomChange::EraseUser { user: "eve" } }));
    engine.apply(&erase).unwrap();
}

/// A start may find bytes in memory that a failed sync did not bring to the disk. What it shows must outlive a crash.
#[test]
fn what_a_start_shows_after_a_failed_sync_is_durable() {
    for seed in 0..50 {
        let bench = Bench::new(options());
        let engine = bench.open();
        send(&engine, 0).unwrap();
        bench.disk.fail_sync_in(1);
        assert!(matches!(send(&engine, 1), Err(ApplyError::Unconfirmed { .. })));
        drop(engine);
        bench.disk.kill();
        let engine = bench.open();
        assert_eq!(stored(&engine), ids(0..2), "the operating system has it");
        assert!(matches!(send(&engine, 1), Ok(Outcome::Duplicate(_))), "and it is confirmed");
        drop(engine);
        bench.disk.crash(seed);
        assert_eq!(stored(&bench.open()), ids(0..2), "seed {seed}");
    }
}

/// A start reads a slot more than once, and writes what it read. What one of the reads got wrong is not written.
#[test]
fn what_a_start_reads_wrong_is_not_written() {
    let mut refused = 0;
    // The first three find the journal: the header of its first block, the rest of that, the rest of the slot.
    for read in 4..12 {
        let bench = Bench::new(options());
        let engine = bench.open();
        (0..5).for_each(|id| drop(send(&engine, id).unwrap()));
        drop(engine);
        bench.disk.kill();
        bench.disk.damage_read_in("journal/slot-1", read);
        if let Err(error) = bench.try_open() {
            assert!(matches!(&error, OpenError::Damaged { file, .. } if file == "journal/slot-1"), "{error}");
            refused += 1;
        }
        bench.disk.kill();
        assert_eq!(stored(&bench.open()), ids(0..5), "read {read}");
    }
    assert_eq!(refused, 1);
}

/// Whatever was said to be durable is missed, even if the last block is the only one.
#[test]
fn damage_of_the_last_block_is_named() {
    for (batches, is_closed) in [(1, true), (3, true), (3, false)] {
        let bench = Bench::new(options());
        let engine = bench.open();
        for id in 0..batches {
            send(&engine, id).unwrap();
        }
        if is_closed {
            engine.close().unwrap();
        } else {
            // Nothing is written for a moment.
            for _ in 0..3 {
                engine.record_end_step().unwrap();
                bench.clock.advance_micros(250_000);
            }
        }
        let (path, offset) = engine.recorded_end().unwrap();
        drop(engine);
        bench.disk.kill();
        bench.disk.flip(&path, offset + 50);
        let Err(OpenError::Damaged { file, offset: found, .. }) = bench.try_open() else { panic!("{path}") };
        assert_eq!((file, found), (path.clone(), offset));
        bench.disk.flip(&path, offset + 50);
        assert_eq!(stored(&bench.open()), ids(0..batches));
    }
}

#[test]
fn a_lost_record_of_the_end_or_a_lost_slot_is_missed() {
    for path in ["journal/end", "journal/slot-1"] {
        let bench = Bench::new(options());
        let engine = bench.open();
        send(&engine, 0).unwrap();
        engine.close().unwrap();
        drop(engine);
        bench.disk.kill();
        bench.disk.remove(path).unwrap();
        let Err(OpenError::Damaged { file, .. }) = bench.try_open() else { panic!("{path}") };
        assert_eq!(file, path);
    }
}

#[test]
fn a_failed_record_of_the_end_stops_nothing() {
    for fails_at_write in [true, false] {
        let bench = Bench::new(options());
        let engine = bench.open();
        send(&engine, 0).unwrap();
        if fails_at_write {
            bench.disk.fail_write_in(1)
        } else {
            bench.disk.fail_sync_in(1)
        }
        assert!(engine.record_end().is_err());
        send(&engine, 1).unwrap();
        assert_eq!(engine.health(), StoreHealth::Up);
        drop(engine);
        bench.disk.crash(1);
        let engine = bench.open();
        assert_eq!(stored(&engine), ids(0..2));
        engine.record_end().unwrap();
    }
}
