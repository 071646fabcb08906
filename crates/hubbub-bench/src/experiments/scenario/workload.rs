//! Workloads by their names: the options of a scenario go through the same parser and checks as the command line.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::file::Measurement;
use crate::experiments::bare::Kind;
use crate::options::arguments;
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::{self, Findings, Loading, Workload};
use crate::workloads::fanout::FanoutArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;
use crate::workloads::persist::PersistArgs;
use crate::workloads::query::{self, QueryArgs};
use crate::workloads::queue::QueueArgs;
use crate::workloads::store_alone::{self, StoreArgs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkloadKind {
    Chat,
    Http,
    Fanout,
    Queue,
    Kv,
    Persist,
    Query,
    /// The store without a server.
    Store,
}

/// Options that the run itself gives.
const OF_THE_RUN: [&str; 13] = [
    "server",
    "target",
    "shared",
    "out",
    "json",
    "quiet",
    "seed",
    "server-pid",
    "broker-pid",
    "database",
    "price",
    "watch",
    "threads",
];

/// What one measurement found.
pub(super) struct Measured {
    pub(super) summary: Value,
    pub(super) is_clean: bool,
    /// What befell the servers meanwhile.
    pub(super) mishaps: Vec<String>,
    pub(super) terminal: String,
}

impl Measured {
    /// The same with what a reader of its figures should know.
    pub(super) fn with_note(mut self, note: &str) -> Self {
        if let Some(notes) = self.summary.get_mut("notes").and_then(Value::as_array_mut) {
            notes.push(note.into());
        }
        self.terminal = format!("{}\n  note: {note}\n", self.terminal.trim_end());
        self
    }

    /// The same as one that is not clean, because of what befell the servers.
    pub(super) fn with_fault(mut self, reason: &str) -> Self {
        self.is_clean = false;
        self.mishaps.push(reason.to_owned());
        self
    }
}

impl WorkloadKind {
    /// Whether the command line would take these options.
    pub(super) fn check(self, measurement: &Measurement) -> anyhow::Result<()> {
        measurement.servers()?;
        measurement.network_delay()?;
        measurement.placement()?;
        measurement.limits()?;
        measurement.requires_limits()?;
        for (key, _) in measurement.options() {
            ensure!(
                !OF_THE_RUN.contains(&key),
                "options: {key} stands beside [options], or is given to the run"
            );
        }
        let line = line_of(measurement);
        match self {
            Self::Chat => taken::<ChatArgs>(&line),
            Self::Http => taken::<HttpArgs>(&line),
            Self::Fanout => taken::<FanoutArgs>(&line),
            Self::Queue => taken::<QueueArgs>(&line),
            Self::Kv => taken::<KvArgs>(&line),
            Self::Persist => taken::<PersistArgs>(&line),
            Self::Query => taken::<QueryArgs>(&line),
            Self::Store => parsed::<Loading<StoreArgs>>(&line).map(drop),
        }
    }

    /// The bare server that speaks what this workload does.
    pub(super) fn bare(self) -> anyhow::Result<Kind> {
        match self {
            Self::Chat => Ok(Kind::WsAck),
            Self::Http => Ok(Kind::Http),
            Self::Fanout => Ok(Kind::Fanout),
            _ => bail!("server = \"bare\": there is a bare server for chat, http and fanout only"),
        }
    }

    /// Measures once, with what the run gives besides the options; the workload's own files go into `out`.
    pub(super) async fn measure(
        self,
        measurement: &Measurement,
        given: &[String],
        out: Option<&Path>,
    ) -> anyhow::Result<Measured> {
        let mut line = [&line_of(measurement)[..], given].concat();
        // Rows of single messages are written meanwhile.
        line.extend(out.map(|dir| format!("--out={}", dir.display())));
        match self {
            Self::Chat => load::<ChatArgs>(&line, out).await,
            Self::Http => load::<HttpArgs>(&line, out).await,
            Self::Fanout => load::<FanoutArgs>(&line, out).await,
            Self::Queue => load::<QueueArgs>(&line, out).await,
            Self::Kv => load::<KvArgs>(&line, out).await,
            Self::Persist => load::<PersistArgs>(&line, out).await,
            Self::Query => kept(&query::measure(&parsed::<Loading<QueryArgs>>(&line)?).await?, out),
            Self::Store => kept(&store_alone::measure(&parsed(&line)?).await?, out),
        }
    }
}

/// The options as a command line has them.
fn line_of(measurement: &Measurement) -> Vec<String> {
    let word = |(key, value): (&str, &str)| match (key, value) {
        // What the clients of `queue` and `kv` do is no option, but stands alone.
        ("kind", value) => Some(value.to_owned()),
        (_, "false") => None,
        (key, "true") => Some(format!("--{key}")),
        (key, value) => Some(format!("--{key}={value}")),
    };
    measurement.options().filter_map(word).collect()
}

fn parsed<A: Args>(line: &[String]) -> anyhow::Result<A> {
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    arguments("options", &line).map_err(|error| {
        // What it says about the command line as a whole is of no use here.
        let text = error.to_string();
        let said =
            text.lines().take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more"));
        let said: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
        anyhow!("options: {}", said.join("; ").trim_start_matches("error: "))
    })
}

fn taken<W: Workload>(line: &[String]) -> anyhow::Result<()> {
    parsed::<Loading<W>>(line)?.own.check().context("options")
}

async fn load<W: Workload>(line: &[String], out: Option<&Path>) -> anyhow::Result<Measured> {
    kept(&engine::measure(&parsed::<Loading<W>>(line)?).await?, out)
}

fn kept(found: &impl Findings, out: Option<&Path>) -> anyhow::Result<Measured> {
    if let Some(dir) = out {
        found.write_files(dir)?;
    }
    let summary = serde_json::to_value(found)?;
    Ok(Measured { summary, is_clean: found.is_clean(), mishaps: Vec::new(), terminal: found.terminal() })
}
