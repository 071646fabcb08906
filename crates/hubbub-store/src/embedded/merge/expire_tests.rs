//! What is too old, deleted or erased goes, and takes its bytes with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom, SteadyClock, TRUST_AFTER};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Change, MessageType, Op, OpBatch, Outcome, RoomChange, RoomSettings, Send, Timestamp};

use crate::embedded::disk::FileDisk;
use crate::embedded::segment::segment_path;
use crate::embedded::{Engine, EngineOptions};

pub(super) const SECOND: i64 = 1_000_000;

pub(super) struct TestStore {
    dir: tempfile::TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) engine: Engine,
}

impl TestStore {
    fn new(retention: Option<Duration>) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self::opened(tempfile::tempdir().unwrap(), clock, retention)
    }

    /// The same with what else is to be chosen.
    pub(super) fn with(options: EngineOptions) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        let options = EngineOptions { slot_bytes: 16 * 1024, reserve_bytes: 0, ..options };
        Self::with_options(tempfile::tempdir().unwrap(), clock, options)
    }

    fn opened(dir: tempfile::TempDir, clock: Arc<ManualClock>, retention: Option<Duration>) -> Self {
        let options = EngineOptions {
            slot_bytes: 16 * 1024,
            retention,
            reserve_bytes: 0,
            scrub_interval: Duration::ZERO,
            ..EngineOptions::default()
        };
        Self::with_options(dir, clock, options)
    }

    fn with_options(dir: tempfile::TempDir, clock: Arc<ManualClock>, options: EngineOptions) -> Self {
        let disk = Arc::new(FileDisk::new(dir.path()));
        let engine = Engine::open(options, disk, Arc::clone(&clock) as _, &SeededRandom::new(5)).unwrap();
        Self { dir, clock, engine }
    }

    fn apply(&self, op: &Op<'_>) -> Outcome {
        let mut batch = OpBatch::default();
        batch.push(op);
        let outcome = self.engine.apply(&batch).unwrap()[0].clone();
        self.work();
        outcome
    }

    pub(super) fn work(&self) {
        while self.engine.seal_step().unwrap() || self.engine.merge_step().unwrap() {}
    }

    pub(super) fn change(&self, what: RoomChange<'_>) -> Outcome {
        self.apply(&Op::Change(Change { by: None, what }))
    }

    pub(super) fn keep_for(&self, room: &str, seconds: u64) {
        let settings = RoomSettings { retention_s: Some(seconds), ..RoomSettings::default() };
        self.change(RoomChange::PutRoom { room, settings });
    }

    pub(super) fn send(&self, room: &str, user: &str, id: u64) {
        assert!(matches!(self.try_send(room, user, id), Outcome::Stored(_)));
    }

    fn try_send(&self, room: &str, user: &str, id: u64) -> Outcome {
        let (id, timestamp) = (format!("{room}-{user}-{id}"), Timestamp::from_micros(7));
        let text = format!("text of {id} {}", "x".repeat(60));
        let kind = MessageType::Text;
        let send = Send { room, user, id: &id, username: None, text: &text, kind, timestamp };
        self.apply(&Op::Send(send))
    }

    /// Sends so much elsewhere that every slot is written anew.
    pub(super) fn fill(&self, ids: std::ops::Range<u64>) {
        for id in ids {
            self.send("elsewhere", "nobody", id);
        }
    }

    pub(super) fn count(&self, room: &str) -> u64 {
        let query = HistoryQuery {
            cursor: Cursor::After(0),
            from: None,
            to: None,
            limit: usize::MAX,
            bytes_max: usize::MAX,
        };
        let read = self.engine.history(room, &query).unwrap().messages.len() as u64;
        assert_eq!(self.engine.room(room).unwrap().messages, read);
        read
    }

    /// Messages of a room that stand in segments, seen or not.
    pub(super) fn in_segments(&self, room: &str) -> u64 {
        let view = self.engine.shared.view();
        view.segments.iter().filter_map(|segment| segment.room(room)).map(|part| u64::from(part.count)).sum()
    }
}

fn holds(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holds(&path, needle)
        } else {
            std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle)
        }
    })
}

#[test]
fn a_room_keeps_messages_as_long_as_it_says() {
    let store = TestStore::new(Some(Duration::from_secs(100)));
    store.keep_for("short", 10);
    store.keep_for("long", 10_000);
    for id in 0..200 {
        for room in ["short", "usual", "long"] {
            store.send(room, "ada", id);
        }
        store.clock.advance_micros(SECOND);
    }
    store.fill(0..2_000);
    // An eighth of the shortest time may pass before somebody looks.
    let (short, usual) = (store.count("short"), store.count("usual"));
    assert!((10..=12).contains(&short), "{short}");
    assert!((100..=200).contains(&usual), "{usual}");
    assert_eq!(store.count("long"), 200);
    store.clock.advance_micros(150 * SECOND);
    store.work();
    assert_eq!((store.count("short"), store.count("usual"), store.count("long")), (0, 0, 200));
    assert_eq!((store.in_segments("short"), store.in_segments("usual")), (0, 0));
    store.clock.advance_micros(20_000 * SECOND);
    store.work();
    assert_eq!((store.count("long"), store.in_segments("long")), (0, 0));
    store.send("long", "ada", 200);
    let room = store.engine.room("long").unwrap();
    assert_eq!((room.head, room.oldest, room.messages), (201, 201, 1));
}

#[test]
fn what_is_erased_or_deleted_leaves_the_disk() {
    let store = TestStore::new(None);
    for id in 0..300 {
        store.send("kept", "ada", id);
        store.send("kept", "eve", id);
        store.send("gone", "ada", id);
    }
    store.fill(0..2_000);
    assert_eq!((store.count("kept"), store.in_segments("kept")), (600, 600));
    assert!(holds(store.dir.path(), b"eve"));
    while matches!(store.change(RoomChange::EraseUser { user: "eve" }), Outcome::Erased { more: true, .. }) {}
    store.change(RoomChange::DeleteRoom { room: "gone" });
    assert_eq!((store.count("kept"), store.in_segments("kept")), (300, 300));
    assert_eq!(store.in_segments("gone"), 0);
    // The record of an erasure names the user too, until its slot is written anew.
    store.fill(2_000..4_000);
    assert!(!holds(store.dir.path(), b"eve"), "something of the erased user is left on the disk");
}

const YEAR: i64 = 365 * 24 * 3_600 * SECOND;

#[test]
fn messages_of_a_wrong_clock_grow_old_too() {
    let store = TestStore::new(Some(Duration::from_secs(100)));
    store.keep_for("short", 10);
    store.clock.step_micros(YEAR);
    for id in 0..100 {
        store.send("usual", "ada", id);
        store.send("short", "ada", id);
    }
    store.fill(0..300);
    store.clock.step_micros(-YEAR);
    store.fill(300..600);
    store.clock.advance_micros(2 * SECOND);
    store.work();
    assert_eq!((store.count("usual"), store.count("short")), (100, 100), "they are as young as any");
    store.clock.advance_micros(20 * SECOND);
    store.work();
    assert_eq!((store.count("usual"), store.count("short")), (100, 0));
    store.send("late", "ada", 1);
    store.fill(600..900);
    store.clock.advance_micros(85 * SECOND);
    store.work();
    assert_eq!(store.count("late"), 1, "a merge makes nothing older");
    store.clock.advance_micros(150 * SECOND);
    store.work();
    assert_eq!((store.count("usual"), store.in_segments("usual")), (0, 0));
}

/// Whatever the settings and the clock of a later start say: its id may have been used anew.
#[test]
fn what_was_hidden_is_not_seen_again() {
    for (retention_after, step) in [(0, 0), (1_000_000, 0), (10, -3_600 * SECOND)] {
        for is_sealed in [false, true] {
            let store = TestStore::new(None);
            store.keep_for("short", 10);
            store.send("short", "ada", 0);
            store.send("short", "ada", 1);
            if is_sealed {
                store.fill(0..300);
            }
            store.clock.advance_micros(20 * SECOND);
            store.work();
            assert_eq!(store.count("short"), 0);
            store.send("short", "ada", 0);
            store.keep_for("short", retention_after);
            let TestStore { dir, clock, engine } = store;
            drop(engine);
            clock.step_micros(step);
            let store = TestStore::opened(dir, clock, None);
            let room = store.engine.room("short").unwrap();
            assert_eq!(
                (room.head, room.oldest, room.messages),
                (3, 3, 1),
                "{retention_after} {step} {is_sealed}"
            );
            assert_eq!(store.count("short"), 1);
            let again = store.try_send("short", "ada", 0);
            assert!(matches!(again, Outcome::Duplicate(receipt) if receipt.seq == 3), "{again:?}");
        }
    }
}

/// A setting that was changed counts at once, also for what was found too old just before.
#[test]
fn a_room_that_is_to_keep_its_messages_after_all_keeps_them() {
    let store = TestStore::new(None);
    store.keep_for("short", 10);
    store.send("short", "ada", 0);
    store.fill(0..300);
    store.clock.advance_micros(20 * SECOND);
    let Engine { shared, writer, .. } = &store.engine;
    // Before it was looked for old messages, and after.
    let retentions = shared.retentions();
    store.keep_for("short", 1_000);
    let (expired, _) = shared.find_expired(retentions).unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(writer.lock().hide(shared, &expired), Ok(false));
    assert_eq!(store.count("short"), 1);
    store.keep_for("short", 10);
    let (expired, _) = shared.find_expired(shared.retentions()).unwrap();
    assert_eq!(expired.len(), 1);
    store.keep_for("short", 1_000);
    assert_eq!(writer.lock().hide(shared, &expired), Ok(false));
    assert_eq!(store.count("short"), 1);
}

/// However long it took until the next look before.
#[test]
fn a_retention_that_is_set_counts_soon() {
    let store = TestStore::new(None);
    store.send("short", "ada", 0);
    store.clock.advance_micros(2 * SECOND);
    store.keep_for("short", 1);
    store.clock.advance_micros(SECOND / 8);
    store.work();
    assert_eq!(store.count("short"), 0);
}

#[test]
fn a_clock_that_proves_nothing_deletes_nothing() {
    let store = TestStore::new(Some(Duration::from_secs(100)));
    store.send("usual", "ada", 1);
    store.fill(0..300);
    let TestStore { dir, clock, engine } = store;
    drop(engine);
    clock.step_micros(YEAR);
    let open = || {
        let options = EngineOptions {
            slot_bytes: 16 * 1024,
            retention: Some(Duration::from_secs(100)),
            reserve_bytes: 0,
            ..EngineOptions::default()
        };
        let steady = SteadyClock::new(Arc::clone(&clock) as _, TRUST_AFTER);
        let disk = Arc::new(FileDisk::new(dir.path()));
        Engine::open(options, disk, Arc::new(steady), &SeededRandom::new(6)).unwrap()
    };
    let engine = open();
    while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
    assert_eq!(engine.room("usual").unwrap().messages, 1, "a year has passed, or the clock is wrong");
    drop(engine);
    clock.step_micros(-YEAR - 3_600 * SECOND);
    let engine = open();
    while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
    assert_eq!(engine.room("usual").unwrap().messages, 1, "the clock is an hour behind");
    drop(engine);
    clock.step_micros(YEAR);
    let engine = open();
    clock.advance_micros(61 * SECOND);
    while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
    assert_eq!(engine.room("usual").unwrap().messages, 0, "a year has passed");
}

/// Its messages may stay a little longer, those of others may not.
#[test]
fn a_room_that_cannot_be_read_holds_up_no_other() {
    let store = TestStore::new(None);
    store.keep_for("broken", 10);
    store.keep_for("short", 10);
    store.send("broken", "ada", 0);
    store.send("short", "ada", 0);
    store.fill(0..300);
    let segments = store.engine.shared.view().segments.clone();
    let number = segments.iter().find(|segment| segment.room("broken").is_some()).unwrap().number();
    let path = store.dir.path().join(segment_path(number));
    let mut bytes = std::fs::read(&path).unwrap();
    // In the first block, which has the first room.
    bytes[40] ^= 1;
    std::fs::write(path, bytes).unwrap();
    store.clock.advance_micros(20 * SECOND);
    store.work();
    assert_eq!(store.count("short"), 0);
    assert!(store.engine.shared.status.damage.has(&segment_path(number)));
}
