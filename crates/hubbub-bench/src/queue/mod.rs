//! `bench queue`: many clients that send to each other through queues, over HTTP or the line protocol.
//!
//! [`setup`] makes queues and clients and fills them → each [`client`] asks in its turn ([`ask`] puts it into either
//! protocol) → the [`ledger`] knows each message by its number: nothing is taken twice, and what was sent and not taken is
//! there in the end.

mod ask;
mod client;
mod ledger;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use hubbub_core::clock::SeededRandom;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use ask::Dialect;
pub(crate) use ask::Via;
use client::{Client, Habits, KINDS};
use ledger::MessageLedger;
pub(crate) use ledger::QueueLedger;
use setup::{Bulk, Place};

use crate::client::Target;
use crate::job::Shape;
use crate::ledger::Ledger;
use crate::machine::CpuMark;
use crate::options::{Common, Patience, duration};
use crate::phase::{self, Progress};
use crate::report::Report;
use crate::run::Run;
use crate::worker::{Clockwork, Worker, keep_time};

/// What the clients are there for.
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

/// Options of `bench queue`.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What the clients do
    #[arg(value_enum, default_value = "normal")]
    kind: Kind,
    /// How they speak to the server
    #[arg(long, value_enum, default_value = "http")]
    via: Via,
    /// Where the line protocol is spoken, for each --target; queues are counted over HTTP in any case
    #[arg(long, default_value = "127.0.0.1:3456", value_delimiter = ',', value_name = "ADDR:PORT")]
    line: Vec<String>,
    /// Clients, each with a connection
    #[arg(long, short, default_value_t = 80, value_name = "N")]
    clients: u64,
    /// Number of the first client
    #[arg(long, default_value_t = 1, value_name = "N")]
    first_client: u64,
    /// Queues
    #[arg(long, default_value_t = 20, value_name = "N")]
    queues: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 200, value_name = "N")]
    bytes: usize,
    /// Messages that wait before the clients begin
    #[arg(long, default_value_t = 0, value_name = "N")]
    depth: u64,
    /// Messages that were sent and taken again before the clients begin
    #[arg(long, default_value_t = 0, value_name = "N")]
    taken: u64,
    /// Length of the measured time of normal clients, and most of it for others
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    duration: Duration,
    /// Time before it in which nothing is measured
    #[arg(long, default_value = "500ms", value_parser = duration, value_name = "TIME")]
    warmup: Duration,
    /// Time a client rests between its turns
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "TIME")]
    think: Duration,
    /// How often a normal client asks for the lists of clients and queues; 0 = never
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
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
    echo: bool,
}

/// Sets everything up, then has the clients work.
pub(crate) async fn measure(args: &QueueArgs) -> anyhow::Result<Report> {
    let web = args.common.targets()?;
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    let clients: Arc<[u64]> = (args.first_client..).take(usize::try_from(args.clients)?).collect();
    let ledger = Arc::new(MessageLedger::new(crate::machine::seed(), args.bytes));
    let mut report = Report::new("queue", parameters(args));
    report.unit = "operations";

    let places = places(args, &web, &clients).await?;
    let before = depth(args, &web).await;
    let waiting = before.unwrap_or(0);
    let missing = args.depth.saturating_sub(waiting);
    if args.kind != Kind::Populate {
        bulk(args, &places, &clients, &ledger, (Bulk::Send, missing)).await?;
    }
    let mut left = args.taken;
    while left > 0 {
        let part = left.min(TAKEN_AT_ONCE);
        bulk(args, &places, &clients, &ledger, (Bulk::Send, part)).await?;
        bulk(args, &places, &clients, &ledger, (Bulk::Take, part)).await?;
        left -= part;
    }

    let cpu = CpuMark::now(args.common.server_pid);
    let run = work(args, &places, &clients, &ledger, missing, seed).await;
    report.cpu = Some(cpu.until(&CpuMark::now(args.common.server_pid)));

    let after = depth(args, &web).await;
    let queues = ledger.close(before.zip(after));
    report.ledger = Some(Ledger::of(&[&run], None, None).with_queues(queues));
    report.add_run(&run, args.common.bucket);
    if args.think.is_zero() {
        report.audit(clients.len() as f64);
    }
    report.judge(args.common.threads);
    Ok(report)
}

async fn places(args: &QueueArgs, web: &[Target], clients: &[u64]) -> anyhow::Result<Vec<Place>> {
    let lines = args.line.iter().map(|address| Target::parse(address)).collect::<anyhow::Result<Vec<_>>>()?;
    let targets = match args.via {
        Via::Http => web,
        Via::Line => {
            anyhow::ensure!(
                lines.len() == web.len(),
                "give --line as often as --target: {} against {}",
                lines.len(),
                web.len()
            );
            &lines
        }
    };
    let mut places = Vec::new();
    for target in targets {
        let dialect = Dialect::new(args.via, target);
        let queues = setup::make_queues(&dialect, target, args.queues.max(1)).await?;
        let place = Place { dialect, target: target.clone(), queues };
        setup::register(&place, clients).await?;
        places.push(place);
    }
    Ok(places)
}

/// Messages in the queues of all servers; `None` when one does not say.
async fn depth(args: &QueueArgs, web: &[Target]) -> Option<u64> {
    if args.echo {
        return None;
    }
    let mut sum = 0;
    for target in web {
        sum += setup::depth(target).await?;
    }
    Some(sum)
}

/// Messages of `--taken` that wait at a time.
const TAKEN_AT_ONCE: u64 = 1_000_000;

/// Sends or takes many messages before the clients begin.
async fn bulk(
    args: &QueueArgs,
    places: &[Place],
    clients: &Arc<[u64]>,
    ledger: &Arc<MessageLedger>,
    (what, messages): (Bulk, u64),
) -> anyhow::Result<()> {
    let name = if what == Bulk::Send { "filling" } else { "taking" };
    let bar = phase::bar(name, messages, args.common.quiet);
    for (index, place) in places.iter().enumerate() {
        let (all, index) = (places.len() as u64, index as u64);
        let share = messages / all + u64::from(index < messages % all);
        setup::bulk(place, clients, ledger, (what, share), &bar).await.context(name)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Has all clients work; `missing` is what populating ones send together.
async fn work(
    args: &QueueArgs,
    places: &[Place],
    clients: &Arc<[u64]>,
    ledger: &Arc<MessageLedger>,
    missing: u64,
    seed: u64,
) -> Arc<Run> {
    let shape = Shape::new(seed, 1, None, "");
    let target = places.first().map(|place| place.target.clone());
    let rules = args.patience.rules();
    // There is a place for each target, and at least one target.
    let target = target.unwrap_or_else(|| unreachable!("a workload has a target"));
    let run = Run::new(target, shape, rules, 0).with_kinds(args.common.rows_max, &KINDS);
    let (run, clockwork) = (Arc::new(run), Arc::new(Clockwork::new()));
    let mut tasks = JoinSet::new();
    for (index, me) in clients.iter().copied().enumerate() {
        let Some(place) = places.get(index % places.len().max(1)) else { continue };
        let client = Client {
            worker: Worker::new(&run, &clockwork, &place.target),
            dialect: place.dialect.clone(),
            ledger: Arc::clone(ledger),
            habits: habits(args, missing),
            me,
            clients: Arc::clone(clients),
            queues: Arc::clone(&place.queues),
            random: SeededRandom::new(seed.wrapping_add(me)),
        };
        tasks.spawn(client.run());
    }
    let (timed_run, timed) = (Arc::clone(&run), Arc::clone(&clockwork));
    let (warmup, time) = (args.warmup, args.duration);
    let timer = if args.kind == Kind::Normal {
        tokio::spawn(async move { keep_time(&timed_run, &timed, warmup, time).await })
    } else {
        clockwork.begin(&run);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            timed.end();
        })
    };
    let progress = Progress { name: "operations", messages: 0, quiet: args.common.quiet };
    phase::finish(&run, &mut tasks, progress, || clockwork.end()).await;
    timer.abort();
    run
}

fn habits(args: &QueueArgs, missing: u64) -> Habits {
    let (send, ask, take, is_taking, ends_when_empty) = match args.kind {
        Kind::Populate => (1.0, 0.0, 0.0, false, false),
        Kind::Consume => (0.0, 1.0, 1.0, true, true),
        Kind::Normal => (args.send, args.ask, args.take, true, false),
    };
    Habits {
        send,
        unaddressed: args.unaddressed,
        ask,
        take,
        is_taking,
        think: args.think,
        refresh: if args.kind == Kind::Normal { args.refresh } else { Duration::ZERO },
        ends_after: (args.kind == Kind::Populate).then_some(missing),
        ends_when_empty,
        is_echo: args.echo,
    }
}

fn parameters(args: &QueueArgs) -> serde_json::Value {
    json!({
        "targets": args.common.targets,
        "kind": args.kind,
        "via": args.via,
        "clients": args.clients,
        "firstClient": args.first_client,
        "queues": args.queues,
        "bytes": args.bytes,
        "depth": args.depth,
        "taken": args.taken,
        "durationS": args.duration.as_secs_f64(),
        "warmupS": args.warmup.as_secs_f64(),
        "thinkS": args.think.as_secs_f64(),
        "refreshS": args.refresh.as_secs_f64(),
        "send": args.send,
        "unaddressed": args.unaddressed,
        "ask": args.ask,
        "take": args.take,
        "threads": args.common.threads,
        "seed": args.common.seed,
        "patience": args.patience,
    })
}
