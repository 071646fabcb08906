//! Submits changes of rooms, members and read marks, and checks who may read a room.

use hubbub_core::draft::Loose;
use hubbub_core::number::WHOLE_NUMBER_RULE;
use hubbub_core::store::ReadError;
use hubbub_core::{Change, FieldError, Op, OpBatch, Outcome, RoomChange, RoomId};
use hubbub_pipeline::AccessLevel;

use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

/// Checks a request to move the caller's read mark in a room to `seq`, and adds to `faults` what is wrong with it.
pub(crate) fn mark_read<'a>(
    room: Option<&'a RoomId>,
    caller: &'a Caller,
    seq: Option<&Loose<'_>>,
    faults: &mut Vec<FieldError>,
) -> Option<Change<'a>> {
    let seq = match seq {
        None => Err("is required"),
        Some(seq) => seq.as_u64().ok_or(WHOLE_NUMBER_RULE),
    };
    let seq = seq.map_err(|rule| faults.push(FieldError::new("seq", rule))).ok();
    let user = caller.as_str();
    if user.is_none() {
        faults.extend(Problem::no_user().faults);
    }
    let (room, user, seq) = (room?.as_str(), user?, seq?);
    Some(Change { by: Some(user), what: RoomChange::MarkRead { room, user, seq } })
}

impl Gateway {
    /// Submits one change and waits until it is durable. The store decides whether the caller may make it.
    pub(crate) async fn change(&self, caller: &Caller, what: RoomChange<'_>) -> Result<Outcome, Problem> {
        let mut ops = OpBatch::default();
        ops.push(&Op::Change(Change { by: caller.as_str(), what }));
        match self.apply(&ops).await?.outcomes().first() {
            Some(Outcome::Refused(refusal)) => Err(Problem::refusal(*refusal)),
            Some(outcome) => Ok(outcome.clone()),
            None => Err(Problem::no_outcome()),
        }
    }

    /// Reads something of a room for a caller who may read it, which is checked before and after. What was written behind a
    /// removal meanwhile is not for the user who was removed.
    pub(crate) async fn read_as<T>(
        &self,
        room: &RoomId,
        caller: &Caller,
        reading: impl Future<Output = Result<T, ReadError>>,
    ) -> Result<T, Problem> {
        self.check_reader(room, caller).await?;
        let read = reading.await?;
        self.check_reader(room, caller).await?;
        Ok(read)
    }

    pub(crate) async fn check_reader(&self, room: &RoomId, caller: &Caller) -> Result<(), Problem> {
        let Some(user) = &caller.user else { return Ok(()) };
        match self.members.standing(room, user).await? {
            AccessLevel::Member | AccessLevel::Guest => Ok(()),
            AccessLevel::Outsider => Err(Problem::not_member()),
        }
    }
}
