//! What a run counts and keeps, and from when on.

use super::*;
use crate::options::arguments;

#[test]
fn each_cause_is_counted_under_its_own_name() {
    let causes = Causes::default();
    for (index, cause) in Cause::ALL.into_iter().enumerate() {
        causes.add(cause, 0);
        assert!(!causes.all().contains_key(cause.name()), "nothing happened yet");
        causes.add(cause, 1);
        causes.add(cause, index as u64);
    }
    let wanted = Cause::ALL.iter().enumerate().map(|(index, cause)| (cause.name(), index as u64 + 1));
    assert_eq!(causes.all(), wanted.collect());
    assert_eq!(causes.sum(), 28);
}

#[test]
fn only_what_begins_in_the_main_phase_is_measured() {
    let patience: Patience = arguments("patience", &[]).unwrap();
    let run = Run::of_operations(&Target::parse("127.0.0.1:1").unwrap(), &patience, &["get"]);
    let second = Duration::from_secs(1);
    run.begin_phases(&Timetable { warmup: second, main: Some(second), cooldown: second });
    let sample = |begun_us: u64, latency_us: u32, ending| Sample {
        done_us: begun_us + u64::from(latency_us),
        latency_us,
        index: 0,
        waited_us: None,
        room: 1,
        kind: 0,
        ending,
    };
    let mut samples = vec![
        sample(999_999, 500_000, Ending::Accepted),
        sample(1_000_000, 5, Ending::Accepted),
        sample(1_500_000, 5, Ending::Rejected),
        sample(1_600_000, 5, Ending::Unconfirmed),
        sample(1_999_999, 1_000_000, Ending::Accepted),
        sample(2_000_000, 5, Ending::Accepted),
    ];
    run.record(&mut samples, 3_000_000);
    let record = run.record.lock();
    assert_eq!((record.all.len(), record.failed), (2, [1, 1]));
    assert_eq!((record.last_begun_us, record.last_us), (999_999, 1_999_999), "counted from its beginning");
    let accepted: Vec<u64> = record.accepted_by_room.iter().map(|accepted| accepted.count).collect();
    assert_eq!(accepted, [0, 4], "of all phases");
    // At 1,000,005, 1,499,999, 1,500,005, 1,600,005, 2,000,005 and 2,999,999 µs.
    for (us, wanted) in [
        (0..9_000_000, (6.0, 0.0)),
        (0..1_025_000, (0.25, 0.75)),
        (1_450_000..1_500_000, (0.5, 0.5)),
        (1_475_000..1_675_000, (2.0, 1.5)),
        (8_000_000..9_000_000, (0.0, 0.0)),
        (5..5, (0.0, 0.0)),
    ] {
        assert_eq!(record.ended_between(us.clone()), wanted, "{us:?}");
    }
    assert_eq!(
        record.answered_in_main, 2,
        "one of them began in the warm-up, and one ended in the cool-down"
    );
    // The second of the run from 1 to 2 s is its first.
    let answered: Vec<u64> = (0..4).map(|second| record.answered_in(second, run.main_us().start)).collect();
    assert_eq!(answered, [0, 1, 1, 0]);
    assert_eq!(run.main_time(&record), Some(second), "as long as it was to last");
    drop(record);
    run.begin_phases(&Timetable { warmup: second, main: Some(second), cooldown: Duration::ZERO });
    assert_eq!(run.main_time(&run.record.lock()), None, "it ends with its last answer");
    run.begin_phases(&Timetable { warmup: second, main: Some(3 * second), cooldown: second });
    assert_eq!(run.main_time(&run.record.lock()), None, "the load ended before");
    run.begin_phases(&Timetable { warmup: second, main: Some(second), cooldown: second });
    run.thought(900_000, 1_900_000);
    run.thought(1_900_000, 2_100_000);
    assert_eq!(run.counts.thought_us.load(Ordering::Relaxed), 200_000);
}

#[test]
fn a_time_is_that_of_its_own_message() {
    let times = SendTimes::new();
    assert_eq!((times.get(0), times.get(5)), (None, None), "nothing was sent");
    times.set(5, 0);
    times.set(6, 77);
    assert_eq!((times.get(5), times.get(6)), (Some(0), Some(77)));
    assert_eq!(times.get(5 + TIMES), None, "it is yet to be sent");
    times.set(5 + TIMES, 99);
    assert_eq!((times.get(5), times.get(5 + TIMES)), (None, Some(99)));
    let last = TIMES * u64::from(u16::MAX) - 1;
    times.set(last, u64::MAX);
    assert_eq!(times.get(last), Some(TIME_MAX_US), "it takes no bits of whose it is");
}

#[test]
fn a_server_that_is_seldom_asked_may_be_silent() {
    let patient = |rate: Option<&str>| {
        let rate: Vec<&str> = rate.into_iter().flat_map(|rate| ["--rate", rate]).collect();
        let pacing: Pacing = arguments("pacing", &rate).unwrap();
        let phases: Phases = arguments("phases", &["--duration", "10m"]).unwrap();
        let rules: Rules = arguments("rules", &["--give-up", "0s"]).unwrap();
        let target = Target::parse("127.0.0.1:1").unwrap();
        let run = Run::new(target, Shape::new(1, 10, None, ""), rules).paced(&pacing, &phases);
        while run.now_us() == 0 {
            std::hint::spin_loop();
        }
        !run.is_hopeless()
    };
    assert!(patient(Some("0.02")), "a message every 50 s");
    assert!(!patient(None), "it is asked all the time");
}

#[test]
fn who_answers_with_a_seq_always_does() {
    let run = Run::new(
        Target::parse("127.0.0.1:1").unwrap(),
        Shape::new(1, 10, None, ""),
        arguments("rules", &[]).unwrap(),
    );
    assert!(run.may_have_seq(0, false), "behind a broker");
    assert!(run.may_have_seq(7, true) && run.may_have_seq(0, false), "a broker's server knew it already");
    assert!(run.may_have_seq(8, false) && !run.may_have_seq(0, false));
}

#[tokio::test]
async fn rows_have_the_time_of_the_wall_clock_whatever_came_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let common: Common = arguments("common", &["--out", out]).unwrap();
    let patience: Patience = arguments("patience", &[]).unwrap();
    let target = Target::parse("127.0.0.1:1").unwrap();
    let run = Run::of_operations(&target, &patience, &["get"]).with_rows(&common).unwrap();
    let warm_up = Duration::from_millis(5);
    std::thread::sleep(warm_up);
    run.begin();
    let ending = Ending::Accepted;
    let sample =
        Sample { done_us: 1_000, index: 0, latency_us: 500, waited_us: None, room: 1, kind: 0, ending };
    let mut samples = vec![sample];
    run.record(&mut samples, 1_000);
    assert!(samples.is_empty(), "they are recorded once");
    assert_eq!(run.close_rows().await.unwrap().notes, [""; 0]);
    let text = std::fs::read_to_string(dir.path().join("metrics.csv")).unwrap();
    let row: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(row[1..], ["get", "0.500", "200", "1"]);
    let at_us = Timestamp::parse(row[0]).unwrap().as_micros();
    assert_eq!(at_us, run.wall_us(1_000));
    assert!(at_us >= run.started.as_micros() + micros(warm_up) as i64 + 1_000);
    assert_eq!(run.close_rows().await.unwrap(), RowsWritten::default(), "nothing is left");
}
