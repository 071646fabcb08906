use hubbub_core::store::BatchCap;
use hubbub_core::{KvOp, KvOutcome, Op, OpBatch, Receipt, Timestamp};

use super::count::{count_outcomes, record_times};
use super::*;
use crate::batcher::{LogOptions, QueueLimits, Waiter};
use crate::histogram::Histogram;
use crate::metrics::Readable as _;

#[test]
fn no_outcome_is_visible_before_the_caches_are_updated() {
    let receipt = Receipt { seq: 1, received_at: Timestamp::from_micros(1), gap: 0 };
    let put = KvOutcome::Put { revision: 1, expires_at: None, created: true };
    let cases = [
        (Ok(vec![Outcome::Stored(receipt)]), true),
        (Ok(vec![Outcome::Kv(put)]), false),
        (Ok(vec![Outcome::Stored(receipt), Outcome::Changed { changed: true }]), false),
        (Err(ApplyError::Overloaded), true),
    ];
    // By the only commit thread, and by one of several, which never shows an outcome early.
    for ((outcomes, is_visible), is_only_thread) in
        cases.iter().flat_map(|case| [(case, true), (case, false)])
    {
        let (limits, cap) = (QueueLimits::default(), BatchCap { ops: 9, bytes: 99 });
        let batcher = Batcher::new(LogOptions { queue: limits, ..LogOptions::default() }, cap);
        let mut ops = OpBatch::default();
        ops.push(&Op::Kv(KvOp::Sweep));
        let ticket = batcher.submit(&ops, &Arc::new(Waiter::default()), Duration::ZERO).unwrap();
        let chunk = batcher.take().unwrap();
        publish_outcomes(&chunk.batch, outcomes.clone(), is_only_thread);
        assert_eq!(ticket.outcomes().is_some(), *is_visible && is_only_thread, "{outcomes:?}");
        chunk.batch.make_visible();
        assert!(ticket.outcomes().is_some());
    }
}

/// A batch with operations of a sender and of a broker's consumer: only the former hears of a failure.
#[test]
fn what_comes_from_a_log_is_no_failure_of_a_sender() {
    let away = ApplyError::Unavailable { reason: "away".to_owned() };
    let open = ApplyError::Unconfirmed { reason: "no answer".to_owned() };
    let failed = |error: &ApplyError| Outcome::Failed(Box::new(error.clone()));
    let done = Outcome::Changed { changed: true };
    let parts = Ok(vec![failed(&open), done.clone(), failed(&away)]);
    for (outcomes, told) in [
        (Err(away.clone()), vec![(away.clone(), 2)]),
        (parts, vec![(open, 1)]),
        (Ok(vec![done.clone(), done, failed(&away)]), vec![]),
    ] {
        let batcher = Batcher::new(LogOptions::default(), BatchCap { ops: 9, bytes: 99 });
        for (operations, waiter) in [(2, Waiter::default()), (1, Waiter::of_log())] {
            let mut ops = OpBatch::default();
            (0..operations).for_each(|_| ops.push(&Op::Kv(KvOp::Sweep)));
            batcher.submit(&ops, &Arc::new(waiter), Duration::ZERO).unwrap();
        }
        let (chunk, mut outcomes) = (batcher.take().unwrap(), outcomes);
        outcomes.iter_mut().for_each(|outcomes| chunk.mark_failures(outcomes));
        let failures = chunk.reported_failures(&outcomes).map(|(error, count)| (error.clone(), count));
        assert_eq!(failures.collect::<Vec<_>>(), told);
        let metrics = Metrics::default();
        count_outcomes(&chunk, &outcomes, &metrics);
        let counted = metrics.unconfirmed.get() + metrics.read().rejected.iter().sum::<u64>();
        assert_eq!(counted, told.iter().map(|(_, count)| *count as u64).sum::<u64>());
        record_times(&chunk, Duration::ZERO, Duration::ZERO, &metrics);
        let none = Metrics::default();
        let count = |time: &Histogram, none: &Histogram| time.read().count_since(&none.read());
        assert_eq!(count(&metrics.total_time, &none.total_time), 3);
        assert_eq!(count(&metrics.client_time, &none.client_time), 2, "nobody waits for the other one");
    }
}
