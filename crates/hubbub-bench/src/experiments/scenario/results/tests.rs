//! Tables of results, and what follows from them.

use serde_json::json;

use super::super::sections::sections;
use super::super::{ReportArgs, report};
use super::*;

#[test]
fn a_point_whose_stages_leave_time_out_is_marked() {
    let run = |connections: &str, repetition: usize, unaccounted: f64| {
        let way = json!({"wholeMs": 10.0, "stages": [], "unaccounted": unaccounted, "overlaps": false});
        json!({
            "point": {"connections": connections}, "repetition": repetition, "isClean": true, "faults": [],
            "summary": {"perSecond": 5.0, "stages": {"confirmed": way}},
        })
    };
    let results: Results = serde_json::from_value(json!({
        "version": VERSION, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
        "started": "2026-01-01T00:00:00Z", "text": "",
        "runs": [run("1", 1, 0.05), run("2", 1, 0.08), run("2", 2, 0.12)],
    }))
    .unwrap();
    let table = results.median_table().markdown();
    assert!(table.contains("\n| connections 1 | 5.000 |"), "{table}");
    let marked = "\n| connections 2; until the answer, 12 % not accounted for | 5.000 |";
    assert!(table.contains(marked), "{table}");
    assert!(results.terminal().contains("connections 2; until the answer, 12 % not accounted for"));
}

/// Connections, mean ms, messages/s, as tables show them: the first keeps Little's law, in the others time is missing, or
/// there is more of it than connections had.
#[test]
fn a_table_that_breaks_littles_law_is_flagged_in_text_and_page() {
    for (connections, mean_ms, per_second, is_flagged) in
        [(32, 16.0, 2_000.0, false), (32, 16.0, 1_300.0, true), (64, 20.0, 4_100.0, true)]
    {
        // What an older program said of it does not count.
        let little = json!({"concurrency": connections, "observed": connections, "predictedPerSecond": per_second,
                            "efficiency": 1.0, "unaccounted": 0.0, "marked": false});
        let summary = json!({"perSecond": per_second, "latency": {"meanMs": mean_ms}, "little": little});
        let results = json!({
            "version": VERSION, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "text": "",
            "runs": [{"point": {"connections": connections.to_string()}, "repetition": 1, "isClean": true,
                      "others": 0.0, "faults": [], "summary": summary}],
        });
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), results.to_string()).unwrap();
        let (path, price) = (dir.path().to_owned(), PriceArgs { price: None });
        let found = report(&ReportArgs { dir: path.clone(), price, json: false }).unwrap();
        let written = |name: &str| std::fs::read_to_string(path.join(name)).unwrap();
        let said = "should be under way, ";
        for text in [found.terminal(), written("results.txt"), written("report.html"), sections(&found)] {
            assert!(text.contains(said) || text.contains("| should be under way |"), "{text}");
            assert_eq!(text.contains("more than 5 % apart"), is_flagged, "{connections}: {text}");
        }
    }
}

/// A law would take what a run lost for what more connections cost.
#[test]
fn runs_that_are_not_clean_say_nothing_of_the_law() {
    let results = |spoiled: fn(&mut Vec<PointRun>)| {
        let run = |connections: u32, repetition: usize| {
            let n = f64::from(connections);
            json!({
                "point": {"connections": connections.to_string()}, "repetition": repetition, "isClean": true,
                "faults": [], "summary": {"perSecond": 1_000.0 * n / (1.0 + 0.1 * (n - 1.0))},
            })
        };
        let runs: Vec<_> = [1, 2, 4, 8, 16].into_iter().flat_map(|n| [run(n, 1), run(n, 2)]).collect();
        let mut results: Results = serde_json::from_value(json!({
            "version": VERSION, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs,
        }))
        .unwrap();
        spoiled(&mut results.runs);
        results.rebuild();
        results
    };
    let clean = results(|_| ());
    let law = |results: &Results| results.scaling.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(
        law(&clean).contains("5 points, the worst 0.0 % off the law") && !law(&clean).contains("left out")
    );
    let spoiled = results(|runs| {
        for run in &mut runs[7..9] {
            run.summary = json!({"perSecond": 10.0});
        }
        runs[7].is_clean = false;
        runs[8].mishaps = vec!["killed".to_owned()];
    });
    let said = law(&spoiled);
    assert!(
        said.contains("5 points, the worst 0.0 % off the law; 2 of 10 measurements left out: not clean"),
        "{said}"
    );
    let none = results(|runs| runs.iter_mut().take(4).for_each(|run| run.is_clean = false));
    assert!(none.scaling.is_none(), "three points are too few");
}
