use hubbub_core::clock::ManualClock;
use hubbub_core::{LogPosition, MessageType, Op, Send, Timestamp};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn timeline(bytes: usize) -> (Timeline, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
    (Timeline::new(bytes, clock.clone()), clock)
}

fn receipt(seq: u64) -> Receipt {
    Receipt { seq, received_at: Timestamp::from_micros(saturate(seq * 10)), gap: 0 }
}

fn times(queued: u32) -> BatchTimes {
    let at = |ms: u32| MS * (queued + ms);
    BatchTimes { queued: at(0), queued_last: at(1), taken: at(2), stored: at(3), answered: at(4) }
}

/// Records a batch of messages, each with its room, and its outcome. Runs are of one room each, as the batcher has them.
fn record(timeline: &Timeline, queued: u32, messages: &[(&str, Outcome)], offset: Option<u64>) {
    let (mut ops, mut runs, mut last) = (OpBatch::default(), Vec::new(), "");
    for ((room, _), index) in messages.iter().zip(0_u64..) {
        let (timestamp, kind) = (Timestamp::default(), MessageType::Text);
        let op = Op::Send(Send { room, user: "u", id: "i", username: None, text: "t", kind, timestamp });
        match offset {
            None => ops.push(&op),
            Some(offset) => {
                ops.push_at(
                    &op,
                    LogPosition { partition: 0, offset: offset + index, appended_at: timestamp },
                );
            }
        }
        if last != *room {
            runs.push(0);
        }
        *runs.last_mut().unwrap() += 1;
        last = room;
    }
    let outcomes: Vec<Outcome> = messages.iter().map(|(_, outcome)| outcome.clone()).collect();
    let mut spans = BatchSpans::default();
    timeline.record_batch((&ops, &outcomes), runs.into_iter(), &times(queued), &mut spans);
}

fn stored(seq: u64) -> Outcome {
    Outcome::Stored(receipt(seq))
}

fn queued_at(timeline: &Timeline, room: &str, seq: u64) -> Option<u128> {
    let batch = timeline.trace(room, &receipt(seq))?.batch?;
    assert_eq!(batch.times, times(u32::try_from(batch.times.queued.as_millis()).unwrap()));
    Some(batch.times.queued.as_millis())
}

#[test]
fn every_message_of_a_batch_has_its_times() {
    let (timeline, _) = timeline(1 << 20);
    let messages = [
        ("a", stored(7)),
        ("a", stored(8)),
        ("b", stored(3)),
        ("a", stored(9)),
        ("c", stored(1)),
        ("b", stored(4)),
    ];
    record(&timeline, 10, &messages, None);
    record(
        &timeline,
        20,
        &[("a", stored(10)), ("a", Outcome::Duplicate(receipt(2))), ("a", stored(11))],
        None,
    );
    for (room, seq, queued) in [
        ("a", 7, 10),
        ("a", 8, 10),
        ("a", 9, 10),
        ("b", 3, 10),
        ("b", 4, 10),
        ("c", 1, 10),
        ("a", 10, 20),
        ("a", 11, 20),
    ] {
        assert_eq!(queued_at(&timeline, room, seq), Some(queued), "{room} {seq}");
    }
    for (room, seq) in [("a", 6), ("a", 12), ("b", 2), ("b", 5), ("c", 2), ("d", 7), ("a", 2)] {
        assert_eq!(queued_at(&timeline, room, seq), None, "{room} {seq}");
    }
    assert_eq!(timeline.trace("a", &receipt(7)).unwrap().batch.unwrap().operations, 6);
}

#[test]
fn what_another_server_stored_in_between_is_not_claimed() {
    let (timeline, _) = timeline(1 << 20);
    record(
        &timeline,
        10,
        &[("a", stored(1)), ("a", stored(2)), ("a", stored(5)), ("b", stored(1)), ("a", stored(8))],
        None,
    );
    for (seq, queued) in
        [(1, Some(10)), (2, Some(10)), (3, None), (4, None), (5, Some(10)), (6, None), (8, Some(10))]
    {
        assert_eq!(queued_at(&timeline, "a", seq), queued, "{seq}");
    }
    // With a log, the numbers in between are other rooms' records: one span for each room.
    record(
        &timeline,
        30,
        &[("x", stored(10)), ("y", stored(11)), ("x", stored(12)), ("y", stored(15))],
        Some(9),
    );
    let mut spans = 0;
    ring::visit_all(&timeline.recorder.as_ref().unwrap().ring, &Cell::new(0), &mut |record| {
        spans += usize::from(record.at == 30_000)
    });
    assert_eq!(spans, 2);
    assert_eq!((queued_at(&timeline, "x", 12), queued_at(&timeline, "y", 15)), (Some(30), Some(30)));
}

#[test]
fn a_number_of_another_history_is_another_message() {
    let (timeline, _) = timeline(1 << 20);
    record(&timeline, 10, &[("a", stored(1))], None);
    let other = Receipt { received_at: Timestamp::from_micros(99), ..receipt(1) };
    assert_eq!(timeline.trace("a", &other).unwrap().batch, None);
    timeline.clear();
    assert_eq!(timeline.trace("a", &receipt(1)).unwrap().batch, None);
}

#[test]
fn the_ring_keeps_the_newest_and_says_since_when() {
    let (timeline, clock) = timeline(1 << 20);
    let started = clock.monotonic();
    assert_eq!(timeline.trace("a", &receipt(1)).unwrap().since, started);
    let many = 40_000;
    for seq in 1..=many {
        record(&timeline, u32::try_from(seq).unwrap(), &[("a", stored(seq))], None);
    }
    let since = timeline.trace("a", &receipt(many)).unwrap().since;
    let oldest = u64::try_from((since - 4 * MS).as_millis()).unwrap();
    let kept = many - oldest;
    assert!((1 << 20) / 160 < kept && kept < (1 << 20) / 60, "{kept} records of 1 MiB");
    assert_eq!(queued_at(&timeline, "a", oldest), Some(oldest.into()), "the oldest that must be there");
    assert_eq!(queued_at(&timeline, "a", oldest - 1), None, "it was overwritten");
    assert_eq!(queued_at(&timeline, "a", many), Some(many.into()));
}

/// Segments older than a message's batch are not looked through; those of its time are.
#[test]
fn what_was_recorded_before_its_batch_is_found() {
    let (timeline, clock) = timeline(1 << 20);
    let publish = |room: &str, seq: u64| {
        timeline.record_publication(room, (seq, seq), Source::Commit, &timeline.deliveries().unwrap());
        clock.advance_micros(1_000);
    };
    // At 1 ms each: the older message's publication is segments before its batch, which was queued before it.
    for seq in 1..=10_000 {
        publish(if seq == 2_000 { "a" } else { "x" }, seq);
    }
    let queued = clock.monotonic() - 8_001 * MS;
    record(&timeline, u32::try_from(queued.as_millis()).unwrap(), &[("a", stored(2_000))], None);
    let trace = timeline.trace("a", &receipt(2_000)).unwrap();
    assert_eq!((trace.batch.unwrap().times.queued, trace.publications.len()), (queued, 1));
    assert_eq!(trace.publications[0].at, queued);
}

#[test]
fn sequels_of_many_messages_are_found_at_once() {
    let (timeline, clock) = timeline(1 << 20);
    let publish = |room: &str, seqs: (u64, u64)| {
        clock.advance_micros(1_000);
        timeline.record_publication(room, seqs, Source::Commit, &timeline.deliveries().unwrap());
        clock.monotonic()
    };
    let (first, second) = (publish("a", (1, 3)), publish("a", (3, 9)));
    let other = publish("b", (3, 3));
    let messages = [("a", 3), ("b", 3), ("a", 1), ("a", 10), ("c", 3), ("a", 3)];
    let sequels = timeline.sequels(messages.into_iter(), first);
    let found: Vec<Vec<Duration>> = sequels
        .iter()
        .map(|sequel| sequel.publications.iter().map(|publication| publication.at).collect())
        .collect();
    assert_eq!(found, [vec![first, second], vec![other], vec![first], vec![], vec![], vec![first, second]]);
    // What is older need not be looked through.
    for seq in 100..4_000 {
        publish("x", (seq, seq));
    }
    let late = publish("a", (11, 11));
    let sequels = timeline.sequels([("a", 11), ("a", 1)].into_iter(), late);
    assert_eq!((sequels[0].publications.len(), sequels[1].publications.len()), (1, 0));
}

#[test]
fn switched_off_nothing_is_recorded() {
    let (timeline, _) = timeline(0);
    record(&timeline, 10, &[("a", stored(1))], None);
    assert_eq!(timeline.trace("a", &receipt(1)), None);
    assert!(timeline.deliveries().is_none());
}
