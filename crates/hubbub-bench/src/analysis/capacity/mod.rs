//! `hubbub bench model`: how many nodes and partitions a load needs, and what is full first.
//!
//! Costs come from runs of scenarios ([`measured`]), to which [`costs`] fits them, or from the program; [`prediction`] holds
//! them against a load. [`compare`] holds them against other runs, which tells the model's error.

mod compare;
mod costs;
mod measured;
mod nonnegative;
pub(crate) mod prediction;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;

use compare::Compared;
use costs::Costs;
use prediction::{Capacity, Demand, Hardware, Resource, USE_MAX, Use};

use crate::workloads::engine::Findings;

#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// Messages per second
    #[arg(long, default_value_t = 10_000.0, value_parser = positive, value_name = "N")]
    rate: f64,
    /// Rooms
    #[arg(long, default_value_t = 1_000.0, value_parser = positive, value_name = "N")]
    rooms: f64,
    /// Subscribers of each room, at any node
    #[arg(long, default_value_t = 10.0, value_parser = not_negative, value_name = "N")]
    listeners: f64,
    /// Bytes of a message's text
    #[arg(long, default_value_t = 120.0, value_parser = positive, value_name = "N")]
    bytes: f64,
    /// Messages that clients send in one request
    #[arg(long, default_value_t = 1.0, value_parser = positive, value_name = "N")]
    per_request: f64,
    /// Most of anything that may be used, in percent
    #[arg(long = "use", default_value_t = 100.0 * USE_MAX, value_parser = positive, value_name = "PERCENT")]
    use_max: f64,
    /// Cores of a node
    #[arg(long, default_value_t = 4.0, value_parser = positive, value_name = "N")]
    node_cores: f64,
    /// Cores of the database
    #[arg(long, default_value_t = 16.0, value_parser = positive, value_name = "N")]
    database_cores: f64,
    /// Cores of the broker, of all its servers together
    #[arg(long, default_value_t = 8.0, value_parser = positive, value_name = "N")]
    broker_cores: f64,
    /// Network of a node, in megabits per second
    #[arg(long, default_value_t = 10_000.0, value_parser = positive, value_name = "N")]
    network_mbit: f64,
    /// Everything, with the load generator, shares the cores of one machine
    #[arg(long, value_parser = positive, value_name = "CORES")]
    one_machine: Option<f64>,
    /// Which of the costs that are part of this program: postgres or embedded
    #[arg(long, default_value = "postgres", value_name = "NAME", conflicts_with = "costs")]
    store: String,
    /// The same: kafka or direct
    #[arg(long, value_name = "NAME", conflicts_with = "costs")]
    log: Option<String>,
    /// Other costs: directories of results of the scenarios `costs` and `costs-nodes`, or a file that --save wrote
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    costs: Vec<PathBuf>,
    /// Write the costs to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compare with what was measured: a directory of results of a scenario with the workload persist, such as `nodes`
    #[arg(long, value_name = "DIR")]
    compare: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "must be a number, 0 or more".to_owned())
}

/// Measured on one machine that others used, too: `docs/scaling.md` says how.
const BUILT_IN: &str = include_str!("costs.json");

/// What the model says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prediction {
    demand: Demand,
    hardware: Hardware,
    /// The costs are those of the program.
    is_built_in: bool,
    /// Fewest nodes; `None` where no number is enough.
    nodes: Option<u32>,
    /// Fewest partitions of the log, and a number to grow into.
    partitions: Option<(u32, u32)>,
    /// What that many nodes use at that rate, the fullest first; where none are enough, what most nodes would.
    used: Vec<Use>,
    /// The fullest when one node is away, where there are several.
    without_one: Option<Use>,
    /// What more nodes bring.
    growth: Vec<Growth>,
    notes: Vec<String>,
    compared: Option<Compared>,
    costs: Costs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Growth {
    nodes: u32,
    most_per_second: f64,
    first_full: Option<Resource>,
}

/// Numbers of nodes that are shown.
const NODES: [u32; 6] = [1, 2, 3, 4, 8, 16];

/// Predicts, and compares where that is asked for.
pub(crate) fn predict(args: &ModelArgs) -> anyhow::Result<Prediction> {
    let costs =
        if args.costs.is_empty() { built_in(&args.store, args.log.as_deref())? } else { read(&args.costs)? };
    if let Some(path) = &args.save {
        let text = serde_json::to_string_pretty(&costs)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let compared = args.compare.as_deref().map(|dir| Compared::with(dir, &costs)).transpose()?;
    let ModelArgs { rate, rooms, listeners, bytes, per_request, .. } = *args;
    let demand = Demand { rate, rooms, listeners, bytes, per_request };
    let hardware = Hardware {
        node_cores: args.node_cores,
        database_cores: args.database_cores,
        broker_cores: args.broker_cores,
        network_mbit: args.network_mbit,
        shared_cores: args.one_machine,
        use_max: args.use_max / 100.0,
    };
    let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
    let nodes = capacity.nodes();
    let shown = capacity.shown(nodes);
    let growth = NODES.into_iter().filter(|nodes| *nodes <= capacity.nodes_max()).map(|nodes| {
        let (most_per_second, first_full) = capacity.most(nodes);
        Growth { nodes, most_per_second, first_full }
    });
    Ok(Prediction {
        is_built_in: args.costs.is_empty(),
        nodes,
        partitions: nodes.and_then(|nodes| capacity.partitions(nodes)),
        used: capacity.used(shown, rate),
        without_one: (shown > 1).then(|| capacity.used(shown - 1, rate).first().copied()).flatten(),
        growth: growth.collect(),
        notes: capacity.notes(shown),
        compared,
        demand: demand.clone(),
        hardware: hardware.clone(),
        costs: costs.clone(),
    })
}

fn built_in(store: &str, log: Option<&str>) -> anyhow::Result<Costs> {
    let all: Vec<Costs> = serde_json::from_str(BUILT_IN).context("the costs of the program")?;
    let names: Vec<String> = all
        .iter()
        .map(|costs| format!("--store {} --log {}", costs.origin.store, costs.origin.log))
        .collect();
    let is_wanted =
        |costs: &Costs| costs.origin.store == store && log.is_none_or(|log| costs.origin.log == log);
    let found = all.into_iter().find(is_wanted);
    found
        .with_context(|| {
            format!("there are only costs of {}; measure others: docs/scaling.md", names.join(", "))
        })?
        .check()
}

/// From one file, or fitted to the runs in all directories.
fn read(paths: &[PathBuf]) -> anyhow::Result<Costs> {
    if let [path] = paths
        && !path.is_dir()
    {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let costs: Costs = serde_json::from_str(&text).with_context(|| format!("{shown} holds no costs"))?;
        return costs.check();
    }
    let mut all = Vec::new();
    let mut origin = None;
    for dir in paths {
        let (found, runs) = measured::read(dir)?;
        let first = origin.get_or_insert_with(|| found.clone());
        ensure!(
            (&first.store, &first.log) == (&found.store, &found.log),
            "{} is of {} behind {}, and not of {} behind {}, as those before it",
            dir.display(),
            found.store,
            found.log,
            first.store,
            first.log
        );
        all.extend(runs.into_iter().map(|run| run.seen));
    }
    Costs::fit(origin.context("--costs names nothing")?, &all)
}

impl Findings for Prediction {
    fn terminal(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    /// A prediction that nothing is enough is an answer, too.
    fn is_clean(&self) -> bool {
        true
    }

    fn write_files(&self, _dir: &Path) -> anyhow::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;

    fn prediction(line: &[&str]) -> anyhow::Result<Prediction> {
        predict(&arguments::<ModelArgs>("model", line)?)
    }

    #[test]
    fn the_costs_of_the_program_predict() {
        for line in
            [&["--store", "postgres", "--log", "kafka"][..], &["--log", "direct"], &["--store", "embedded"]]
        {
            let said = prediction(line).unwrap().terminal();
            for part in ["part of this program", "accept", "delivery", "first full", "nodes"] {
                assert!(said.contains(part), "{line:?} {part}: {said}");
            }
        }
        let error = prediction(&["--store", "oracle"]).unwrap_err().to_string();
        assert!(
            error.contains("--store postgres --log kafka") && error.contains("docs/scaling.md"),
            "{error}"
        );
    }

    #[test]
    fn more_of_anything_needs_no_fewer_nodes() {
        let nodes = |line: &[&str]| prediction(line).unwrap().nodes.unwrap_or(u32::MAX);
        for (option, values) in [
            ("--rate", ["100", "20000", "80000"]),
            ("--listeners", ["0", "10", "500"]),
            ("--bytes", ["10", "1000", "30000"]),
        ] {
            let needed = values.map(|value| nodes(&[option, value]));
            assert!(needed.is_sorted(), "{option}: {needed:?}");
        }
        assert!(nodes(&["--rate", "20000", "--use", "30"]) >= nodes(&["--rate", "20000", "--use", "90"]));
    }

    /// At lower rates than the last of these, batches of few messages keep the broker busier.
    #[test]
    fn what_is_enough_is_not_more_than_the_most() {
        for rate in ["300", "3000", "30000"] {
            let line = ["--rate", rate, "--listeners", "0", "--broker-cores", "1"];
            let Prediction { nodes, growth, .. } = prediction(&line).unwrap();
            let enough = growth.iter().filter(|one| Some(one.nodes) == nodes);
            assert!(
                enough.clone().all(|one| one.most_per_second >= rate.parse().unwrap()),
                "{rate}: {nodes:?} {growth:?}"
            );
        }
    }

    /// At one node batches are full at this rate; at 256 they would hold one message.
    #[test]
    fn stages_are_of_as_many_nodes_as_there_can_be() {
        let predicted = prediction(&["--store", "embedded", "--rate", "10000000"]).unwrap();
        assert_eq!(predicted.nodes, None, "no number is enough");
        let said = predicted.terminal();
        assert!(said.contains("in batches of 2000:"), "{said}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            &["--rate", "0"][..],
            &["--rooms", "-1"],
            &["--bytes", "NaN"],
            &["--listeners", "few"],
            &["--costs", "/nowhere/costs.json"],
            &["--compare", "/nowhere"],
        ] {
            assert!(prediction(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn costs_that_were_saved_predict_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("costs.json");
        let path = path.to_str().unwrap();
        let first = prediction(&["--rate", "30000", "--save", path]).unwrap();
        let again = prediction(&["--rate", "30000", "--costs", path]).unwrap();
        assert_eq!((first.nodes, &first.used), (again.nodes, &again.used));
        assert!(!again.is_built_in);
    }
}
