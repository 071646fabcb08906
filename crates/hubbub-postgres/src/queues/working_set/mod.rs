//! The part of the queues that a batch touches, in memory.
//!
//! It is filled by [`super::load`], changed by [`super::decide`], and what has changed is written by [`super::write`].
//! Whoever needs more than is there says so by a [`LoadRequest`] before changing anything, and decides again when it is there.
//!
//! Invariants
//! - What is in the working set is newer than the database, and is never replaced by it.
//! - Of each [`Place`] it holds everything up to the frontier that says so, but for what has expired by now; and everything of
//!   each group.

mod change;
mod find;
mod members;
mod message;
mod pending;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use hubbub_core::QueueRules;

use crate::options::BroadcastOptions;

pub(crate) use find::{signed, unsigned};
pub(crate) use members::{Members, chunk_of};
pub(crate) use message::{Message, State};
pub(crate) use pending::{Pending, PendingChunk, Recipients};

/// Stands for anybody among the numbers of clients.
pub(crate) const ANYBODY: i32 = 0;

/// One receiver's part of a queue: the queue, and whom its messages wait for.
pub(crate) type ReceiverQueue = (i32, i32);

/// Messages that may be taken, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) queue: i32,
    pub(crate) receiver: i32,
    /// Of this sender alone.
    pub(crate) sender: Option<i32>,
    pub(crate) newest_first: bool,
}

/// Messages that come one after another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    pub(crate) queue: i32,
    pub(crate) receiver: i32,
    pub(crate) group: Arc<str>,
}

/// How far something is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frontier {
    /// Id of the last that was loaded.
    pub(crate) to: i64,
    /// There is no more behind it.
    pub(crate) is_complete: bool,
}

/// What must be there before an operation can be decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LoadRequest {
    /// The queue of this name, if there is one.
    Queue(Arc<str>),
    /// A queue of this name, made if there is none.
    NewQueue(Arc<str>),
    /// How many messages a queue holds.
    Counts(i32),
    /// More of a place.
    Place(Place),
    /// More of a group.
    Group(GroupKey),
    /// More of the oldest of a queue that are not on lease.
    Oldest(i32),
    /// Texts of these messages.
    Texts(Vec<i64>),
    /// So many ids without a gap.
    Ids(i64),
    /// All clients that are registered, and that they stay so.
    Registered,
    /// How many clients are registered, and that nobody else changes it.
    ClientCount,
    /// Copies for this client.
    Copies(i32),
    /// Messages of a queue that were delivered before.
    Returned(i32),
    /// Dead letters of a queue; one alone, or more of the oldest that may go back.
    DeadLetters(i32, Option<i64>),
    /// The highest number that named a queue.
    HighestNamed,
}

/// Why an operation is not done: it is refused, or something is needed first.
pub(crate) type Stop = hubbub_core::rules::queues::Stop<LoadRequest>;

impl From<LoadRequest> for Stop {
    fn from(need: LoadRequest) -> Self {
        Self::LoadRequest(need)
    }
}

/// What a batch adds to the counts of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) messages: i64,
    pub(crate) delayed: i64,
    pub(crate) leased: i64,
    pub(crate) bytes: i64,
    pub(crate) sent: i64,
    pub(crate) done: i64,
    pub(crate) dropped: i64,
    pub(crate) dead: i64,
}

/// One queue, locked.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) is_dead_letter: bool,
    pub(crate) settings: QueueRules,
    /// Nothing may be written that is due before this.
    pub(crate) seen_to: i64,
    /// What was due up to now is in the working set.
    pub(crate) is_current: bool,
    /// Messages and bytes of texts, when the batch began.
    pub(crate) held: Option<(i64, i64)>,
    pub(crate) added: Counts,
    /// Settings, or what it is for, are to be written.
    pub(crate) is_changed: bool,
    /// Made by this batch, and no outcome says so yet.
    pub(crate) is_new: bool,
    /// Deleted by this batch.
    pub(crate) is_deleted: bool,
}

/// Whoever sends or takes. New ones have numbers below 0 until they are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) no: i32,
    pub(crate) is_registered: bool,
    pub(crate) is_changed: bool,
}

impl Client {
    /// Clients in the order in which they registered first, those who have no number yet last.
    pub(crate) fn order(&self) -> (bool, u32) {
        (self.no < ANYBODY, self.no.unsigned_abs())
    }
}

/// A sender's id for a message.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) first: i64,
    pub(crate) content: i64,
    pub(crate) sent_at: i64,
    pub(crate) copies: u32,
    pub(crate) is_new: bool,
}

/// Messages of a group that are not over, as far as they are loaded.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) alive: BTreeSet<i64>,
    pub(crate) frontier: Option<Frontier>,
}

/// Who is notified that a message may be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WakeTarget {
    /// The outcome of the operation under way.
    Outcome,
    /// The next sweep.
    #[default]
    Sweep,
}

/// The part of the queues that a batch touches.
#[derive(Debug, Default)]
pub(crate) struct WorkingSet {
    pub(crate) now: i64,
    /// What is removed for good, or forgotten, goes by this. Never later than `now`.
    pub(crate) proven: i64,
    /// The history that receipts belong to.
    pub(crate) epoch: u64,
    pub(crate) autoregister: bool,
    pub(crate) queues: HashMap<i32, Queue>,
    pub(crate) names: BTreeMap<Arc<str>, i32>,
    /// Names that were looked for.
    pub(crate) queried_names: HashSet<Arc<str>>,
    /// Every queue there is was looked for.
    pub(crate) has_all_queues: bool,
    pub(crate) clients: HashMap<Arc<str>, Client>,
    /// Names of clients that were looked for.
    pub(crate) queried_clients: Vec<Arc<str>>,
    pub(crate) client_names: HashMap<i32, Arc<str>>,
    /// Who is registered in the database, by chunks, with the lock that keeps it so.
    pub(crate) registered: Option<BTreeMap<i32, Members>>,
    /// How many messages to everybody have copies that are not made, and how many copies, when the batch looked.
    pub(crate) pending_before: (i64, i64),
    pub(crate) broadcasts: BroadcastOptions,
    /// Messages to everybody whose copies are not all made, by id, and whom they are for.
    pub(crate) pending: BTreeMap<i64, Pending>,
    pub(crate) pending_chunks: BTreeMap<(i64, i32), PendingChunk>,
    /// Of queues: the last id up to which all copies were made because they are the oldest.
    pub(crate) pending_oldest: HashMap<i32, i64>,
    /// Clients that are new.
    pub(crate) new_clients: i32,
    /// Clients that may be registered at a time.
    pub(crate) clients_max: i64,
    /// Clients that were registered when the batch began.
    pub(crate) client_count: Option<i64>,
    /// By how many there are more since.
    pub(crate) clients_added: i64,
    pub(crate) messages: HashMap<i64, Message>,
    pub(crate) ready: HashMap<ReceiverQueue, BTreeSet<i64>>,
    pub(crate) groups: HashMap<GroupKey, Group>,
    pub(crate) frontiers: HashMap<Place, Frontier>,
    pub(crate) oldest: HashMap<i32, Frontier>,
    /// Of dead letters that may go back.
    pub(crate) dead_letters: HashMap<i32, Frontier>,
    /// Low-water marks of the per-receiver queues that were loaded.
    pub(crate) low_water_marks: HashMap<ReceiverQueue, i64>,
    /// Messages that may be taken now and could not before, the oldest of each per-receiver queue.
    pub(crate) lowered: HashMap<ReceiverQueue, i64>,
    pub(crate) known: HashMap<(i32, String), Known>,
    /// Of messages with ids of their senders: how many are gone.
    pub(crate) known_gone: HashMap<i64, i64>,
    pub(crate) ids: Range<i64>,
    /// Bytes of copies that the batch has made.
    pub(crate) copied_bytes: i64,
    /// Bytes of payloads that takes of the batch hold.
    pub(crate) taken_bytes: u64,
    /// Bytes of texts that messages of places were read with, at most.
    pub(crate) texts_read: u64,
    /// Sends that are still to be decided.
    pub(crate) sends_left: i64,
    pub(crate) highest_named: Option<i64>,
    pub(crate) has_named: bool,
    /// What was loaded once and for all.
    pub(crate) loaded: HashSet<LoadRequest>,
    pub(crate) wake_target: WakeTarget,
    pub(crate) freed: Vec<i64>,
    /// Queues that have something new to take and are not reported yet.
    pub(crate) woken: BTreeSet<i32>,
    /// The same, by batches before.
    pub(crate) woken_before: BTreeSet<Arc<str>>,
    /// Whether there is more to see to than was loaded.
    pub(crate) has_more_due: bool,
    /// A sweep has reported everything there was.
    pub(crate) has_swept: bool,
}
