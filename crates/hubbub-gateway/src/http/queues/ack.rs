//! Ack, nack and extend leases; delete one message.

use hubbub_core::draft::Loose;
use hubbub_core::queue::{DURATION_MS_MAX, LeaseReceipt, Settle};
use hubbub_core::queue_draft::number;
use hubbub_core::{FieldError, Op, OpBatch, Outcome, QueueId, QueueOp, QueueOutcome};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::endpoint::Call;
use super::super::query::refuse_faults;
use super::super::types::{MessageNumber, Time};
use super::super::{Answer, ITEMS_MAX, json, json_of, no_content};
use super::message_of;
use super::receipts::receipt_format;
use super::send::Results;
use crate::Gateway;
use crate::json::{object_of_bytes, write_plain};
use crate::problem::Problem;

const RECEIPT_RULE: &str = "must be the receipt that came with the message";
const RECEIPTS_RULE: &str = "must be those that came with the messages";

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase", default)]
struct LeaseBody<'a> {
    #[serde(borrow)]
    receipt: Option<Loose<'a>>,
    #[serde(borrow)]
    delay_ms: Option<Loose<'a>>,
    #[serde(borrow)]
    lease_ms: Option<Loose<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Nacked {
    id: MessageNumber,
    /// When it may be taken again; `null` = that was its last delivery, and it is in the dead-letter queue.
    ready_at: Option<Time>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Extended {
    id: MessageNumber,
    /// When the lease ends now.
    #[schemars(with = "Time")]
    leased_until: Option<Time>,
}

struct Lease {
    queue: QueueId,
    receipt: LeaseReceipt,
}

pub(in super::super) async fn ack(mut call: Call) -> Answer {
    let (lease, ()) = read(&mut call, |_, _| ()).await?;
    lease.end(call.gateway(), Settle::Ack).await?;
    Ok(no_content())
}

pub(in super::super) async fn nack(mut call: Call) -> Answer {
    let (lease, delay_ms) = read(&mut call, |body, faults| {
        number("delayMs", body.delay_ms.as_ref(), 0..=DURATION_MS_MAX, faults)
    })
    .await?;
    let ready_at = lease.end(call.gateway(), Settle::Nack { delay_ms }).await?;
    json_of(StatusCode::OK, &Nacked { id: MessageNumber(lease.receipt.id), ready_at: ready_at.map(Time) })
}

pub(in super::super) async fn extend(mut call: Call) -> Answer {
    let (lease, lease_ms) = read(&mut call, |body, faults| {
        number("leaseMs", body.lease_ms.as_ref(), 1..=DURATION_MS_MAX, faults)
    })
    .await?;
    let until = lease.end(call.gateway(), Settle::Extend { lease_ms }).await?;
    let leased_until = until.map(Time);
    json_of(StatusCode::OK, &Extended { id: MessageNumber(lease.receipt.id), leased_until })
}

async fn read<T>(
    call: &mut Call,
    rest: impl FnOnce(&LeaseBody<'_>, &mut Vec<FieldError>) -> T,
) -> Result<(Lease, T), Problem> {
    let (queue, id) = (call.queue()?, message_of(call.parameter("id"))?);
    let body = call.body().await?;
    let format = receipt_format(call.gateway()).await?;
    let body: LeaseBody<'_> = object_of_bytes(&body)?;
    let mut faults = Vec::new();
    let receipt = match &body.receipt {
        None => Err("is required"),
        Some(Loose::Text(text)) => format.read(text).filter(|receipt| receipt.id == id).ok_or(RECEIPT_RULE),
        Some(_) => Err(RECEIPT_RULE),
    };
    let receipt = receipt.map_err(|rule| faults.push(FieldError::new("receipt", rule))).ok();
    let rest = rest(&body, &mut faults);
    let receipt = receipt.filter(|_| faults.is_empty()).ok_or_else(|| Problem::invalid(faults))?;
    Ok((Lease { queue, receipt }, rest))
}

impl Lease {
    async fn end(&self, gateway: &Gateway, how: Settle) -> Result<Option<hubbub_core::Timestamp>, Problem> {
        let op = QueueOp::Settle { queue: self.queue.as_str(), receipt: self.receipt, how };
        match gateway.apply_queue(op).await? {
            QueueOutcome::Settled { until, .. } => Ok(until),
            _ => Err(Problem::no_outcome()),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object")]
pub(in super::super) struct AckManyBody<'a> {
    #[serde(borrow)]
    #[schemars(with = "Vec<String>", length(max = ITEMS_MAX))]
    receipts: Vec<Loose<'a>>,
}

/// `POST /v1/queues/{queue}/ack`: many messages are done; each receipt has its result.
pub(in super::super) async fn ack_many(mut call: Call) -> Answer {
    let queue = call.queue()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let format = receipt_format(gateway).await?;
    let body: AckManyBody<'_> = object_of_bytes(&body)?;
    if body.receipts.len() > ITEMS_MAX {
        refuse_faults(vec![FieldError::new("receipts", format!("must be at most {ITEMS_MAX}"))])?;
    }
    let mut ops = OpBatch::default();
    let receipts = body.receipts.iter().map(|text| {
        let receipt = format.read(text.as_id()?)?;
        let op = QueueOp::Settle { queue: queue.as_str(), receipt, how: Settle::Ack };
        ops.push(&Op::Queue(op));
        text.as_id()
    });
    let receipts: Vec<Option<&str>> = receipts.collect();
    let applied = if ops.is_empty() { None } else { Some(gateway.apply(&ops).await?) };
    let mut outcomes = applied.iter().flat_map(|applied| applied.outcomes());
    let mut results = Results::default();
    for receipt in receipts {
        let acked = match receipt {
            None => Err(Problem::invalid(vec![FieldError::new("receipts", RECEIPTS_RULE)])),
            Some(receipt) => match outcomes.next() {
                Some(Outcome::Queue(QueueOutcome::Settled { .. })) => Ok(receipt),
                Some(Outcome::Refused(refusal)) => Err(Problem::refusal(*refusal)),
                _ => Err(Problem::no_outcome()),
            },
        };
        let written = acked.map(|receipt| {
            let out = results.next();
            write_plain("{\"receipt\":\"", receipt, out);
            out.extend_from_slice(b",\"acked\":true}");
        });
        results.refuse_unless(gateway, written);
    }
    Ok(json(StatusCode::OK, results.finish()))
}

/// `DELETE /v1/queues/{queue}/messages/{id}`: in any state, for any receiver.
pub(in super::super) async fn remove(call: Call) -> Answer {
    let gateway = call.gateway();
    let (queue, id) = (call.queue()?, message_of(call.parameter("id"))?);
    match gateway.apply_queue(QueueOp::Remove { queue: queue.as_str(), id }).await? {
        QueueOutcome::Deleted { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}
