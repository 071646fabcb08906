//! What a store shows of its queues to the rules.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Stop;
use crate::queue::{Delivery, LeaseReceipt, QueueSend, TakeFilter};
use crate::queue_rules::QueueRules;

/// A queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueRef<'v, N> {
    /// Its number.
    pub number: N,
    /// Its name.
    pub name: &'v Arc<str>,
    /// Whether it is for dead letters.
    pub is_dead_letter: bool,
    /// Whether the store made it for this very operation.
    pub is_new: bool,
    /// What is set.
    pub rules: &'v QueueRules,
}

/// A client that was registered once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRef<N> {
    /// Its number.
    pub number: N,
    /// Whether it is registered now.
    pub is_registered: bool,
}

/// What a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Messages in any state.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

/// A message that was sent before under the same id of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Its id, or that of the first copy.
    pub id: u64,
    /// How many copies it had.
    pub copies: u32,
    /// When, in microseconds of the wall clock.
    pub sent_at: i64,
    /// Whether it says the same for the same receivers.
    pub is_same: bool,
}

/// A lease that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What proves it.
    pub receipt: LeaseReceipt,
    /// Deliveries on lease in its queue, this one included.
    pub deliveries: u32,
}

/// A message that may be taken. `H` is by what the store finds it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<N, H> {
    /// Its id.
    pub id: u64,
    /// Its queue.
    pub queue: N,
    /// Who sent it.
    pub sender: N,
    /// Deliveries on lease so far, in this queue.
    pub deliveries: u32,
    /// Bytes of its payload.
    pub bytes: u64,
    /// By what the store finds it again.
    pub handle: H,
}

/// Messages with their payloads.
#[derive(Debug)]
pub struct ReadMessages<N, H> {
    /// Those that can be read, not on lease yet.
    pub read: Vec<(Candidate<N, H>, Delivery)>,
    /// How many cannot be read. The store offers them to nobody any more.
    pub unreadable: usize,
}

/// What a store shows of its queues. Methods name what must be loaded first by [`Stop::LoadRequest`].
///
/// Those that take `&mut self` may reorganize what is shown (give a copy an entry of its own, set aside what cannot be
/// read), but change nothing that a repeated decision would see.
pub trait View {
    /// Numbers of queues and of clients.
    type Number: Copy + Ord + std::fmt::Debug;
    /// By what a repeated message is known.
    type Fingerprint<'a>: Copy;
    /// By what the store finds a chosen message again.
    type Handle: Copy;
    /// What must be loaded before an operation can be decided.
    type LoadRequest;

    /// Time of the decision, in microseconds of the wall clock.
    fn now(&self) -> i64;

    /// Whether whoever sends or takes is registered by that.
    fn autoregisters(&self) -> bool;

    /// The queue of a name.
    fn queue(&self, name: &str) -> Found<Option<QueueRef<'_, Self::Number>>, Self>;

    /// The queue of a number.
    fn queue_of(&self, number: Self::Number) -> Option<QueueRef<'_, Self::Number>>;

    /// The number for a queue that there is not, when the decision has made so many others.
    fn new_queue(&self, name: &str, made: u32) -> Found<Self::Number, Self>;

    /// The highest number that ever named a queue; 0 = none.
    fn highest_named(&self) -> Found<u64, Self>;

    /// What a queue holds.
    fn held(&self, queue: Self::Number) -> Found<Held, Self>;

    /// The client of a name.
    fn client(&self, name: &str) -> Option<ClientRef<Self::Number>>;

    /// The number for a client that there is not.
    fn new_client(&self) -> Found<Self::Number, Self>;

    /// Whether one more client may be registered.
    fn has_room_for_client(&self) -> Found<bool, Self>;

    /// How many clients are registered, the sender excepted.
    fn receivers_but(&self, sender: &str) -> Found<u32, Self>;

    /// Whether one more message to everybody can be taken on, with so many copies.
    fn has_room_for_broadcast(&self, send: &QueueSend<'_>, copies: u32) -> Found<bool, Self>;

    /// By what a repeat of this message is known; `None` = by nothing.
    fn fingerprint<'a>(&self, queue: Self::Number, send: &QueueSend<'a>) -> Option<Self::Fingerprint<'a>>;

    /// The message that was sent before under the same id.
    fn remembered(
        &self,
        queue: Self::Number,
        known_as: &Self::Fingerprint<'_>,
    ) -> Found<Option<Remembered>, Self>;

    /// The first of so many new ids that follow one another; one is used even for none.
    fn new_ids(&self, count: u32) -> Found<u64, Self>;

    /// Shows ids and bytes of a queue's messages that are not on lease, oldest first, until `visit` breaks.
    fn visit_oldest(
        &self,
        queue: Self::Number,
        visit: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Found<(), Self>;

    /// Up to `max` messages that may be taken now, in order; see [`super::select`].
    fn select(
        &mut self,
        wanted: &TakeFilter<'_>,
        queue: Option<Self::Number>,
        max: usize,
        through_groups: bool,
    ) -> Found<Vec<CandidateOf<Self>>, Self>;

    /// Reads the payloads of chosen messages. Stops at so many that cannot be read.
    fn read(
        &mut self,
        chosen: Vec<CandidateOf<Self>>,
        unreadable_max: usize,
    ) -> Found<ReadMessages<Self::Number, Self::Handle>, Self>;

    /// The receipt of a message's delivery, which is the how manieth in its queue.
    fn receipt(&self, message: &CandidateOf<Self>, deliveries: u32) -> Found<LeaseReceipt, Self>;

    /// When a lease ends that begins now, in microseconds of the wall clock.
    fn lease_end(&self, queue: Self::Number, lease: u64) -> i64;

    /// When a delay ends that begins now, in microseconds of the wall clock.
    fn delay_end(&self, queue: Self::Number, delay: u64) -> i64;

    /// The lease of a message of a queue, if it has not ended.
    fn lease(&self, queue: Self::Number, id: u64) -> Option<Lease>;

    /// Whether a queue holds a message, in any state.
    fn holds(&self, queue: Self::Number, id: u64) -> bool;

    /// Copies that wait for a client, in increasing order, and whether each is on lease.
    fn copies_for(&mut self, client: Self::Number) -> Found<Vec<(u64, bool)>, Self>;

    /// Shows dead letters of a queue (or the one of an `id`) with the queue each came from, oldest first, until `visit`
    /// breaks. Those on lease, expired, or from a queue that is gone are left out.
    fn visit_dead_letters(
        &self,
        queue: Self::Number,
        id: Option<u64>,
        visit: impl FnMut(u64, Self::Number) -> ControlFlow<()>,
    ) -> Found<(), Self>;

    /// Up to so many messages that have expired, in increasing order.
    fn expired(&mut self, max: usize) -> Vec<u64>;

    /// Up to so many messages whose deliveries are exhausted, with their queues, in increasing order.
    fn exhausted(&mut self, max: usize) -> Vec<(u64, Self::Number)>;
}

/// A message that a view shows.
pub type CandidateOf<V> = Candidate<<V as View>::Number, <V as View>::Handle>;

/// What a view shows, or why the decision stops.
pub type Found<T, V> = Result<T, Stop<<V as View>::LoadRequest>>;
