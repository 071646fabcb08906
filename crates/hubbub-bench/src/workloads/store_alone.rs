//! The store without a server: the workload `store` of scenarios. It uses the embedded engine, or PostgreSQL, itself.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::experiments::limits::{Alone, engine};
use crate::options::{duration, seconds};
use crate::report::{Origin, grouped, write_files};
use crate::results::record::Stats;
use crate::workloads::engine::{Findings, Loading};

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreArgs {
    /// How long to store
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    duration: Duration,
    /// Messages of a batch; the embedded engine takes no more than it wants, which is the default. Of PostgreSQL, that is 5,000
    #[arg(long, value_name = "N")]
    batch: Option<NonZeroUsize>,
    /// Directory for the data, on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    #[serde(skip)]
    dir: PathBuf,
}

/// What the store did alone.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreAlone {
    workload: &'static str,
    #[serde(flatten)]
    origin: Origin,
    parameters: StoreArgs,
    per_second: f64,
    /// Of a batch.
    latency: Stats,
}

pub(crate) async fn measure(args: &Loading<StoreArgs>) -> anyhow::Result<StoreAlone> {
    let Loading { common, own } = args;
    ensure!(common.agents.agents.is_empty(), "--agents: the store alone has no clients");
    let database = common.database.as_deref().filter(|url| url.starts_with("postgres"));
    let Alone { per_second, latency } = match database {
        Some(url) => rows(url, own).await?,
        None => engine::store(&own.dir, own.duration, own.batch).await?,
    };
    Ok(StoreAlone { workload: "store", origin: Origin::here(), parameters: own.clone(), per_second, latency })
}

#[cfg(all(feature = "postgres", feature = "amqp"))]
async fn rows(url: &str, own: &StoreArgs) -> anyhow::Result<Alone> {
    crate::experiments::limits::postgres::check_durable(url).await?;
    crate::experiments::limits::plain_rows::rows(url, own.duration, own.batch).await
}

#[cfg(not(all(feature = "postgres", feature = "amqp")))]
async fn rows(_: &str, _: &StoreArgs) -> anyhow::Result<Alone> {
    anyhow::bail!("this program was built without the features postgres and amqp")
}

impl Findings for StoreAlone {
    fn terminal(&self) -> String {
        let Stats { median_ms, p99_ms, max_ms, .. } = &self.latency;
        format!(
            "store on {}\n  stored       {} messages/s\n  a batch      p50 {median_ms:.3} ms, p99 {p99_ms:.3} ms, max {max_ms:.1} ms\n",
            self.origin.machine,
            grouped(self.per_second)
        )
    }

    fn is_clean(&self) -> bool {
        true
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        write_files(dir, [("summary.json", serde_json::to_string_pretty(self)?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;

    #[test]
    fn a_summary_of_the_store_names_its_format() {
        let found = StoreAlone {
            workload: "store",
            origin: Origin::here(),
            parameters: arguments("store", &[]).unwrap(),
            per_second: 5.0,
            latency: Stats::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        found.write_files(dir.path()).unwrap();
        let written = std::fs::read_to_string(dir.path().join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!((&summary["schemaVersion"], &summary["perSecond"]), (&2.into(), &5.0.into()));
    }
}
