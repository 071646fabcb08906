//! What pages say of results that are not what they seem.

use serde_json::json;

use super::super::page::page_of;
use super::*;

#[test]
fn what_makes_a_point_worth_less_stands_in_every_table() {
    let run = |connections: &str, is_clean: bool, others: Option<f64>| {
        json!({
            "point": {"connections": connections}, "repetition": 1, "isClean": is_clean, "others": others,
            "faults": [], "summary": {"perSecond": 5.0},
        })
    };
    let results: Results = serde_json::from_value(json!({
        "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
        "started": "2026-01-01T00:00:00Z", "limits": "limited by cgroups: cgroup.server.cpus = 1", "text": "",
        "runs": [
            run("1", true, Some(0.05)), run("2", true, Some(0.09)), run("2", true, Some(0.0)),
            run("3", false, Some(0.2)),
        ],
    }))
    .unwrap();
    let (terminal, published) = (results.terminal(), page(&results));
    let line = |text: &str, begins: &str| {
        text.lines().find(|line| line.starts_with(begins)).map(str::to_owned).unwrap_or_default()
    };
    let (others, ledger) = ("9 % of the machine taken by others", "ledger does not balance");
    assert!(line(&terminal, "  connections 1  ").contains("5.000"), "{terminal}");
    assert!(line(&terminal, &format!("  connections 2; {others}  ")).contains("5.000"), "{terminal}");
    let both = format!("{ledger}; 20 % of the machine taken by others");
    assert!(line(&published, "| connections 1 |").contains("5.000"), "{published}");
    assert!(line(&published, &format!("| connections 2; {others} |")).contains("5.000"), "{published}");
    for text in [&terminal, &published] {
        assert!(text.contains(&format!("connections 3; {both}")), "{text}");
    }
    let rows = csv(&results).csv();
    assert!(rows.lines().nth(2).unwrap().contains("0.090"), "{rows}");
    let html = page_of(&results);
    assert!(html.contains(&format!("<td>{others}</tr>")), "{html}");
    assert!(html.contains(&format!("<td>{both}</tr>")), "{html}");
    for text in [&terminal, &published, &html] {
        assert!(text.contains("limited by cgroups: cgroup.server.cpus = 1"), "{text}");
    }
}

/// What was measured at a number of connections: that, the rate, whether its ledger balances, what others took, its faults.
type RunFigures<'f> = (u64, f64, bool, Option<f64>, &'f [&'f str]);

fn results_of(runs: &[RunFigures<'_>]) -> Results {
    let run = |(connections, rate, is_clean, others, faults): &RunFigures<'_>| {
        json!({
            "point": {"connections": connections.to_string()}, "repetition": 1, "isClean": is_clean,
            "others": others, "faults": faults, "summary": {"perSecond": rate},
        })
    };
    serde_json::from_value(json!({
        "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
        "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs.iter().map(run).collect::<Vec<_>>(),
    }))
    .unwrap()
}

#[test]
fn the_result_says_which_points_are_marked() {
    let clean = page(&results_of(&[(1, 5.0, true, Some(0.0), &[]), (2, 9.0, true, Some(0.01), &[])]));
    assert!(
        clean.contains("**Result:** 9 a second at connections 2; least 5 at connections 1.\n"),
        "{clean}"
    );
    assert!(clean.contains("All were clean.") && !clean.to_lowercase().contains("marked"), "{clean}");

    let results = results_of(&[
        (1, 5.0, true, Some(0.0), &["perSecond is 5, and should be more than 6"]),
        (2, 9.0, true, Some(0.2), &[]),
        (3, 7.0, false, Some(0.0), &[]),
        (4, 6.0, true, Some(0.0), &[]),
    ]);
    let (busy, late) = ("20 % of the machine taken by others", "perSecond is 5, and should be more than 6");
    let marked = page(&results);
    for part in [
        &format!(
            "**Result:** 9 a second at connections 2 (marked: {busy}); least 5 at connections 1 (marked: {late})."
        ),
        &format!(
            "**Not all were clean.** Marked: connections 1 ({late}), connections 2 ({busy}), connections 3 (ledger does \
             not balance)."
        ),
    ] {
        assert!(marked.contains(part), "{part}: {marked}");
    }
    assert!(!marked.contains("All were clean"), "{marked}");
    let shown = results.terminal();
    assert!(shown.contains(&format!("  marked: connections 2: {busy}\n")), "{shown}");
    let alone = page(&results_of(&[(2, 9.0, true, Some(0.2), &[])]));
    assert!(alone.contains(&format!("**Result:** 9 a second (marked: {busy}).")), "{alone}");
}

#[test]
fn an_open_loop_that_fell_behind_is_marked_and_not_clean_unless_it_looks_for_the_limit() {
    let results = |point: serde_json::Value, rate: serde_json::Value, reached: f64| {
        let summary = json!({
            "perSecond": 5.0, "parameters": {"rate": rate}, "verdict": {"figures": {"reached": reached}},
        });
        let mut results = results_of(&[(1, 5.0, true, Some(0.0), &[])]);
        results.text = "title = 'x'\nworkload = 'http'\n".to_owned();
        results.runs[0].summary = summary;
        results.runs[0].point = serde_json::from_value(point).unwrap();
        results.rebuild();
        results
    };
    let said = "only 84 % of the asked rate";
    let late = results(json!({}), json!("5000"), 0.837);
    assert_eq!((late.is_clean(), &late.runs[0].faults[..]), (false, &[said.to_owned()][..]));
    for text in [&page(&late), &page_of(&late), &late.terminal()] {
        assert!(text.contains(said) && !text.contains("All were clean"), "{text}");
    }
    assert!(page(&late).contains(&format!("**Not all were clean.** Marked: all ({said}).")));
    for looks_for_it in [
        results(json!({}), json!("1000..9000"), 0.837),
        results(json!({"rate": "5000"}), json!("5000"), 0.837),
    ] {
        assert!(looks_for_it.is_clean(), "{:?}", looks_for_it.runs);
        let page = page(&looks_for_it);
        assert!(page.contains(said) && page.contains("All were clean. More was asked for"), "{page}");
        assert!(looks_for_it.terminal().contains(said));
    }
    let nearly = results(json!({}), json!("5000"), 0.9499);
    assert!(nearly.terminal().contains("only 94 % of the asked rate"), "{}", nearly.terminal());
    let reached = results(json!({}), json!("5000"), 0.951);
    assert!(reached.is_clean() && page(&reached).contains("All were clean."), "{:?}", reached.runs);
}

#[test]
fn an_endurance_run_is_judged_by_what_changes_over_it() {
    let results = |scenario: &str, change: f64| {
        let trend = json!({"figure": "rate", "mean": 100.0, "change": change, "low": change - 2.0, "high": change + 2.0});
        let mut results = results_of(&[(1, 5.0, true, Some(0.0), &[])]);
        scenario.clone_into(&mut results.scenario);
        results.text = "title = 'x'\nworkload = 'queue'\n".to_owned();
        results.runs[0].summary = json!({"perSecond": 5.0, "trends": [trend]});
        results.rebuild();
        results
    };
    let said = "rate -12.0 % over the run (95 %: -14.0 to -10.0): it falls";
    for endurance in ["persist-endurance", "some/where/queue-stability.toml"] {
        let falling = results(endurance, -12.0);
        assert_eq!((falling.is_clean(), &falling.runs[0].faults[..]), (false, &[said.to_owned()][..]));
        assert!(page(&falling).contains(&format!("Marked: connections 1 ({said}).")), "{}", page(&falling));
        assert!(results(endurance, -8.0).is_clean(), "less than a tenth");
    }
    let other = results("queue-clients", -12.0);
    assert!(other.is_clean() && page(&other).contains("All were clean."));
    for text in [page(&other), page_of(&other)] {
        assert!(text.contains("From the beginning to the end") && text.contains("it falls"), "{text}");
    }
    assert!(page(&other).contains(&format!("\n- {said}.\n")), "{}", page(&other));
}

#[test]
fn a_point_that_is_not_clean_says_why() {
    let mut results = results_of(&[(1, 5.0, false, Some(0.0), &["killed"]), (2, 5.0, true, Some(0.0), &[])]);
    results.runs[0].summary["faults"] = json!(["3 refused", "4 were sent, but 5 are stored"]);
    let (page, shown) = (page(&results), results.terminal());
    let why = "3 refused; 4 were sent, but 5 are stored; killed";
    let marked = format!("Marked: connections 1 (ledger does not balance; {why}).");
    assert!(page.contains(&marked), "{page}");
    assert!(shown.contains(&format!("  fault: connections 1, repetition 1: {why}\n")), "{shown}");
    results.runs[0].summary["faults"] = json!([]);
    results.runs[0].faults.clear();
    assert!(results.terminal().contains("it is not clean, see above"), "of an older program");
}

#[test]
fn a_sweep_over_connections_has_its_law_on_the_page() {
    let rate = |n: f64| 1_000.0 * n / (1.0 + 0.1 * (n - 1.0));
    let runs: Vec<RunFigures<'_>> =
        [1_u64, 2, 4, 8].map(|n| (n, rate(n as f64), true, Some(0.0), &[][..])).into();
    let mut results = results_of(&runs);
    results.rebuild();
    let page = page(&results);
    assert!(
        page.contains("\n## How it scales\n\n```text\n  Universal Scalability Law over connections"),
        "{page}"
    );
}

#[test]
fn what_befell_a_server_is_not_forgotten_by_a_new_report() {
    let mut results = results_of(&[(1, 5.0, false, Some(0.0), &["killed"])]);
    results.text = "title = 'x'\nworkload = 'chat'\nthresholds = ['perSecond > 6']\n".to_owned();
    results.runs.iter_mut().for_each(|run| run.mishaps = vec!["killed".to_owned()]);
    results.rebuild();
    assert_eq!(results.runs[0].faults, ["killed", "perSecond is 5, and should be more than 6"]);
}

#[test]
fn what_is_not_known_is_a_note_and_no_mark() {
    let results = results_of(&[(1, 5.0, true, None, &[]), (2, 5.0, true, Some(0.0), &[])]);
    let note = "what others took of the machine is not known in 1 of 2 measurements";
    let (page, shown) = (page(&results), results.terminal());
    assert!(page.contains(&format!("All were clean. Note: {note}.")), "{page}");
    assert!(shown.contains(&format!("  note: {note}\n")) && !shown.contains("marked"), "{shown}");
    let rows = csv(&results).csv();
    assert!(rows.lines().nth(1).unwrap().ends_with("not known"), "{rows}");
}

/// Points that are written one by one need not have the same keys.
#[test]
fn rows_have_all_that_tells_points_apart() {
    let mut results = results_of(&[
        (1, 5.0, true, Some(0.0), &[]),
        (2, 6.0, true, Some(0.0), &[]),
        (3, 7.0, true, Some(0.0), &[]),
    ]);
    for (run, (key, value)) in results.runs.iter_mut().zip([("bytes", "10"), ("users", "7"), ("users", "8")])
    {
        run.point = [(key.to_owned(), value.to_owned())].into();
    }
    let rows = csv(&results).csv();
    assert!(rows.starts_with("bytes,users,repetition,"), "{rows}");
    assert!(rows.contains("\n10,,1,5") && rows.contains("\n,7,1,6") && rows.contains("\n,8,1,7"), "{rows}");
    assert!(minutes_csv(&results).csv().starts_with("bytes,users,repetition,"), "of minutes, too");
}
