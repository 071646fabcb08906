//! The store without a server: the workload `store` of scenarios. It uses the embedded engine, or PostgreSQL, itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::engine::{Findings, Loading};
use crate::limits::engine;
use crate::options::{duration, seconds};
use crate::report::{Origin, grouped};

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreArgs {
    /// How long to store
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    duration: Duration,
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
}

pub(crate) async fn measure(args: &Loading<StoreArgs>) -> anyhow::Result<StoreAlone> {
    let Loading { common, own } = args;
    let database = common.database.as_deref().filter(|url| url.starts_with("postgres"));
    let per_second = match database {
        Some(url) => rows(url, own.duration).await?,
        None => engine::rate(&own.dir, own.duration).await?,
    };
    Ok(StoreAlone { workload: "store", origin: Origin::here(), parameters: own.clone(), per_second })
}

#[cfg(all(feature = "postgres", feature = "amqp"))]
async fn rows(url: &str, time: Duration) -> anyhow::Result<f64> {
    crate::limits::plain_rows::rows_rate(url, time).await
}

#[cfg(not(all(feature = "postgres", feature = "amqp")))]
async fn rows(_: &str, _: Duration) -> anyhow::Result<f64> {
    anyhow::bail!("this program was built without the features postgres and amqp")
}

impl Findings for StoreAlone {
    fn terminal(&self) -> String {
        format!("store on {}\n  stored       {} messages/s\n", self.origin.machine, grouped(self.per_second))
    }

    fn is_clean(&self) -> bool {
        true
    }
}
