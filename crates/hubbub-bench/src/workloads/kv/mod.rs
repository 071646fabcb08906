//! `bench kv`: connections that get, put and delete keys over HTTP.
//!
//! [`preload`] puts all keys → each [`client`] draws an operation and a key ([`keys`]) → every value read is held
//! against what was acknowledged before it was asked for: nothing stale is ever shown.

mod client;
mod keys;
mod preload;

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum, value_parser};
use hubbub_core::clock::SeededRandom;
use serde::{Serialize, Serializer};
use tokio::task::JoinSet;

use client::{Client, KINDS};
use keys::{Keys, Popularity};

use crate::agents::{Divided, Share, divided, split};
use crate::host::cleanup::Makes;
use crate::load::message_plan::BENCH_PREFIX;
use crate::load::pace::Due;
use crate::load::phases::{Pacing, Phases, Timetable};
use crate::load::run::Run;
use crate::load::worker::{Worker, work_paced};
use crate::options::{CONNECTIONS_MAX, Patience, TEXT_BYTES_MAX, sizes};
use crate::progress::Live;
use crate::workloads::engine::{Account, Setup, Workload};

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

/// Keys of a run, at most: what is known of each takes 12 bytes.
const KEYS_MAX: u64 = 1_000_000_000;

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("warmup", |arg| arg.default_value("500ms")))]
#[command(mut_arg("duration", |arg| arg.default_value("10s")))]
pub(crate) struct KvArgs {
    /// What is done
    #[arg(value_enum, default_value = "mixed")]
    kind: Kind,
    /// Connections
    #[arg(long, short, default_value_t = 50, value_parser = value_parser!(u64).range(..=CONNECTIONS_MAX), value_name = "N")]
    connections: u64,
    /// Keys
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(..=KEYS_MAX), value_name = "N")]
    keys: u64,
    /// Put before the number of each key
    #[arg(long, default_value = BENCH_PREFIX, value_name = "TEXT")]
    key_prefix: String,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = sizes(TEXT_BYTES_MAX), value_name = "N")]
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
    #[command(flatten)]
    #[serde(flatten)]
    pacing: Pacing,
    /// Do not put the keys first
    #[arg(long)]
    #[serde(rename = "preload", serialize_with = "negated")]
    no_preload: bool,
    #[command(flatten)]
    #[serde(flatten)]
    phases: Phases,
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

    fn timetable(&self) -> Timetable {
        self.phases.timetable(self.pacing.rate)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.keys >= self.connections.max(1),
            "--keys: there must be at least one for each of --connections"
        );
        ensure!(
            self.get >= 0.0 && self.put >= 0.0 && self.get + self.put <= 1.0,
            "--get and --put are shares of 1"
        );
        self.pacing.check(&self.phases)
    }

    fn makes(&self) -> Makes {
        Makes::Keys { prefix: self.key_prefix.clone(), count: self.keys, are_put: !self.no_preload }
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Self::Stage> {
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
        let run = Arc::new(run.with_rows(&setup.common)?.paced(&self.pacing, &self.phases));
        let timetable = self.timetable();
        setup.begin(&run, &timetable);
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
        let schedule = self.pacing.schedule(&self.phases);
        let live = Live::new("operations", schedule.map_or(0, |it| it.messages()), setup.common.quiet)
            .for_time(timetable.whole())
            .on_schedule(schedule);
        work_paced(&run, clients, &live, &timetable, common.due.as_ref()).await;
        Ok(run)
    }

    /// Each has keys of its own, so that one connection writes each key, and what it read can be checked.
    fn divide(&self, setup: &Setup, agents: usize) -> anyhow::Result<Divided> {
        let connections = split("connections", self.connections, agents)?;
        let keys = divided(self.keys, &connections);
        let hot = self.hot.map(|hot| split("hot", hot, agents)).transpose()?;
        let share = |(who, ((connections, keys), rate)): (usize, ((&u64, &u64), Share))| {
            let hot = hot.as_ref().and_then(|hot| hot.get(who)).map(|hot| ("hot", hot.to_string()));
            let prefix = format!("{}{}-", self.key_prefix, who + 1);
            let own = [
                ("connections", connections.to_string()),
                ("keys", keys.to_string()),
                ("key-prefix", prefix),
            ];
            own.into_iter().chain(hot).chain(rate).collect()
        };
        let rates = self.pacing.shares(&connections);
        let shares = connections.iter().zip(&keys).zip(rates).enumerate().map(share).collect();
        let whole = Run::of_operations(setup.target(), &self.patience, &KINDS);
        Ok(Divided { shares, whole: whole.paced(&self.pacing, &self.phases) })
    }

    async fn close(&self, _: &Setup, common: Self::Stage, run: &Run) -> anyhow::Result<Account> {
        let window = Some(self.connections as f64);
        let schedule = self.pacing.schedule(&self.phases);
        let concurrency = window.filter(|_| schedule.is_none());
        let asked_per_second = schedule.map(|schedule| schedule.mean_rate());
        let note = schedule.and_then(|schedule| schedule.never_sent(run, "operations"));
        let keys = Some(common.seen.lock().clone());
        Ok(Account { keys, concurrency, asked_per_second, window, note, ..Account::default() })
    }
}

impl KvArgs {
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
            keys: Keys::new(crate::host::machine::seed(), self.keys, self.value_bytes, &self.key_prefix),
            popularity,
            get,
            put,
            seen: Default::default(),
            due: self.pacing.schedule(&self.phases).map(Due::new),
            connections: self.connections.max(1),
            // With several stores a key read from one may have been written to another.
            is_unchecked: self.unchecked || setup.targets.len() > 1 && !setup.common.shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;

    #[test]
    fn more_keys_than_memory_holds_are_refused() {
        for (option, most) in [("--keys", KEYS_MAX), ("--connections", CONNECTIONS_MAX)] {
            let is_taken = |count: u64| arguments::<KvArgs>("kv", &[option, &count.to_string()]).is_ok();
            assert_eq!([1, most, most + 1, u64::MAX].map(is_taken), [true, true, false, false], "{option}");
        }
    }
}
