//! `POST /v1/queues/{queue}/get`, `/read`, `/lease`, and `/v1/clients/{client}/get`, `/read`: take messages, or peek at
//! them, and wait when there is none.

use std::time::Duration;

use hubbub_core::draft::Loose;
use hubbub_core::queue::{Delivery, Take, TakeFilter, TakeHow};
use hubbub_core::queue_draft::{CheckedTake, TakeDraft};
use hubbub_core::{ClientId, FieldError, Op, OpBatch, Outcome, QueueId, QueueOp, QueueOutcome};
use hubbub_pipeline::consumers::WaitFilter;
use hyper::StatusCode;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::super::endpoint::Call;
use super::super::query::refuse_faults;
use super::super::{Answer, MayWait, json, refuse};
use super::json::write_deliveries;
use super::no_queue;
use super::receipts::receipt_format;
use crate::Gateway;
use crate::auth::caller::Need;
use crate::auth::receipts::ReceiptFormat;
use crate::auth::session::Session;
use crate::json::object_or_default;
use crate::problem::Problem;
use crate::server::Peer;
use crate::submit::Applied;

/// Of requests for more messages than this, few are on their way at a time.
const FEW: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum TakeKind {
    /// Away: at most once. A client that is gone when the answer is sent has lost them.
    Get,
    Read,
    /// On lease: at least once. Those of a client that is gone are delivered again when the lease ends.
    Lease,
}

pub(in super::super) async fn take(call: Call, kind: TakeKind) -> Answer {
    let queue = call.queue()?;
    answer(call, Some(queue), None, kind).await
}

/// By sender, over all queues.
pub(in super::super) async fn take_of_client(call: Call, kind: TakeKind) -> Answer {
    let client = call.client()?;
    answer(call, None, Some(client), kind).await
}

async fn answer(
    mut call: Call,
    queue: Option<QueueId>,
    receiver: Option<ClientId>,
    kind: TakeKind,
) -> Answer {
    let caller = call.caller()?;
    let body = call.body().await?;
    let mut draft: TakeDraft<'_> = object_or_default(&body)?;
    let mut faults = Vec::new();
    if let Some(client) = &receiver {
        draft.receiver = Some(Loose::Text(client.as_str().into()));
        if draft.sender.is_none() {
            faults.push(FieldError::new("sender", "is required"));
        }
    }
    let take = draft.check(caller.as_str(), &mut faults);
    refuse_faults(faults)?;
    if let Some(receiver) = take.receiver {
        caller.may(Need::Client(receiver))?;
    }
    // Before anything is taken. Others have no receipts.
    let format = match kind {
        TakeKind::Lease => receipt_format(call.gateway()).await?,
        TakeKind::Get | TakeKind::Read => ReceiptFormat::default(),
    };
    let queue = queue.as_ref().map(QueueId::as_str);
    let session = Session::open(&call.gateway().auth, &caller);
    let may_wait = take.wait_ms > 0;
    let attempt = Taking { gateway: call.gateway(), queue, take, kind, session }.run(&call.peer).await;
    let answer = attempt.and_then(|attempt| {
        let deliveries = attempt.result.deliveries()?;
        Ok(json(StatusCode::OK, write_deliveries(deliveries, &format)))
    });
    if !may_wait {
        return answer;
    }
    // What ends the wait may be an error.
    let mut response = answer.unwrap_or_else(|problem| refuse(call.gateway(), &problem));
    response.extensions_mut().insert(MayWait);
    Ok(response)
}

struct Attempt<'a> {
    result: Found,
    /// Held until the answer is made, if that may be large.
    turn: Option<SemaphorePermit<'a>>,
}

/// The result of one attempt: taken in a batch, or read.
enum Found {
    Taken(Applied),
    Seen(Vec<Delivery>),
}

impl Found {
    fn deliveries(&self) -> Result<&[Delivery], Problem> {
        match self {
            Self::Seen(deliveries) => Ok(deliveries),
            Self::Taken(applied) => match applied.outcomes() {
                [Outcome::Queue(QueueOutcome::Taken(deliveries))] => Ok(deliveries),
                [Outcome::Refused(refusal)] => Err(Problem::refusal(*refusal)),
                _ => Err(Problem::no_outcome()),
            },
        }
    }
}

struct Taking<'a> {
    gateway: &'a Gateway,
    queue: Option<&'a str>,
    take: CheckedTake<'a>,
    kind: TakeKind,
    session: Session,
}

impl<'a> Taking<'a> {
    async fn run(&self, peer: &Peer) -> Result<Attempt<'a>, Problem> {
        if self.take.wait_ms == 0 {
            return self.once().await;
        }
        self.gateway.rates.check_waiting(self.gateway.metrics.queue_waiting_takers.get())?;
        let deadline = Instant::now() + Duration::from_millis(self.take.wait_ms);
        let mut shutdown = peer.shutdown.clone();
        // Registered before the first try, so that no message sent in between is missed. Closing the connection drops it.
        let handle = self.gateway.log.consumers().register(self.filter()?);
        loop {
            // Woken after the token had expired, nothing is taken any more.
            if let Some(ended) = self.session.ended_at(|| self.gateway.now()) {
                return Err(ended.problem());
            }
            handle.begin_attempt();
            let mut attempt = self.once().await?;
            let deliveries = attempt.result.deliveries()?;
            if !deliveries.is_empty() {
                // A peek leaves the messages to the next waiter.
                if self.kind != TakeKind::Read {
                    handle.complete(deliveries.iter().map(|delivery| delivery.id));
                }
                return Ok(attempt);
            }
            // While this one waits, others make their answers.
            attempt.turn = None;
            handle.end_empty_attempt();
            tokio::select! {
                () = handle.woken() => {}
                () = tokio::time::sleep_until(deadline) => return Ok(attempt),
                () = shutdown.requested() => return Ok(attempt),
                ended = self.session.end() => return Err(ended.problem()),
            }
        }
    }

    fn filter(&self) -> Result<WaitFilter, Problem> {
        let client = |name: Option<&str>| name.map(ClientId::new).transpose();
        let (queue, receiver) = (self.queue.map(QueueId::new).transpose(), client(self.take.receiver));
        match (queue, receiver, client(self.take.sender)) {
            (Ok(queue), Ok(receiver), Ok(sender)) => Ok(WaitFilter { queue, receiver, sender }),
            // They were checked before.
            _ => Err(Problem::no_outcome()),
        }
    }

    /// Waits for its turn first, if the answer may be large: what is taken away must not wait in memory, nor be refused.
    async fn once(&self) -> Result<Attempt<'a>, Problem> {
        let turn = if self.take.max > FEW { Some(self.gateway.unread.begin_take().await?) } else { None };
        Ok(Attempt { result: self.found().await?, turn })
    }

    async fn found(&self) -> Result<Found, Problem> {
        let CheckedTake { receiver, sender, max, newest_first, lease_ms, .. } = self.take;
        let wanted = TakeFilter { queue: self.queue, receiver, sender, newest_first };
        let how = match self.kind {
            TakeKind::Get => TakeHow::Away,
            TakeKind::Lease => TakeHow::Lease { lease_ms },
            TakeKind::Read => {
                let seen = self.gateway.store.look(wanted, max).await?;
                return seen.map(Found::Seen).ok_or_else(no_queue);
            }
        };
        let mut ops = OpBatch::default();
        ops.push(&Op::Queue(QueueOp::Take(Take { wanted, max, how, registers: true })));
        Ok(Found::Taken(self.gateway.apply(&ops).await?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use hubbub_core::clock::ManualClock;
    use hubbub_core::queue::{Audience, Due, QueueSend, QueueSettings};
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, now};

    async fn send(gateway: &Gateway, text: &str) {
        let (queue, sender, audience, due) = ("jobs", "ada", Audience::Anyone, Due::Now);
        let (message_id, group, ttl_ms, registers) = (None, None, None, true);
        let sent = QueueSend { queue, sender, audience, text, message_id, due, group, ttl_ms, registers };
        gateway.apply_queue(QueueOp::Send(sent)).await.unwrap();
    }

    fn texts(attempt: &Attempt<'_>) -> Vec<String> {
        attempt.result.deliveries().unwrap().iter().map(|delivery| delivery.text.clone()).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_taken_for_a_large_answer_before_its_turn() {
        let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
        let settings = QueueSettings::default();
        gateway.apply_queue(QueueOp::Put { queue: "jobs", settings: &settings }).await.unwrap();
        let caller = fixture::caller(&gateway, json!({"sub": "ann", "queues": {"*": "r"}}));
        let taking = |max| Taking {
            gateway: &gateway,
            queue: Some("jobs"),
            take: CheckedTake {
                receiver: Some("ann"),
                sender: None,
                max,
                newest_first: false,
                wait_ms: 0,
                lease_ms: None,
            },
            kind: TakeKind::Get,
            session: Session::open(&gateway.auth, &caller),
        };
        send(&gateway, "first").await;
        let mut turns = Vec::new();
        while let Some(turn) = gateway.unread.begin_take().now_or_never() {
            turns.push(turn.unwrap());
        }
        let (large, small) = (taking(FEW + 1), taking(FEW));
        let mut large = std::pin::pin!(large.once());
        assert!(large.as_mut().now_or_never().is_none());
        let taken = small.once().await.unwrap();
        assert_eq!(texts(&taken), ["first"], "the large one takes nothing yet, and is in nobody's way");
        assert!(taken.turn.is_none());
        send(&gateway, "second").await;
        turns.pop();
        let taken = large.await.unwrap();
        assert_eq!(texts(&taken), ["second"]);
        assert!(gateway.unread.begin_take().now_or_never().is_none(), "its turn ends with the answer");
        drop(taken);
        assert!(gateway.unread.begin_take().now_or_never().is_some());
    }
}
