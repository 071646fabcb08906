//! `POST /v1/queues/{queue}/get`, `/read`, `/lease`, and `/v1/clients/{client}/get`, `/read`: take messages, or peek at
//! them, and wait when there is none.

use std::time::Duration;

use hubbub_core::draft::Loose;
use hubbub_core::queue::{Delivery, Take, TakeFilter, TakeMode};
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
use crate::auth::caller::Requirement;
use crate::auth::receipts::ReceiptFormat;
use crate::auth::session::Session;
use crate::incoming_memory::FREE_BYTES;
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
    // It stays in memory as long as the request waits.
    let body = call.body_up_to(FREE_BYTES).await?;
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
        caller.may(Requirement::Client(receiver))?;
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
    result: AttemptResult,
    /// Held until the answer is made, if that may be large.
    _turn: Option<SemaphorePermit<'a>>,
}

/// The result of one attempt: taken in a batch, or read.
enum AttemptResult {
    Taken(Applied),
    Seen(Vec<Delivery>),
}

impl AttemptResult {
    fn deliveries(&self) -> Result<&[Delivery], Problem> {
        match self {
            Self::Seen(deliveries) => Ok(deliveries),
            Self::Taken(applied) => match applied.outcomes() {
                [Outcome::Queue(QueueOutcome::Taken { messages, .. })] => Ok(messages),
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
        let patience = Duration::from_millis(self.take.wait_ms);
        if patience.is_zero() {
            return self.once().await;
        }
        self.gateway.rates.check_waiting(self.gateway.metrics.queue_waiting_consumers.get())?;
        let deadline = Instant::now() + patience;
        let mut shutdown = peer.shutdown.clone();
        // Registered before the first try, so that no message sent in between is missed. Closing the connection drops it.
        let handle = self.gateway.log.consumers().register(self.filter()?);
        let nothing = || Attempt { result: AttemptResult::Seen(Vec::new()), _turn: None };
        loop {
            // Before the attempt begins: what waits for its turn is nobody's to be woken for.
            let turn = tokio::select! {
                biased;
                turn = self.turn(patience) => turn?,
                () = tokio::time::sleep_until(deadline) => return Ok(nothing()),
                () = shutdown.requested() => return Ok(nothing()),
                ended = self.session.end() => return Err(ended.problem()),
            };
            self.check_session()?;
            handle.begin_attempt();
            let result = self.found().await?;
            let deliveries = result.deliveries()?;
            if !deliveries.is_empty() {
                // A peek leaves the messages to the next waiter.
                if self.kind != TakeKind::Read {
                    handle.complete(deliveries.iter().map(|delivery| delivery.id));
                }
                return Ok(Attempt { result, _turn: turn });
            }
            // While this one waits, others make their answers.
            drop(turn);
            handle.end_empty_attempt();
            tokio::select! {
                () = handle.woken() => {}
                () = tokio::time::sleep_until(deadline) => return Ok(nothing()),
                () = shutdown.requested() => return Ok(nothing()),
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

    async fn once(&self) -> Result<Attempt<'a>, Problem> {
        let turn = self.turn(Duration::ZERO).await?;
        self.check_session()?;
        Ok(Attempt { result: self.found().await?, _turn: turn })
    }

    /// Waits for its turn, if the answer may be large: what is taken away must not wait in memory, nor be refused.
    async fn turn(&self, patience: Duration) -> Result<Option<SemaphorePermit<'a>>, Problem> {
        if self.take.max <= FEW {
            return Ok(None);
        }
        self.gateway.outgoing_memory.permit_take(patience).await.map(Some)
    }

    /// Once the token has expired or was revoked, nothing is taken any more.
    fn check_session(&self) -> Result<(), Problem> {
        let ended = self.session.ended_at(|| self.gateway.now());
        ended.map_or(Ok(()), |ended| Err(ended.problem()))
    }

    async fn found(&self) -> Result<AttemptResult, Problem> {
        let CheckedTake { receiver, sender, max, newest_first, lease_ms, .. } = self.take;
        let wanted = TakeFilter { queue: self.queue, receiver, sender, newest_first };
        let how = match self.kind {
            TakeKind::Get => TakeMode::Away,
            TakeKind::Lease => TakeMode::Lease { lease_ms },
            TakeKind::Read => {
                let seen = self.gateway.store.peek(wanted, max).await?;
                return seen.map(AttemptResult::Seen).ok_or_else(no_queue);
            }
        };
        let mut ops = OpBatch::default();
        ops.push(&Op::Queue(QueueOp::Take(Take { wanted, max, how, registers: true })));
        Ok(AttemptResult::Taken(self.gateway.apply(&ops).await?))
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
        while let Some(turn) = gateway.outgoing_memory.permit_take(Duration::ZERO).now_or_never() {
            turns.push(turn.unwrap());
        }
        let (large, small) = (taking(FEW + 1), taking(FEW));
        let mut large = std::pin::pin!(large.once());
        assert!(large.as_mut().now_or_never().is_none());
        let taken = small.once().await.unwrap();
        assert_eq!(texts(&taken), ["first"], "the large one takes nothing yet, and is in nobody's way");
        send(&gateway, "second").await;
        turns.pop();
        let taken = large.await.unwrap();
        assert_eq!(texts(&taken), ["second"]);
        assert!(
            gateway.outgoing_memory.permit_take(Duration::ZERO).now_or_never().is_none(),
            "its turn ends with the answer"
        );
        drop(taken);
        assert!(gateway.outgoing_memory.permit_take(Duration::ZERO).now_or_never().is_some());
    }

    /// Whoever waits for its turn may be revoked meanwhile.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_has_ended_by_its_turn_takes_nothing() {
        let clock = Arc::new(ManualClock::at(now()));
        let gateway = fixture::gateway(clock.clone()).await;
        let settings = QueueSettings::default();
        gateway.apply_queue(QueueOp::Put { queue: "jobs", settings: &settings }).await.unwrap();
        send(&gateway, "text").await;
        let expires = now().as_micros() / 1_000_000 + 5;
        let caller = fixture::caller(&gateway, json!({"sub": "ann", "queues": {"*": "r"}, "exp": expires}));
        let taking = |caller| Taking {
            gateway: &gateway,
            queue: Some("jobs"),
            take: CheckedTake {
                receiver: Some("ann"),
                sender: None,
                max: FEW + 1,
                newest_first: false,
                wait_ms: 0,
                lease_ms: None,
            },
            kind: TakeKind::Get,
            session: Session::open(&gateway.auth, caller),
        };
        let mut turns = Vec::new();
        while let Some(turn) = gateway.outgoing_memory.permit_take(Duration::ZERO).now_or_never() {
            turns.push(turn.unwrap());
        }
        let ended = taking(&caller);
        let mut ended = std::pin::pin!(ended.once());
        assert!(ended.as_mut().now_or_never().is_none());
        clock.advance_micros(200_000_000);
        turns.clear();
        assert!(ended.await.is_err());
        let other = fixture::caller(&gateway, json!({"sub": "ann", "queues": {"*": "r"}}));
        assert_eq!(texts(&taking(&other).once().await.unwrap()), ["text"]);
    }
}
