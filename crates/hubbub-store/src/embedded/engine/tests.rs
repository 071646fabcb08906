//! The engine on the real file system.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::store::{ApplyError, Cursor, HistoryQuery, ReadError, StoreHealth};
use hubbub_core::{KvOp, KvOutcome, MessageType, Op, OpBatch, Outcome, Refusal, Send, Timestamp};

use crate::embedded::disk::FileDisk;
use crate::embedded::sim::SimDisk;
use crate::embedded::{Engine, EngineOptions};

fn options() -> EngineOptions {
    EngineOptions { slot_bytes: 16 * 1024, ..EngineOptions::default() }
}

fn open(dir: &std::path::Path, options: EngineOptions) -> Engine {
    open_at(dir, options, &Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000))))
}

fn open_at(dir: &std::path::Path, options: EngineOptions, clock: &Arc<ManualClock>) -> Engine {
    let clock = Arc::clone(clock);
    Engine::open(options, Arc::new(FileDisk::new(dir)), clock, &SeededRandom::new(5)).unwrap()
}

fn batch(room: &str, ids: std::ops::Range<u64>) -> OpBatch {
    let mut batch = OpBatch::default();
    for id in ids {
        let (id, text) = (format!("m{id}"), format!("text {id} {}", "x".repeat(80)));
        batch.push(&Op::Send(Send {
            room,
            user: "ada",
            id: &id,
            username: Some("Ada"),
            text: &text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(7),
        }));
    }
    batch
}

fn query(cursor: Cursor) -> HistoryQuery {
    HistoryQuery { cursor, from: None, to: None, limit: 1_000, bytes_max: usize::MAX }
}

fn ids(engine: &Engine, room: &str, cursor: Cursor) -> Vec<String> {
    let page = engine.history(room, &query(cursor)).unwrap();
    page.messages.iter().map(|message| message.sent.id.to_owned()).collect()
}

/// Clients may have been further than the copy.
#[test]
fn a_copied_directory_begins_an_epoch_once() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    let put = |engine: &Engine| {
        let mut batch = OpBatch::default();
        let put = KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition: Condition::Always };
        batch.push(&Op::Kv(put));
        match engine.apply(&batch).unwrap()[0] {
            Outcome::Kv(KvOutcome::Put { revision, .. }) => revision,
            ref other => panic!("{other:?}"),
        }
    };
    let (epoch, revision) = {
        let engine = open(&here, options());
        engine.apply(&batch("a", 0..10)).unwrap();
        (engine.epoch(), put(&engine))
    };
    if std::fs::metadata(&here).unwrap().created().is_err() {
        return;
    }
    let copied = std::process::Command::new("cp").arg("-a").args([&here, &there]).status().unwrap();
    assert!(copied.success());
    assert_eq!(open(&here, options()).epoch(), epoch);
    let of_copy = {
        let engine = Engine::open(
            options(),
            Arc::new(FileDisk::new(&there)),
            Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_100_000_000))),
            &SeededRandom::new(6),
        );
        let engine = engine.unwrap();
        assert_eq!(ids(&engine, "a", Cursor::After(0)).len(), 10);
        assert!(
            put(&engine) > revision + 1_000,
            "revisions that the original gives now are not given by the copy"
        );
        engine.epoch()
    };
    assert_ne!(of_copy, epoch);
    let again = open(&there, options());
    assert_eq!((again.epoch(), ids(&again, "a", Cursor::After(0)).len()), (of_copy, 10));
    assert!(put(&again) > revision + 1_000);
}

#[test]
fn what_was_sent_is_read_before_and_after_seal_and_restart() {
    let dir = tempfile::tempdir().unwrap();
    let expected: Vec<String> = (0..400).map(|id| format!("m{id}")).collect();
    {
        let engine = open(dir.path(), options());
        for part in 0..40 {
            engine.apply(&batch("lobby", part * 10..part * 10 + 10)).unwrap();
            engine.apply(&batch("other", part..part + 1)).unwrap();
            if part % 2 == 0 {
                while engine.seal_step().unwrap() {}
            }
        }
        assert!(engine.figures().segments > 2);
        assert_eq!(ids(&engine, "lobby", Cursor::After(0)), expected);
        assert_eq!(engine.figures().messages, 440);
    }
    let engine = open(dir.path(), options());
    assert_eq!(ids(&engine, "lobby", Cursor::After(0)), expected);
    assert_eq!(ids(&engine, "lobby", Cursor::Before(u64::MAX)), expected);
    assert_eq!(ids(&engine, "lobby", Cursor::After(399)), ["m399"]);
    let room = engine.room("other").unwrap();
    assert_eq!((room.head, room.oldest, room.messages), (40, 1, 40));
    assert!(matches!(engine.history("none", &query(Cursor::After(0))), Err(ReadError::UnknownRoom)));
    for part in 0..40 {
        let again = engine.apply(&batch("lobby", part * 10..part * 10 + 10)).unwrap();
        assert!(
            again.iter().zip(part * 10 + 1..).all(|(outcome, seq)| {
                matches!(outcome, Outcome::Duplicate(receipt) if receipt.seq == seq)
            })
        );
    }
    while engine.seal_step().unwrap() {}
    let mut other = OpBatch::default();
    for text in ["one", "one", "two"] {
        other.push(&Op::Send(Send {
            room: "lobby",
            user: "eve",
            id: "new",
            username: None,
            text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(7),
        }));
    }
    let outcomes = engine.apply(&other).unwrap();
    assert!(matches!(outcomes[0], Outcome::Stored(receipt) if receipt.seq == 401));
    assert!(matches!(outcomes[1], Outcome::Duplicate(receipt) if receipt.seq == 401));
    assert_eq!(outcomes[2], Outcome::Refused(Refusal::IdReused { seq: 401 }));
}

#[test]
fn the_filter_forgets_what_was_dropped_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let options = EngineOptions { retention: Some(Duration::from_secs(40)), ..options() };
    let engine = open_at(dir.path(), options, &clock);
    let filter_ids = || engine.shared.status.filter_ids.load(Ordering::Relaxed);
    let mut filter_ids_max = 0;
    for part in 0..400 {
        engine.apply(&batch("lobby", part * 10..part * 10 + 10)).unwrap();
        filter_ids_max = filter_ids_max.max(filter_ids());
        clock.advance_micros(1_000_000);
        // The writer goes on between the building of a filter and its taking over.
        if part % 3 == 0 {
            while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
        }
        let kept = engine.room("lobby").unwrap();
        let oldest_part = (kept.oldest - 1).div_ceil(10);
        let again = engine.apply(&batch("lobby", oldest_part * 10..oldest_part * 10 + 10)).unwrap();
        assert!(again.iter().all(|outcome| matches!(outcome, Outcome::Duplicate(_))), "{part}: {again:?}");
    }
    assert!(
        filter_ids_max < 2_500,
        "{filter_ids_max} ids in the filter, 4,000 were sent, about 450 are kept"
    );
}

fn simulated(disk: &SimDisk) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let engine = Engine::open(options(), Arc::new(disk.clone()), clock.clone(), &SeededRandom::new(5));
    (engine.unwrap(), clock)
}

/// Sends 300 bytes at a time until that is refused, with background work in between; at most `count` times.
fn send_until_refused(engine: &Engine, count: u64, work: impl Fn()) -> (u64, Option<ApplyError>) {
    for id in 0..count {
        if let Err(refusal) = engine.apply(&batch("lobby", id..id + 1)) {
            return (id, Some(refusal));
        }
        work();
    }
    (count, None)
}

/// A seal must not give a byte that the disk changed a new checksum.
#[test]
fn what_a_disk_changed_is_not_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), options());
    while engine.seal_step().unwrap() {}
    let (sent, _) = send_until_refused(&engine, 1_000, || ());
    while engine.prepare_step().unwrap() {}
    let slot = dir.path().join("journal/slot-1");
    let written = std::fs::read(&slot).unwrap();
    let last = written.windows(8).rposition(|bytes| bytes == b"xxxxxxxx").unwrap();
    let change = |at: usize| {
        let mut changed = written.clone();
        changed[at] ^= 1;
        std::fs::write(&slot, changed).unwrap();
    };
    // A text, and a number that says which batch stands there.
    for at in [last, 32] {
        change(at);
        let error = engine.seal_step().unwrap_err();
        assert!(error.is_damage() && error.to_string().contains("journal/slot-1"), "byte {at}: {error}");
        assert_eq!(engine.figures().segments, 0);
    }
    std::fs::write(&slot, &written).unwrap();
    while engine.seal_step().unwrap() {}
    assert!(engine.figures().segments > 0);
    assert_eq!(ids(&engine, "lobby", Cursor::After(0)).len() as u64, sent);
}

/// Nothing that is sealed later depends on a slot that could not be made.
#[test]
fn two_slots_are_enough_when_no_further_one_can_be_made() {
    let disk = SimDisk::new();
    let (engine, _) = simulated(&disk);
    while engine.seal_step().unwrap() {}
    // The slot's name stays unknown to the disk, and is not tried again.
    let failing = || {
        if engine.shared.slots.wants_one() && disk.failed_syncs() == 0 {
            disk.fail_sync_in(2);
        }
        while matches!(engine.seal_step(), Ok(true)) {}
    };
    assert_eq!(send_until_refused(&engine, 1_000, failing), (1_000, None));
    assert_eq!(disk.failed_syncs(), 1);
    assert!(engine.figures().segments > 2);
    assert_eq!(engine.health(), StoreHealth::Up);
}

#[test]
fn a_store_that_has_no_slot_to_go_on_to_says_so() {
    let disk = SimDisk::new();
    let (engine, _) = simulated(&disk);
    disk.fail_sync_in(2);
    engine.seal_step().unwrap_err();
    assert_eq!(engine.health(), StoreHealth::Up, "the slot that is there takes writes");
    let (sent, refusal) = send_until_refused(&engine, 1_000, || ());
    assert!(sent > 10 && refusal == Some(ApplyError::Overloaded), "{sent}: {refusal:?}");
    engine.seal_step().unwrap_err();
    let StoreHealth::Failed(reason) = engine.health() else { panic!("it says it takes writes") };
    assert!(reason.contains("journal") && reason.contains("restart"), "{reason}");
    assert!(matches!(engine.apply(&batch("lobby", 0..1)), Err(ApplyError::Unavailable { .. })));
}

/// Nobody does background work here, as if the disk did not finish it.
#[test]
fn a_seal_that_hangs_is_told_of() {
    let disk = SimDisk::new();
    let (engine, clock) = simulated(&disk);
    let (_, refusal) = send_until_refused(&engine, 1_000, || ());
    assert_eq!(refusal, Some(ApplyError::Overloaded));
    clock.advance_micros(4_000_000);
    assert_eq!(engine.health(), StoreHealth::Up, "it may only be slow");
    clock.advance_micros(1_000_000);
    engine.apply(&batch("lobby", 0..1)).unwrap_err();
    let StoreHealth::Unreachable(reason) = engine.health() else { panic!("it says it takes writes") };
    assert!(reason.contains("for 5 s"), "{reason}");
    while engine.seal_step().unwrap() {}
    assert_eq!(engine.health(), StoreHealth::Up);
}

#[test]
fn a_small_disk_is_told_before_it_is_full() {
    let sim = SimDisk::new();
    let options = || EngineOptions { reserve_bytes: 1 << 20, ..options() };
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let open =
        || Engine::open(options(), Arc::new(sim.clone()), clock.clone(), &SeededRandom::new(5)).unwrap();
    assert_eq!(open().shared.little_space(), None);
    // Space for the reserve, and a part of a slot.
    sim.set_bytes_max(Some(sim.bytes() + (1 << 20) + 8 * 1024));
    let engine = open();
    assert_eq!(engine.health(), StoreHealth::Up);
    let warning = engine.shared.little_space().unwrap();
    assert!(warning.contains("store.embedded.disk_reserve") && warning.contains("1048576"), "{warning}");
}
