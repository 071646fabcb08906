//! What a message costs each part of a system, fitted to measurements: processor time for each message, request, kilobyte,
//! batch, copy on the bus and copy delivered, and the time of a batch.
//!
//! The fit makes relative errors least, so that a point with dear messages counts as much as one with cheap ones. No cost
//! is negative: one that would be is noise, and is left out.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::nonnegative::{fit, rounded};
use crate::host::sample::{COMMIT, LOG, POSTGRES, WORKERS};
use crate::statistics::models::least_squares::Observation;
use crate::statistics::models::usl::Estimate;

/// Of the format of files with costs.
const VERSION: u32 = 1;
/// The store of a server that has no database.
pub(super) const EMBEDDED: &str = "embedded";

/// Who uses processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Part {
    /// The server's threads that serve sockets; they also drive the database.
    Workers,
    /// The server's threads of the broker's client.
    Log,
    /// The server's threads that commit, and those that the embedded store has besides.
    Commit,
    Database,
    Broker,
    /// The load generator; it counts where everything shares one machine.
    Generator,
}

/// What a cost is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Per {
    Message,
    Request,
    Kilobyte,
    Batch,
    /// A server that gets the message from another one, for its own subscribers.
    BusCopy,
    /// A subscriber that gets the message.
    Delivery,
    /// A second of a node, whatever it does: polling, heartbeats, maintenance.
    NodeSecond,
}

impl Per {
    pub(crate) const ALL: [Self; 7] = [
        Self::Message,
        Self::Request,
        Self::Kilobyte,
        Self::Batch,
        Self::BusCopy,
        Self::Delivery,
        Self::NodeSecond,
    ];
}

/// Every part, and what its costs may be for. The broker and its client have batches of their own, which grow with the rate
/// as those of the store do.
const PARTS: [(Part, &[Per]); 6] = [
    (Part::Workers, &Per::ALL),
    (Part::Log, &[Per::Message, Per::Kilobyte, Per::Batch, Per::BusCopy, Per::NodeSecond]),
    (Part::Commit, &[Per::Message, Per::Kilobyte, Per::Batch]),
    (Part::Database, &[Per::Message, Per::Kilobyte, Per::Batch, Per::BusCopy, Per::NodeSecond]),
    (Part::Broker, &[Per::Message, Per::Kilobyte, Per::Batch, Per::BusCopy, Per::NodeSecond]),
    (Part::Generator, &[Per::Message, Per::Request, Per::Kilobyte, Per::Delivery]),
];

/// The parts of a server.
pub(crate) const SERVER: [Part; 3] = [Part::Workers, Part::Log, Part::Commit];

impl Part {
    pub(crate) const ALL: [Self; 6] =
        [Self::Workers, Self::Log, Self::Commit, Self::Database, Self::Broker, Self::Generator];

    /// What its processor time is called in summaries; that of another database than PostgreSQL is read under the same name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Workers => format!("server {WORKERS}"),
            Self::Log => format!("server {LOG}"),
            Self::Commit => format!("server {COMMIT}"),
            Self::Database => POSTGRES.to_owned(),
            Self::Broker => "broker".to_owned(),
            Self::Generator => "generator".to_owned(),
        }
    }
}

/// What goes with one message, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    pub(crate) requests: f64,
    pub(crate) kilobytes: f64,
    pub(crate) batches: f64,
    pub(crate) bus_copies: f64,
    pub(crate) deliveries: f64,
    /// Seconds of all nodes together.
    pub(crate) node_seconds: f64,
}

impl Share {
    pub(crate) fn of(&self, per: Per) -> f64 {
        match per {
            Per::Message => 1.0,
            Per::Request => self.requests,
            Per::Kilobyte => self.kilobytes,
            Per::Batch => self.batches,
            Per::BusCopy => self.bus_copies,
            Per::Delivery => self.deliveries,
            Per::NodeSecond => self.node_seconds,
        }
    }
}

/// What one run saw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) share: Share,
    /// Microseconds of processor time for each message, by [`Part::name`].
    pub(crate) cpu_us: BTreeMap<String, f64>,
    /// From the first statement to the commit, in milliseconds.
    pub(crate) batch_ms: f64,
}

/// Costs of a part, in microseconds of processor time, with 95 % intervals.
pub(crate) type Prices = BTreeMap<Per, Estimate>;

/// The time of a batch of n operations: `fixed` + n × `operation`, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchTime {
    pub(crate) fixed: Estimate,
    pub(crate) operation: Estimate,
}

/// Where and with what costs were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostsOrigin {
    pub(crate) machine: String,
    pub(crate) measured: String,
    pub(crate) store: String,
    pub(crate) log: String,
}

impl CostsOrigin {
    /// Whether the store is one; results of older programs do not say what it is.
    pub(crate) fn has_database(&self) -> bool {
        !["", EMBEDDED].contains(&self.store.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Costs {
    version: u32,
    #[serde(flatten)]
    pub(crate) origin: CostsOrigin,
    /// Runs that they were fitted to.
    pub(crate) runs: usize,
    /// What differed between these runs. What did not has no cost of its own: it is in that of the message.
    pub(crate) told_apart: Vec<Per>,
    pub(crate) parts: BTreeMap<Part, Prices>,
    pub(crate) batch_time: BatchTime,
    /// How far the fit is from the runs: the root of the mean square of relative errors, by part.
    pub(crate) fit_error: BTreeMap<Part, f64>,
}

impl Costs {
    /// Fits costs to runs of one store and log.
    ///
    /// # Errors
    /// The runs are too few, or too much alike, to tell the costs of a part apart.
    pub(crate) fn fit(origin: CostsOrigin, runs: &[Seen]) -> anyhow::Result<Self> {
        let (mut parts, mut fit_error) = (BTreeMap::new(), BTreeMap::new());
        for (part, pers) in PARTS {
            let name = part.name();
            let of = |run: &Seen| Some((run.share, run.cpu_us.get(&name).copied().filter(|us| *us > 0.0)?));
            let seen: Vec<(Share, f64)> = runs.iter().filter_map(of).collect();
            if seen.is_empty() {
                continue;
            }
            let prices = prices(&seen, pers).with_context(|| format!("the costs of {name}"))?;
            let error = |(share, us): &(Share, f64)| (total(&prices, share) / us - 1.0).powi(2);
            let mean = seen.iter().map(error).sum::<f64>() / seen.len() as f64;
            fit_error.insert(part, rounded(mean.sqrt()));
            parts.insert(part, prices);
        }
        ensure!(
            parts.contains_key(&Part::Workers),
            "none of the runs has the processor time of the server's threads: it must run on this machine"
        );
        let shares: Vec<Share> = runs.iter().map(|run| run.share).collect();
        let told_apart = Per::ALL.into_iter().filter(|per| is_varied(&shares, *per)).collect();
        let (runs, batch_time) = (runs.len(), batch_time(runs)?);
        Ok(Self { version: VERSION, origin, runs, told_apart, parts, batch_time, fit_error })
    }

    /// Whether the store is a database whose processor time no run has.
    pub(crate) fn lacks_database(&self) -> bool {
        self.origin.has_database() && !self.parts.contains_key(&Part::Database)
    }

    pub(crate) fn check(self) -> anyhow::Result<Self> {
        ensure!(self.version == VERSION, "the costs have version {}, not {VERSION}", self.version);
        Ok(self)
    }

    /// Processor time of a part for a message, in microseconds; 0 where the part is not there.
    pub(crate) fn us(&self, part: Part, share: &Share) -> f64 {
        self.parts.get(&part).map_or(0.0, |prices| total(prices, share))
    }

    /// What of it is for these.
    pub(crate) fn us_for(&self, part: Part, share: &Share, pers: &[Per]) -> f64 {
        let prices = self.parts.get(&part).into_iter().flatten().filter(|(per, _)| pers.contains(per));
        prices.map(|(per, price)| price.value * share.of(*per)).sum()
    }
}

fn total(prices: &Prices, share: &Share) -> f64 {
    prices.iter().map(|(per, price)| price.value * share.of(*per)).sum()
}

/// What is the same in all runs cannot be told from the message itself.
fn is_varied(shares: &[Share], per: Per) -> bool {
    let first = shares.first().map_or(0.0, |share| share.of(per));
    shares.iter().any(|share| (share.of(per) - first).abs() > 0.05 * first.abs().max(1e-3))
}

/// The costs of one part, from pairs of what went with a message and what it cost.
fn prices(seen: &[(Share, f64)], pers: &[Per]) -> anyhow::Result<Prices> {
    let shares: Vec<Share> = seen.iter().map(|(share, _)| *share).collect();
    let has_cost = |per: &Per| *per == Per::Message || is_varied(&shares, *per);
    let pers: Vec<Per> = pers.iter().copied().filter(has_cost).collect();
    let rows: Vec<Observation> = seen
        .iter()
        .map(|(share, us)| Observation {
            columns: pers.iter().map(|per| share.of(*per) / us).collect(),
            seen: 1.0,
        })
        .collect();
    let estimates = fit(&rows).with_context(|| {
        format!(
            "{} runs do not tell these apart: {pers:?}; `costs` and `costs-nodes` are made for it",
            rows.len()
        )
    })?;
    Ok(pers.into_iter().zip(estimates).filter(|(_, estimate)| estimate.value > 0.0).collect())
}

fn batch_time(runs: &[Seen]) -> anyhow::Result<BatchTime> {
    let row = |run: &Seen| {
        let (operations, us) = (1.0 / run.share.batches, 1e3 * run.batch_ms);
        Observation { columns: vec![1.0 / us, operations / us], seen: 1.0 }
    };
    let rows: Vec<Observation> =
        runs.iter().filter(|run| run.share.batches > 0.0 && run.batch_ms > 0.0).map(row).collect();
    let estimates = fit(&rows).context("the runs do not tell how the time of a batch grows with its size")?;
    let [fixed, operation] = *estimates.as_slice() else { anyhow::bail!("a batch has two costs") };
    Ok(BatchTime { fixed, operation })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::analysis::capacity) fn origin(store: &str, log: &str) -> CostsOrigin {
        CostsOrigin {
            machine: "a machine".to_owned(),
            measured: "2026-01-01".to_owned(),
            store: store.to_owned(),
            log: log.to_owned(),
        }
    }

    /// Runs as `costs` and `costs-nodes` have them, made with known costs.
    pub(in crate::analysis::capacity) fn runs() -> Vec<Seen> {
        let shares = [
            [1.0, 0.12, 3.0, 0.0, 0.0, 4e-3],
            [1.0, 0.12, 40.0, 0.0, 0.0, 3e-4],
            [0.01, 0.12, 900.0, 0.0, 0.0, 5e-5],
            [0.01, 2.0, 700.0, 0.0, 0.0, 1e-4],
            [0.01, 0.12, 600.0, 0.0, 2.0, 3e-4],
            [0.01, 0.12, 500.0, 0.0, 10.0, 2e-4],
            [0.01, 0.12, 400.0, 1.0, 2.0, 5e-4],
            [1.0, 0.12, 30.0, 1.0, 2.0, 4e-4],
            [0.01, 0.12, 60.0, 0.0, 0.0, 2e-3],
        ];
        let shares = shares.map(|[requests, kilobytes, operations, bus_copies, deliveries, node_seconds]| {
            Share { requests, kilobytes, batches: 1.0 / operations, bus_copies, deliveries, node_seconds }
        });
        let run = |share: Share| {
            let Share { requests, kilobytes, batches, bus_copies, deliveries, node_seconds } = share;
            let us = [
                (
                    "server workers",
                    3.0 + 9.0 * requests
                        + kilobytes
                        + 20.0 * batches
                        + 2.0 * bus_copies
                        + 0.5 * deliveries
                        + 5_000.0 * node_seconds,
                ),
                ("server log", 2.0 + 1.0 * bus_copies),
                ("server commit", 1.0 + 40.0 * batches),
                ("postgres", 15.0 + 300.0 * batches + 9_000.0 * node_seconds),
                ("broker", 6.0 + 2.0 * bus_copies),
                ("generator", 1.0 + 4.0 * requests + 0.7 * deliveries),
            ];
            let cpu_us = us.into_iter().map(|(name, us)| (name.to_owned(), us)).collect();
            Seen { share, cpu_us, batch_ms: (800.0 + 10.0 / batches) / 1e3 }
        };
        shares.into_iter().map(run).collect()
    }

    #[test]
    fn costs_are_found_again() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        for (part, per, wanted) in [
            (Part::Workers, Per::Message, 3.0),
            (Part::Workers, Per::Request, 9.0),
            (Part::Workers, Per::Kilobyte, 1.0),
            (Part::Workers, Per::Batch, 20.0),
            (Part::Workers, Per::BusCopy, 2.0),
            (Part::Workers, Per::Delivery, 0.5),
            (Part::Workers, Per::NodeSecond, 5_000.0),
            (Part::Database, Per::NodeSecond, 9_000.0),
            (Part::Commit, Per::Batch, 40.0),
            (Part::Database, Per::Batch, 300.0),
            (Part::Broker, Per::BusCopy, 2.0),
        ] {
            let found = costs.parts[&part][&per].value;
            assert!((found / wanted - 1.0).abs() < 1e-6, "{part:?} {per:?}: {found}");
        }
        let BatchTime { fixed, operation } = costs.batch_time;
        assert!((fixed.value - 800.0).abs() < 1e-3 && (operation.value - 10.0).abs() < 1e-6, "{fixed:?}");
        assert!(costs.fit_error.values().all(|error| *error < 1e-9), "{:?}", costs.fit_error);
        assert_eq!(costs.told_apart, Per::ALL[1..]);
        let all = runs();
        let total: f64 = SERVER.iter().map(|part| costs.us(*part, &all[7].share)).sum();
        let seen: f64 = SERVER.iter().map(|part| all[7].cpu_us[&part.name()]).sum();
        assert!((total - seen).abs() < 1e-6, "{total} {seen}");
    }

    #[test]
    fn noise_makes_no_negative_cost() {
        let mut all = runs();
        // A kilobyte seems to save time.
        all[3].cpu_us.insert("server commit".to_owned(), 0.5);
        let costs = Costs::fit(origin("postgres", "kafka"), &all).unwrap();
        assert!(!costs.parts[&Part::Commit].contains_key(&Per::Kilobyte), "{:?}", costs.parts);
        assert!(costs.parts[&Part::Commit].values().all(|price| price.value > 0.0));
        assert!(costs.fit_error[&Part::Commit] > 0.01);
    }

    #[test]
    fn runs_that_are_alike_tell_nothing() {
        let error =
            |runs: &[Seen]| format!("{:#}", Costs::fit(origin("embedded", "direct"), runs).unwrap_err());
        let few = error(&runs()[3..5]);
        assert!(few.contains("server workers") && few.contains("costs-nodes"), "{few}");
        assert!(error(&[]).contains("on this machine"));
        let elsewhere: Vec<Seen> =
            runs().into_iter().map(|run| Seen { cpu_us: BTreeMap::new(), ..run }).collect();
        assert!(error(&elsewhere).contains("on this machine"));
    }

    #[test]
    fn costs_are_read_as_they_were_written() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        let text = serde_json::to_string(&costs).unwrap();
        let read: Costs = serde_json::from_str(&text).unwrap();
        assert_eq!(read.check().unwrap(), costs);
        let later: Costs = serde_json::from_str(&text.replace("\"version\":1", "\"version\":9")).unwrap();
        assert!(later.check().unwrap_err().to_string().contains("version 9"));
    }
}
