//! What stands below the table of a published page: how the rate scales, whether closed loops add up, where the time goes,
//! what changes over a run, and what it costs. What the results do not have is left out.

use std::fmt::Write as _;

use super::batches;
use super::results::{PointRun, Results, label};
use crate::analysis::stages::{self, StagePath, Stages};
use crate::report::{ASSUMED, Analysis, Headroom, Table, figure, headroom_table};
use crate::results::minutes;
use crate::results::steps;
use crate::statistics::models::little::Little;

pub(super) fn sections(results: &Results) -> String {
    [batches(results), scaling(results), littles(results), analysis(results)].concat()
}

fn batches(results: &Results) -> String {
    let table = batches::table(results);
    if table.is_empty() { String::new() } else { format!("\n## Batches\n\n{}", table.markdown()) }
}

/// How the rate grows over what the points differ in, where a law is about that.
fn scaling(results: &Results) -> String {
    let law = results.scaling.as_ref();
    law.map_or_else(String::new, |law| format!("\n## How it scales\n\n```text\n{law}```\n"))
}

/// Closed loops: what should be under way, and what was; of each point the repetition in which they are farthest apart.
fn littles(results: &Results) -> String {
    let mut table = Table::new(["Little's law", "should be under way", "were", "share", "so"]);
    for last in results.last_of_each() {
        let audits = results.runs.iter().filter(|run| run.point == last.point).filter_map(PointRun::little);
        let off = |audit: &Little| audit.unaccounted.abs();
        if let Some(worst) = audits.max_by(|one, other| off(one).total_cmp(&off(other))) {
            let verdict = if worst.marked { "more than 5 % apart" } else { "they agree" };
            table.row([
                label(&last.point),
                figure(worst.concurrency),
                figure(worst.observed),
                format!("{:.1} %", 100.0 * worst.efficiency),
                verdict.to_owned(),
            ]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n## Is all that should be under way in the latency?\n\n{}", table.markdown())
}

/// Until the answer, or until subscribers have it.
type OneWay = fn(&Stages) -> Option<&StagePath>;

/// Where the time went at each point, how even the runs were, and what they cost; nothing of what older programs did not
/// measure.
fn analysis(results: &Results) -> String {
    let last: Vec<(String, Analysis)> =
        results.last_of_each().map(|run| (label(&run.point), Analysis::of(&run.summary))).collect();
    let mut out = String::new();
    let parts: [(&str, OneWay); 2] = [
        ("Where the time goes until the answer", |stages| stages.confirmed.as_ref()),
        ("Where the time goes until subscribers have it", |stages| stages.delivered.as_ref()),
    ];
    // Writing to a String cannot fail.
    for (title, of) in parts {
        let way = |(label, it): &(String, Analysis)| Some((label.clone(), of(&it.stages).cloned()?));
        let ways: Vec<(String, StagePath)> = last.iter().filter_map(way).collect();
        if !ways.is_empty() {
            let _ = writeln!(out, "\n## {title}\n\n{}", stages::table(&ways).markdown());
        }
        for (label, mark) in ways.iter().filter_map(|(label, way)| Some((label, way.mark()?))) {
            let _ = writeln!(out, "At {label}, {mark}.\n");
        }
    }
    for (label, Analysis { steps, .. }) in last.iter().filter(|(_, it)| !it.steps.is_empty()) {
        let _ = writeln!(out, "\n## Step by step: {label}\n\n{}", steps::table(steps).markdown());
    }
    let with_headroom = last.iter().filter_map(|(label, it)| Some((label.clone(), it.capacity.as_ref()?)));
    let known: Vec<(String, &Headroom)> = with_headroom.collect();
    if !known.is_empty() {
        let table = headroom_table(&known).markdown();
        let _ = writeln!(out, "\n## How much more there is room for\n\n{table}\n{ASSUMED}");
    }
    for (label, Analysis { trends, .. }) in last.iter().filter(|(_, it)| !it.trends.is_empty()) {
        let _ = writeln!(out, "\n## From the beginning to the end: {label}\n\n{}", trends.table().markdown());
        trends.iter().for_each(|trend| out.push_str(&format!("- {trend}.\n")));
    }
    for (label, Analysis { minutes, .. }) in last.iter().filter(|(_, it)| !it.minutes.is_empty()) {
        let table = minutes::table(minutes).markdown();
        let _ = writeln!(out, "\n## Minute by minute: {label}\n\n{table}\n[All minutes](minutes.csv).");
    }
    for (label, cost) in last.iter().filter_map(|(label, it)| Some((label, it.cost.as_ref()?))) {
        let _ = writeln!(out, "\n**Price** of {label}: {cost}.");
    }
    out
}
