//! Traces: what became of a request and its message, as spans for an exporter.
//!
//! The gateway begins a trace with a request that asks for it, or by chance ([`Tracer::begin`]); the operation of its message
//! carries the context ([`OpBatch::traces`]), through the headers of a broker, too. The dispatcher tells the tracer what the
//! batch took. What followed, publications and deliveries, is found in the [`timeline`](crate::timeline) a moment later, by
//! the [`Collector`].
//!
//! Invariants
//! - Without an exporter there is no tracer. With one, messages of no trace cost a look at an empty list for each batch.
//! - Nobody waits for the exporter. What does not fit into its bounded queues is dropped and counted.
//! - Spans have ids of rooms and messages, but no texts and no users.

mod collector;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::{Op, OpBatch, Outcome, TraceContext};
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::timeline::BatchTimes;

pub use collector::{Collector, SpanQueue};
#[cfg(test)]
pub(crate) use collector::{FOLLOW_MAX, FOLLOW_MIN};

/// Spans and messages between those who are traced and the collector.
const CHANNEL: usize = 4_096;

/// The unit of shares: millionths.
pub const WHOLE: u32 = 1_000_000;

/// One step of a trace. Times are of the monotonic clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace, and the span's own id.
    pub context: TraceContext,
    /// The span it is a child of.
    pub parent: Option<u64>,
    /// What it is.
    pub name: Cow<'static, str>,
    /// Which side of an exchange it is.
    pub kind: SpanKind,
    /// When it began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// What else is known.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Whether it did not come to its end.
    pub is_failed: bool,
}

/// Which side of an exchange a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Answers a request.
    Server,
    /// Happens inside the server.
    Internal,
    /// Gives a message to others.
    Producer,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A request that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunTrace {
    /// The trace, and the span of the request.
    pub context: TraceContext,
    /// The caller's span.
    pub parent: Option<u64>,
    /// When it began.
    pub at: Duration,
}

/// A message whose sequel the collector looks up.
#[derive(Debug, Clone)]
struct Followed {
    room: String,
    seq: u64,
    /// What its spans are children of.
    context: TraceContext,
    /// When it was stored here, or came over the bus.
    since: Duration,
}

#[derive(Debug)]
enum Traced {
    Span(Span),
    Message(Followed),
}

/// Takes what is traced, and never waits.
pub struct Tracer {
    sender: mpsc::Sender<Traced>,
    /// Requests that are traced although nobody asks for it, in millionths.
    share: u32,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
}

/// What a [`Collector`] is made of.
pub struct TracedReceiver(mpsc::Receiver<Traced>);

impl Tracer {
    /// A tracer of every request whose caller asks for it, and of `share` millionths of those whose caller says nothing.
    pub fn new(
        share: u32,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
        metrics: Arc<Metrics>,
    ) -> (Self, TracedReceiver) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        (Self { sender, share, clock, random, metrics }, TracedReceiver(receiver))
    }

    /// Begins a trace, or goes on with the caller's. `None` = the request is not traced.
    pub fn begin(&self, traceparent: Option<&[u8]>) -> Option<BegunTrace> {
        let (trace, parent) = match traceparent.and_then(TraceContext::parse) {
            Some((_, false)) => return None,
            Some((caller, true)) => (caller.trace, Some(caller.span)),
            None if self.share == 0 || self.random.next_u64() % u64::from(WHOLE) >= self.share.into() => {
                return None;
            }
            None => (u128::from(self.id()) << 64 | u128::from(self.id()), None),
        };
        let context = TraceContext { trace, span: self.id() };
        Some(BegunTrace { context, parent, at: self.clock.monotonic() })
    }

    /// A new child of a span.
    pub fn child(&self, parent: TraceContext) -> TraceContext {
        TraceContext { span: self.id(), ..parent }
    }

    fn id(&self) -> u64 {
        self.random.next_u64().max(1)
    }

    /// Takes a span, or drops it.
    pub fn span(&self, span: Span) {
        self.send(Traced::Span(span));
    }

    /// Goes on with a trace whose message another server stored.
    #[cfg(feature = "kafka")]
    pub(crate) fn arrived(&self, room: &str, seq: u64, context: TraceContext) {
        let since = self.clock.monotonic();
        self.send(Traced::Message(Followed { room: room.to_owned(), seq, context, since }));
    }

    /// Takes what a batch was for its messages that belong to traces. Without outcomes the batch failed.
    pub(crate) fn committed(&self, ops: &OpBatch, outcomes: Option<&[Outcome]>, times: &BatchTimes) {
        for (index, context) in ops.traces() {
            let Some(Op::Send(sent)) = ops.get(*index) else { continue };
            let outcome = outcomes.and_then(|outcomes| outcomes.get(*index));
            let log = self.child(*context);
            let mut attributes = vec![
                ("messaging.destination.name", sent.room.into()),
                ("messaging.message.id", sent.id.into()),
                ("messaging.batch.message_count", (ops.len() as u64).into()),
            ];
            if let Some((receipt, is_duplicate)) = outcome.and_then(Outcome::receipt) {
                attributes.push(("hubbub.seq", receipt.seq.into()));
                attributes.extend(is_duplicate.then(|| ("hubbub.outcome", "duplicate".into())));
            }
            let is_failed =
                !matches!(outcome, Some(Outcome::Stored(_) | Outcome::Duplicate(_) | Outcome::Accepted));
            let span = |name, context, parent: TraceContext, (began, ended), attributes| Span {
                context,
                parent: Some(parent.span),
                name: Cow::Borrowed(name),
                kind: SpanKind::Internal,
                began,
                ended,
                attributes,
                is_failed,
            };
            self.span(span("log", log, *context, (times.queued, times.answered), attributes));
            self.span(span("store", self.child(log), log, (times.taken, times.stored), Vec::new()));
            if let Some(Outcome::Stored(receipt)) = outcome {
                let (room, since) = (sent.room.to_owned(), times.stored);
                self.send(Traced::Message(Followed { room, seq: receipt.seq, context: *context, since }));
            }
        }
    }

    fn send(&self, traced: Traced) {
        if self.sender.try_send(traced).is_err() {
            self.metrics.spans_dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests;
