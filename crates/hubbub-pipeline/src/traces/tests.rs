use std::collections::HashMap;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Receipt, Timestamp};

use super::*;
use crate::hub::{FrameEncoder, Hub};
use crate::test_message::message;
use crate::timeline::Timeline;

const MS: Duration = Duration::from_millis(1);
const CALLER: TraceContext = TraceContext { trace: 7, span: 8 };

struct Scene {
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
    hub: Arc<Hub>,
    collector: Collector,
    queue: Arc<SpanQueue>,
}

fn scene_of(share: u32) -> Scene {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1)));
    let metrics = Arc::new(Metrics::default());
    let random = Arc::new(SeededRandom::new(1));
    let (tracer, receiver) = Tracer::new(share, clock.clone(), random, metrics.clone());
    let timeline = Timeline::new(1 << 20, clock.clone()).with_tracer(tracer);
    let encoder = FrameEncoder { message: |_, out| out.push(1), notice: |_, out| out.push(2) };
    let hub = Arc::new(Hub::new(encoder, 1 << 20, clock.clone(), metrics.clone()).with_timeline(timeline));
    let queue = SpanQueue::new(metrics.clone());
    let collector = Collector::new(receiver, hub.clone(), queue.clone());
    Scene { clock, metrics, hub, collector, queue }
}

impl Scene {
    fn tracer(&self) -> &Tracer {
        self.hub.timeline().tracer().unwrap()
    }

    /// A batch of one message, which belongs to the caller's trace.
    fn commit(&self, outcomes: Option<&[Outcome]>) {
        let mut ops = OpBatch::default();
        ops.push(&message("r", "i", "t"));
        ops.trace_last(CALLER);
        let now = self.clock.monotonic();
        let times = BatchTimes {
            queued: now,
            queued_last: now + MS,
            taken: now + 2 * MS,
            stored: now + 3 * MS,
            answered: now + 4 * MS,
        };
        self.tracer().committed(&ops, outcomes, &times);
    }

    fn spans(&mut self) -> HashMap<String, Span> {
        self.collector.finish();
        let spans = self.queue.oldest(usize::MAX);
        self.queue.remove(spans.len());
        spans.into_iter().map(|span| (span.name.to_string(), span)).collect()
    }
}

fn stored(seq: u64) -> Outcome {
    Outcome::Stored(Receipt { seq, gap: 0, received_at: Timestamp::default() })
}

#[test]
fn callers_decide_what_is_traced() {
    let scene = scene_of(0);
    let tracer = scene.tracer();
    let (asked, not_asked) = (CALLER.to_string(), CALLER.to_string().replace("-01", "-00"));
    let begun = tracer.begin(Some(asked.as_bytes())).unwrap();
    assert_eq!((begun.context.trace, begun.parent), (CALLER.trace, Some(CALLER.span)));
    assert_ne!(begun.context.span, CALLER.span);
    for header in [None, Some(not_asked.as_bytes()), Some(b"rubbish".as_slice())] {
        assert_eq!(tracer.begin(header), None);
    }
    let all = scene_of(WHOLE);
    let begun = [None, Some(b"rubbish".as_slice())].map(|header| all.tracer().begin(header).unwrap());
    assert_ne!(begun[0].context.trace, begun[1].context.trace);
    assert!(begun.iter().all(|begun| begun.parent.is_none()));
    assert_eq!(all.tracer().begin(Some(not_asked.as_bytes())), None, "the caller has decided");
    let some = scene_of(WHOLE / 4);
    let traced = (0..4_000).filter(|_| some.tracer().begin(None).is_some()).count();
    assert!((800..1_200).contains(&traced), "{traced}");
}

#[test]
fn a_batch_leaves_the_spans_of_its_traced_messages() {
    let mut scene = scene_of(0);
    scene.commit(Some(&[stored(5)]));
    let spans = scene.spans();
    let (log, store) = (&spans["log"], &spans["store"]);
    assert_eq!((log.parent, store.parent), (Some(CALLER.span), Some(log.context.span)));
    assert_eq!(
        (log.ended - log.began, store.began - log.began, store.ended - log.began),
        (4 * MS, 2 * MS, 3 * MS)
    );
    assert!(!log.is_failed && log.attributes.contains(&("hubbub.seq", Attribute::Number(5))));
    for outcomes in [None, Some(&[Outcome::Refused(hubbub_core::Refusal::NotMember)][..])] {
        scene.commit(outcomes);
        assert!(scene.spans()["log"].is_failed);
    }
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let mut scene = scene_of(0);
    let spans = 2 * super::CHANNEL;
    for _ in 0..spans / 2 {
        // Two spans, and a message that is followed.
        scene.commit(Some(&[stored(1)]));
    }
    scene.collector.finish();
    let kept = scene.queue.oldest(usize::MAX).len() as u64;
    assert!(kept > 0 && kept < spans as u64);
    assert_eq!(scene.metrics.spans_dropped.get(), 3 * (spans as u64 / 2) - super::CHANNEL as u64);
}
