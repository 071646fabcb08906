//! What a decision changes.

use std::sync::Arc;

use super::space;
use crate::queue::DeadReason;
use crate::queue_rules::QueueRules;

/// Whom a message waits for, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient<N> {
    /// Whoever takes it first.
    Anyone,
    /// One client.
    One(N),
    /// Every client registered then, except the sender.
    All,
}

/// Why a message is gone without having been taken. Stores keep the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Its lease was acknowledged.
    Acknowledged = 0,
    /// It was removed by its id.
    Removed = 1,
    /// It outlived its time.
    Expired = 2,
    /// It was the oldest of too many.
    Dropped = 3,
}

/// One delivery on lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLease {
    /// The message.
    pub id: u64,
    /// Deliveries on lease in its queue, this one included.
    pub delivery: u32,
    /// How long, in microseconds.
    pub lease: u64,
}

/// A message as it was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMessage<'a, N, F> {
    /// Its id, or that of the first copy.
    pub id: u64,
    /// How many wait.
    pub copies: u32,
    /// The queue.
    pub queue: N,
    /// Who sent it.
    pub sender: N,
    /// Whom it waits for.
    pub to: Recipient<N>,
    /// By what a repeat is known.
    pub known_as: Option<F>,
    /// When, in microseconds of the wall clock.
    pub at: i64,
    /// Microseconds until it may be taken.
    pub delay: u64,
    /// Microseconds until it expires.
    pub ttl: Option<u64>,
    /// Its group.
    pub group: Option<&'a str>,
    /// The payload.
    pub text: &'a str,
}

/// One change of the queues. `N` are numbers of queues and clients, `F` is by what a repeated message is known. `at` is
/// the time of the decision, in microseconds of the wall clock; durations are microseconds from then on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of an effect says what most of its fields are")]
pub enum Effect<'a, N, F> {
    /// A queue is made, or its settings change.
    Put {
        number: N,
        name: Arc<str>,
        /// From now on it is for dead letters.
        is_dead_letter: bool,
        settings: QueueRules,
    },
    /// A queue goes, with its messages.
    Delete { number: N },
    /// A client is registered, or is not any more. Its copies go with the registration.
    Client {
        number: N,
        name: &'a str,
        /// Whether it is registered from now on.
        registered: bool,
        /// Copies that stay though the client goes, in increasing order: those on lease.
        kept: Vec<u64>,
    },
    /// A message waits, or one copy for each receiver.
    Send(NewMessage<'a, N, F>),
    /// Messages were taken away.
    Taken { at: i64, ids: Vec<u64> },
    /// Messages were taken on lease.
    Leased { at: i64, leases: Vec<NewLease> },
    /// A lease ended; the message may be taken again after a delay.
    Returned { at: i64, id: u64, delay: u64 },
    /// A lease ends so long after `at`.
    Extended { at: i64, id: u64, lease: u64 },
    /// Messages are gone without having been taken.
    Gone { at: i64, why: Removal, ids: Vec<u64> },
    /// A message goes to a dead-letter queue, which remembers what its last delivery ended with.
    Dead { id: u64, to: N, reason: DeadReason },
    /// Dead letters wait again in the queue they came from.
    Redriven { to: N, ids: Vec<u64> },
}

/// Effects of one decision in their order, and the space that is left for more.
#[derive(Debug)]
pub struct Effects<'a, N, F> {
    list: Vec<Effect<'a, N, F>>,
    /// Bytes that lists may take besides what every operation has for sure.
    spare: usize,
    /// Queues that the decision makes.
    made: u32,
    /// Bytes of the longest list that a decision was refused for.
    missing: usize,
}

impl<'a, N: Copy, F> Effects<'a, N, F> {
    /// For a batch that has so many bytes to spare for lists.
    pub const fn new(spare: usize) -> Self {
        Self { list: Vec::new(), spare, made: 0, missing: 0 }
    }

    /// The effects, in the order to apply.
    pub fn iter(&self) -> std::slice::Iter<'_, Effect<'a, N, F>> {
        self.list.iter()
    }

    /// Takes the effects, in the order to apply.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect<'a, N, F>> {
        self.list.drain(..)
    }

    /// Whether nothing changes.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes that are left.
    pub const fn spare(&self) -> usize {
        self.spare
    }

    /// Bytes that must be spare before a retry of what was refused for want of space; 0 = nothing was.
    pub const fn missing(&self) -> usize {
        self.missing
    }

    /// Whether a list of so many bytes that cannot be cut fits. One that does not is [`Self::missing`] from then on.
    pub(super) fn fits(&mut self, list: usize) -> bool {
        let fits = list <= self.spare;
        if !fits {
            self.missing = self.missing.max(list);
        }
        fits
    }

    /// Begins a decision; says what is left.
    pub(super) fn begin(&mut self) -> usize {
        self.list.clear();
        self.made = 0;
        self.spare
    }

    /// Gives up a decision that was begun with so many bytes to spare.
    pub(super) fn abandon(&mut self, spare: usize) {
        self.list.clear();
        self.spare = spare;
    }

    pub(super) fn push(&mut self, effect: Effect<'a, N, F>) {
        self.spend(space::of_list(&effect));
        self.list.push(effect);
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.spare = self.spare.saturating_sub(bytes);
    }

    /// How many of `wanted` messages a list may have, at least one, when each further one takes so many bytes.
    pub(super) fn list_max(&self, wanted: usize, each: usize) -> usize {
        wanted.min((self.spare / each).saturating_add(1))
    }

    /// Queues that this decision makes.
    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    pub(super) fn push_made(&mut self, effect: Effect<'a, N, F>) {
        self.made += 1;
        self.push(effect);
    }

    /// The queue that this decision makes, or marks, for dead letters.
    pub(super) fn dead_letter_queue(&self, wanted: &str) -> Option<N> {
        self.list.iter().find_map(|effect| match effect {
            Effect::Put { number, name, is_dead_letter: true, .. } if **name == *wanted => Some(*number),
            _ => None,
        })
    }
}
