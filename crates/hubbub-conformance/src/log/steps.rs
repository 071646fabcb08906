//! What cases are made of: records of a log, and what can be seen of rooms apart from their numbers.

use std::sync::Arc;

use hubbub_core::log_position::Attached;
use hubbub_core::store::{ApplyError, Cursor, LastMessages, RoomInfo};
use hubbub_core::{
    Change, LogIdentity, LogPosition, Op, OpBatch, Outcome, Receipt, RoomChange, Store, Timestamp, UserId,
    log_partition,
};

use super::super::model::{KeptMessage, Model, Post};
use super::super::steps::{room_id, unbounded};

/// Partitions of the log.
pub(super) const PARTITIONS: u32 = 3;
/// Rooms of the cases. The number behind the letter says which partition has the room; see [`log_partition::of_room`].
pub(super) const ROOMS: [&str; 4] = ["a0", "c0", "d1", "p2"];
/// Users of the cases.
pub(super) const USERS: [&str; 4] = ["ada", "bob", "eve", "zoe"];

/// The log of the cases.
pub(super) fn identity() -> LogIdentity {
    LogIdentity { id: "cluster/topic".to_owned(), partitions: PARTITIONS }
}

/// What a record holds.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Send(Post),
    Change(Change<'static>),
}

/// A record of the log.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) position: LogPosition,
    pub(super) content: Content,
}

impl Record {
    pub(super) fn new(partition: u32, offset: u64, appended_micros: i64, content: Content) -> Self {
        let appended_at = Timestamp::from_micros(appended_micros);
        Self { position: LogPosition { partition, offset, appended_at }, content }
    }

    pub(super) fn op(&self) -> Op<'_> {
        match &self.content {
            Content::Send(post) => Op::Send(post.as_send()),
            Content::Change(change) => Op::Change(*change),
        }
    }
}

/// Attaches the log of the cases.
pub(super) async fn attach(store: &Arc<dyn Store>) -> Attached {
    store.log().expect("the store takes operations from a log").attach(identity()).await.unwrap()
}

/// The next offsets that a store wants.
pub(super) async fn next_offsets(store: &Arc<dyn Store>) -> Vec<u64> {
    let next = store.log().expect("the store takes operations from a log").next_offsets().await.unwrap();
    next.into_iter().map(Result::unwrap).collect()
}

/// Sends a batch, with positions or without.
pub(super) async fn try_apply(store: &Arc<dyn Store>, batch: OpBatch) -> Result<Vec<Outcome>, ApplyError> {
    let (store, count) = (store.clone(), batch.len());
    let outcomes = tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap()?;
    assert_eq!(outcomes.len(), count, "there must be one outcome for each operation");
    Ok(outcomes)
}

/// Sends records in batches of at most `size` operations. Exclusive ones are alone, erasures go on until nothing is left.
pub(super) async fn replay(store: &Arc<dyn Store>, records: &[Record], size: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(records.len());
    while let Some(first) = records.get(outcomes.len()) {
        let mut batch = OpBatch::default();
        for record in records.iter().skip(outcomes.len()).take(size) {
            let is_exclusive = record.op().is_exclusive();
            if is_exclusive && !batch.is_empty() {
                break;
            }
            batch.push_at(&record.op(), record.position);
            if is_exclusive {
                break;
            }
        }
        let done = try_apply(store, batch).await;
        let done = done.unwrap_or_else(|error| panic!("{first:?} and so on: {error}"));
        if !matches!(done[..], [Outcome::Erased { more: true, .. }]) {
            outcomes.extend(done);
        }
    }
    outcomes
}

/// Executes records in the model. Returns what a store may answer, apart from the numbers.
pub(super) fn execute(model: &mut Model, records: &[Record]) -> Vec<Outcome> {
    let one = |record: &Record| match &record.content {
        Content::Send(post) => {
            model.apply(std::slice::from_ref(post), record.position.appended_at, true).remove(0)
        }
        Content::Change(change) => change_one(model, change, record.position.partition),
    };
    records.iter().map(one).map(without_numbers).collect()
}

/// A change as its record in a partition makes it: an erasure erases in the rooms of that partition.
pub(super) fn change_one(model: &mut Model, change: &Change<'_>, partition: u32) -> Outcome {
    match change.what {
        RoomChange::EraseUser { user } => {
            model.erase(user, |room| log_partition::of_room(room, PARTITIONS) == partition)
        }
        _ => model.change(change),
    }
}

/// The outcome without numbers of messages.
pub(super) fn without_numbers(outcome: Outcome) -> Outcome {
    let unnumbered = |receipt: Receipt| Receipt { seq: 0, gap: 0, ..receipt };
    match outcome {
        Outcome::Stored(receipt) => Outcome::Stored(unnumbered(receipt)),
        Outcome::Duplicate(receipt) => Outcome::Duplicate(unnumbered(receipt)),
        Outcome::Read(mark) => Outcome::Read(hubbub_core::ReadMark { seq: 0, head: 0, ..mark }),
        Outcome::Refused(hubbub_core::Refusal::IdReused { .. }) => {
            Outcome::Refused(hubbub_core::Refusal::IdReused { seq: 0 })
        }
        // How many messages one step erases is the store's choice.
        Outcome::Erased { more, .. } => Outcome::Erased { messages: 0, more },
        other => other,
    }
}

/// What can be seen of a room, apart from its numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    info: Option<RoomInfo>,
    messages: Vec<KeptMessage>,
    /// For each user the unread messages, or that it is no member.
    unread: Vec<Option<u64>>,
}

impl Seen {
    fn new(info: Option<RoomInfo>, messages: Vec<KeptMessage>, unread: Vec<Option<u64>>) -> Self {
        let unnumbered = |kept| KeptMessage { seq: 0, ..kept };
        let info = info.map(|info| RoomInfo { head: 0, oldest: 0, ..info });
        Self { info, messages: messages.into_iter().map(unnumbered).collect(), unread }
    }
}

/// The numbers of the messages that a store holds, by room.
pub(super) type Numbers = Vec<Vec<u64>>;

/// Everything that a store tells of the rooms of the cases, and the numbers, which always increase.
pub(super) async fn observe(store: &Arc<dyn Store>) -> (Vec<Seen>, Numbers) {
    let (mut seen, mut numbers) = (Vec::new(), Vec::new());
    let mut users = Vec::new();
    for user in USERS {
        users.push(
            store.user_rooms(UserId::new(user).unwrap(), None, 99, LastMessages::Leave).await.unwrap().rooms,
        );
    }
    for room in ROOMS {
        let info = store.room(room_id(room)).await.unwrap();
        let page = store.history(room_id(room), unbounded(Cursor::After(0))).await;
        let messages: Vec<KeptMessage> = page
            .map(|page| page.messages.iter().map(|message| KeptMessage::of(&message)).collect())
            .unwrap_or_default();
        let seqs: Vec<u64> = messages.iter().map(|kept| kept.seq).collect();
        assert!(seqs.is_sorted_by(|one, next| one < next), "numbers of {room}: {seqs:?}");
        let unread = users.iter().map(|rooms| {
            rooms.iter().find(|joined| joined.info.room.as_str() == room).map(|joined| joined.unread)
        });
        seen.push(Seen::new(info, messages, unread.collect()));
        numbers.push(seqs);
    }
    (seen, numbers)
}

/// The same of the model.
pub(super) fn expected(model: &Model) -> Vec<Seen> {
    let unread = |room: &str, user: &str| {
        let mark = model.state(room).members.get(user).copied();
        mark.filter(|_| model.rooms.contains_key(room)).map(|mark| model.unread(room, mark))
    };
    let seen = |room: &&str| {
        let unread = USERS.iter().map(|user| unread(room, user)).collect();
        Seen::new(model.info(room), model.room(room).to_vec(), unread)
    };
    ROOMS.iter().map(seen).collect()
}
