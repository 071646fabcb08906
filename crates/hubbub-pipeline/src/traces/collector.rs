//! Completes traces from the timeline, and holds spans until they are exported.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::TraceContext;
use parking_lot::Mutex;

use super::{Followed, Span, SpanKind, Traced, TracedReceiver};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::timeline::{Publication, Sequel, Source};

/// How often the timeline is asked for messages.
const INTERVAL: Duration = Duration::from_millis(500);
/// A message is followed for so long, and until everybody has it,
pub(crate) const FOLLOW_MIN: Duration = Duration::from_secs(1);
/// but not longer than this.
pub(crate) const FOLLOW_MAX: Duration = Duration::from_secs(5);
/// Messages that are followed at the same time.
const FOLLOWED_MAX: usize = 8_192;
/// Spans that wait for the exporter.
const SPANS_MAX: usize = 16_384;

/// Spans on their way to the exporter.
pub struct SpanQueue {
    spans: Mutex<VecDeque<Span>>,
    metrics: Arc<Metrics>,
}

impl SpanQueue {
    /// An empty queue.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { spans: Mutex::default(), metrics })
    }

    /// The oldest spans. They stay in the queue until [`SpanQueue::remove`].
    pub fn oldest(&self, count_max: usize) -> Vec<Span> {
        self.spans.lock().iter().take(count_max).cloned().collect()
    }

    /// Removes the oldest `count` spans.
    pub fn remove(&self, count: usize) {
        let mut spans = self.spans.lock();
        let count = count.min(spans.len());
        spans.drain(..count);
    }

    fn push(&self, span: Span) {
        let mut spans = self.spans.lock();
        if spans.len() < SPANS_MAX {
            return spans.push_back(span);
        }
        drop(spans);
        self.metrics.spans_dropped.inc();
    }
}

/// Takes what is traced, and follows messages until they are delivered.
pub struct Collector {
    receiver: TracedReceiver,
    hub: Arc<Hub>,
    queue: Arc<SpanQueue>,
    followed: Vec<Followed>,
}

impl Collector {
    /// A collector of what the tracer of `hub` takes.
    pub fn new(receiver: TracedReceiver, hub: Arc<Hub>, queue: Arc<SpanQueue>) -> Self {
        Self { receiver, hub, queue, followed: Vec::new() }
    }

    /// Collects until it is dropped.
    pub async fn run(&mut self) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                traced = self.receiver.0.recv() => match traced {
                    Some(traced) => self.take(traced),
                    None => return,
                },
                _ = interval.tick() => self.follow(FOLLOW_MIN, FOLLOW_MAX),
            }
        }
    }

    /// Completes what is under way as far as it is known.
    pub fn finish(&mut self) {
        self.follow(Duration::ZERO, Duration::ZERO);
    }

    fn take(&mut self, traced: Traced) {
        match traced {
            Traced::Span(span) => self.queue.push(span),
            Traced::Message(message) if self.followed.len() < FOLLOWED_MAX => self.followed.push(message),
            Traced::Message(_) => {
                self.queue.metrics.spans_dropped.inc();
            }
        }
    }

    /// Completes messages that are `min` old and delivered to everybody, or `max` old.
    pub(crate) fn follow(&mut self, min: Duration, max: Duration) {
        while let Ok(traced) = self.receiver.0.try_recv() {
            self.take(traced);
        }
        let Some(now) = self.hub.timeline().now() else { return };
        let age = |message: &Followed| now.saturating_sub(message.since);
        let ripe: Vec<Followed> = self.followed.extract_if(.., |message| age(message) >= min).collect();
        if ripe.is_empty() {
            return;
        }
        let messages = ripe.iter().map(|message| (message.room.as_str(), message.seq));
        let since = ripe.iter().map(|message| message.since).min().unwrap_or_default();
        let sequels = self.hub.timeline().sequels(messages, since);
        for (message, sequel) in ripe.into_iter().zip(sequels) {
            if age(&message) >= max || sequel.publications.iter().all(Publication::is_delivered) {
                self.complete(&message, &sequel, now);
            } else {
                self.followed.push(message);
            }
        }
    }

    fn complete(&self, message: &Followed, sequel: &Sequel, now: Duration) {
        let Some(tracer) = self.hub.timeline().tracer() else { return };
        let span = |name, kind, context, parent: TraceContext, (began, ended)| Span {
            context,
            parent: Some(parent.span),
            name: Cow::Borrowed(name),
            kind,
            began,
            ended,
            attributes: Vec::new(),
            is_failed: false,
        };
        let (context, since) = (message.context, message.since);
        if let Some(at) = sequel.bus {
            self.queue.push(span("bus", SpanKind::Producer, tracer.child(context), context, (since, at)));
        }
        for publication in &sequel.publications {
            let publish = tracer.child(context);
            let times = (since.min(publication.at), publication.at);
            let from = match publication.source {
                Source::Commit => "commit",
                Source::Bus => "bus",
                Source::Store => "store",
            };
            let attributes = vec![
                ("messaging.destination.name", message.room.as_str().into()),
                ("hubbub.seq", message.seq.into()),
                ("hubbub.from", from.into()),
                ("hubbub.subscribers", publication.subscribers.into()),
            ];
            let published = span("publish", SpanKind::Internal, publish, context, times);
            self.queue.push(Span { attributes, ..published });
            let is_failed = !publication.is_delivered();
            let ended = match publication.delivered_at {
                Some((_, last)) => last,
                // Nobody took it until now.
                None if is_failed => now,
                // There was nobody.
                None => continue,
            };
            let times = (publication.at, ended.max(publication.at));
            let attributes = vec![("hubbub.delivered", publication.delivered.into())];
            let delivered = span("deliver", SpanKind::Producer, tracer.child(publish), publish, times);
            self.queue.push(Span { attributes, is_failed, ..delivered });
        }
    }
}
