//! A batch, divided among the faces.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::future::{join_all, join3};
use hubbub_core::store::ApplyError;
use hubbub_core::{Change, KvOp, Op, OpBatch, Outcome, QueueOp, Refusal, Send};

use crate::store::Postgres;

/// An operation on rooms.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoomOp<'a> {
    /// A message.
    Send(Send<'a>),
    /// A change.
    Change(Change<'a>),
}

impl<'a> RoomOp<'a> {
    fn room(&self) -> Option<&'a str> {
        match self {
            Self::Send(send) => Some(send.room),
            Self::Change(change) => change.room(),
        }
    }
}

/// Operations of one part, and where in the batch they stand.
struct Part<T> {
    places: Vec<usize>,
    ops: Vec<T>,
}

impl<T> Part<T> {
    const fn empty() -> Self {
        Self { places: Vec::new(), ops: Vec::new() }
    }

    fn push(&mut self, place: usize, op: T) {
        self.places.push(place);
        self.ops.push(op);
    }
}

/// Operations of a batch for each lane that rooms are divided among, at least: below that a second transaction costs more
/// than it brings.
const OPS_PER_LANE: usize = 128;

/// Applies a batch: each part in a transaction of its own, all at the same time. Operations of one room, of queues, and
/// of keys keep their order. Where one part fails nobody knows what became of the others, unless none was committed.
pub(crate) async fn apply(store: &Postgres, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
    let lanes = (batch.len() / OPS_PER_LANE).clamp(1, store.context.options.lanes.max(1));
    let mut rooms: Vec<Part<RoomOp<'_>>> = (0..lanes).map(|_| Part::empty()).collect();
    let mut queues: Part<QueueOp<'_>> = Part::empty();
    let mut keys: Part<KvOp<'_>> = Part::empty();
    for (place, op) in batch.iter().enumerate() {
        let op = match op {
            Op::Send(send) => RoomOp::Send(send),
            Op::Change(change) => RoomOp::Change(change),
            Op::Queue(op) => {
                queues.push(place, op);
                continue;
            }
            Op::Kv(op) => {
                keys.push(place, op);
                continue;
            }
        };
        if let Some(part) = rooms.get_mut(lane(op.room(), lanes)) {
            part.push(place, op);
        }
    }
    let rooms = join_all(
        rooms
            .iter()
            .filter(|part| !part.ops.is_empty())
            .map(async |part| (&part.places, store.rooms.apply(&part.ops).await)),
    );
    let queues_done =
        async { if queues.ops.is_empty() { Ok(Vec::new()) } else { store.queues.apply(&queues.ops).await } };
    let keys_done =
        async { if keys.ops.is_empty() { Ok(Vec::new()) } else { store.kv.apply(&keys.ops).await } };
    let (mut done, queues_done, keys_done) = join3(rooms, queues_done, keys_done).await;
    done.push((&queues.places, queues_done));
    done.push((&keys.places, keys_done));
    gather(batch.len(), done)
}

fn lane(room: Option<&str>, lanes: usize) -> usize {
    let Some(room) = room else { return 0 };
    let mut hasher = DefaultHasher::new();
    room.hash(&mut hasher);
    usize::try_from(hasher.finish() % lanes as u64).unwrap_or(0)
}

/// Where the operations of a part stand in the batch, and what became of them.
type Done<'a> = (&'a Vec<usize>, Result<Vec<Outcome>, ApplyError>);

fn gather(count: usize, parts: Vec<Done<'_>>) -> Result<Vec<Outcome>, ApplyError> {
    let parts = parts.into_iter().filter(|(places, _)| !places.is_empty());
    let (mut outcomes, mut failed, mut is_any_stored) = (vec![None; count], None, false);
    for (places, result) in parts {
        match result {
            Ok(part) => {
                is_any_stored = true;
                for (place, outcome) in places.iter().zip(part) {
                    if let Some(slot) = outcomes.get_mut(*place) {
                        *slot = Some(outcome);
                    }
                }
            }
            Err(error) if matches!(failed, Some(ApplyError::Unconfirmed { .. })) => drop(error),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        None => Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Outcome::Refused(Refusal::Unreadable)))
            .collect()),
        Some(error) if is_any_stored => Err(ApplyError::Unconfirmed { reason: error.to_string() }),
        Some(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answered = Result<Vec<Outcome>, ApplyError>;

    fn part(places: &[usize], result: Answered) -> (Vec<usize>, Answered) {
        (places.to_vec(), result)
    }

    fn gathered(parts: &[(Vec<usize>, Answered)]) -> Answered {
        gather(3, parts.iter().map(|(places, result)| (places, result.clone())).collect())
    }

    const UNKNOWN: Outcome = Outcome::Refused(Refusal::UnknownRoom);

    #[test]
    fn outcomes_stand_where_their_operations_stood() {
        let parts = [
            part(&[0, 2], Ok(vec![Outcome::Accepted, UNKNOWN])),
            part(&[1], Ok(vec![Outcome::Changed { changed: true }])),
        ];
        assert_eq!(
            gathered(&parts),
            Ok(vec![Outcome::Accepted, Outcome::Changed { changed: true }, UNKNOWN])
        );
    }

    #[test]
    fn nobody_is_told_that_nothing_was_stored_where_something_was() {
        let away = || Err(ApplyError::Unavailable { reason: "away".into() });
        let stored = || Ok(vec![Outcome::Accepted]);
        assert_eq!(gathered(&[part(&[0, 1], away()), part(&[2], away())]), away());
        for parts in
            [[part(&[2], stored()), part(&[0, 1], away())], [part(&[0, 1], away()), part(&[2], stored())]]
        {
            assert!(matches!(gathered(&parts), Err(ApplyError::Unconfirmed { .. })));
        }
        // Parts without operations were not asked.
        assert_eq!(gathered(&[part(&[0, 1, 2], away()), part(&[], Ok(Vec::new()))]), away());
    }
}
