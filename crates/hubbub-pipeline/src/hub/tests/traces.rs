//! What follows a traced message on its way to subscribers.

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::invariant::saturate;
use hubbub_core::{Clock, TraceContext};

use super::*;
use crate::timeline::BatchTimes;
use crate::traces::{Attribute, Collector, FOLLOW_MAX, FOLLOW_MIN, Span, SpanQueue, Tracer};

const CALLER: TraceContext = TraceContext { trace: 7, span: 8 };

#[test]
fn a_message_is_followed_until_everybody_has_it() {
    let (clock, metrics) =
        (Arc::new(ManualClock::at(Timestamp::from_micros(1))), Arc::new(Metrics::default()));
    let (tracer, receiver) = Tracer::new(0, clock.clone(), Arc::new(SeededRandom::new(1)), metrics.clone());
    let hub = Arc::new(hub().with_timeline(Timeline::new(1 << 20, clock.clone()).with_tracer(tracer)));
    let queue = SpanQueue::new(metrics);
    let mut collector = Collector::new(receiver, hub.clone(), queue.clone());
    let (quick, slow) = (outbox(100), outbox(100));
    let attached = [live(&hub, "r", None, &quick), live(&hub, "r", None, &slow)];
    let commit = |seq| {
        let (op, outcome) = message("r", seq);
        let mut ops = OpBatch::default();
        ops.push(&op);
        ops.trace_last(CALLER);
        let now = clock.monotonic();
        let times = BatchTimes { queued: now, queued_last: now, taken: now, stored: now, answered: now };
        hub.timeline().tracer().unwrap().committed(&ops, Some(&[outcome]), &times);
        publish(&hub, "r", seq..=seq);
    };
    let spans = |name: &str| -> Vec<Span> {
        queue.oldest(usize::MAX).into_iter().filter(|span| span.name == name).collect()
    };
    let deliver = |outbox: &Outbox| {
        while let Some(chunk) = next_chunk(outbox) {
            hub.timeline().delivered(&chunk);
        }
    };
    commit(1);
    deliver(&quick);
    clock.advance_micros(saturate(FOLLOW_MIN.as_micros()));
    collector.follow(FOLLOW_MIN, FOLLOW_MAX);
    assert_eq!(spans("publish"), [], "somebody lacks it");
    deliver(&slow);
    collector.follow(FOLLOW_MIN, FOLLOW_MAX);
    let (published, delivered) = (spans("publish"), spans("deliver"));
    assert_eq!((published[0].parent, delivered[0].parent), (Some(8), Some(published[0].context.span)));
    assert_eq!((delivered[0].ended - delivered[0].began, delivered[0].is_failed), (FOLLOW_MIN, false));
    assert!(delivered[0].attributes.contains(&("hubbub.delivered", Attribute::Number(2))));
    // Whoever never takes it is not waited for for ever.
    commit(2);
    deliver(&quick);
    clock.advance_micros(saturate(FOLLOW_MAX.as_micros()));
    collector.follow(FOLLOW_MIN, FOLLOW_MAX);
    let delivered = spans("deliver");
    assert!(
        delivered[1].is_failed
            && delivered[1].attributes.contains(&("hubbub.delivered", Attribute::Number(1)))
    );
    // Nor is it if nobody takes it, and that is told, too.
    commit(3);
    clock.advance_micros(saturate(FOLLOW_MAX.as_micros()));
    collector.follow(FOLLOW_MIN, FOLLOW_MAX);
    let delivered = spans("deliver");
    assert_eq!(delivered.len(), 3);
    assert_eq!((delivered[2].ended - delivered[2].began, delivered[2].is_failed), (FOLLOW_MAX, true));
    assert!(delivered[2].attributes.contains(&("hubbub.delivered", Attribute::Number(0))));
    // Nothing is followed any more.
    let before = queue.oldest(usize::MAX).len();
    collector.finish();
    assert_eq!(queue.oldest(usize::MAX).len(), before);
    attached.into_iter().for_each(|attached| hub.detach(attached));
    commit(4);
    collector.finish();
    assert_eq!(spans("deliver").len(), 3, "where nobody follows, nobody lacks it");
}
