use super::*;

fn schedule(rate: &str, seconds: u64, start_us: u64) -> Schedule {
    Schedule::new(rate.parse().unwrap(), Duration::from_secs(seconds), start_us)
}

#[test]
fn a_ramp_sends_what_its_area_says() {
    let schedule = schedule("1000..10000", 10, 5);
    assert_eq!(schedule.messages(), 55_000);
    assert_eq!(schedule.intended_us(0), 5);
    assert_eq!(schedule.intended_us(55_000), 10_000_005);
    let first_second = (0..55_000).filter(|&n| schedule.intended_us(n) < 1_000_005).count();
    assert_eq!(first_second, 1_450);
}

#[test]
fn a_ramp_may_have_a_bend() {
    let rate: Rate = "1000..10000..26000".parse().unwrap();
    assert_eq!(rate.to_string(), "1000..10000..26000");
    assert_eq!("1000..10000".parse::<Rate>().unwrap().to_string(), "1000..10000");
    let schedule = Schedule::new(rate, Duration::from_secs(20), 0);
    assert_eq!(schedule.messages(), 55_000 + 180_000);
    assert_eq!(schedule.intended_us(55_000), 10_000_000);
    assert_eq!(schedule.intended_us(235_000), 20_000_000);
    let (before, after) = (schedule.intended_us(54_999), schedule.intended_us(55_001));
    // Both lines meet at 10,000/s; times are cut to whole microseconds.
    assert!((99..=101).contains(&(10_000_000 - before)) && (99..=101).contains(&(after - 10_000_000)));
}

#[test]
fn a_constant_rate_has_equal_distances() {
    let schedule = schedule("2000", 3, 0);
    assert_eq!(schedule.messages(), 6_000);
    assert_eq!(schedule.intended_us(5_000), 2_500_000);
    for wrong in ["0", "-5", "fast", "1..", "1..x", "5,", "5@", "5@0s", "5@soon", &"5,".repeat(17)] {
        assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
    }
}

#[test]
fn a_dot_belongs_to_its_number() {
    let shown = |text: &str| text.parse::<Rate>().unwrap().to_string();
    assert_eq!([".5", ".5..2", "1.. .5", "2.5..4"].map(shown), ["0.5", "0.5..2", "1..0.5", "2.5..4"]);
    for wrong in ["1...5", "...5", "1...", "..5", "1..2...3", "1..2..3..4"] {
        assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
    }
}

#[test]
fn the_longest_gap_is_found_wherever_it_is() {
    let gap = |rate, seconds| schedule(rate, seconds, 7).longest_gap().as_micros();
    assert_eq!(gap("0.02", 600), 50_000_000);
    assert_eq!((gap("0.02", 60), gap("0.02", 10)), (0, 0), "one message, and none");
    // Each against all gaps one by one.
    for (rate, seconds) in [
        ("0.1..10", 100),
        ("10..0.1", 100),
        ("5..0.05..5", 200),
        ("0.5..3..0.5", 50),
        ("10,0.2,10", 30),
        ("0.3@1s,0.2@1s,0.1@60s,4@1s", 1),
        ("0.01@50s,50@2s", 1),
    ] {
        let schedule = schedule(rate, seconds, 7);
        let gaps = (1..schedule.messages()).map(|n| schedule.intended_us(n) - schedule.intended_us(n - 1));
        assert_eq!(gap(rate, seconds), u128::from(gaps.max().unwrap()), "{rate}");
    }
    let warm = schedule("5", 1, 0).between(Duration::from_secs(2), Duration::ZERO);
    assert_eq!(warm.longest_gap(), Duration::from_millis(200));
}

#[test]
fn steps_follow_each_other() {
    let rate: Rate = "100, 500@2s,1000..2000".parse().unwrap();
    assert_eq!(rate.to_string(), "100,500@2s,1000..2000");
    assert_eq!(rate.times(0.5).to_string(), "50,250@2s,500..1000");
    let schedule = Schedule::new(rate, Duration::from_secs(1), 0);
    assert_eq!(schedule.messages(), 100 + 1_000 + 1_500);
    assert_eq!(schedule.mean_rate(), 650.0, "2,600 in four seconds");
    assert_eq!(
        [50, 100, 600, 1_100].map(|n| schedule.intended_us(n)),
        [500_000, 1_000_000, 2_000_000, 3_000_000]
    );
    let spans = rate.spans(Duration::from_secs(1));
    let shown: Vec<_> =
        spans.iter().map(|it| (it.from_us / 1_000, it.until_us / 1_000, it.from, it.to)).collect();
    assert_eq!(shown[..2], [(0, 1_000, 100.0, 100.0), (1_000, 3_000, 500.0, 500.0)]);
    assert_eq!((shown.len(), shown[2].0, shown[6].1), (7, 3_000, 4_000), "a ramp in parts: {shown:?}");
    assert_eq!((shown[2].2, shown[6].3), (1_000.0, 2_000.0));
    assert!(Rate::constant(5.0).spans(Duration::from_secs(1)).is_empty());
    let bent: Rate = "1..5..100".parse().unwrap();
    assert_eq!(bent.spans(Duration::from_secs(1)).len(), 10);
}

/// Each agent reads the rate that it is given, and the parts of all are added up.
#[test]
fn a_share_of_a_rate_has_the_same_parts() {
    let second = Duration::from_secs(1);
    for (rate, count) in [("1000..5000", 5), ("0.1..0.7", 5), ("1..5..100", 10), ("10..20..30", 10)] {
        let whole: Rate = rate.parse().unwrap();
        assert_eq!(whole.spans(second).len(), count, "{rate}");
        for share in (1..100).map(|weight| f64::from(weight) / 300.0) {
            let part = whole.times(share).to_string();
            assert_eq!(part.parse::<Rate>().unwrap().spans(second).len(), count, "{rate} × {share}: {part}");
        }
    }
}

#[test]
fn a_load_runs_before_and_after_its_main_phase() {
    let schedule = schedule("100,500", 1, 0).between(Duration::from_secs(2), Duration::from_secs(3));
    assert_eq!(schedule.messages(), 200 + 600 + 1_500);
    assert_eq!(schedule.mean_rate(), 300.0, "of the main phase alone");
    assert_eq!(
        [199, 200, 300, 800].map(|n| schedule.intended_us(n)),
        [1_990_000, 2_000_000, 3_000_000, 4_000_000]
    );
    let second = |second: u64| 1_000_000 * second..1_000_000 * (second + 1);
    assert_eq!([0, 1, 2].map(|at| schedule.due_in_main(second(at))), [100, 500, 500]);
    assert_eq!(schedule.due_in_main(0..u64::MAX), 600 + 1_500, "with what comes after it");
    assert_eq!(schedule.patience(), crate::load::pace::patience(Duration::from_secs(7)));
}
