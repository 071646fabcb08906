//! The rules and the configuration in `deploy/prometheus`: real series raise each alert, and others do not.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::prometheus::has_prometheus;

const RULES: &str = include_str!("../deploy/prometheus/alerts.yml");
const CASES: &str = include_str!("../deploy/prometheus/alerts_test.yml");
const OPERATIONS: &str = include_str!("../docs/operations.md");

/// Runs promtool in `deploy/prometheus`; must succeed.
fn promtool(arguments: &[&str]) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    let ran = Command::new("promtool").args(arguments).current_dir(directory).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(ran.status.success(), "promtool {arguments:?}: {said}");
}

fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(before)).collect()
}

#[test]
fn alerts_fire() {
    if !has_prometheus() {
        return;
    }
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "alerts_test.yml"]);
    let alerts = names(RULES, "- alert: ");
    assert!(alerts.len() > 10 && BTreeSet::from_iter(&alerts).len() == alerts.len(), "{alerts:?}");
    let tested = names(CASES, "alertname: ");
    let quiet = CASES.matches("exp_alerts: []").count();
    for alert in &alerts {
        let cases = tested.iter().filter(|tested| *tested == alert).count();
        assert_eq!(cases, 2, "{alert} has a case that raises it and one that does not");
    }
    assert_eq!((tested.len(), quiet), (2 * alerts.len(), alerts.len()));
}

#[test]
fn every_alert_has_a_runbook() {
    let alerts = names(RULES, "- alert: ");
    let entries = names(OPERATIONS, "### Hubbub");
    assert_eq!(alerts, entries.iter().map(|entry| format!("Hubbub{entry}")).collect::<Vec<_>>());
    let links = names(RULES, "runbook_url: ");
    let anchors: Vec<String> =
        alerts.iter().map(|alert| format!("'docs/operations.md#{}'", alert.to_lowercase())).collect();
    assert_eq!(links, anchors);
}
