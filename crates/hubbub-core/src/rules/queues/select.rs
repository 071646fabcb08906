//! Chooses the messages a take may have, in order.
//!
//! Available messages stand in one sorted source or in several. A heap holds the first of each; whatever is taken from it
//! is followed by the next of its source. The work grows with what is taken, not with what waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::view::Candidate;

/// Whether a message of a source may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It may be taken.
    Available,
    /// It has expired, and is not cleared away yet.
    Expired,
    /// This query may not take it.
    Hidden,
}

/// A message of an order.
pub type CandidateIn<O> = Candidate<<O as Order>::Number, <O as Order>::Handle>;

/// Available messages of a store, in sorted sources.
pub trait Order {
    /// Numbers of queues and of clients.
    type Number: Copy + Eq;
    /// By what the store finds a chosen message again.
    type Handle: Copy;
    /// A sorted list of available messages.
    type Source;
    /// What must be loaded first.
    type LoadRequest;

    /// One query passes over so many expired messages at most. Behind more of them it finds nothing; the store sees to it that
    /// whoever waits looks again.
    const EXPIRED_MAX: usize;

    /// The first message of a source, or the first behind `behind`.
    fn next(&self, source: &Self::Source, behind: Option<u64>) -> Result<Option<u64>, Self::LoadRequest>;

    /// A message by its id.
    fn message(&self, id: u64) -> Option<(CandidateIn<Self>, Availability)>;

    /// The message behind this one in its group, if it could be taken were this one gone.
    fn next_in_group(
        &self,
        message: &CandidateIn<Self>,
    ) -> Result<Option<CandidateIn<Self>>, Self::LoadRequest>;
}

/// How much is wanted, and how.
#[derive(Debug, Clone, Copy)]
pub struct Query<N> {
    /// Of this sender only.
    pub sender: Option<N>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// So many messages at most.
    pub max: usize,
    /// So many bytes of payloads at most, but one message at least.
    pub bytes_max: u64,
    /// As if each message were gone when the next is chosen, so that the next of its group follows.
    pub through_groups: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Selected<N, H> {
    /// Messages in order.
    pub chosen: Vec<Candidate<N, H>>,
    /// Expired messages that were passed over.
    pub expired: Vec<u64>,
}

/// Chooses messages from `sources`.
///
/// # Errors
/// More must be loaded to know the order.
pub fn select<O: Order>(
    order: &O,
    sources: &[O::Source],
    query: &Query<O::Number>,
) -> Result<Selected<O::Number, O::Handle>, O::LoadRequest> {
    let mut found = Selected { chosen: Vec::new(), expired: Vec::new() };
    if query.max == 0 {
        return Ok(found);
    }
    let key = |id: u64| if query.newest_first { !id } else { id };
    // The next message of each source; of none when it follows another of its group.
    let mut first = BinaryHeap::with_capacity(sources.len());
    for (place, source) in sources.iter().enumerate() {
        if let Some(id) = order.next(source, None)? {
            first.push(Reverse((key(id), Some(place))));
        }
    }
    let mut bytes = 0_u64;
    while let Some(Reverse((next, place))) = first.pop() {
        let id = key(next);
        let message = order.message(id);
        if let Some((_, Availability::Expired)) = message {
            found.expired.push(id);
        }
        let taken = message.filter(|(_, availability)| *availability == Availability::Available);
        let taken = taken.map(|(message, _)| message);
        if let Some(message) = taken {
            bytes = bytes.saturating_add(message.bytes);
            if !found.chosen.is_empty() && bytes > query.bytes_max {
                break;
            }
            found.chosen.push(message);
        }
        if found.chosen.len() >= query.max || found.expired.len() >= O::EXPIRED_MAX {
            break;
        }
        if let Some(source) = place.and_then(|place| sources.get(place))
            && let Some(id) = order.next(source, Some(id))?
        {
            first.push(Reverse((key(id), place)));
        }
        if let Some(message) = taken.filter(|_| query.through_groups)
            && let Some(behind) = order.next_in_group(&message)?
            && query.sender.is_none_or(|sender| sender == behind.sender)
        {
            first.push(Reverse((key(behind.id), None)));
        }
    }
    Ok(found)
}
