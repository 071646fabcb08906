use super::*;
use crate::test_message::message;
use hubbub_core::{LogPosition, Op, Outcome, Timestamp};
use proptest::prelude::*;

fn ops(room: &str, ids: &[String]) -> OpBatch {
    let mut ops = OpBatch::default();
    for id in ids {
        ops.push(&message(room, id, "t"));
    }
    ops
}

fn batcher(ops: usize, cap: usize) -> Batcher {
    let limits = QueueLimits { ops, bytes: usize::MAX };
    Batcher::new(
        LogOptions { queue: limits, ..LogOptions::default() },
        BatchCap { ops: cap, bytes: usize::MAX },
    )
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

#[test]
fn outcomes_are_held_until_they_are_shown() {
    let (batcher, waiter) = (batcher(10, 100), Arc::new(Waiter::default()));
    let ticket = batcher.submit(&ops("r", &names("m", 1)), &waiter, Duration::ZERO).unwrap();
    let chunk = batcher.take().unwrap();
    chunk.batch.set(Ok(vec![Outcome::Changed { changed: true }]));
    assert_eq!(ticket.outcomes(), None, "what is remembered may still be wrong");
    chunk.batch.make_visible();
    assert_eq!(ticket.outcomes(), Some(Ok(&[Outcome::Changed { changed: true }][..])));
}

#[test]
fn one_room_may_hold_half() {
    let (batcher, waiter) = (batcher(10, 100), Arc::new(Waiter::default()));
    let submit = |room: &str, count| {
        batcher.submit(&ops(room, &names("m", count)), &waiter, Duration::ZERO).map(|_| ())
    };
    assert_eq!(submit("hot", 5), Ok(()));
    assert_eq!(submit("hot", 1), Err(SubmitError::Overloaded));
    assert_eq!(submit("calm", 4), Ok(()));
    assert_eq!(submit("calm", 2), Err(SubmitError::Overloaded));
    assert_eq!(batcher.take().unwrap().ops.len(), 9);
    assert_eq!(submit("hot", 5), Ok(()));
    batcher.close();
    assert_eq!(submit("calm", 1), Err(SubmitError::ShuttingDown));
    assert_eq!(batcher.take().unwrap().ops.len(), 5);
    assert!(batcher.take().is_none());
}

/// A store refuses a larger batch as a whole.
#[test]
fn a_chunk_has_no_more_bytes_than_the_store_takes() {
    let waiter = Arc::new(Waiter::default());
    let message = ops("r", &names("m", 1));
    let cap = BatchCap { ops: 100, bytes: 2 * message.bytes() };
    let batcher = Batcher::new(LogOptions::default(), cap);
    let _tickets = [(); 3].map(|()| batcher.submit(&message, &waiter, Duration::ZERO).unwrap());
    batcher.close();
    let chunks: Vec<usize> = std::iter::from_fn(|| batcher.take()).map(|chunk| chunk.ops.len()).collect();
    assert_eq!(chunks, [2, 1]);
}

/// Also of the bytes: few large texts fill those long before there are many operations.
#[test]
fn one_room_may_hold_half_of_the_bytes() {
    let limits = QueueLimits { ops: 1_000, bytes: 1_000 };
    let batcher = Batcher::new(
        LogOptions { queue: limits, ..LogOptions::default() },
        BatchCap { ops: 100, bytes: usize::MAX },
    );
    let waiter = Arc::new(Waiter::default());
    let submit = |room: &str| {
        let mut ops = OpBatch::default();
        ops.push(&message(room, "i", &"x".repeat(200)));
        batcher.submit(&ops, &waiter, Duration::ZERO).map(|_| ())
    };
    assert_eq!([submit("hot"), submit("hot")], [Ok(()), Ok(())]);
    assert_eq!(submit("hot"), Err(SubmitError::Overloaded));
    assert_eq!(submit("calm"), Ok(()));
    batcher.take();
    assert_eq!(submit("hot"), Ok(()));
}

#[test]
fn partitions_of_the_log_share_chunks_only_where_they_wait_together_anyway() {
    let waiter = Arc::new(Waiter::default());
    let of_partition = |partition: u32, offset: u64| {
        let mut of_log = OpBatch::default();
        let position = LogPosition { partition, offset, appended_at: Timestamp::default() };
        ops("r", &names("m", 1)).iter().for_each(|op| of_log.push_at(&op, position));
        of_log
    };
    for (is_by_partition, expected) in [(false, vec![4]), (true, vec![2, 1, 1])] {
        let batcher = batcher(100, 100).by_partition(is_by_partition);
        for (partition, offset) in [(0, 1), (0, 2), (1, 1), (0, 3)] {
            batcher.submit(&of_partition(partition, offset), &waiter, Duration::ZERO).unwrap();
        }
        batcher.close();
        let chunks: Vec<usize> = std::iter::from_fn(|| batcher.take()).map(|chunk| chunk.ops.len()).collect();
        assert_eq!(chunks, expected);
    }
}

#[test]
fn an_empty_queue_takes_a_submission_of_any_size() {
    let (batcher, waiter) = (batcher(10, 3), Arc::new(Waiter::default()));
    assert!(batcher.submit(&ops("r", &names("m", 50)), &waiter, Duration::ZERO).is_ok());
    assert_eq!(batcher.take().unwrap().ops.len(), 50);
}

#[test]
fn an_exclusive_operation_gets_a_chunk_of_its_own() {
    let (batcher, waiter) = (batcher(100, 100), Arc::new(Waiter::default()));
    let mut alone = OpBatch::default();
    let what = hubbub_core::RoomChange::DeleteRoom { room: "r" };
    alone.push(&Op::Change(hubbub_core::Change { by: None, what }));
    for ops in [
        &ops("r", &["1".to_owned()]),
        &ops("r", &["2".to_owned()]),
        &alone,
        &ops("r", &["3".to_owned()]),
        &alone,
        &alone,
    ] {
        batcher.submit(ops, &waiter, Duration::ZERO).unwrap();
    }
    batcher.close();
    let sizes: Vec<usize> = std::iter::from_fn(|| batcher.take()).map(|chunk| chunk.ops.len()).collect();
    assert_eq!(sizes, [2, 1, 1, 1, 1]);
}

/// A batcher from which chunks of these sizes were taken, with as many operations waiting as `waiting` tells.
fn after_chunks(sizes: [usize; 2], waiting: usize) -> Arc<Batcher> {
    let batcher = Arc::new(batcher(1_000, 100));
    for size in sizes {
        submit_to(&batcher, size);
        assert_eq!(batcher.take().unwrap().ops.len(), size);
    }
    if waiting > 0 {
        submit_to(&batcher, waiting);
    }
    batcher
}

fn submit_to(batcher: &Batcher, count: usize) {
    batcher.submit(&ops("r", &names("m", count)), &Arc::new(Waiter::default()), Duration::ZERO).unwrap();
}

#[test]
fn what_waits_is_shown_while_no_batch_ends() {
    let gauge = Gauge::default();
    let batcher = batcher(1_000, 100).shown_by(gauge.clone());
    submit_to(&batcher, 30);
    batcher.take().unwrap();
    assert_eq!(gauge.get(), 0);
    submit_to(&batcher, 5);
    submit_to(&batcher, 7);
    assert_eq!(gauge.get(), 12);
}

/// Longer than any test runs, so that only what ends the wait lets it end.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

#[test]
fn nothing_is_gathered_where_few_send_or_enough_is_there() {
    after_chunks([1, 14], 0).gather(ENDLESS);
    after_chunks([10, 30], 20).gather(ENDLESS);
    after_chunks([10, 30], 0).gather(Duration::ZERO);
    let is_full = after_chunks([50, 90], 50);
    submit_to(&is_full, 60);
    is_full.gather(ENDLESS);
    let is_closed = after_chunks([10, 30], 1);
    is_closed.close();
    is_closed.gather(ENDLESS);
}

#[test]
fn patience_ends() {
    let batcher = after_chunks([10, 30], 19);
    batcher.gather(Duration::from_millis(1));
    assert_eq!(batcher.take().unwrap().ops.len(), 19);
}

/// As many as lately, a chunk that is full, and the end each end the wait that has begun.
#[test]
fn what_is_gathered_is_taken_at_once() {
    let more: fn(&Batcher) = |batcher| (0..3).for_each(|_| submit_to(batcher, 5));
    let too_many: fn(&Batcher) = |batcher| submit_to(batcher, 100);
    for (end, expected) in [(more, 20), (too_many, 5), (Batcher::close, 5)] {
        let batcher = after_chunks([10, 30], 5);
        let gathering = std::thread::spawn({
            let batcher = Arc::clone(&batcher);
            move || {
                batcher.gather(ENDLESS);
                batcher.take().unwrap().ops.len()
            }
        });
        while !batcher.state.lock().is_gathering {
            std::thread::yield_now();
        }
        end(&batcher);
        assert_eq!(gathering.join().unwrap(), expected);
    }
}

proptest! {
    /// Whatever the sizes and the cap: every operation comes out once, in order, and each ticket gets its own outcomes.
    #[test]
    fn every_ticket_gets_its_outcomes(sizes in proptest::collection::vec(1..20_usize, 1..30), cap in 1..40_usize) {
        let (batcher, waiter) = (batcher(100_000, cap), Arc::new(Waiter::default()));
        let mut tickets = Vec::new();
        let mut first = 0_u64;
        for size in sizes {
            let ids: Vec<_> = (first..).take(size).map(|n| n.to_string()).collect();
            tickets.push((batcher.submit(&ops("r", &ids), &waiter, Duration::ZERO).unwrap(), first));
            first += size as u64;
        }
        batcher.close();
        let mut seen = 0;
        while let Some(chunk) = batcher.take() {
            prop_assert!(chunk.wakes.len() == 1);
            let outcomes = chunk.ops.iter().map(|op| {
                let Op::Send(send) = op else { panic!("only messages were submitted") };
                assert_eq!(send.id, seen.to_string());
                seen += 1;
                Outcome::Stored(hubbub_core::Receipt { seq: seen, received_at: Timestamp::default(), gap: 0 })
            }).collect();
            chunk.batch.set(Ok(outcomes));
            chunk.batch.make_visible();
            batcher.recycle(chunk);
        }
        prop_assert_eq!(seen, first);
        for (ticket, first) in tickets {
            let outcomes = ticket.outcomes().unwrap().unwrap();
            prop_assert_eq!(outcomes.len(), ticket.count());
            for (outcome, seq) in outcomes.iter().zip(first + 1..) {
                prop_assert!(matches!(outcome, Outcome::Stored(receipt) if receipt.seq == seq));
            }
        }
    }
}

/// Where a store takes several batches at once, a thread that is at work keeps none from the others, and all end.
#[test]
fn every_thread_that_waits_gets_a_chunk_of_its_own_and_the_end() {
    let batcher = Arc::new(batcher(100, 100));
    let (taken, chunks) = std::sync::mpsc::channel();
    let take = |_| {
        let (batcher, taken) = (batcher.clone(), taken.clone());
        std::thread::spawn(move || {
            let mut under_way = Vec::new();
            while let Some(chunk) = batcher.take() {
                taken.send(chunk.batch.number).unwrap();
                // It is not done before the other ones have theirs.
                under_way.push(chunk);
                std::thread::park();
            }
        })
    };
    let threads: Vec<_> = (0..3).map(take).collect();
    while batcher.state.lock().parked < 3 {
        std::thread::yield_now();
    }
    let patience = Duration::from_secs(60);
    for number in 1..=3 {
        batcher.submit(&ops("r", &names("m", 1)), &Arc::new(Waiter::default()), Duration::ZERO).unwrap();
        assert_eq!(chunks.recv_timeout(patience), Ok(number));
    }
    threads.iter().for_each(|thread| thread.thread().unpark());
    while batcher.state.lock().parked < 3 {
        std::thread::yield_now();
    }
    batcher.close();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
