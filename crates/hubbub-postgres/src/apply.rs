//! A batch, divided among the faces. What fails for a reason of its content is divided further, until the operations that
//! it is about stand alone: those are refused, and the others stored.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::future::{join_all, join3};
use hubbub_core::store::ApplyError;
use hubbub_core::{Change, KvOp, Op, OpBatch, Outcome, QueueOp, Refusal, Send};

use crate::db::Failure;
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

/// Operations of a batch that are refused alone, at most. Where more fail, the fault is hardly theirs, and what still stands
/// together is refused together.
const ALONE_MAX: usize = 16;

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
    let rooms = join_all(rooms.iter().filter(|part| !part.ops.is_empty()).map(async |part| {
        (&part.places, divided(&part.ops, async |ops| store.rooms.apply(ops).await).await)
    }));
    let queues_done = divided(&queues.ops, async |ops| store.queues.apply(ops).await);
    let keys_done = divided(&keys.ops, async |ops| store.kv.apply(ops).await);
    let (mut done, queues_done, keys_done) = join3(rooms, queues_done, keys_done).await;
    done.push((&queues.places, queues_done));
    done.push((&keys.places, keys_done));
    gather(batch.len(), done)
}

/// Does operations in their order, together if that can be. Where something fails for its content, those before it may be
/// stored and those behind it not, so the first half is done before the second.
async fn divided<T>(
    ops: &[T],
    apply: impl AsyncFn(&[T]) -> Result<Vec<Outcome>, Failure>,
) -> Result<Vec<Outcome>, ApplyError> {
    let (mut outcomes, mut is_any_stored, mut alone) = (Vec::with_capacity(ops.len()), false, 0);
    // What is to be done next stands last.
    let mut left = vec![ops];
    while let Some(ops) = left.pop().filter(|ops| !ops.is_empty()) {
        // On the heap: this is polled on threads with small stacks.
        match Box::pin(apply(ops)).await {
            Ok(done) => {
                is_any_stored = true;
                outcomes.extend(done);
            }
            Err(Failure::Content(_)) if ops.len() > 1 && alone < ALONE_MAX => {
                let (first, second) = ops.split_at(ops.len() / 2);
                left.extend([second, first]);
            }
            Err(Failure::Content(reason)) => {
                alone += 1;
                tracing::error!(
                    reason,
                    operations = ops.len(),
                    "operations are refused for what they meet in the database"
                );
                outcomes.resize(outcomes.len() + ops.len(), Outcome::Refused(Refusal::Unreadable));
            }
            Err(Failure::Other(error)) if is_any_stored => {
                return Err(ApplyError::Unconfirmed { reason: error.to_string() });
            }
            Err(Failure::Other(error)) => return Err(error),
        }
    }
    Ok(outcomes)
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
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    type Answered = Result<Vec<Outcome>, ApplyError>;

    fn part(places: &[usize], result: Answered) -> (Vec<usize>, Answered) {
        (places.to_vec(), result)
    }

    fn gathered(parts: &[(Vec<usize>, Answered)]) -> Answered {
        gather(3, parts.iter().map(|(places, result)| (places, result.clone())).collect())
    }

    const UNKNOWN: Outcome = Outcome::Refused(Refusal::UnknownRoom);

    /// Does numbers, but for those of `refused`; notes what was asked. From `lost` on nothing answers any more.
    fn numbers(
        refused: &[u32],
        lost: u32,
        asked: &Cell<usize>,
    ) -> impl AsyncFn(&[u32]) -> Result<Vec<Outcome>, Failure> {
        async move |ops| {
            asked.set(asked.get() + 1);
            if ops.iter().any(|op| *op >= lost) {
                return Err(ApplyError::Unavailable { reason: "away".into() }.into());
            }
            match ops.iter().find(|op| refused.contains(op)) {
                Some(op) => Err(Failure::Content(format!("{op} is not liked"))),
                None => Ok(vec![Outcome::Accepted; ops.len()]),
            }
        }
    }

    fn divide(count: u32, refused: &[u32], lost: u32) -> (Answered, usize) {
        let (ops, asked) = ((0..count).collect::<Vec<_>>(), Cell::new(0));
        let done = divided(&ops, numbers(refused, lost, &asked)).now_or_never();
        (done.expect("nothing waits"), asked.get())
    }

    #[test]
    fn who_cannot_be_stored_is_refused_and_the_others_are_stored() {
        for refused in [&[][..], &[0], &[99], &[17, 18, 70]] {
            let (done, asked) = divide(100, refused, u32::MAX);
            let done = done.expect("all are answered");
            for (op, outcome) in (0..).zip(&done) {
                let expected = match refused.contains(&op) {
                    true => Outcome::Refused(Refusal::Unreadable),
                    false => Outcome::Accepted,
                };
                assert_eq!(*outcome, expected, "{op}");
            }
            assert!(done.len() == 100 && asked <= 1 + 14 * refused.len(), "{asked} transactions");
        }
        assert_eq!(divide(0, &[], u32::MAX), (Ok(Vec::new()), 0));
    }

    #[test]
    fn where_everything_is_refused_it_is_not_tried_one_by_one() {
        let all: Vec<u32> = (0..5_000).collect();
        let (done, asked) = divide(5_000, &all, u32::MAX);
        assert_eq!(done, Ok(vec![Outcome::Refused(Refusal::Unreadable); 5_000]));
        assert!(asked < 60, "{asked} transactions");
    }

    #[test]
    fn what_is_lost_behind_something_stored_is_unconfirmed() {
        assert!(matches!(divide(8, &[], 7).0, Err(ApplyError::Unavailable { .. })));
        assert!(divide(8, &[1], u32::MAX).0.is_ok());
        // Asked together first: nothing was stored.
        assert!(matches!(divide(8, &[1], 7).0, Err(ApplyError::Unavailable { .. })));
        let asked = Cell::new(0);
        let first_refuses = async |ops: &[u32]| {
            asked.set(asked.get() + 1);
            match (asked.get(), ops.len()) {
                (1, _) => Err(Failure::Content("something of it".into())),
                (2, _) => Ok(vec![Outcome::Accepted; ops.len()]),
                _ => Err(ApplyError::Unavailable { reason: "away".into() }.into()),
            }
        };
        let done = divided(&[1, 2, 3, 4], first_refuses).now_or_never().expect("nothing waits");
        assert!(matches!(done, Err(ApplyError::Unconfirmed { .. })));
    }

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
