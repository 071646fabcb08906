//! Figures of a run.

use super::*;
use crate::client::Target;
use crate::load::phases::Timetable;
use crate::options::{Patience, arguments};
use crate::results::record::{Ending, Sample};

#[test]
fn a_summary_names_its_format() {
    let report = Report::new("chat", MESSAGES, Value::Null);
    let summary = serde_json::to_value(&report).unwrap();
    assert_eq!(summary["schemaVersion"], 2, "a new version is described in docs/scenarios.md");
    assert_eq!(summary["version"], env!("CARGO_PKG_VERSION"), "that is the program's");
}

/// 100 messages a second are asked for, and the server answers 50.
#[test]
fn a_server_that_is_slower_than_the_rate_does_not_reach_it() {
    let patience: Patience = arguments("patience", &[]).unwrap();
    let second = Duration::from_secs(1);
    for (around, elapsed_s) in [(second, 2.0), (Duration::ZERO, 4.0)] {
        let run = Run::of_operations(&Target::parse("127.0.0.1:1").unwrap(), &patience, &["get"]);
        run.begin_phases(&Timetable { warmup: around, main: Some(2 * second), cooldown: around });
        let messages = 0..(around + 2 * second + around).as_millis() as u64 / 10;
        let sample = |n: u64| Sample {
            done_us: 20_000 * (n + 1),
            latency_us: 10_000 * (n as u32 + 2),
            index: 0,
            waited_us: Some(0),
            room: 1,
            kind: 0,
            ending: Ending::Accepted,
        };
        run.record(&mut messages.map(sample).collect(), 0);
        let mut report = Report::new("http", MESSAGES, Value::Null);
        report.add_run(&Arc::new(run), second);
        assert_eq!(report.latency.count, 200, "what began in the main phase");
        assert!((49.0..=51.0).contains(&report.per_second), "{around:?}: {}", report.per_second);
        assert_eq!(report.elapsed_s, elapsed_s);
    }
}

#[test]
fn processor_time_is_that_of_a_message_at_any_rate() {
    let series =
        [SeriesSummary { name: format!("server {CPU}"), before: 0.0, average: 0.5, peak: 1.0, after: 0.0 }];
    for (per_second, us) in [(0.5, 1e6), (1_000.0, 500.0)] {
        assert_eq!(cpu_us(&series, per_second), [("server".to_owned(), us)].into());
    }
    assert!(cpu_us(&series, 0.0).is_empty(), "nothing was done");
}
