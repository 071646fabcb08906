//! Metrics of queues: counts sends, takes and acknowledgements.

use hubbub_core::queue::{Settle, TakeHow};
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, QueueOutcome};

use crate::metrics::Metrics;

/// Counts the outcomes of a committed batch.
pub(crate) fn count(ops: &OpBatch, outcomes: &[Outcome], metrics: &Metrics) {
    for (index, outcome) in outcomes.iter().enumerate() {
        let Outcome::Queue(outcome) = outcome else { continue };
        match (outcome, ops.get(index)) {
            (QueueOutcome::Sent { copies, duplicate: false, .. }, _) => {
                metrics.queue_sent.inc_by((*copies).into());
            }
            (QueueOutcome::Taken(deliveries), Some(Op::Queue(QueueOp::Take(take)))) => {
                let counter = match take.how {
                    TakeHow::Away => &metrics.queue_taken,
                    TakeHow::Lease { .. } => &metrics.queue_leased,
                };
                counter.inc_by(deliveries.len() as u64);
            }
            (QueueOutcome::Settled { .. }, Some(Op::Queue(QueueOp::Settle { how, .. }))) => {
                match how {
                    Settle::Ack => metrics.queue_acked.inc(),
                    Settle::Nack { .. } => metrics.queue_nacked.inc(),
                    Settle::Extend { .. } => continue,
                };
            }
            _ => {}
        }
    }
}
