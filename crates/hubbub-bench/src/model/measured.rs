//! What runs of the workload `persist` saw, from the results of a scenario.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::costs::{CostsOrigin, Part, Seen, Share};
use crate::scenario::{Point, Results};

/// One run.
pub(super) struct MeasuredRun {
    pub(super) point: Point,
    pub(super) nodes: u32,
    pub(super) per_second: f64,
    pub(super) seen: Seen,
}

/// The runs in the directory of a scenario, and where they were made.
///
/// # Errors
/// There are no results, or none of messages that were persisted by servers of this machine.
pub(super) fn read(dir: &Path) -> anyhow::Result<(CostsOrigin, Vec<MeasuredRun>)> {
    let results = Results::read(dir)?;
    let origin = CostsOrigin {
        machine: results.machine.clone(),
        measured: results.started.split('T').next().unwrap_or_default().to_owned(),
        store: results.store.clone(),
        log: results.log.clone(),
    };
    let shown = dir.display();
    let mut runs = Vec::new();
    for run in results.runs.iter().filter(|run| run.is_clean) {
        let mut read = read_run(&run.summary).with_context(|| format!("{shown}: a run tells no costs"))?;
        if origin.store == "embedded" {
            // Somebody else's database.
            read.seen.cpu_us.remove(&Part::Database.name());
        }
        runs.push(MeasuredRun { point: run.point.clone(), ..read });
    }
    ensure!(!runs.is_empty(), "{shown} has no run whose ledger balances");
    Ok((origin, runs))
}

fn read_run(summary: &Value) -> anyhow::Result<MeasuredRun> {
    let figure = |place: &str| {
        let found = summary.pointer(place).and_then(Value::as_f64);
        found.with_context(|| format!("the summary has no {place}; its workload must be persist"))
    };
    let servers = summary.pointer("/parameters/servers").and_then(Value::as_array).map_or(1, Vec::len);
    let cpu = summary.pointer("/cpuUs").and_then(Value::as_object).context("the summary has no /cpuUs")?;
    let followed = figure("/parameters/listen")?.min(figure("/parameters/rooms")?);
    let listeners = figure("/parameters/listeners")?;
    Ok(MeasuredRun {
        point: Point::new(),
        nodes: u32::try_from(servers)?,
        per_second: figure("/storedPerSecond")?,
        seen: Seen {
            share: Share {
                requests: figure("/perMessage/requests")?,
                kilobytes: figure("/parameters/text_bytes")? / 1e3,
                batches: figure("/perMessage/batches")?,
                bus_copies: bus_copies(servers, followed as usize, listeners as usize)
                    * (followed / figure("/parameters/rooms")?.max(1.0)),
                deliveries: figure("/perMessage/deliveries")?,
                node_seconds: servers as f64 / figure("/storedPerSecond")?.max(1.0),
            },
            cpu_us: cpu.iter().filter_map(|(name, us)| Some((name.clone(), us.as_f64()?))).collect(),
            batch_ms: figure("/batches/meanMs")?,
        },
    })
}

/// Other nodes than the one that stores a message that have a listener of its room, on average: listeners take rooms and
/// nodes in turn, and any node stores.
fn bus_copies(nodes: usize, followed: usize, listeners: usize) -> f64 {
    let nodes_of = |room: usize| {
        let mut at: Vec<usize> = (0..listeners).map(|turn| (room + turn * followed) % nodes.max(1)).collect();
        at.sort_unstable();
        at.dedup();
        at.len() as f64
    };
    let all: f64 = (0..followed).map(nodes_of).sum();
    all / followed.max(1) as f64 * nodes.saturating_sub(1) as f64 / nodes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_from_how_listeners_are_spread() {
        assert_eq!(bus_copies(1, 20, 3), 0.0);
        assert_eq!(bus_copies(2, 21, 1), 0.5, "one listener: at the node that stores, or not");
        assert_eq!(bus_copies(2, 21, 2), 1.0, "at both");
        assert_eq!(bus_copies(2, 20, 2), 0.5, "an even number of rooms has both at the same node");
        assert!((bus_copies(3, 20, 1) - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(bus_copies(2, 0, 1), 0.0);
    }

    #[test]
    fn a_summary_of_another_workload_tells_no_costs() {
        let error = read_run(&serde_json::json!({"cpuUs": {}, "perSecond": 5.0})).err().unwrap();
        assert!(error.to_string().contains("persist"), "{error}");
    }
}
