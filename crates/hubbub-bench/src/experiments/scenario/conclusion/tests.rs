use serde_json::json;

use super::*;

fn results(key: &str, runs: &[(&str, f64, Value)]) -> Results {
    let run = |(value, rate, verdict): &(&str, f64, Value)| {
        let point = if key.is_empty() { json!({}) } else { json!({key: value}) };
        let use_of_disk = json!({"resource": "disk", "share": 0.8});
        let capacity = json!({"perSecond": rate, "used": [use_of_disk], "maximumPerSecond": rate / 0.8,
                              "headroomPerSecond": rate / 4.0, "scaleAtPerSecond": rate});
        json!({"point": point, "repetition": 1, "isClean": true, "others": 0.0, "faults": [],
               "summary": {"perSecond": rate, "latency": {"p99Ms": 7.0}, "verdict": verdict, "capacity": capacity}})
    };
    serde_json::from_value(json!({
        "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
        "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs.iter().map(run).collect::<Vec<_>>(),
    }))
    .unwrap()
}

fn said(key: &str, runs: &[(&str, f64)]) -> String {
    let verdict = json!({"bottleneck": "server CPU"});
    let runs: Vec<_> = runs.iter().map(|(value, rate)| (*value, *rate, verdict.clone())).collect();
    conclusion(&results(key, &runs)).unwrap()
}

#[test]
fn a_sweep_has_a_best_point_and_a_knee() {
    let rising = said("clients", &[("10", 100.0), ("20", 950.0), ("40", 1_000.0), ("80", 500.0)]);
    let best = "Most at clients 40, 1,000 a second";
    assert!(
        rising.starts_with(&format!(
            "{best}; clients 20 has 95 % of that already; clients 80 has only 50 % (measured once). "
        )),
        "{rising}"
    );
    assert!(rising.contains("The limit there: server CPU (fullest: "), "{rising}");
    let still = said("clients", &[("10", 100.0), ("20", 200.0), ("40", 400.0)]);
    assert!(
        still.starts_with("Most at clients 40, 400 a second; it still rises there (measured once). "),
        "{still}"
    );
    let falling = said("bytes", &[("2", 400.0), ("4", 380.0), ("8", 100.0)]);
    assert!(
        falling.starts_with("Most at bytes 2, 400 a second; bytes 8 has only 25 % (measured once). "),
        "{falling}"
    );
    let words = said("kind", &[("a", 400.0), ("b", 100.0)]);
    assert!(
        words.starts_with("Most at kind a, 400 a second: 4.0 times as much as at kind b (measured once). "),
        "{words}"
    );
    let one = said("", &[("", 400.0)]);
    assert!(
        one.starts_with("400 a second, 99 % of them within 7.000 ms (measured once). The limit there"),
        "{one}"
    );
    assert_eq!(conclusion(&results("", &[])), None);
}

#[test]
fn of_given_rates_the_highest_that_was_reached_is_told() {
    let verdict = |reached: f64| json!({"bottleneck": "the load itself", "figures": {"reached": reached}});
    let all = [("100", 100.0, verdict(1.0)), ("200", 199.0, verdict(0.99)), ("400", 250.0, verdict(0.62))];
    let text = conclusion(&results("rate", &all)).unwrap();
    assert!(
        text.starts_with("Rates up to 200 a second were reached; of 400 only 62 % (measured once). "),
        "{text}"
    );
    assert!(text.ends_with(", 80 %, which would be full at 312 a second."), "{text}");
}

#[test]
fn a_rate_that_nobody_says_was_reached_was_not() {
    let verdict = json!({"bottleneck": "the load itself"});
    let all = [("100", 100.0, verdict.clone()), ("200", 200.0, verdict)];
    let text = conclusion(&results("rate", &all)).unwrap();
    assert!(text.starts_with("No rate was reached"), "{text}");
}

#[test]
fn what_is_no_difference_is_not_told_as_one() {
    let repeated = [("a", 400.0), ("a", 440.0), ("b", 410.0), ("b", 450.0)];
    let text = said("kind", &repeated);
    assert!(
        text.starts_with("No difference beyond noise: 430 a second at kind b, 420 a second at kind a. "),
        "{text}"
    );
    // A third more, but the intervals of so few are wide.
    let few = [("a", 500.0), ("a", 600.0), ("a", 700.0), ("b", 600.0), ("b", 800.0), ("b", 1_000.0)];
    let text = said("kind", &few);
    assert!(
        text.starts_with(
            "Not decided: 800 a second at kind b, 600 a second at kind a, but repetitions differ as much: more of them would tell. "
        ),
        "{text}"
    );
    let apart = said("kind", &[("a", 400.0), ("a", 400.0), ("b", 800.0), ("b", 800.0)]);
    assert!(apart.starts_with("Most at kind b, 800 a second: 2.0 times as much as at kind a. "), "{apart}");
}

#[test]
fn runs_that_are_not_clean_conclude_nothing() {
    let verdict = |limit: &str| json!({"bottleneck": limit});
    let runs = [("a", 400.0, verdict("disk")), ("b", 900.0, verdict("disk"))];
    let mut results = results("kind", &runs);
    results.runs[1].is_clean = false;
    results.is_quick = true;
    let text = conclusion(&results).unwrap();
    assert!(
        text.starts_with(
            "Kind a: 400 a second, 99 % of them within 7.000 ms (measured once) (a quick look). "
        ),
        "{text}"
    );
    results.runs[0].is_clean = false;
    assert_eq!(conclusion(&results).unwrap(), "Nothing follows from 2 of 2 measurements: not clean");
}

#[test]
fn the_limit_is_the_one_that_most_repetitions_name() {
    let verdict = |limit: &str| json!({"bottleneck": limit});
    let runs = [("a", 400.0, verdict("disk")), ("a", 400.0, verdict("disk")), ("a", 400.0, verdict("lock"))];
    let mut results = results("kind", &runs);
    results.runs[0].others = Some(0.5);
    let text = conclusion(&results).unwrap();
    assert!(text.contains("The limit there: disk") && text.contains("(marked: "), "{text}");
}

#[test]
fn points_of_one_rate_differ_in_their_latencies() {
    let verdict = json!({"bottleneck": "the load itself", "figures": {"reached": 1.0}});
    let runs =
        [("1024", 999.0, verdict.clone()), ("4096", 1_000.0, verdict.clone()), ("8192", 1_000.0, verdict)];
    let mut results = results("bytes", &runs);
    for (run, p99_ms) in results.runs.iter_mut().zip([2.0, 7.0, 30.0]) {
        run.summary["parameters"] = json!({"rate": "1000"});
        run.summary["latency"]["p99Ms"] = json!(p99_ms);
    }
    let text = conclusion(&results).unwrap();
    let said =
        "All had the rate of 1000: 99 % within 2.000 ms at bytes 1024, 99 % within 30.000 ms at bytes 8192";
    assert!(text.starts_with(said), "{text}");
}

#[test]
fn a_rate_in_steps_says_where_it_gets_worse() {
    let mut results = results("", &[("", 400.0, json!({"bottleneck": "server CPU"}))]);
    let step = |asked: f64, answered: f64| {
        json!({"startS": 0.0, "endS": 1.0, "askedPerSecond": asked, "perSecond": answered, "meanMs": 1.0,
               "medianMs": 1.0, "p99Ms": 2.0, "p99FromSendMs": 2.0, "accepted": answered as u64, "failed": 0})
    };
    results.runs[0].summary["steps"] = json!([step(100.0, 100.0), step(200.0, 150.0)]);
    let text = conclusion(&results).unwrap();
    let well = "Up to 100/s all was answered (p99 2.000 ms)";
    assert_eq!(text, format!("{well}; at 200/s only 75 % of it was answered."));
}
