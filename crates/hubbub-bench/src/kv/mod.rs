//! `bench kv`: connections that get, put and delete keys over HTTP.
//!
//! [`preload`] puts all keys → each [`client`] draws an operation and a key ([`keys`]) → every value read is held
//! against what was acknowledged before it was asked for: nothing stale is ever shown.

mod client;
mod keys;
mod preload;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use hubbub_core::clock::SeededRandom;
use serde::{Serialize, Serializer};
use tokio::task::JoinSet;

use client::{Client, KINDS};
use keys::{Keys, Popularity};

use crate::agents::{Divided, divided, split};
use crate::engine::{Account, Setup, Workload};
use crate::live::Live;
use crate::options::{Patience, duration, seconds};
use crate::pace::{Due, Rate, Schedule};
use crate::run::Run;
use crate::worker::{Worker, keep_time, work};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Get any key, each as often as any other: mostly not in the server's memory
    GetAll,
    /// Get popular keys: mostly in the server's memory
    GetPopular,
    /// Put any key
    PutAll,
    /// Delete any key
    Delete,
    /// Get, put and delete popular keys, in given shares
    Mixed,
}

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KvArgs {
    /// What is done
    #[arg(value_enum, default_value = "mixed")]
    kind: Kind,
    /// Connections
    #[arg(long, short, default_value_t = 50, value_name = "N")]
    connections: u64,
    /// Keys
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    keys: u64,
    /// Put before the number of each key
    #[arg(long, default_value = "bench-", value_name = "TEXT")]
    key_prefix: String,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_name = "N")]
    value_bytes: usize,
    /// Popular are so many keys, nine times out of ten; without it the k-th most popular one is asked for in proportion
    /// to 1/k (Zipf)
    #[arg(long, value_name = "N")]
    hot: Option<u64>,
    /// Share of gets of `mixed`
    #[arg(long, default_value_t = 0.8, value_name = "P")]
    get: f64,
    /// Share of puts of `mixed`; the rest deletes
    #[arg(long, default_value_t = 0.15, value_name = "P")]
    put: f64,
    /// Operations per second whatever the server does (open loop), or a ramp as 1000..10000; without it each connection
    /// asks again as soon as it is answered
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Do not put the keys first
    #[arg(long)]
    #[serde(rename = "preload", serialize_with = "negated")]
    no_preload: bool,
    /// Length of the measured time
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    duration: Duration,
    /// Time before it in which nothing is measured
    #[arg(long, default_value = "500ms", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "warmupS", serialize_with = "seconds")]
    warmup: Duration,
    #[command(flatten)]
    patience: Patience,
    /// The server is a bare one, and keeps nothing
    #[arg(long, hide = true)]
    #[serde(skip)]
    unchecked: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct KeyLedger {
    pub found: u64,
    pub absent: u64,
    /// Reads that showed what was replaced or deleted before they began.
    pub stale: u64,
    /// Reads that showed another key's value, or none of ours.
    pub wrong: u64,
}

impl KeyLedger {
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.stale > 0 {
            faults.push(format!("{} reads were stale", self.stale));
        }
        if self.wrong > 0 {
            faults.push(format!("{} reads showed another value than was ever put", self.wrong));
        }
        faults
    }
}

impl fmt::Display for KeyLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, absent, stale, wrong } = self;
        write!(f, "{found} found, {absent} absent, {stale} stale, {wrong} wrong")
    }
}

fn negated<S: Serializer>(is: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bool(!is)
}

impl Workload for KvArgs {
    const NAME: &'static str = "kv";
    const HAS_ROOMS: bool = false;
    type Stage = Arc<client::Common>;

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Self::Stage> {
        ensure!(self.keys >= self.connections.max(1), "there must be at least a key for each connection");
        ensure!(
            self.get >= 0.0 && self.put >= 0.0 && self.get + self.put <= 1.0,
            "--get and --put are shares of 1"
        );
        let common = Arc::new(self.shared(setup));
        if !self.no_preload {
            // Several stores would each need all keys, and a key is checked against what one of them said.
            ensure!(
                setup.targets.len() == 1 || setup.common.shared,
                "several servers can only be measured with --no-preload, unless their store is --shared"
            );
            let live = Arc::new(Live::new("preloading", self.keys, setup.common.quiet));
            preload::preload(setup.target(), &common, &live).await.context("preloading")?;
            live.clear();
        }
        Ok(common)
    }

    async fn drive(&self, setup: &Setup, common: &mut Self::Stage) -> anyhow::Result<Arc<Run>> {
        let run = Run::of_operations(setup.target(), &self.patience, &KINDS);
        let run = Arc::new(run.with_rows(&setup.common)?);
        let mut clients = JoinSet::new();
        for (who, target) in (0..common.connections).zip(setup.targets.iter().cycle()) {
            let client = Client {
                worker: Worker::new(&run, &target.of_user(&format!("client-{who}"))),
                common: Arc::clone(common),
                who,
                random: SeededRandom::new(setup.seed.wrapping_add(who)),
            };
            clients.spawn(client.run());
        }
        if let Some(due) = &common.due {
            due.start(&run);
        }
        let timed = async {
            if common.due.is_none() {
                keep_time(&run, self.warmup, self.duration).await;
            }
        };
        let schedule = self.schedule();
        let live = Live::new("operations", schedule.map_or(0, |it| it.messages()), setup.common.quiet)
            .for_time(Some(self.warmup + self.duration))
            .on_schedule(schedule);
        let abandon = || _ = common.due.as_ref().map(|due| due.abandon());
        work(&run, clients, &live, timed, abandon).await;
        Ok(run)
    }

    /// Each has keys of its own, so that one connection writes each key, and what it read can be checked.
    fn divide(&self, setup: &Setup, agents: usize) -> anyhow::Result<Divided> {
        let connections = split("connections", self.connections, agents)?;
        let keys = divided(self.keys, &connections);
        let hot = self.hot.map(|hot| split("hot", hot, agents)).transpose()?;
        let rates = self.rate.map(|rate| rate.divided(&connections));
        let share = |(who, (connections, keys)): (usize, (&u64, &u64))| {
            let hot = hot.as_ref().and_then(|hot| hot.get(who)).map(|hot| ("hot", hot.to_string()));
            let rate = rates.as_ref().and_then(|rates| rates.get(who)).map(|rate| ("rate", rate.to_string()));
            let prefix = format!("{}{}-", self.key_prefix, who + 1);
            let own = [
                ("connections", connections.to_string()),
                ("keys", keys.to_string()),
                ("key-prefix", prefix),
            ];
            own.into_iter().chain(hot).chain(rate).collect()
        };
        let shares = connections.iter().zip(&keys).enumerate().map(share).collect();
        Ok(Divided { shares, whole: Run::of_operations(setup.target(), &self.patience, &KINDS) })
    }

    async fn close(&self, _: &Setup, common: Self::Stage, run: &Run) -> anyhow::Result<Account> {
        let window = Some(self.connections as f64);
        let concurrency = window.filter(|_| self.rate.is_none());
        let schedule = self.schedule();
        let asked_per_second = schedule.map(|schedule| schedule.mean_rate());
        let note = schedule.and_then(|schedule| schedule.never_sent(run, "operations"));
        let keys = Some(common.seen.lock().clone());
        Ok(Account { keys, concurrency, asked_per_second, window, note, ..Account::default() })
    }
}

impl KvArgs {
    /// Of an open loop, which measures from its beginning.
    fn schedule(&self) -> Option<Schedule> {
        self.rate.map(|rate| Schedule::new(rate, self.warmup.saturating_add(self.duration), 0))
    }

    fn shared(&self, setup: &Setup) -> client::Common {
        let popular = self.hot.map_or(Popularity::Zipf, Popularity::Hot);
        let (popularity, get, put) = match self.kind {
            Kind::GetAll => (Popularity::Uniform, 1.0, 0.0),
            Kind::GetPopular => (popular, 1.0, 0.0),
            Kind::PutAll => (Popularity::Uniform, 0.0, 1.0),
            Kind::Delete => (Popularity::Uniform, 0.0, 0.0),
            Kind::Mixed => (popular, self.get, self.put),
        };
        client::Common {
            keys: Keys::new(crate::machine::seed(), self.keys, self.value_bytes, &self.key_prefix),
            popularity,
            get,
            put,
            seen: Default::default(),
            due: self.schedule().map(Due::new),
            connections: self.connections.max(1),
            // With several stores a key read from one may have been written to another.
            is_unchecked: self.unchecked || setup.targets.len() > 1 && !setup.common.shared,
        }
    }
}
