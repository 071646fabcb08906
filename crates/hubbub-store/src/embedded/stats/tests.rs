//! Counts while segments and tails come and go.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::ActiveUsersQuery;
use hubbub_core::store::{Cursor, HistoryQuery, ReadError};
use hubbub_core::{Change, Clock, MessageType, Op, OpBatch, RoomChange, Send, Timestamp};
use proptest::prelude::*;

use crate::embedded::disk::{Disk, FileDisk};
use crate::embedded::segment::segment_path;
use crate::embedded::{Engine, EngineOptions, MergeOptions};

const START: i64 = 1_800_000_000_000_000;
const RETENTION: Duration = Duration::from_secs(4_000);

fn options() -> EngineOptions {
    EngineOptions {
        slot_bytes: 8 * 1024,
        retention: Some(RETENTION),
        reserve_bytes: 0,
        merge: MergeOptions { segments_max: 3, fan_in: 2, bytes_max: 1 << 30 },
        ..EngineOptions::default()
    }
}

struct TestStore {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    engine: Engine,
    sent: u64,
}

impl TestStore {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let engine = Self::open(dir.path(), &clock);
        Self { dir, clock, engine, sent: 0 }
    }

    fn open(dir: &std::path::Path, clock: &Arc<ManualClock>) -> Engine {
        let disk = Arc::new(FileDisk::new(dir));
        let engine = Engine::open(options(), disk, Arc::clone(clock) as _, &SeededRandom::new(5)).unwrap();
        while engine.prepare_step().unwrap() {}
        engine
    }

    /// Sends as many messages of a few users to a few rooms.
    fn send(&mut self, messages: u64) {
        let end = self.sent + messages;
        while self.sent < end {
            let mut batch = OpBatch::default();
            for n in self.sent..end.min(self.sent + 20) {
                let (room, user) = (format!("room-{}", n * n % 5), format!("user-{}", n * 7 % 11));
                let kind = MessageType::from_u8(u8::try_from(n % 3).unwrap()).unwrap();
                let timestamp = Timestamp::from_micros(7);
                let (id, text) = (n.to_string(), "text ".repeat(usize::try_from(n % 20).unwrap()));
                let send =
                    Send { room: &room, user: &user, id: &id, username: None, text: &text, kind, timestamp };
                batch.push(&Op::Send(send));
            }
            while self.engine.prepare_step().unwrap() {}
            self.sent += self.engine.apply(&batch).unwrap().len() as u64;
        }
    }

    /// A recount finds what is counted, and that is what is kept.
    fn check(&self) {
        let audit = self.engine.audit().unwrap().value;
        assert_eq!(audit.differences, Vec::<String>::new());
        assert_eq!(audit.messages, self.engine.figures().messages);
        assert_eq!(self.engine.totals().unwrap().value.messages.total(), audit.messages);
    }

    fn count(&self) -> u64 {
        self.engine.totals().unwrap().value.messages.total()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(u64),
    Wait(i64),
    Seal,
    Merge,
    Count,
    Ask,
    Check,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u64..40).prop_map(Step::Send),
        2 => (0_i64..200_000_000).prop_map(Step::Wait),
        3 => Just(Step::Seal),
        2 => Just(Step::Merge),
        2 => Just(Step::Count),
        3 => Just(Step::Ask),
        1 => Just(Step::Check),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_happens_every_message_is_counted_once(steps in steps()) {
        let mut store = TestStore::new();
        for step in steps {
            match step {
                Step::Send(messages) => store.send(messages),
                Step::Wait(micros) => store.clock.advance_micros(micros),
                Step::Seal => drop(store.engine.seal_step().unwrap()),
                Step::Merge => drop(store.engine.merge_step().unwrap()),
                Step::Count => drop(store.engine.count_step().unwrap()),
                Step::Ask => {
                    let totals = store.engine.totals().unwrap();
                    // While something dropped is counted still, the answer says that it is an old one.
                    let kept = store.engine.figures().messages;
                    prop_assert!(totals.value.messages.total() == kept || totals.as_of < store.now());
                }
                Step::Check => store.check(),
                Step::Restart => {
                    store.engine.close().unwrap();
                    store.engine = TestStore::open(store.dir.path(), &store.clock);
                }
            }
            // Slots never run out.
            while store.engine.prepare_step().unwrap() || store.engine.figures().unsealed_slots > 2 {
                store.engine.seal_step().unwrap();
            }
        }
        store.check();
    }
}

#[test]
fn what_was_dropped_leaves_the_counts_and_as_of_says_when() {
    let mut store = TestStore::new();
    store.send(100);
    assert_eq!(store.count(), 100);
    store.clock.advance_micros(1_000_000_000);
    while store.engine.seal_step().unwrap() {}
    store.send(10);
    store.clock.advance_micros(4_000_000_000);
    assert_eq!(store.count(), 110);
    let before = Timestamp::from_micros(store.now().as_micros() - 1);
    store.clock.advance_micros(1);
    while store.engine.merge_step().unwrap() {}
    assert_eq!(store.engine.figures().messages, 10);

    let old = store.engine.totals().unwrap();
    assert_eq!((old.value.messages.total(), old.as_of), (110, before));
    assert!(store.engine.count_step().unwrap());
    let new = store.engine.totals().unwrap();
    assert_eq!((new.value.messages.total(), new.as_of), (10, store.now()));
    store.check();
}

/// Something is hidden while everything is counted for the first time.
#[test]
fn counts_that_are_outdated_from_the_start_say_when_they_were_right() {
    let mut store = TestStore::new();
    store.send(100);
    store.engine.shared.load().unwrap();
    let counted = store.now();
    store.engine.shared.rooms.write().hidings += 1;
    store.clock.advance_micros(5);
    let totals = store.engine.totals().unwrap();
    assert_eq!(totals.as_of.as_micros(), counted.as_micros() - 1);
}

/// A segment holds messages of a deleted room until it is rewritten, also behind a restart.
#[test]
fn who_wrote_only_what_is_hidden_was_not_active() {
    let mut store = TestStore::new();
    let write = |store: &TestStore, room: &str, id: &str| {
        let mut batch = OpBatch::default();
        let (kind, timestamp) = (MessageType::Text, Timestamp::from_micros(7));
        let send = Send { room, user: "ada", id, username: None, text: "hello", kind, timestamp };
        batch.push(&Op::Send(send));
        store.engine.apply(&batch).unwrap();
    };
    let begin = store.now();
    write(&store, "gone", "first");
    store.clock.advance_micros(2_000_000_000);
    let between = store.now();
    write(&store, "kept", "second");
    let seal = |store: &mut TestStore| {
        store.send(100);
        while store.engine.seal_step().unwrap() {}
    };
    seal(&mut store);
    let mut deletion = OpBatch::default();
    deletion.push(&Op::Change(Change { by: None, what: RoomChange::DeleteRoom { room: "gone" } }));
    store.engine.apply(&deletion).unwrap();
    seal(&mut store);
    store.engine.close().unwrap();
    store.engine = TestStore::open(store.dir.path(), &store.clock);
    let query = ActiveUsersQuery { from: Some(begin), to: Some(between), after: None, limit: 100 };
    let active = store.engine.active_users(&query).unwrap().value;
    assert_eq!((active.count, active.users), (0, vec![]));
}

#[test]
fn merging_changes_no_answer() {
    let mut store = TestStore::new();
    for _ in 0..12 {
        store.send(60);
        store.clock.advance_micros(1_000_000);
        while store.engine.seal_step().unwrap() {}
    }
    let before = store.engine.top_users(100).unwrap();
    let segments = store.engine.figures().segments;
    while store.engine.merge_step().unwrap() {}
    assert!(store.engine.figures().segments < segments);
    assert_eq!(store.engine.top_users(100).unwrap(), before);
    store.check();
}

#[test]
fn every_place_of_a_user_is_found() {
    let mut store = TestStore::new();
    for part in 0..12 {
        store.send(50);
        while part < 9 && store.engine.seal_step().unwrap() {}
    }
    let query =
        HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 10_000, bytes_max: usize::MAX };
    for user in (0..11).map(|n| format!("user-{n}")) {
        let mut expected = Vec::new();
        for room in ["room-0", "room-1", "room-4"] {
            let page = store.engine.history(room, &query).unwrap();
            let seqs = page.messages.iter().filter(|message| message.sent.user == user);
            expected.extend(seqs.map(|message| (room.to_owned(), message.seq)));
        }
        let places = store.engine.shared.user_places(&user, usize::MAX).unwrap();
        let rooms = store.engine.shared.rooms.read();
        let mut found: Vec<_> =
            places.iter().map(|(room, seq)| (rooms.get(*room).unwrap().name.to_string(), *seq)).collect();
        drop(rooms);
        found.sort();
        assert_eq!(found, expected, "{user}");
        assert_eq!(store.engine.shared.user_places(&user, 3).unwrap(), places[..3]);
    }
    assert_eq!(store.engine.shared.user_places("nobody", 10).unwrap(), []);
}

#[test]
fn an_audit_finds_what_is_counted_wrongly() {
    let mut store = TestStore::new();
    store.send(20);
    assert_eq!(store.count(), 20);
    {
        let shared = &store.engine.shared;
        let mut state = shared.stats.exchange();
        let user = state.summary.intern("user-3");
        let room = shared.rooms.read().number("room-1").unwrap();
        state
            .summary
            .add(&super::summary::UserHour::of(user, room, START, MessageType::Text), &"room-1".into());
    }
    let differences = store.engine.audit().unwrap().value.differences;
    for what in
        ["totals", "room room-1", "user user-3", "room and user room-1 of user-3", "hour 2027-01-15T08:00:00"]
    {
        assert!(differences.iter().any(|line| line.starts_with(what)), "{what} in {differences:#?}");
    }
    assert_eq!(differences.len(), 5, "{differences:#?}");
}

#[test]
fn damage_is_an_error_and_no_count() {
    let mut store = TestStore::new();
    store.send(200);
    while store.engine.seal_step().unwrap() {}
    let number = store.engine.shared.view().segments[0].number();
    let disk = FileDisk::new(store.dir.path());
    let file = disk.open(&segment_path(number)).unwrap();
    // The postings stand behind blocks and ids, in the middle of the file.
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let name = b"user-10";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    let users = bytes[..at].windows(name.len()).rposition(|window| window == name);
    let at = users.unwrap_or(at) as u64;
    file.write_all_at(b"x", at).unwrap();
    assert!(matches!(store.engine.totals(), Err(ReadError::Damaged { .. })));
    assert!(!store.engine.count_step().unwrap(), "nothing is counted in the background that nobody got");
    file.write_all_at(b"u", at).unwrap();
    assert_eq!(store.count(), 200);
    store.check();
}
