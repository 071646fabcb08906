//! What runs of the workload `persist` saw, from the results of a scenario.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::costs::{CostsOrigin, EMBEDDED, Part, Seen, Share};
use crate::experiments::scenario::{Point, Results};
use crate::host::sample::DATABASE;

/// The store that samples know by its address only.
const SCYLLA: &str = "scylla";

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
        name_database(&origin.store, &mut read.seen.cpu_us);
        runs.push(MeasuredRun { point: run.point.clone(), ..read });
    }
    ensure!(!runs.is_empty(), "{shown} has no run whose ledger balances");
    Ok((origin, runs))
}

/// Leaves what the database of this store used, under the name that it has as a part.
fn name_database(store: &str, cpu_us: &mut BTreeMap<String, f64>) {
    let (name, by_address) = (Part::Database.name(), cpu_us.remove(DATABASE));
    match store {
        // Somebody else's.
        EMBEDDED => drop(cpu_us.remove(&name)),
        SCYLLA => {
            cpu_us.remove(&name);
            cpu_us.extend(by_address.map(|us| (name, us)));
        }
        _ => {}
    }
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
    fn a_database_is_found_by_either_name() {
        let found = |store: &str, seen: &[(&str, f64)]| {
            let mut cpu_us = seen.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect();
            name_database(store, &mut cpu_us);
            assert_eq!(cpu_us.get("server"), Some(&9.0), "the rest stays");
            cpu_us.get(&Part::Database.name()).copied()
        };
        let both = [("server", 9.0), ("postgres", 5.0), ("database", 7.0)];
        assert_eq!(found("scylla", &both), Some(7.0), "not that of others");
        assert_eq!(found("scylla", &both[..2]), None, "it was not seen");
        assert_eq!((found("postgres", &both), found("", &both)), (Some(5.0), Some(5.0)));
        assert_eq!(found("embedded", &both), None, "it has none");
    }

    #[test]
    fn a_summary_of_another_workload_tells_no_costs() {
        let error = read_run(&serde_json::json!({"cpuUs": {}, "perSecond": 5.0})).err().unwrap();
        assert!(error.to_string().contains("persist"), "{error}");
    }
}
