//! Parts, and the whole that they are merged to.

use std::time::{Duration, Instant};

use hubbub_core::clock::{RandomSource, SeededRandom};

use super::super::part::{Effort, Part, merge};
use crate::client::{Cause, Target};
use crate::load::message_plan::Shape;
use crate::load::phases::Timetable;
use crate::load::run::{Counts, Run};
use crate::options::{Rules, arguments};
use crate::results::record::{Ending, Sample};
use crate::workloads::engine::Account;

fn empty() -> Run {
    let rules: Rules = arguments("rules", &[]).unwrap();
    Run::new(Target::parse("127.0.0.1:1").unwrap(), Shape::new(1, 1, None, ""), rules)
}

/// What the whole counts between two moments is what agents had then, whenever it was made ready, and whatever came before.
#[test]
fn what_ended_between_two_moments_is_known_of_the_whole() {
    let second = Duration::from_secs(1);
    let run = empty();
    run.begin_phases(&Timetable { warmup: 2 * second, main: Some(3 * second), cooldown: Duration::ZERO });
    let sample = |done_us: u64| Sample {
        done_us,
        index: 0,
        latency_us: 5,
        waited_us: None,
        room: 1,
        kind: 0,
        ending: Ending::Accepted,
    };
    // 50 in a second of the warm-up, and 10 in one of the main phase.
    let warming = (0..100).map(|n| sample(20_000 * n + 10));
    let mut samples: Vec<Sample> =
        warming.chain((0..30).map(|n| sample(2_000_000 + 100_000 * n + 10))).collect();
    run.record(&mut samples, 5_000_000);
    let part = Part::of(&run, &Account::default(), Effort::default(), 2_000_000).unwrap();
    let mut whole = empty();
    // Long after it was made ready.
    let start = Instant::now() + 60 * second;
    whole.starts(start, crate::host::machine::now());
    merge(&whole, [part].iter()).unwrap();
    let ended = |from: u32, until: u32| {
        let [from, until] = [from, until].map(|seconds| whole.us_at(start + seconds * second));
        whole.record.lock().ended_between(from..until)
    };
    assert_eq!((ended(2, 5), ended(3, 4)), ((30.0, 0.0), (10.0, 0.0)));
}

#[test]
fn merged_parts_are_the_joint_data() {
    let (random, joint) = (SeededRandom::new(3), empty());
    let mut sent = Vec::new();
    // Three agents, the last of which has nothing: skewed latencies, apart from each other.
    for (agent, count) in [(0_u32, 5_000), (1, 300), (2, 0)] {
        let run = empty();
        let sample = |index: u64| {
            let bits = random.next_u64();
            let latency_us = (500 + agent * 40_000) + (bits % 1_000) as u32 * (bits >> 32 & 0xff) as u32;
            let (room, kind) = ((bits >> 16) as u16 % 4, (bits >> 20) as u8 % 3);
            let waited_us = Some(latency_us / 3);
            Sample {
                done_us: index * 1_500 + 300_000,
                index,
                latency_us,
                waited_us,
                room,
                kind,
                ending: Ending::Accepted,
            }
        };
        let samples: Vec<Sample> = (0..count).map(sample).collect();
        for mut record in [joint.record.lock(), run.record.lock()] {
            record.count(&samples, &(0..u64::MAX));
            record.add(&samples);
        }
        for counts in [&run.counts, &joint.counts] {
            Counts::add(&counts.sent, count);
            Counts::add(&counts.accepted, count);
            Counts::add(&counts.duplicate, 2);
            counts.retries.add(Cause::Refused, u64::from(agent) + 1);
        }
        let warm_up = (agent == 0).then(|| std::sync::Arc::new(empty()));
        warm_up.iter().for_each(|run| Counts::add(&run.counts.accepted, 7));
        let account = Account { warm_up, concurrency: Some(4.0), window: Some(8.0), ..Account::default() };
        let part = Part::of(&run, &account, Effort::default(), 1_000 * u64::from(agent)).unwrap();
        let text = serde_json::to_string(&part).unwrap();
        sent.push(serde_json::from_str::<Part>(&text).unwrap());
        let warmed = if agent == 0 { 7 } else { 0 };
        assert_eq!(sent.last().unwrap().accepted(), [warmed, count], "before the load, and in it");
    }
    let whole = empty();
    let account = merge(&whole, sent.iter()).unwrap();
    assert_eq!((account.concurrency, account.asked_per_second), (Some(12.0), None));
    assert_eq!(account.window, Some(24.0));
    assert_eq!(whole.wall_us(0) - whole.started.as_micros(), 2_000, "behind the longest warm-up");
    assert_eq!(account.warm_up.unwrap().counts.totals(), [0, 7, 0, 0]);
    assert_eq!(whole.counts.totals(), [5_300, 5_300, 0, 0]);
    assert_eq!((whole.counts.retries.all(), whole.counts.retries.sum()), (joint.counts.retries.all(), 6));
    let (whole, joint) = (whole.record.lock(), joint.record.lock());
    assert_eq!((whole.last_us, whole.last_begun_us), (joint.last_us, joint.last_begun_us));
    assert_eq!((&whole.steps, &whole.ended), (&joint.steps, &joint.ended));
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-9);
    let dists = |record: &crate::results::record::Record| {
        let kinds = record.by_kind.iter().map(|(_, dist)| dist.clone());
        let open = record.open.as_ref().unwrap();
        let open = [&open.send_delay, &open.from_send].map(Clone::clone);
        std::iter::once(record.all.clone()).chain(kinds).chain(open).collect::<Vec<_>>()
    };
    for (merged, joint) in dists(&whole).iter().zip(&dists(&joint)) {
        for percentile in [0.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            assert_eq!(merged.percentile_ms(percentile), joint.percentile_ms(percentile));
        }
        let (merged, joint) = (merged.stats(), joint.stats());
        assert_eq!((merged.count, merged.min_ms, merged.max_ms), (joint.count, joint.min_ms, joint.max_ms));
        assert!(near(merged.mean_ms, joint.mean_ms) && near(merged.variance_ms2, joint.variance_ms2));
    }
    for (merged, joint) in whole.by_room.iter().zip(&joint.by_room) {
        assert!(merged.count == joint.count && near(merged.mean, joint.mean), "{merged:?} {joint:?}");
    }
    let [merged, joint] = [&whole, &joint].map(|record| record.seconds.rate_variation(record.last_begun_us));
    assert!(near(merged.unwrap(), joint.unwrap()));
}
