//! What the engine does when the disk fails, fills up or falls behind without a crash.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::backup::BackupError;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{ApplyError, Cursor, HistoryQuery, StoreHealth};
use hubbub_core::{Outcome, Refusal, Timestamp};
use hubbub_store::embedded::disk::Disk;
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Durability, Engine, EngineOptions, MergeOptions, OpenError};

use crate::model::{Sent, batch};

pub(crate) const SLOT_BYTES: u64 = 16 * 1024;

pub(crate) fn options() -> EngineOptions {
    EngineOptions { slot_bytes: SLOT_BYTES, reserve_bytes: 0, ..EngineOptions::default() }
}

pub(crate) struct Bench {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: EngineOptions,
}

impl Bench {
    pub(crate) fn new(options: EngineOptions) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self { disk: SimDisk::new(), clock, options }
    }

    pub(crate) fn try_open(&self) -> Result<Engine, OpenError> {
        let disk = Arc::new(self.disk.clone());
        Engine::open(self.options.clone(), disk, self.clock.clone(), &SeededRandom::new(7))
    }

    pub(crate) fn open(&self) -> Engine {
        self.try_open().unwrap()
    }
}

pub(crate) fn message(id: u64) -> Sent {
    Sent {
        room: "lobby".into(),
        user: "ada".into(),
        id: format!("m{id}"),
        username: None,
        text: format!("text {id} {}", "x".repeat(400)),
        timestamp: 5,
    }
}

pub(crate) fn send(engine: &Engine, id: u64) -> Result<Outcome, ApplyError> {
    engine.apply(&batch(&[message(id)])).map(|outcomes| outcomes[0].clone())
}

pub(crate) fn stored(engine: &Engine) -> Vec<String> {
    let query =
        HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 10_000, bytes_max: usize::MAX };
    let page = engine.history("lobby", &query).unwrap();
    page.messages.iter().map(|message| message.sent.id.to_owned()).collect()
}

pub(crate) fn ids(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|id| format!("m{id}")).collect()
}

/// Sends until refused; how many were taken.
pub(crate) fn fill(engine: &Engine, from: u64) -> (u64, ApplyError) {
    (from..).find_map(|id| send(engine, id).err().map(|error| (id, error))).unwrap()
}

#[test]
fn failed_sync_stops_writes_and_reads_go_on() {
    for fails_at_write in [true, false] {
        let bench = Bench::new(options());
        let engine = bench.open();
        for id in 0..5 {
            send(&engine, id).unwrap();
        }
        if fails_at_write {
            bench.disk.fail_write_in(1)
        } else {
            bench.disk.fail_sync_in(1)
        }
        assert!(matches!(send(&engine, 5), Err(ApplyError::Unconfirmed { .. })));
        assert!(matches!(send(&engine, 6), Err(ApplyError::Unavailable { .. })));
        let StoreHealth::Failed(reason) = engine.health() else { panic!("{:?}", engine.health()) };
        assert!(reason.contains("journal/slot-1"), "{reason}");
        assert_eq!(stored(&engine), ids(0..5), "what was not confirmed is not shown");
        drop(engine);
        bench.disk.crash(3);
        let engine = bench.open();
        assert!(stored(&engine).starts_with(&ids(0..5)));
        send(&engine, 5).unwrap();
        send(&engine, 6).unwrap();
        assert_eq!(stored(&engine), ids(0..7));
    }
}

/// Somebody else filled the disk to its last byte, and the server starts: what is there can be read.
#[test]
fn a_start_on_a_full_disk_reads_and_recovers() {
    let bench = Bench::new(options());
    let engine = bench.open();
    let sent = 0..40;
    for number in sent.clone() {
        send(&engine, number).unwrap();
        while engine.seal_step().unwrap() {}
    }
    drop(engine);
    for _ in 0..3 {
        bench.disk.set_bytes_max(Some(bench.disk.bytes()));
        let before = bench.disk.bytes();
        let engine = bench.open();
        assert!(matches!(engine.health(), StoreHealth::DiskFull(_)), "{:?}", engine.health());
        assert_eq!(stored(&engine), ids(sent.clone()));
        assert!(engine.seal_step().unwrap_err().is_disk_full());
        assert!(matches!(send(&engine, 0), Err(ApplyError::DiskFull { .. })));
        assert_eq!(bench.disk.bytes(), before, "nothing is removed");
    }
    bench.disk.set_bytes_max(Some(bench.disk.bytes()));
    let engine = bench.open();
    bench.disk.set_bytes_max(None);
    engine.seal_step().unwrap();
    assert_eq!(engine.health(), StoreHealth::Up);
    send(&engine, 40).unwrap();
    assert_eq!(stored(&engine), ids(0..41));
}

/// The manifest that a start on a full disk finds need not be on the disk. Until one is, not even retention writes to a slot that it
/// says is free.
#[test]
fn a_start_on_a_full_disk_keeps_what_an_older_manifest_needs() {
    let mut failed = 0;
    // The fourth sync of a seal is that of the manifest's name.
    for (sync, seed) in (4..6).flat_map(|sync| (0..8).map(move |seed| (sync, seed))) {
        let mut bench = Bench::new(options());
        let engine = bench.open();
        engine.seal_step().unwrap();
        let (sent, _) = fill(&engine, 0);
        (0..seed).for_each(|_| engine.record_end().unwrap());
        // Too little for a further slot.
        bench.disk.set_bytes_max(Some(bench.disk.bytes() + SLOT_BYTES / 2));
        bench.disk.fail_sync_in(sync);
        failed += u32::from(engine.seal_step().is_err());
        drop(engine);
        bench.disk.kill();
        bench.disk.set_bytes_max(Some(bench.disk.bytes()));
        bench.clock.advance_micros(100_000_000);
        bench.options.retention = Some(Duration::from_secs(10));
        let engine = bench.open();
        assert!(matches!(engine.health(), StoreHealth::DiskFull(_)), "{:?}", engine.health());
        let _ = engine.merge_step();
        drop(engine);
        bench.disk.crash(seed);
        bench.disk.set_bytes_max(None);
        let engine = bench.open();
        while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
        let room = engine.room("lobby").unwrap();
        assert!(room.head == sent && room.oldest > 1, "{room:?} after sync {sync}, seed {seed}");
    }
    assert_eq!(failed, 8);
}

/// What was being written when the process ended gives its space back first.
#[test]
fn a_start_on_a_full_disk_removes_what_is_unfinished() {
    let bench = Bench::new(options());
    drop(bench.open());
    bench.disk.kill();
    let left = ["segments/00000009.tmp", "kv/00000009.tmp", "queues/0000000009.tmp"];
    for path in left {
        bench.disk.create(path).unwrap().write_all_at(&[1; 10_000], 0).unwrap();
    }
    bench.disk.set_bytes_max(Some(bench.disk.bytes()));
    let engine = bench.open();
    assert_eq!(engine.health(), StoreHealth::Up);
    for path in left {
        assert!(bench.disk.open(path).is_err(), "{path}");
    }
    send(&engine, 0).unwrap();
}

/// What cannot be named any more is not written, again and again, until the disk is full.
#[test]
fn a_directory_that_cannot_be_synced_is_told_and_left_alone() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    let mut failed = 0;
    for sync in 1..12 {
        let bench = Bench::new(EngineOptions { merge, ..options() });
        let engine = bench.open();
        let mut sent = 0;
        for _ in 0..3 {
            while engine.seal_step().unwrap() {}
            sent = fill(&engine, sent).0;
        }
        bench.disk.fail_sync_in(sync);
        while engine.seal_step().is_ok_and(|sealed| sealed) {}
        // A file that could not be synced is written again, and one slot is enough to go on.
        let StoreHealth::Failed(reason) = engine.health() else { continue };
        if reason.contains("journal") {
            continue;
        }
        failed += 1;
        assert!(reason.contains("restart"), "{reason}");
        assert!(matches!(send(&engine, sent), Err(ApplyError::Unavailable { .. })));
        // There is a slot to go on to, which is made in another directory.
        let _ = engine.seal_step();
        let before = bench.disk.operations();
        for _ in 0..20 {
            assert!(engine.seal_step().is_err(), "sync {sync}");
            let _ = engine.merge_step();
        }
        assert_eq!(bench.disk.operations(), before, "sync {sync}");
        drop(engine);
        bench.disk.crash(sync);
        let engine = bench.open();
        while engine.seal_step().unwrap() {}
        assert_eq!((engine.health(), stored(&engine)), (StoreHealth::Up, ids(0..sent)));
    }
    assert!(failed >= 2, "{failed}");
}

#[test]
fn disk_full_refuses_and_recovers() {
    let bench = Bench::new(options());
    let engine = bench.open();
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + SLOT_BYTES / 2));
    assert!(engine.seal_step().unwrap_err().is_disk_full());
    assert!(matches!(engine.health(), StoreHealth::DiskFull(_)));
    assert!(matches!(send(&engine, 0), Err(ApplyError::DiskFull { .. })));
    bench.disk.set_bytes_max(None);
    engine.seal_step().unwrap();
    assert_eq!(engine.health(), StoreHealth::Up);
    send(&engine, 0).unwrap();
    assert_eq!(stored(&engine), ids(0..1));
}

#[test]
fn a_seal_without_space_loses_nothing_and_is_done_later() {
    let bench = Bench::new(options());
    let engine = bench.open();
    engine.seal_step().unwrap();
    let (sent, error) = fill(&engine, 0);
    assert_eq!(error, ApplyError::Overloaded);
    bench.disk.set_bytes_max(Some(bench.disk.bytes() + 100));
    assert!(engine.seal_step().is_err());
    assert!(matches!(send(&engine, sent), Err(ApplyError::DiskFull { .. })));
    assert_eq!(stored(&engine), ids(0..sent));
    drop(engine);
    bench.disk.kill();
    bench.disk.set_bytes_max(None);
    let engine = bench.open();
    while engine.seal_step().unwrap() {}
    send(&engine, sent).unwrap();
    assert_eq!(stored(&engine), ids(0..sent + 1));
}

#[test]
fn seals_that_fail_are_told_and_done_when_they_work_again() {
    let bench = Bench::new(options());
    let engine = bench.open();
    let mut sent = 0;
    while engine.figures().unsealed_slots < 4 {
        sent = fill(&engine, sent).0;
        engine.prepare_step().unwrap();
    }
    while engine.prepare_step().unwrap() {}
    bench.disk.fail_write_in(1);
    assert!(engine.seal_step().is_err());
    let StoreHealth::Failed(reason) = engine.health() else { panic!("{:?}", engine.health()) };
    assert!(reason.contains("segments/00000001.seg"), "{reason}");
    assert!(matches!(send(&engine, sent), Err(ApplyError::Unavailable { .. })));
    while engine.seal_step().unwrap() {}
    assert_eq!(engine.health(), StoreHealth::Up);
    send(&engine, sent).unwrap();
    assert_eq!(stored(&engine), ids(0..sent + 1));
}

#[test]
fn the_reserve_is_not_for_messages() {
    let bench = Bench::new(EngineOptions { reserve_bytes: 100_000, ..options() });
    bench.disk.set_bytes_max(Some(150_000));
    let engine = bench.open();
    send(&engine, 0).unwrap();
    bench.disk.set_bytes_max(Some(110_000));
    engine.seal_step().unwrap();
    assert!(matches!(send(&engine, 1), Err(ApplyError::DiskFull { .. })));
    let backup = engine.begin_backup("one");
    assert!(matches!(backup, Err(BackupError::Unavailable { .. })), "nor for backups: {backup:?}");
    drop(engine);
    bench.disk.kill();
    let engine = bench.open();
    assert_eq!(stored(&engine), ids(0..1), "a start works with the reserve");
    bench.disk.set_bytes_max(Some(200_000));
    engine.seal_step().unwrap();
    send(&engine, 1).unwrap();
}

#[test]
fn overload_is_answered_before_anything_stops() {
    let bench = Bench::new(options());
    let engine = bench.open();
    let (mut sent, mut refusals) = (0, 0);
    for _ in 0..10 {
        let (upto, error) = fill(&engine, sent);
        assert_eq!(error, ApplyError::Overloaded);
        refusals += 1;
        sent = upto;
        // One slot is prepared; then nothing helps but a seal.
        if !engine.seal_step().unwrap() {
            break;
        }
    }
    assert!(refusals > 4);
    assert!(engine.figures().unsealed_slots <= 4);
    while engine.seal_step().unwrap() {}
    send(&engine, sent).unwrap();
    assert_eq!(stored(&engine), ids(0..sent + 1));
}

#[test]
fn a_batch_larger_than_a_slot_is_refused_whole() {
    let bench = Bench::new(options());
    let engine = bench.open();
    let mut large = message(1);
    large.text = "x".repeat(17_000);
    let error = engine.apply(&batch(&[message(0), large])).unwrap_err();
    assert!(matches!(error, ApplyError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("does not fit a journal slot of 16384 bytes"), "{error}");
    send(&engine, 0).unwrap();
    assert_eq!(stored(&engine), ids(0..1));
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let bench = Bench::new(options());
    let engine = bench.open();
    for id in 0..10 {
        send(&engine, id).unwrap();
    }
    drop(engine);
    bench.disk.kill();
    for (path, offset) in [("journal/slot-1", 60), ("journal/slot-1", 2_000), ("MANIFEST", 30), ("FORMAT", 3)]
    {
        bench.disk.flip(path, offset);
        let Err(OpenError::Damaged { file, offset: found, .. }) = bench.try_open() else { panic!("{path}") };
        assert_eq!(file, path);
        assert!(found <= offset && offset - found < 600, "{path}: {found} for {offset}");
        bench.disk.flip(path, offset);
    }
    assert_eq!(stored(&bench.open()), ids(0..10));
}

#[test]
fn a_data_directory_without_its_manifest_is_not_a_new_one() {
    let bench = Bench::new(options());
    drop(bench.open());
    bench.disk.kill();
    hubbub_store::embedded::disk::Disk::remove(&bench.disk, "MANIFEST").unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::Damaged { file, .. }) if file == "MANIFEST"));
}

#[test]
fn rooms_do_not_spring_into_being_unless_allowed() {
    let mut bench = Bench::new(options());
    let engine = bench.open();
    send(&engine, 0).unwrap();
    drop(engine);
    bench.disk.kill();
    bench.options.autocreate = false;
    let engine = bench.open();
    assert!(matches!(send(&engine, 1), Ok(Outcome::Stored(_))));
    let other = Sent { room: "other".into(), ..message(2) };
    assert_eq!(engine.apply(&batch(&[other])).unwrap(), [Outcome::Refused(Refusal::UnknownRoom)]);
    assert!(engine.room("other").is_none());
}

#[test]
fn old_messages_go_and_numbers_go_on() {
    let retention = Duration::from_secs(800);
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    let mut bench = Bench::new(EngineOptions { retention: Some(retention), merge, ..options() });
    let mut engine = bench.open();
    for id in 0..30 {
        send(&engine, id).unwrap();
        bench.clock.advance_micros(100_000_000);
        while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
    }
    let room = engine.room("lobby").unwrap();
    assert_eq!(room.head, 30);
    // The retention time is eight messages, and groups of messages are kept for at most an eighth longer.
    assert!((20..=23).contains(&room.oldest), "{room:?}");
    assert!(matches!(send(&engine, 0), Ok(Outcome::Stored(receipt)) if receipt.seq == 31), "it is forgotten");
    bench.clock.advance_micros(2_000_000_000);
    while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
    let room = engine.room("lobby").unwrap();
    assert_eq!((room.head, room.oldest, room.messages), (31, 32, 0));
    drop(engine);
    bench.disk.crash(1);
    bench.options.retention = None;
    engine = bench.open();
    assert!(matches!(send(&engine, 7), Ok(Outcome::Stored(receipt)) if receipt.seq == 32));
}

#[test]
fn received_at_does_not_go_back_with_the_clock() {
    let bench = Bench::new(options());
    let engine = bench.open();
    let Ok(Outcome::Stored(first)) = send(&engine, 0) else { panic!() };
    bench.clock.advance_micros(-5_000_000);
    let Ok(Outcome::Stored(second)) = send(&engine, 1) else { panic!() };
    assert_eq!(second.received_at, first.received_at);
    drop(engine);
    bench.disk.kill();
    let Ok(Outcome::Stored(third)) = send(&bench.open(), 2) else { panic!() };
    assert_eq!(third.received_at, first.received_at);
}

/// Power took the middle of a journal and left the next one, as may happen where nobody waits for the disk. What is dropped then
/// stays dropped, wherever the start that does so ends.
#[test]
fn a_start_that_fails_while_it_drops_a_torn_journal_drops_all_of_it() {
    let mut failed = 0;
    for sync in 1..30 {
        let bench = Bench::new(EngineOptions { durability: Durability::Os, ..options() });
        let engine = bench.open();
        // Makes the slot for the next journal.
        while engine.seal_step().unwrap() {}
        for id in 0..60 {
            send(&engine, id).unwrap();
        }
        drop(engine);
        bench.disk.kill();
        bench.disk.flip("journal/slot-1", SLOT_BYTES / 2);
        bench.disk.fail_sync_in(sync);
        failed += u32::from(bench.try_open().is_err());
        bench.disk.kill();
        let engine = bench.open();
        let (left, room) = (stored(&engine), engine.rooms(None, 9).remove(0));
        assert!((1..36).contains(&left.len()) && left == ids(0..left.len() as u64), "{sync}: {left:?}");
        assert_eq!((room.messages, room.head >= left.len() as u64), (left.len() as u64, true), "{sync}");
        let Outcome::Stored(receipt) = send(&engine, 100).unwrap() else { panic!("{sync}") };
        assert_eq!(receipt.seq, room.head + 1, "{sync}");
    }
    assert!(failed > 2, "{failed} starts failed");
}
