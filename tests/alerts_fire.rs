//! The rules and the configuration in `deploy/prometheus`: real series raise each alert, and others do not.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::Server;
use crate::harness::prometheus::has_prometheus;

const RULES: &str = include_str!("../deploy/prometheus/alerts.yml");
const CASES: &str = include_str!("../deploy/prometheus/alerts_test.yml");
const RUNBOOK: &str = include_str!("../docs/alerts.md");

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

/// The buckets of histograms that a text names: metric and bound.
fn buckets(text: &str) -> Vec<(&str, &str)> {
    let named = text.split("hubbub_").filter_map(|rest| {
        let (name, rest) = rest.split_once("_bucket{")?;
        let (labels, _) = rest.split_once('}')?;
        let (_, bound) = labels.split_once("le=\"")?;
        Some((name, bound.split('"').next()?))
    });
    named.filter(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect()
}

/// A rule about a bound that no histogram has would never raise anything.
#[tokio::test]
async fn the_bounds_of_the_rules_are_exported() {
    let exported = Server::start().get("/metrics").await.text();
    for text in [RULES, CASES] {
        let named = buckets(text);
        assert!(named.len() > 2 && named.len() == text.matches("_bucket").count(), "{named:?}");
        for (name, bound) in named {
            let sample = format!("\nhubbub_{name}_bucket{{le=\"{bound}\"}} ");
            assert!(exported.contains(&sample), "{sample}");
        }
    }
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
    let entries = names(RUNBOOK, "### Hubbub");
    assert_eq!(alerts, entries.iter().map(|entry| format!("Hubbub{entry}")).collect::<Vec<_>>());
    let links = names(RULES, "runbook_url: ");
    let anchors: Vec<String> =
        alerts.iter().map(|alert| format!("'docs/alerts.md#{}'", alert.to_lowercase())).collect();
    assert_eq!(links, anchors);
}
