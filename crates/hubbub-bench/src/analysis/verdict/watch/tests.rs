//! Figures between two marks, and of runs.

use serde_json::Value;

use super::*;
use crate::report::MESSAGES;
use crate::results::record::{Ending, Sample};

/// Accepted messages, each begun so many ms after the start, and answered so many ms later, all after having waited for as long in
/// the generator.
fn recorded(messages: impl Iterator<Item = (u32, u32)>, waited_ms: u32) -> (Record, Report) {
    let mut record = Record::new(&["TEXT"]);
    let sample = |(begun_ms, latency_ms): (u32, u32)| Sample {
        done_us: 1_000 * u64::from(begun_ms + latency_ms),
        index: 0,
        latency_us: 1_000 * latency_ms,
        waited_us: Some(1_000 * waited_ms),
        room: 1,
        kind: 0,
        ending: Ending::Accepted,
    };
    record.add(&messages.map(sample).collect::<Vec<_>>());
    let mut report = Report::new("http", MESSAGES, Value::Null);
    report.latency = record.all.stats();
    (record, report)
}

/// What is seen of them where 100 a second were asked for.
fn seen_of(messages: impl Iterator<Item = (u32, u32)>, waited_ms: u32, sending_s: f64) -> Figures {
    let (record, report) = recorded(messages, waited_ms);
    let waited_ms = f64::from(waited_ms);
    let open = OpenLoop { asked_per_second: Some(100.0), sending_s, window: Some(50.0), waited_ms };
    Figures::default().with(&record, &report, &[], open)
}

/// 200 messages in 2 s, whose answers take 200 ms.
#[test]
fn a_short_run_is_not_late_because_of_its_last_answer() {
    let messages = || (0..200).map(|n| (10 * n, 200));
    let on_time = seen_of(messages(), 0, 2.0);
    assert!(on_time.missed().is_none() && on_time.window == Some(50.0), "{on_time:?}");
    let late = seen_of(messages(), 199, 2.0);
    assert!(late.missed().is_some_and(|share| (0.89..0.92).contains(&share)), "{late:?}");
    let (record, report) = recorded(messages(), 0);
    let open = OpenLoop { asked_per_second: None, sending_s: 2.0, window: Some(50.0), waited_ms: 0.0 };
    let closed = Figures::default().with(&record, &report, &[], open);
    assert_eq!((closed.reached, closed.window), (None, None));
}

/// 1,000 messages in 10 s.
#[test]
fn few_late_answers_take_nothing_from_the_others() {
    let one = (0..1_000).map(|n| (10 * n, if n == 500 { 30_000 } else { 5 }));
    let share = seen_of(one, 0, 10.0).reached.unwrap();
    assert!((0.998..1.0).contains(&share), "{share}");
    let tail = (0..1_000).map(|n| (10 * n, if n % 25 == 0 { 4_000 } else { 5 }));
    assert!(seen_of(tail, 0, 10.0).reached.unwrap() > 0.98);
    // A server that takes all and answers a share of it in time: all are answered as long after the end as the last ones take.
    for (percent, reached) in [(50, 0.54..0.56), (90, 0.90..0.92)] {
        let backlog = (0..1_000).map(|n| (10 * n, 10 * n * 100 / percent - 10 * n + 5));
        let share = seen_of(backlog, 0, 10.0).missed().unwrap();
        assert!(reached.contains(&share), "{percent} %: {share}");
    }
}

/// Of a server that was asked twice, with so many commit threads: what it said, and their processor time.
fn mark(at: Instant, metrics: Option<String>, servers: &[(u32, f64)]) -> Mark {
    let threads = |(count, run_s): &(u32, f64)| {
        let thread = |name: &str| ThreadTimes { name: name.to_owned(), run_s: *run_s, waited_s: 0.0 };
        let commit = (0..*count).map(|id| (id, thread(COMMIT_THREAD)));
        commit.chain([(1_000, thread("tokio-rt-worker"))]).collect()
    };
    Mark { at, servers: servers.iter().map(threads).collect(), ..Mark::with(&[], metrics) }
}

/// Seconds that batches were in the store, of each server; `more` is what they said besides.
fn told(servers: &[f64], more: &str) -> Option<String> {
    let one = |sum: &f64| {
        format!(
            "hubbub_pipeline_store_seconds_bucket{{le=\"+Inf\"}} {count}\nhubbub_pipeline_store_seconds_sum {sum}\n{more}",
            count = 100.0 * sum
        )
    };
    Some(servers.iter().map(one).collect())
}

#[test]
fn each_thread_that_commits_has_its_share_of_the_time() {
    let begun = Instant::now();
    let ended = begun + Duration::from_secs(10);
    let commit = |servers: &[f64], more: &str, [earlier, later]: [&[(u32, f64)]; 2]| {
        let before = mark(begun, told(&vec![0.0; servers.len()], more), earlier);
        let after = mark(ended, told(servers, more), later);
        Between { before: &before, after: &after }.commit().unwrap()
    };
    let near = |share: Option<f64>, wanted: f64| share.is_some_and(|share| (share - wanted).abs() < 1e-9);
    // 16 threads, each of which was in the store for 5 s and on a processor for one.
    let many = commit(&[80.0], "hubbub_store_requests_total 9\n", [&[(16, 1.0)], &[(16, 2.0)]]);
    assert!(near(many.busy, 0.5) && near(many.on_processor.map(|it| it.run), 0.1), "{many:?}");
    let unseen = commit(&[80.0], "hubbub_store_requests_total 9\n", [&[], &[]]);
    assert!(unseen.busy.is_none() && unseen.on_processor.is_none(), "{unseen:?}");
    let elsewhere = commit(&[6.0, 4.0], "", [&[], &[]]);
    assert!(near(elsewhere.busy, 0.5) && elsewhere.on_processor.is_none(), "two servers: {elsewhere:?}");
    let one_known = commit(&[6.0, 4.0], "", [&[(1, 0.0)], &[(1, 3.0)]]);
    assert!(near(one_known.busy, 0.5) && near(one_known.on_processor.map(|it| it.run), 0.3), "{one_known:?}");
    let json = serde_json::to_value(&one_known).unwrap();
    assert_eq!((json["busy"].as_f64(), json["run"].as_f64()), (Some(0.5), Some(0.3)), "{json}");
}

/// One reading counts everything since the servers began.
#[test]
fn without_both_readings_nothing_is_known_of_what_servers_counted() {
    let figures = |before: Option<String>, after: Option<String>| {
        let [before, after] = [before, after].map(|metrics| mark(Instant::now(), metrics, &[]));
        let between = Between { before: &before, after: &after };
        (between.commit().is_some(), between.counted())
    };
    let confirmed = "hubbub_log_confirm_seconds_bucket{le=\"+Inf\"} 5\nhubbub_log_confirm_seconds_sum 1\n";
    let all = || told(&[80.0], confirmed);
    let none = || told(&[0.0], "");
    let (has_commit, counted) = figures(none(), all());
    assert!(has_commit && counted.stages.has_broker() && counted.note.is_none());
    for (before, after) in [(None, all()), (all(), None)] {
        let (has_commit, counted) = figures(before, after);
        assert!(!has_commit && !counted.stages.has_broker() && counted.note.is_some());
    }
    let (has_commit, counted) = figures(None, None);
    assert!(!has_commit && counted.note.is_none(), "no server of ours");
}

#[test]
fn a_database_of_which_only_the_processes_are_seen_counts() {
    let values = [(DATABASE_CPU, 3.6), (DATABASE_CORES, 4.0)];
    let values = values.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
    let samples = [SystemSample { at_s: 1.0, values, ..SystemSample::default() }];
    let report = Report::new("http", MESSAGES, Value::Null);
    let open = OpenLoop { asked_per_second: None, sending_s: 0.0, window: None, waited_ms: 0.0 };
    let database = Figures::default().with(&Record::new(&[]), &report, &samples, open).database.unwrap();
    assert_eq!((database.processors, database.may_use, database.lock_waiting), (3.6, 4.0, None));
}
