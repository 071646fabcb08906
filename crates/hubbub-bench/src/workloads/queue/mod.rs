//! `bench queue`: many clients that send to each other through queues, over HTTP or the line protocol.
//!
//! [`setup`] makes queues and clients and fills them → each [`client`] asks in its turn ([`ask`] puts it into either
//! protocol) → the [`ledger`] knows each message by its number: nothing is taken twice, and what was sent and not taken is
//! there in the end.

mod client;
mod command;
mod ledger;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum, value_parser};
use hubbub_core::clock::SeededRandom;
use serde::Serialize;
use tokio::task::JoinSet;

use client::{Client, KINDS};
use command::Dialect;
pub(crate) use command::Via;
use ledger::MessageLedger;
pub(crate) use ledger::QueueLedger;
use setup::{Bulk, QueueTarget, bulk};

use crate::client::{Target, Targets};
use crate::host::cleanup::Made;
use crate::load::pace::{Due, Schedule};
use crate::load::phases::{Pacing, Phases, Timetable};
use crate::load::run::Run;
use crate::load::worker::{Worker, work_paced};
use crate::options::{CONNECTIONS_MAX, Patience, TEXT_BYTES_MAX, duration, seconds, sizes};
use crate::progress::Live;
use crate::workloads::engine::{Account, Setup, Workload};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Only send, until the queues hold what `--depth` says
    Populate,
    /// Only take, until there is nothing left for them
    Consume,
    /// Send, ask, take and read
    Normal,
}

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("warmup", |arg| arg.default_value("500ms").help(
    "Time of the load before its main phase, in which nothing is measured; only normal clients have one"
)))]
#[command(mut_arg("duration", |arg| arg.default_value("10s").help(
    "Length of the main phase of normal clients, and most of it for others; of each step, where --rate has several"
)))]
#[command(mut_arg("think", |arg| arg.help("Time a client rests between its turns (closed loop)")))]
pub(crate) struct QueueArgs {
    /// What the clients do
    #[arg(value_enum, default_value = "normal")]
    kind: Kind,
    /// How they speak to the server
    #[arg(long, value_enum, default_value = "http")]
    via: Via,
    /// Where the line protocol is spoken, for each --server; queues are counted over HTTP in any case
    #[arg(long, default_value = "127.0.0.1:3456", value_delimiter = ',', value_name = "ADDR:PORT")]
    #[serde(skip)]
    line: Vec<String>,
    /// Clients, each with a connection
    #[arg(long, short, default_value_t = 80, value_parser = value_parser!(u64).range(..=CONNECTIONS_MAX), value_name = "N")]
    clients: u64,
    /// Number of the first client
    #[arg(long, default_value_t = 1, value_name = "N")]
    first_client: u64,
    /// Queues
    #[arg(long, default_value_t = 20, value_name = "N")]
    queues: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 200, value_parser = sizes(TEXT_BYTES_MAX), value_name = "N")]
    bytes: usize,
    /// Messages that wait before the clients begin
    #[arg(long, default_value_t = 0, value_name = "N")]
    depth: u64,
    /// Messages that were sent and taken again before the clients begin
    #[arg(long, default_value_t = 0, value_name = "N")]
    taken: u64,
    #[command(flatten)]
    #[serde(flatten)]
    phases: Phases,
    #[command(flatten)]
    #[serde(flatten)]
    pacing: Pacing,
    /// How often a normal client asks for the lists of clients and queues; 0 = never
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "refreshS", serialize_with = "seconds")]
    refresh: Duration,
    /// Probability that a normal client sends in a turn
    #[arg(long, default_value_t = 0.9, value_name = "P")]
    send: f64,
    /// Probability that a message is for whoever takes it first
    #[arg(long, default_value_t = 0.2, value_name = "P")]
    unaddressed: f64,
    /// Probability that a normal client asks which queues hold something for it, and takes from one of them; otherwise
    /// it takes from any
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    ask: f64,
    /// Probability that a normal client takes in a turn; otherwise it reads
    #[arg(long, default_value_t = 0.9, value_name = "P")]
    take: f64,
    #[command(flatten)]
    patience: Patience,
    /// The server is a bare one, and answers everything with the same message
    #[arg(long, hide = true)]
    #[serde(skip)]
    echo: bool,
}

/// Queues and clients that are there already, and what is known of the messages.
pub(crate) struct Stage {
    args: QueueArgs,
    places: Vec<QueueTarget>,
    clients: Arc<[u64]>,
    ledger: MessageLedger,
    /// Messages in all queues before.
    depth: Option<u64>,
    /// What populating clients send together.
    missing: u64,
    /// `None` = a closed loop.
    due: Option<Arc<Due>>,
}

impl Workload for QueueArgs {
    const NAME: &'static str = "queue";
    const HAS_ROOMS: bool = false;
    type Stage = Arc<Stage>;

    fn timetable(&self) -> Timetable {
        self.habits().phases.timetable(self.pacing.rate)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.kind == Kind::Normal || self.pacing.rate.is_none(),
            "--rate: only normal clients have one; populate and consume go as fast as they are answered"
        );
        ensure!(
            self.kind == Kind::Normal || self.phases.cooldown.is_zero(),
            "--cooldown: only normal clients have one; populate and consume end when they are done"
        );
        self.pacing.check(&self.phases)
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Arc<Stage>> {
        let clients: Arc<[u64]> = (self.first_client..).take(usize::try_from(self.clients)?).collect();
        let ledger = MessageLedger::new(crate::host::machine::seed(), self.bytes);
        let made = &setup.common.made;
        // What is left for a later run stays.
        let made = if self.kind == Kind::Populate { &made.kept() } else { made };
        let places = places(self, &setup.targets, &clients, made).await?;
        let depth = self.depth(setup).await;
        let missing = self.depth.saturating_sub(depth.unwrap_or(0));
        let (args, due) = (self.habits(), self.schedule().map(Due::new));
        let stage = Arc::new(Stage { args, places, clients, ledger, depth, missing, due });
        let quiet = setup.common.quiet;
        if self.kind != Kind::Populate {
            bulk(&stage, Bulk::Send, missing, quiet).await?;
        }
        let mut left = self.taken;
        while left > 0 {
            let part = left.min(TAKEN_AT_ONCE);
            bulk(&stage, Bulk::Send, part, quiet).await?;
            bulk(&stage, Bulk::Take, part, quiet).await?;
            left -= part;
        }
        Ok(stage)
    }

    async fn drive(&self, setup: &Setup, stage: &mut Self::Stage) -> anyhow::Result<Arc<Run>> {
        // Over the line protocol the servers are elsewhere.
        let target = &stage.places.first().context("there is no --server")?.dialect.target;
        let run = Run::of_operations(target, &self.patience, &KINDS);
        let run = Arc::new(run.with_rows(&setup.common)?.paced(&self.pacing, &self.phases));
        let timetable = self.timetable();
        setup.begin(&run, &timetable);
        let mut clients = JoinSet::new();
        for (me, place) in stage.clients.iter().copied().zip(stage.places.iter().cycle()) {
            let place = place.of_user(me);
            let client = Client {
                worker: Worker::new(&run, &place.dialect.target),
                stage: Arc::clone(stage),
                place,
                me,
                clients: Arc::clone(&stage.clients),
                random: SeededRandom::new(setup.seed.wrapping_add(me)),
                is_due_over: false,
            };
            clients.spawn(client.run());
        }
        let schedule = self.schedule();
        let live = Live::new("operations", schedule.map_or(0, |it| it.messages()), setup.common.quiet)
            .for_time(timetable.whole())
            .on_schedule(schedule);
        work_paced(&run, clients, &live, &timetable, stage.due.as_ref()).await;
        Ok(run)
    }

    async fn close(&self, setup: &Setup, stage: Self::Stage, run: &Run) -> anyhow::Result<Account> {
        let after = self.depth(setup).await;
        let (window, schedule) = (Some(self.clients as f64), self.schedule());
        // Others than normal clients end when they are done.
        let never_sent = schedule.filter(|_| self.kind == Kind::Normal);
        Ok(Account {
            queues: Some(stage.ledger.close(stage.depth.zip(after))),
            concurrency: window.filter(|_| schedule.is_none()),
            asked_per_second: schedule.map(|schedule| schedule.mean_rate()),
            window,
            note: never_sent.and_then(|schedule| schedule.never_sent(run, "operations")),
            ..Account::default()
        })
    }
}

impl QueueArgs {
    /// Of an open loop.
    fn schedule(&self) -> Option<Schedule> {
        self.pacing.schedule(&self.habits().phases)
    }

    /// Messages in all queues, where the servers say.
    async fn depth(&self, setup: &Setup) -> Option<u64> {
        // Several servers of one store say the same.
        let count = if setup.common.shared { 1 } else { setup.targets.len() };
        if self.echo { None } else { setup::depth(setup.targets.iter().take(count)).await }
    }

    /// The same with what clients of this kind do.
    fn habits(&self) -> Self {
        let phases = Phases { warmup: Duration::ZERO, cooldown: Duration::ZERO, ..self.phases };
        let habits = Self { refresh: Duration::ZERO, phases, ..self.clone() };
        match self.kind {
            Kind::Normal => self.clone(),
            Kind::Populate => Self { send: 1.0, ..habits },
            Kind::Consume => Self { send: 0.0, ask: 1.0, take: 1.0, ..habits },
        }
    }
}

async fn places(
    args: &QueueArgs,
    web: &Targets,
    clients: &[u64],
    made: &Made,
) -> anyhow::Result<Vec<QueueTarget>> {
    let lines = args.line.iter().map(|address| web.first().line(address));
    let lines = lines.collect::<anyhow::Result<Vec<_>>>()?;
    let targets: Vec<&Target> = match args.via {
        Via::Http => web.iter().collect(),
        Via::Line => {
            anyhow::ensure!(
                lines.len() == web.len(),
                "give --line as often as --server: {} against {}",
                lines.len(),
                web.len()
            );
            lines.iter().collect()
        }
    };
    let mut places = Vec::new();
    for (target, web) in targets.into_iter().zip(web.iter()) {
        let dialect = Dialect { via: args.via, target: target.clone() };
        let (queues, made_queues) = setup::make_queues(&dialect, args.queues.max(1)).await?;
        made.queues(web, &queues, made_queues, clients).await;
        let place = QueueTarget { dialect, queues };
        setup::register(&place, clients).await?;
        places.push(place);
    }
    Ok(places)
}

/// Messages of `--taken` that wait at a time.
const TAKEN_AT_ONCE: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;

    #[test]
    fn more_clients_than_memory_holds_are_refused() {
        let is_taken =
            |count: u64| arguments::<QueueArgs>("queue", &["--clients", &count.to_string()]).is_ok();
        assert_eq!([1, CONNECTIONS_MAX, u64::MAX].map(is_taken), [true, true, false]);
    }

    #[test]
    fn what_only_normal_clients_heed_is_refused_for_others() {
        let check = |line: &[&str]| arguments::<QueueArgs>("queue", line).unwrap().check();
        for (option, said) in [("--rate=5", "--rate"), ("--cooldown=1s", "--cooldown")] {
            check(&["normal", option]).unwrap();
            for kind in ["populate", "consume"] {
                check(&[kind]).unwrap();
                let error = check(&[kind, option]).unwrap_err().to_string();
                assert!(error.contains(said) && error.contains("only normal clients"), "{error}");
            }
        }
    }
}
