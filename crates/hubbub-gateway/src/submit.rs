//! What requests have in common: checks drafts, submits operations and waits for their outcomes, and checks who may
//! read a room.

use std::sync::Arc;

use hubbub_core::draft::{Defaults, Loose, MessageDraft, Rules};
use hubbub_core::invariant::broken;
use hubbub_core::number::WHOLE_NUMBER_RULE;
use hubbub_core::store::ReadError;
use hubbub_core::{
    Change, FieldError, Op, OpBatch, Outcome, QueueOp, QueueOutcome, RoomChange, RoomId, Send, Timestamp,
};
use hubbub_pipeline::{AccessLevel, Ticket, Waiter};

use crate::Gateway;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::problem::Problem;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ingest<'a> {
    pub(crate) rules: Rules,
    /// The room of the path; `None` = the draft says it.
    pub(crate) room: Option<&'a str>,
    pub(crate) caller: &'a Caller,
    /// The id to use when the draft has none; `None` = the server makes one.
    pub(crate) key: Option<&'a str>,
    pub(crate) now: Timestamp,
}

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
    /// Submits all operations or none, and waits until they are durable. A refusal is an outcome like others.
    pub(crate) async fn apply(&self, ops: &OpBatch) -> Result<Applied, Problem> {
        let waiter = Arc::new(Waiter::default());
        let traced_at = (!ops.traces().is_empty()).then(|| self.clock.monotonic());
        let ticket = self.log.submit(ops, &waiter)?;
        waiter.wait(&ticket).await;
        if let Some(began) = traced_at {
            self.trace_log(ops, began, !matches!(ticket.outcomes(), Some(Ok(_))));
        }
        match ticket.outcomes() {
            Some(Ok(_)) => Ok(Applied(ticket)),
            Some(Err(error)) => Err(error.into()),
            None => Err(Problem::no_outcome()),
        }
    }

    pub(crate) async fn apply_queue(&self, op: QueueOp<'_>) -> Result<QueueOutcome, Problem> {
        let mut ops = OpBatch::default();
        ops.push(&Op::Queue(op));
        match self.apply_one(&ops).await? {
            Outcome::Queue(outcome) => Ok(outcome),
            _ => Err(Problem::no_outcome()),
        }
    }

    /// The history of the store that what was submitted is in. Another one may have begun before the receipt is written.
    pub(crate) fn epoch_of(&self, ticket: Option<&Ticket>) -> Arc<str> {
        ticket.and_then(Ticket::epoch).cloned().unwrap_or_else(|| self.store.epoch())
    }

    async fn apply_one(&self, ops: &OpBatch) -> Result<Outcome, Problem> {
        match self.apply(ops).await?.outcomes() {
            [Outcome::Refused(refusal)] => Err(Problem::refusal(*refusal)),
            [outcome] => Ok(outcome.clone()),
            _ => Err(Problem::no_outcome()),
        }
    }

    /// Submits one change and waits until it is durable. The store decides whether the caller may make it.
    pub(crate) async fn change(
        self: &Arc<Self>,
        caller: &Caller,
        what: RoomChange<'_>,
    ) -> Result<Outcome, Problem> {
        let change = Change { by: caller.as_str(), what };
        let mut ops = OpBatch::default();
        ops.push(&Op::Change(change));
        let Some(turn) = self.admit_membership(&change).await? else { return self.apply_one(&ops).await };
        let gateway = self.clone();
        // A task of its own: when the client hangs up meanwhile, the user's next join waits for this one all the same.
        let joining = tokio::spawn(async move {
            let _turn = turn;
            gateway.apply_one(&ops).await
        });
        joining.await.map_err(|_| Problem::no_outcome())?
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
        if let Some(user) = &caller.user {
            // As new as what was read, also where another server removed the user.
            admit(self.members.current_access(room, user).await?)?;
        }
        Ok(read)
    }

    pub(crate) async fn check_reader(&self, room: &RoomId, caller: &Caller) -> Result<(), Problem> {
        let Some(user) = &caller.user else { return Ok(()) };
        admit(self.members.cached_access(room, user).await?)
    }

    /// Passes the checked message to `take`, or names everything that is wrong with the draft.
    pub(crate) fn check<R>(
        &self,
        draft: &MessageDraft<'_>,
        ingest: &Ingest<'_>,
        take: impl FnOnce(&Send<'_>) -> R,
    ) -> Result<R, Problem> {
        let made_id = match (draft.given_id(), ingest.key) {
            (Some(_), _) => String::new(),
            (None, Some(key)) => key.to_owned(),
            (None, None) => self.make_id(ingest.now),
        };
        let user = ingest.caller.default_sender();
        let defaults = Defaults { room: ingest.room, user, id: &made_id, now: ingest.now };
        let refuse = |problem: Problem| problem.of_message(draft.given_id());
        let mut faults = Vec::new();
        let Some(sent) = draft.check(ingest.rules, &self.limits, &defaults, &mut faults) else {
            return Err(refuse(Problem::invalid(faults)));
        };
        let may_send = ingest.caller.may(Requirement::Room(Right::Write, sent.room));
        may_send.and_then(|()| ingest.caller.may(Requirement::Sender(sent.user))).map_err(refuse)?;
        Ok(take(&sent))
    }
}

fn admit(level: AccessLevel) -> Result<(), Problem> {
    match level {
        AccessLevel::Member | AccessLevel::Guest => Ok(()),
        AccessLevel::Outsider => Err(Problem::not_member()),
    }
}

#[derive(Debug)]
pub(crate) struct Applied(Ticket);

impl Applied {
    /// The history of the store that the operations are in.
    pub(crate) fn epoch(&self, gateway: &Gateway) -> Arc<str> {
        gateway.epoch_of(Some(&self.0))
    }

    pub(crate) fn outcomes(&self) -> &[Outcome] {
        match self.0.outcomes() {
            Some(Ok(outcomes)) => outcomes,
            // It is only created from tickets whose operations are durable.
            Some(Err(_)) | None => {
                broken("operations that were applied have outcomes");
                &[]
            }
        }
    }
}
