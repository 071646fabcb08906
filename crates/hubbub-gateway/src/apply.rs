//! Submits operations for one request and waits for their outcomes.

use std::sync::Arc;

use hubbub_core::invariant::broken;
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, QueueOutcome};
use hubbub_pipeline::{Ticket, Waiter};

use crate::Gateway;
use crate::problem::Problem;

impl Gateway {
    /// Submits all operations or none, and waits until they are durable. A refusal is an outcome like others.
    pub(crate) async fn apply(&self, ops: &OpBatch) -> Result<Applied, Problem> {
        let waiter = Arc::new(Waiter::default());
        let ticket = self.log.submit(ops, &waiter)?;
        waiter.wait(&ticket).await;
        match ticket.outcomes() {
            Some(Ok(_)) => Ok(Applied(ticket)),
            Some(Err(error)) => Err(error.into()),
            None => Err(Problem::no_outcome()),
        }
    }

    /// Applies one operation of queues; a refusal is a problem.
    pub(crate) async fn apply_queue(&self, op: QueueOp<'_>) -> Result<QueueOutcome, Problem> {
        let mut ops = OpBatch::default();
        ops.push(&Op::Queue(op));
        match self.apply(&ops).await?.outcomes() {
            [Outcome::Queue(outcome)] => Ok(outcome.clone()),
            [Outcome::Refused(refusal)] => Err(Problem::refusal(*refusal)),
            _ => Err(Problem::no_outcome()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Applied(Ticket);

impl Applied {
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
