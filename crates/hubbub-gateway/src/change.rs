//! Changes of rooms, members and read marks on their way to the log, and who may look.

use hubbub_core::store::ReadError;
use hubbub_core::{Change, Op, OpBatch, Outcome, RoomId, What};
use hubbub_pipeline::Standing;

use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

impl Gateway {
    /// Submits one change and waits until it is durable. Whether the caller may make it is for the store to judge.
    pub(crate) async fn change(&self, caller: &Caller, what: What<'_>) -> Result<Outcome, Problem> {
        let mut ops = OpBatch::default();
        ops.push(&Op::Change(Change { by: caller.as_str(), what }));
        match self.apply(&ops).await?.outcomes().first() {
            Some(Outcome::Refused(refusal)) => Err(Problem::refusal(*refusal)),
            Some(outcome) => Ok(outcome.clone()),
            None => Err(Problem::no_outcome()),
        }
    }

    /// Reads something of a room for a caller who may see it, before and after it is read: what came meanwhile, behind a
    /// removal, is not for who was removed.
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

    /// Refuses to show a room for members only to somebody who is none.
    pub(crate) async fn check_reader(&self, room: &RoomId, caller: &Caller) -> Result<(), Problem> {
        let Some(user) = &caller.user else { return Ok(()) };
        match self.members.standing(room, user).await? {
            Standing::Member | Standing::Guest => Ok(()),
            Standing::Outsider => Err(Problem::not_member()),
        }
    }
}
