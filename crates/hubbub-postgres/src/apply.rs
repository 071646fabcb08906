//! Divides a batch among rooms, queues and keys. A part that fails for its content is divided further, until each
//! transaction holds one culprit alone: the culprits are refused, and the other operations stored.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::future::{join_all, join3};
use hubbub_core::invariant::{broken, saturate};
use hubbub_core::store::ApplyError;
use hubbub_core::{KvOp, LogPosition, Op, OpBatch, Outcome, QueueOp, Refusal, RoomOp};

use crate::db::Failure;
use crate::division::Division;
use crate::store::Postgres;
use crate::{log, rooms};

/// An operation on rooms, and where it stands in the log that it comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedOp<'a> {
    pub(crate) op: RoomOp<'a>,
    pub(crate) position: Option<LogPosition>,
}

impl<'a> PlacedOp<'a> {
    /// The lane. Operations of one partition of the log share a transaction, which moves its offset.
    fn lane(&self, lanes: usize) -> usize {
        match self.position {
            Some(position) => saturate::<_, usize>(position.partition) % lanes,
            None => lane(self.op.room(), lanes),
        }
    }

    /// The room, where only operations of one room have an order.
    fn ordered_by(&self) -> Option<&'a str> {
        if self.position.is_some() { None } else { self.op.room() }
    }
}

/// Operations of one part, and their indexes in the batch.
struct Part<T> {
    indexes: Vec<usize>,
    ops: Vec<T>,
}

impl<T> Part<T> {
    const fn empty() -> Self {
        Self { indexes: Vec::new(), ops: Vec::new() }
    }

    fn push(&mut self, index: usize, op: T) {
        self.indexes.push(index);
        self.ops.push(op);
    }
}

/// Operations of a batch for each lane that rooms are divided among, at least: below that a second transaction costs more
/// than it brings.
const OPS_PER_LANE: usize = 128;

/// Applies a batch: each part in a transaction of its own, all at the same time. Operations of one room, of one partition
/// of the log, of queues, and of keys keep their order. Where a part fails the others have their outcomes; a batch from the log
/// fails as a whole, so that all of it is read again.
pub(crate) async fn apply(store: &Postgres, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
    let lanes = (batch.len() / OPS_PER_LANE).clamp(1, store.context.options.lanes.max(1));
    let mut rooms: Vec<Part<PlacedOp<'_>>> = (0..lanes).map(|_| Part::empty()).collect();
    let mut queues: Part<QueueOp<'_>> = Part::empty();
    let mut keys: Part<KvOp<'_>> = Part::empty();
    for (index, op) in batch.iter().enumerate() {
        let op = match op {
            Op::Send(send) => RoomOp::Send(send),
            Op::Change(change) => RoomOp::Change(change),
            Op::Queue(op) => {
                queues.push(index, op);
                continue;
            }
            Op::Kv(op) => {
                keys.push(index, op);
                continue;
            }
        };
        let op = PlacedOp { op, position: batch.position(index) };
        if let Some(part) = rooms.get_mut(op.lane(lanes)) {
            part.push(index, op);
        }
    }
    let rooms = rooms.iter().filter(|part| !part.ops.is_empty());
    let rooms = join_all(rooms.map(async |part| (&part.indexes, apply_rooms(store, &part.ops).await)));
    let queues_done = divided(&queues.ops, |_| None, async |ops| store.queues.apply(ops).await);
    let keys_done = divided(&keys.ops, |_| None, async |ops| store.kv.apply(ops).await);
    let (mut done, queues_done, keys_done) = join3(rooms, queues_done, keys_done).await;
    done.push((&queues.indexes, queues_done));
    done.push((&keys.indexes, keys_done));
    let outcomes = gather(batch.len(), done);
    if batch.is_from_log() { whole(outcomes) } else { unless_all_failed_alike(outcomes) }
}

async fn apply_rooms(store: &Postgres, ops: &[PlacedOp<'_>]) -> Vec<Outcome> {
    let apply = async |ops: &[PlacedOp<'_>]| rooms::apply(&store.rooms, ops).await;
    let outcomes = divided(ops, PlacedOp::ordered_by, apply).await;
    // What was refused without a transaction has not moved the offset.
    let is_refused = |outcome: &Outcome| *outcome == Outcome::Refused(Refusal::Unreadable);
    let positions: Vec<LogPosition> = ops.iter().filter_map(|op| op.position).collect();
    if !positions.is_empty()
        && outcomes.iter().any(is_refused)
        && !outcomes.iter().any(Outcome::is_failed)
        && let Err(error) = log::pass_over(&store.context.db, &positions).await
    {
        return all_failed(ops.len(), error.into_unconfirmed());
    }
    outcomes
}

/// Does operations in their order, in one transaction if possible. Where one fails for its content, those before it may be
/// stored and those behind it not, so the first half is done before the second. `room` names the room of an operation
/// where only operations of one room have an order; then all of them have a room. Once the database does not answer, nothing more
/// is tried.
async fn divided<'a, T: Copy>(
    ops: &[T],
    room: impl Fn(&T) -> Option<&'a str>,
    apply: impl AsyncFn(&[T]) -> Result<Vec<Outcome>, Failure>,
) -> Vec<Outcome> {
    if ops.is_empty() {
        return Vec::new();
    }
    // On the heap: this is polled on threads with small stacks.
    let reason = match Box::pin(apply(ops)).await {
        Err(Failure::Content(reason)) => reason,
        Err(Failure::Other(error)) => return all_failed(ops.len(), error),
        Ok(done) => return done,
    };
    let rooms: Vec<_> = ops.iter().map(&room).collect();
    let rooms = if rooms.contains(&None) { vec![None; ops.len()] } else { rooms };
    let mut division = Division::new(rooms);
    let mut outcomes = vec![Outcome::Refused(Refusal::Unreadable); ops.len()];
    let mut failed = Some(((0..ops.len()).collect::<Vec<_>>(), reason));
    // What is to be done next stands last.
    let mut left: Vec<Vec<usize>> = Vec::new();
    loop {
        if let Some((indexes, reason)) = failed.take() {
            match division.divide(&indexes) {
                Some((second, first)) => left.extend([second, first]),
                None => log_refusal(&reason, indexes.len()),
            }
        }
        let Some(indexes) = left.pop() else { return outcomes };
        let some: Vec<T> = indexes.iter().filter_map(|index| ops.get(*index).copied()).collect();
        match Box::pin(apply(&some)).await {
            Ok(done) => scatter(&mut outcomes, &indexes, done.into_iter()),
            Err(Failure::Content(reason)) => failed = Some((indexes, reason)),
            Err(Failure::Other(error)) => {
                left.push(indexes);
                for indexes in &left {
                    scatter(&mut outcomes, indexes, all_failed(indexes.len(), error.clone()).into_iter());
                }
                return outcomes;
            }
        }
    }
}

fn log_refusal(reason: &str, operations: usize) {
    tracing::error!(reason, operations, "operations are refused for what they meet in the database");
}

fn all_failed(operations: usize, error: ApplyError) -> Vec<Outcome> {
    vec![Outcome::Failed(Box::new(error)); operations]
}

fn lane(room: Option<&str>, lanes: usize) -> usize {
    let Some(room) = room else { return 0 };
    let mut hasher = DefaultHasher::new();
    room.hash(&mut hasher);
    saturate(hasher.finish() % lanes as u64)
}

/// Outcomes of a batch where all of it is done or none. It may be stored if any of it may be.
fn whole(outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, ApplyError> {
    let mut failures = outcomes.iter().filter_map(Outcome::failure);
    match failures.next_back().cloned() {
        Some(error) if outcomes.iter().any(Outcome::may_be_stored) => Err(error.into_unconfirmed()),
        Some(error) => Err(error),
        None => Ok(outcomes),
    }
}

/// Where all of a batch failed for one reason, the batch did.
fn unless_all_failed_alike(outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, ApplyError> {
    let first = outcomes.first().and_then(Outcome::failure);
    match first.filter(|first| outcomes.iter().all(|outcome| outcome.failure() == Some(first))) {
        Some(error) => Err(error.clone()),
        None => Ok(outcomes),
    }
}

/// The indexes of a part's operations in the batch, and their outcomes.
type Done<'a> = (&'a Vec<usize>, Vec<Outcome>);

fn gather(count: usize, parts: Vec<Done<'_>>) -> Vec<Outcome> {
    let mut outcomes = vec![None; count];
    for (indexes, part) in parts {
        scatter(&mut outcomes, indexes, part.into_iter().map(Some));
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unanswered)).collect()
}

/// Puts the outcomes of a part where its operations stand in the batch.
fn scatter<T>(outcomes: &mut [T], indexes: &[usize], part: impl Iterator<Item = T>) {
    for (index, outcome) in indexes.iter().zip(part) {
        if let Some(slot) = outcomes.get_mut(*index) {
            *slot = outcome;
        }
    }
}

fn unanswered() -> Outcome {
    Outcome::Refused(broken("each operation of a batch has an outcome").into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    type Answered = Result<Vec<Outcome>, ApplyError>;

    fn away() -> ApplyError {
        ApplyError::Unavailable { reason: "away".into() }
    }

    fn lost() -> ApplyError {
        ApplyError::Unconfirmed { reason: "lost".into() }
    }

    fn failed(error: ApplyError) -> Outcome {
        Outcome::Failed(Box::new(error))
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
                return Err(away().into());
            }
            match ops.iter().find(|op| refused.contains(op)) {
                Some(op) => Err(Failure::Content(format!("{op} is not liked"))),
                None => Ok(vec![Outcome::Accepted; ops.len()]),
            }
        }
    }

    fn divide(count: u32, refused: &[u32], lost: u32) -> (Vec<Outcome>, usize) {
        let (ops, asked) = ((0..count).collect::<Vec<_>>(), Cell::new(0));
        let done = divided(&ops, |_| None, numbers(refused, lost, &asked)).now_or_never();
        (done.expect("nothing waits"), asked.get())
    }

    #[test]
    fn who_cannot_be_stored_is_refused_and_the_others_are_stored() {
        for refused in [&[][..], &[0], &[99], &[17, 18, 70]] {
            let (done, asked) = divide(100, refused, u32::MAX);
            for (op, outcome) in (0..).zip(&done) {
                let expected = match refused.contains(&op) {
                    true => Outcome::Refused(Refusal::Unreadable),
                    false => Outcome::Accepted,
                };
                assert_eq!(*outcome, expected, "{op}");
            }
            assert!(done.len() == 100 && asked <= 1 + 14 * refused.len(), "{asked} transactions");
        }
        assert_eq!(divide(0, &[], u32::MAX), (Vec::new(), 0));
    }

    #[test]
    fn where_everything_is_refused_it_is_not_tried_one_by_one() {
        let all: Vec<u32> = (0..5_000).collect();
        let (done, asked) = divide(5_000, &all, u32::MAX);
        assert_eq!(done, vec![Outcome::Refused(Refusal::Unreadable); 5_000]);
        assert!(asked < 60, "{asked} transactions");
    }

    #[test]
    fn a_room_of_which_all_is_refused_takes_no_other_with_it() {
        const ROOMS: [&str; 5] = ["a", "bad", "b", "worse", "c"];
        let room = |op: &u32| ROOMS.get(*op as usize % ROOMS.len()).copied();
        let is_bad = |op: &u32| matches!(room(op), Some("bad" | "worse"));
        let ops: Vec<u32> = (0..1_000).collect();
        let (asked, stored) = (Cell::new(0), std::cell::RefCell::new(Vec::new()));
        let apply = async |ops: &[u32]| {
            asked.set(asked.get() + 1);
            if ops.iter().any(is_bad) {
                return Err(Failure::Content("something of it".into()));
            }
            stored.borrow_mut().extend_from_slice(ops);
            Ok(vec![Outcome::Accepted; ops.len()])
        };
        let done = divided(&ops, room, apply).now_or_never().expect("nothing waits");
        for (op, outcome) in ops.iter().zip(done) {
            assert_eq!(outcome == Outcome::Accepted, !is_bad(op), "{op}");
        }
        assert!(asked.get() < 150, "{} transactions", asked.get());
        for name in ["a", "b", "c"] {
            let of_room: Vec<u32> =
                stored.borrow().iter().copied().filter(|op| room(op) == Some(name)).collect();
            assert!(of_room.is_sorted() && of_room.len() == 200, "{name}: {of_room:?}");
        }
    }

    #[test]
    fn what_is_lost_behind_something_stored_fails_alone() {
        assert_eq!(divide(8, &[], 7).0, vec![failed(away()); 8]);
        // Asked together first: nothing was stored.
        assert_eq!(divide(8, &[1], 7).0, vec![failed(away()); 8]);
        let asked = Cell::new(0);
        let first_refuses = async |ops: &[u32]| {
            asked.set(asked.get() + 1);
            match (asked.get(), ops.len()) {
                (1, _) => Err(Failure::Content("something of it".into())),
                (2, _) => Ok(vec![Outcome::Accepted; ops.len()]),
                _ => Err(away().into()),
            }
        };
        let done = divided(&[1, 2, 3, 4], |_| None, first_refuses).now_or_never().expect("nothing waits");
        let [stored, lost] = [Outcome::Accepted, failed(away())];
        assert_eq!(done, [stored.clone(), stored, lost.clone(), lost]);
    }

    #[test]
    fn what_was_refused_before_all_is_lost_stays_refused() {
        let asked = Cell::new(0);
        let all_refused_then_lost = async |ops: &[u32]| {
            asked.set(asked.get() + 1);
            match (asked.get(), ops.len()) {
                (1..=3, _) => Err(Failure::Content("something of it".into())),
                _ => Err(away().into()),
            }
        };
        let done = divided(&[1, 2, 3, 4], |_| None, all_refused_then_lost).now_or_never();
        let lost = failed(away());
        let refused = Outcome::Refused(Refusal::Unreadable);
        assert_eq!(done, Some(vec![refused, lost.clone(), lost.clone(), lost]));
    }

    #[test]
    fn outcomes_stand_where_their_operations_stood() {
        let (first, second) = (vec![0, 2], vec![1]);
        let parts = vec![
            (&first, vec![Outcome::Accepted, UNKNOWN]),
            (&second, vec![Outcome::Changed { changed: true }]),
        ];
        assert_eq!(gather(3, parts), [Outcome::Accepted, Outcome::Changed { changed: true }, UNKNOWN]);
    }

    #[test]
    fn a_batch_fails_alike_or_in_parts() {
        let (both, none) = (vec![failed(lost()), failed(away())], vec![failed(away()), failed(away())]);
        let (some, refused) = (vec![failed(away()), Outcome::Accepted], vec![failed(away()), UNKNOWN]);
        let done = vec![UNKNOWN, Outcome::Accepted];
        let cases: [(&[Outcome], Answered, Answered); 5] = [
            (&done, Ok(done.clone()), Ok(done.clone())),
            (&none, Err(away()), Err(away())),
            (&both, Ok(both.clone()), Err(away().into_unconfirmed())),
            (&some, Ok(some.clone()), Err(away().into_unconfirmed())),
            (&refused, Ok(refused.clone()), Err(away())),
        ];
        for (outcomes, of_clients, of_log) in cases {
            assert_eq!(unless_all_failed_alike(outcomes.to_vec()), of_clients, "{outcomes:?}");
            assert_eq!(whole(outcomes.to_vec()), of_log, "{outcomes:?}");
        }
    }
}
