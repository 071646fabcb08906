//! Queues: states and order in memory, operations in the journal, payloads on the disk.
//!
//! Path of an operation: it is decided by the rules all stores share, against the state as all operations before it left
//! it ([`decide`]) → its effects are written as records into the batch's block, and applied at once ([`apply`]), so that
//! the next operation of the batch sees them → with the block they become durable → readers ([`read`]) see them. A start
//! reads the last checkpoint ([`checkpoint_read`]) and applies the records behind it by the same function, so there is one way to
//! every state.
//!
//! Path of a payload: it stands in the journal's slot, in the record of its message; memory knows only where. When the slot
//! is sealed and the message still waits, it moves to a file of payloads ([`payload_files`]).
//!
//! Path of a sender's id: it is known by its message as long as that waits, and behind that by itself, until its time
//! ([`settled`]).
//! Path of a message to everybody: its ids are reserved and its copies counted at once; they are made bit by bit, or when
//! somebody looks for them ([`pending`]).
//!
//! What runs out (delays, leases, times to live) is no record: it follows from the state and the time ([`advance`]). Only
//! what it leads to is: a message cleared away, or moved to a dead-letter queue.
//!
//! Invariants
//! - Every waiting message is in the order of its queue, and in the sets that its state asks for ([`order`]); nothing
//!   that is gone is in any of them, so nothing dead is ever passed over.
//! - Ids are given in increasing order and never again in one history of the store, which is what an epoch names. Numbers
//!   of queues and clients are not either.
//! - A receipt has the epoch and counts all leases of a message, whatever queues it was in, so it names one delivery for
//!   ever. What `deliveries_max` limits is counted anew in each queue.
//! - Between a decision and the end of the journal's sync the state is ahead of the disk. New messages and queues are hidden until
//!   then by [`Visible`]; states and counts are not, so that readers need not wait for the disk. No checkpoint is taken meanwhile
//!   ([`shared`]).

mod advance;
mod apply;
mod checkpoint;
mod checkpoint_files;
mod checkpoint_read;
mod decide;
mod entry;
mod order;
mod payload_files;
mod pending;
mod read;
mod select;
mod settled;
mod shared;
mod source;
mod table;
mod time;

#[cfg(test)]
mod clock_tests;
#[cfg(test)]
mod over_tests;
#[cfg(test)]
mod pending_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unreadable_tests;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;
use hubbub_core::Timestamp;
use hubbub_core::kv::first_revision;
use hubbub_core::queue::{DeadReason, LeaseReceipt};
use siphasher::sip128::SipHasher13;

use super::error::MaintainError;
use super::options::EngineOptions;
use super::rooms::Position;
use super::tail::hash::MixState;
use advance::TimeOut;
pub(crate) use checkpoint::{Copied, Files};
pub(crate) use checkpoint_files::QUEUES_DIR;
pub(crate) use checkpoint_read::read_checkpoint;
pub(crate) use decide::{PAYLOADS_MAX, QueueBatch};
use entry::{Entry, NEVER, Slab};
use pending::PendingBroadcast;
pub(crate) use pending::QueueLimits;
use roaring::RoaringBitmap;
pub(crate) use select::ROUNDS_MAX;
use settled::{SettledId, SettledIds};
pub(crate) use shared::QueueShared;
use source::Sources;
use table::Queue;
use time::{Now, Times};

/// Why and from where a message is in a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dead {
    origin: Arc<str>,
    reason: DeadReason,
    deliveries: u32,
}

/// A message to everybody that has an id of its sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Broadcast {
    copies: u32,
    /// Copies that still wait.
    waiting: u32,
    /// The entry that remembers the id: that of the first copy.
    entry: u32,
}

/// Up to which numbers everything is durable. Readers see nothing that is newer.
#[derive(Debug, Clone, Copy, Default)]
struct Visible {
    id: u64,
    queue: u32,
}

/// Who is told that a message may be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum WakeTarget {
    /// Nobody: the outcome says so itself.
    Nobody,
    /// The outcome of the operation under way.
    Outcome,
    /// The next sweep.
    #[default]
    Sweep,
}

/// A message's order among those of one queue for one receiver: queue, receiver, id.
type InQueue = (u32, u32, u64);

/// A message's order among those of one sender to one receiver: receiver, sender, queue, and the halves of the id, so
/// that it takes no more than five numbers.
type FromSender = [u32; 5];

/// Of messages, by their ids.
type IdMap<T> = HashMap<u64, T, MixState>;

#[derive(Debug, Default)]
pub(crate) struct Queues {
    hasher: SipHasher13,
    times: Times,
    slab: Slab,
    /// Waiting messages by id.
    ids: HashTable<u32>,
    /// Waiting messages by the ids of their senders.
    known: HashTable<u32>,
    /// What may be taken.
    ready: BTreeSet<InQueue>,
    /// The same by sender.
    by_sender: BTreeSet<FromSender>,
    /// Messages of groups, in the order in which they may be taken; see [`order::in_group`].
    groups: BTreeSet<order::InGroup>,
    /// Ends of delays and leases.
    timed: BTreeSet<(i64, u64)>,
    /// Ends of lives.
    expiring: BTreeSet<(i64, u64)>,
    /// What waits to be moved to a dead-letter queue.
    exhausted: BTreeSet<u64>,
    /// What waits to be cleared away.
    expired: BTreeSet<u64>,
    /// Copies of messages to everybody: receiver, id.
    copies: BTreeSet<(u32, u64)>,
    broadcasts: IdMap<Broadcast>,
    /// Messages to everybody whose copies are not all made, in the order of their ids.
    pending: VecDeque<PendingBroadcast>,
    dead: IdMap<Dead>,
    /// Deliveries that waiting messages had in other queues, before they were moved. Receipts count them, too.
    earlier_deliveries: IdMap<u64>,
    /// The history of the store, for receipts.
    epoch: u64,
    /// Senders' ids of messages that are gone.
    settled: SettledIds,
    sources: Sources,
    queues: HashMap<u32, Queue, MixState>,
    queue_numbers: HashMap<Arc<str>, u32>,
    /// Queues by name, for lists.
    queue_order: BTreeSet<Arc<str>>,
    /// Deleted queues whose messages still take space.
    deleted: Vec<Queue>,
    /// Names of whoever sent, took or registered. A client's number is its place, from 1.
    clients: Vec<Arc<str>>,
    client_numbers: HashMap<Arc<str>, u32>,
    registered: RoaringBitmap,
    /// Who registered or went by the batch under way.
    client_changes: Vec<(Arc<str>, bool)>,
    next_id: u64,
    next_queue: u32,
    /// The highest number that ever named a queue.
    highest_named: u64,
    visible: Visible,
    /// The last message that was there at the start.
    loaded: u64,
    time_out: Option<TimeOut>,
    /// Messages of those that were given back with a delay since, as long as time out of service may have to be counted.
    returned: HashSet<u64>,
    wake_target: WakeTarget,
    freed: Vec<u32>,
    /// Queues from which something may be taken since the last sweep.
    woken: BTreeSet<u32>,
    /// How far the journal is applied.
    pub(crate) at: Position,
    /// Messages given to dead-letter queues, and messages dropped, since the store was opened.
    given_up: u64,
    dropped: u64,
    /// Counts what changed, and how much of that the checkpoint has that the manifest names.
    changes: u64,
    kept_changes: u64,
    /// What `changes` was when time out of service had been counted.
    counted_at: u64,
    limits: QueueLimits,
}

impl Queues {
    /// None yet. The key belongs to the data directory.
    pub(crate) fn new(key: [u64; 2], clock: &dyn hubbub_core::Clock) -> Self {
        let [first, second] = key;
        Self {
            hasher: SipHasher13::new_with_keys(first, second),
            times: Times::begin(clock),
            next_id: 1,
            next_queue: 1,
            ..Self::default()
        }
    }

    pub(crate) fn set_options(&mut self, options: &EngineOptions) {
        self.limits = options.queue_limits();
        self.settled.memory_max = options.queue_ids_in_memory;
    }

    /// Goes on with ids that were certainly not given before, as [revisions of keys](first_revision) do: consumers remember ids of
    /// what they have done.
    pub(crate) fn jump_ids(&mut self, now: Timestamp) {
        self.next_id = first_revision(self.next_id, now);
    }

    fn find(&self, id: u64) -> Option<(u32, Entry)> {
        let number = *self.ids.find(mix(id), |number| self.slab.get(*number).id == id)?;
        Some((number, self.slab.get(number)))
    }

    /// The receipt of a message's delivery, which is the how manieth in its queue.
    fn receipt(&self, id: u64, deliveries: u32) -> LeaseReceipt {
        let earlier = self.earlier_deliveries.get(&id).copied().unwrap_or(0);
        LeaseReceipt { id, delivery: earlier.saturating_add(deliveries.into()), epoch: self.epoch }
    }

    /// The entry of a waiting message that has a sender's id.
    fn find_known(&self, known_as: [u64; 2]) -> Option<(u32, Entry)> {
        let is_it = |number: &u32| {
            let entry = self.slab.get(*number);
            entry.known_as == known_as && entry.is_known()
        };
        let number = *self.known.find(known_as[0], is_it)?;
        Some((number, self.slab.get(number)))
    }

    /// What is remembered of the message that had a sender's id, whether it waits or is gone.
    fn find_sent(&self, known_as: [u64; 2], now: Now) -> Result<Option<SettledId>, MaintainError> {
        let Some((_, entry)) = self.find_known(known_as) else {
            return self.settled.find(known_as, now.at);
        };
        Ok(Some(self.settled_id(&entry, NEVER)))
    }

    /// What is remembered of a message that has a sender's id, until a time.
    fn settled_id(&self, entry: &Entry, forget_at: i64) -> SettledId {
        let copies = self.broadcasts.get(&entry.id).map_or(1, |broadcast| broadcast.copies);
        SettledId::of(entry, copies, forget_at)
    }

    fn hash(&self, parts: &[&[u8]]) -> [u64; 2] {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        let hash = self.hasher.hash(&bytes).as_u64();
        // Zeros stand for none.
        [hash.0.max(1), hash.1]
    }

    fn group_hash(&self, group: &str) -> u64 {
        let [hash, _] = self.hash(&[group.as_bytes()]);
        hash
    }
}

/// Spreads an id over the table.
fn mix(id: u64) -> u64 {
    use std::hash::BuildHasher;
    MixState.hash_one(id)
}
