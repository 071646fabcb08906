//! Counts without counting equal counts by counting, before and after a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::UserHistoryQuery;
use hubbub_core::store::{Cursor, HistoryQuery, LastMessages};
use hubbub_core::{Change, MessageRun, MessageType, Op, OpBatch, Outcome, RoomChange, Send, Timestamp};
use proptest::prelude::*;

use super::{Position, Rooms};
use crate::embedded::disk::Disk;
use crate::embedded::record::ChangeRecord;
use crate::embedded::segment::segment_path;
use crate::embedded::sim::SimDisk;
use crate::embedded::{Engine, EngineOptions};

const ROOMS: [&str; 2] = ["r0", "r1"];
const USERS: [&str; 3] = ["u0", "u1", "u2"];

#[derive(Debug, Clone)]
enum Step {
    Send(usize, usize),
    Join(usize, usize),
    Leave(usize, usize),
    Read(usize, usize, u64),
    Erase(usize),
    Floor(usize, u64),
    Delete(usize),
    Snapshot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (room, user) = (0..ROOMS.len(), 0..USERS.len());
    let step = prop_oneof![
        8 => (room.clone(), user.clone()).prop_map(|(room, user)| Step::Send(room, user)),
        2 => (room.clone(), user.clone()).prop_map(|(room, user)| Step::Join(room, user)),
        1 => (room.clone(), user.clone()).prop_map(|(room, user)| Step::Leave(room, user)),
        4 => (room.clone(), user.clone(), 0..40_u64).prop_map(|(room, user, seq)| Step::Read(room, user, seq)),
        1 => user.prop_map(Step::Erase),
        1 => (room.clone(), 0..40_u64).prop_map(|(room, seq)| Step::Floor(room, seq)),
        1 => room.prop_map(Step::Delete),
        1 => Just(Step::Snapshot),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The same in lists that are counted.
#[derive(Debug, Default)]
struct Model {
    kept: BTreeMap<usize, BTreeMap<u64, usize>>,
    heads: BTreeMap<usize, u64>,
    marks: BTreeMap<(usize, usize), u64>,
    existing: BTreeSet<usize>,
}

impl Model {
    fn head(&self, room: usize) -> u64 {
        self.heads.get(&room).copied().unwrap_or(0)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Send(room, user) => {
                let seq = self.head(room) + 1;
                self.heads.insert(room, seq);
                self.existing.insert(room);
                self.kept.entry(room).or_default().insert(seq, user);
                if let Some(mark) = self.marks.get_mut(&(room, user)).filter(|mark| **mark + 1 == seq) {
                    *mark = seq;
                }
            }
            Step::Join(room, user) if self.existing.contains(&room) => {
                let head = self.head(room);
                self.marks.entry((room, user)).or_insert(head);
            }
            Step::Join(..) | Step::Snapshot => {}
            Step::Leave(room, user) => {
                self.marks.remove(&(room, user));
            }
            Step::Read(room, user, seq) => {
                let head = self.head(room);
                if let Some(mark) = self.marks.get_mut(&(room, user)) {
                    *mark = (*mark).max(seq.min(head));
                }
            }
            Step::Erase(user) => {
                self.kept.values_mut().for_each(|kept| kept.retain(|_, sender| *sender != user));
                self.marks.retain(|(_, member), _| *member != user);
            }
            Step::Floor(room, low_watermark) => {
                self.kept.entry(room).or_default().retain(|seq, _| *seq > low_watermark);
            }
            Step::Delete(room) => {
                self.existing.remove(&room);
                self.kept.remove(&room);
                self.marks.retain(|(of, _), _| *of != room);
            }
        }
    }
}

fn change(what: RoomChange<'_>) -> ChangeRecord<'_> {
    ChangeRecord::Room(Change { by: None, what })
}

fn enter(rooms: &mut Rooms, model: &Model, step: &Step) {
    match *step {
        Step::Send(room, user) => {
            let number = rooms.intern(ROOMS[room]);
            rooms.store(number, model.head(room) + 1, 5, || Some(USERS[user]));
        }
        Step::Join(room, user) => {
            if rooms.find(ROOMS[room]).is_some() {
                rooms.apply(&change(RoomChange::AddMember { room: ROOMS[room], user: USERS[user] }));
            }
        }
        Step::Leave(room, user) => {
            rooms.apply(&change(RoomChange::RemoveMember { room: ROOMS[room], user: USERS[user] }));
        }
        Step::Read(room, user, seq) => {
            let read =
                rooms.apply(&change(RoomChange::MarkRead { room: ROOMS[room], user: USERS[user], seq }));
            assert!(matches!(read, Outcome::Read(_)));
        }
        Step::Erase(user) => {
            let own = |room: usize| {
                let kept = model.kept.get(&room).into_iter().flatten();
                kept.filter(move |(_, sender)| **sender == user).map(|(seq, _)| *seq).collect()
            };
            let seqs = (0..ROOMS.len()).map(|room| (ROOMS[room], own(room))).collect();
            rooms.apply(&ChangeRecord::Erasure { user: USERS[user], is_last: true, seqs });
        }
        Step::Floor(room, low_watermark) => {
            if let Some(number) = rooms.number(ROOMS[room]) {
                rooms.raise_low_watermark(number, low_watermark);
            }
        }
        Step::Delete(room) => {
            rooms.apply(&change(RoomChange::DeleteRoom { room: ROOMS[room] }));
        }
        Step::Snapshot => {
            rooms.at = Position { journal: 3, batch: 4 };
            *rooms = Rooms::decode(&rooms.encode()).unwrap();
            assert_eq!(rooms.at, Position { journal: 3, batch: 4 });
        }
    }
}

fn compare(rooms: &Rooms, model: &Model) {
    let mut all = 0;
    for (index, name) in ROOMS.iter().enumerate() {
        let found = rooms.find(name);
        assert_eq!(found.is_some(), model.existing.contains(&index));
        let kept = model.kept.get(&index).cloned().unwrap_or_default();
        all += kept.len() as u64;
        let Some((number, room)) = found else { continue };
        assert_eq!((room.head, room.messages()), (model.head(index), kept.len() as u64));
        assert_eq!(room.oldest(), kept.keys().next().copied().unwrap_or(room.head + 1));
        for seq in 1..=room.head {
            assert_eq!(rooms.is_hidden(number, seq), !kept.contains_key(&seq), "{name} {seq}");
            assert_eq!(room.hidden().visible(seq, room.head), kept.range(seq..).count() as u64);
        }
        for (user, user_name) in USERS.iter().enumerate() {
            let mark = model.marks.get(&(index, user)).copied();
            assert_eq!(rooms.mark(number, user_name), mark, "{user_name} in {name}");
            if let Some(mark) = mark {
                assert_eq!(room.unread(mark), kept.range(mark + 1..).count() as u64);
            }
        }
    }
    assert_eq!((rooms.messages, rooms.known), (all, model.existing.len() as u64));
    assert_eq!(rooms.memberships > 0, !model.marks.is_empty());
    // Nobody is remembered who is a member of nothing.
    let members: BTreeSet<_> = model.marks.keys().map(|(_, user)| user).collect();
    assert_eq!(rooms.users.known(), members.len());
    for (user, name) in USERS.iter().enumerate() {
        let joined = rooms.rooms_of(name, None, 9).into_iter().map(|(_, room, mark)| (&*room.name, mark));
        let expected = model.marks.iter().filter(|((_, member), _)| *member == user);
        assert!(joined.eq(expected.map(|((room, _), mark)| (ROOMS[*room], *mark))), "rooms of {name}");
    }
}

proptest! {
    #[test]
    fn counts_agree_with_counting(steps in steps()) {
        let (mut rooms, mut model) = (Rooms::default(), Model::default());
        for step in &steps {
            enter(&mut rooms, &model, step);
            model.apply(step);
            compare(&rooms, &model);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Rooms::decode(&bytes);
    }
}

fn apply(engine: &Engine, op: &Op<'_>) {
    let mut batch = OpBatch::default();
    batch.push(op);
    let outcome = engine.apply(&batch).unwrap()[0].clone();
    assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

/// Sends a message that fills a good part of a slot. Says how many segments there are then.
fn send(engine: &Engine, room: &str, id: &str) -> usize {
    let (text, timestamp) = ("x".repeat(2_000), Timestamp::from_micros(7));
    let kind = MessageType::Text;
    apply(engine, &Op::Send(Send { room, user: "ada", id, username: None, text: &text, kind, timestamp }));
    while engine.seal_step().unwrap() {}
    engine.shared.view().segments.len()
}

/// Whether the newest message of a room stands in a slot or in a segment, nothing before that is read, so what is damaged
/// there is in nobody's way.
#[test]
fn the_newest_message_of_a_room_is_read_alone() {
    let sim = SimDisk::new();
    let options = EngineOptions { slot_bytes: 16 * 1024, reserve_bytes: 0, ..EngineOptions::default() };
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let engine = Engine::open(options, disk, clock, &SeededRandom::new(5)).unwrap();
    let mut ids = (0..).map(|number| format!("m{number}"));
    let damage = |number| sim.flip(&segment_path(number), 40);
    let newest = || {
        let rooms = engine.user_rooms("ada", None, 9, LastMessages::Read).unwrap();
        assert_eq!(rooms.last.len(), 1);
        rooms.last.iter().next().unwrap().sent.id.to_owned()
    };

    while send(&engine, "r", &ids.next().unwrap()) < 2 {}
    // From here on, one message of the room is all that its newest part holds: what has more is not gone behind anyway.
    while send(&engine, "elsewhere", &ids.next().unwrap()) < 3 {}
    apply(&engine, &Op::Change(Change { by: None, what: RoomChange::AddMember { room: "r", user: "ada" } }));
    send(&engine, "r", "in a slot");
    let numbers: Vec<u64> = engine.shared.view().segments.iter().map(|segment| segment.number()).collect();
    numbers.iter().for_each(|number| damage(*number));
    assert_eq!(newest(), "in a slot");

    while send(&engine, "elsewhere", &ids.next().unwrap()) < 4 {}
    assert_eq!(newest(), "in a slot", "which is a segment now");
}

/// What is durable is in the slots a moment before its room says so. Who reads then must not see it: a subscription from there would
/// be told to begin again.
#[test]
fn nothing_is_read_behind_the_head_of_its_room() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let engine = Engine::open(EngineOptions::default(), disk, clock, &SeededRandom::new(5)).unwrap();
    for id in ["m1", "m2", "m3"] {
        send(&engine, "r", id);
    }
    let behind_by_one = |rooms: &mut Rooms| {
        let number = rooms.find("r").unwrap().0;
        rooms.entries.get_mut(number).unwrap().head = 2;
    };
    behind_by_one(&mut engine.shared.rooms.write());
    let seqs = |messages: &MessageRun| messages.iter().map(|message| message.seq).collect::<Vec<_>>();
    for (cursor, wanted) in
        [(Cursor::After(0), vec![1, 2]), (Cursor::After(2), vec![]), (Cursor::Before(u64::MAX), vec![1, 2])]
    {
        let query = HistoryQuery { cursor, from: None, to: None, limit: 9, bytes_max: usize::MAX };
        let page = engine.history("r", &query).unwrap();
        assert_eq!((seqs(&page.messages), page.head, page.more), (wanted, 2, false), "{query:?}");
    }
    let query = UserHistoryQuery { before: None, from: None, to: None, limit: 9, bytes_max: usize::MAX };
    assert_eq!(seqs(&engine.user_history("ada", &query).unwrap().messages), [1, 2]);
}

/// A message is in the view before the head of its room says so: else somebody who reads to the head would miss it.
#[test]
fn a_head_is_published_last() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let engine = Engine::open(EngineOptions::default(), disk, clock, &SeededRandom::new(5)).unwrap();
    send(&engine, "r", "m1");
    let is_viewed = std::thread::scope(|scope| {
        // Nobody can change a head meanwhile.
        let rooms = engine.shared.rooms.read();
        scope.spawn(|| send(&engine, "r", "m2"));
        let mut looks = (0..2_000).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            engine.shared.view().messages()
        });
        let is_viewed = looks.any(|messages| messages == 2);
        drop(rooms);
        is_viewed
    });
    assert!(is_viewed, "after 10 s");
}

/// Whoever reads on from the head of each page misses nothing, while messages are written, slots change and are sealed.
#[test]
fn a_reader_beside_the_writer_misses_nothing() {
    const MESSAGES: u64 = 10_000;
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let options = EngineOptions { slot_bytes: 16 * 1024, reserve_bytes: 0, ..EngineOptions::default() };
    let engine = Engine::open(options, disk, clock, &SeededRandom::new(5)).unwrap();
    send(&engine, "r", "m1");
    let read_all = || {
        let mut cursor = 0;
        while cursor < MESSAGES {
            let after = Cursor::After(cursor);
            let query =
                HistoryQuery { cursor: after, from: None, to: None, limit: 50, bytes_max: usize::MAX };
            let page = engine.history("r", &query).unwrap();
            let seqs: Vec<u64> = page.messages.iter().map(|message| message.seq).collect();
            let expected: Vec<u64> = (cursor + 1..).take(seqs.len()).collect();
            assert_eq!(seqs, expected);
            let last = cursor + seqs.len() as u64;
            assert!(page.more || last == page.head, "{last} of {}", page.head);
            cursor = last;
        }
    };
    std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(read_all));
        for number in 2..=MESSAGES {
            send(&engine, "r", &format!("m{number}"));
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Whoever asks for it again and again does not fill the journal.
#[test]
fn erasing_nobody_writes_nothing() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let options = EngineOptions { reserve_bytes: 0, ..EngineOptions::default() };
    let engine = Engine::open(options, disk, clock, &SeededRandom::new(5)).unwrap();
    send(&engine, "r", "m1");
    apply(&engine, &Op::Change(Change { by: None, what: RoomChange::AddMember { room: "r", user: "eve" } }));
    let erase = |user: &str| {
        let (mut batch, before) = (OpBatch::default(), sim.operations());
        batch.push(&Op::Change(Change { by: None, what: RoomChange::EraseUser { user } }));
        let outcome = engine.apply(&batch).unwrap().remove(0);
        (outcome, sim.operations() > before)
    };
    let erased = |messages| Outcome::Erased { messages, more: false };
    assert_eq!(erase("nobody"), (erased(0), false));
    assert_eq!(erase("eve"), (erased(0), true), "a member who never wrote anything");
    assert_eq!(erase("ada"), (erased(1), true));
    for user in ["eve", "ada"] {
        assert_eq!(erase(user), (erased(0), false), "{user} again");
    }
}
