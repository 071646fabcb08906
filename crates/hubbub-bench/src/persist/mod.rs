//! `hubbub bench persist`: messages through the log into the store, as many as there are or at a given rate, until all
//! of them are stored.
//!
//! Publishers ([`amqp`], as any other program would, or [`ndjson`], through the server) draw messages ([`texts`]) and
//! count what became of them ([`ledger`]); a [`subscriber`] receives some of them at the other end; a [`watch`] looks at server,
//! broker, database and machine once a second. The [`outcome`] compares the ledger with the server's own counters and
//! histograms ([`buckets`]), and shows what was seen as [`time_series`].

#[cfg(feature = "amqp")]
pub(crate) mod amqp;
mod buckets;
pub(crate) mod ledger;
mod ndjson;
pub(crate) mod outcome;
mod preset;
mod show;
mod subscriber;
pub(crate) mod texts;
mod time_series;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch::{self as signal, Receiver};
use tokio::task::JoinSet;

use crate::client::Target;
use crate::engine::Findings as _;
use crate::ledger::ServerCounts;
#[cfg(feature = "postgres")]
use crate::options::arguments;
use crate::options::{Common, duration};
use crate::phase::join;
#[cfg(feature = "postgres")]
use crate::spawn::Server;
use ledger::PublishLedger;
use outcome::{Outcome, Seen};
use preset::{Plan, Preset};
use subscriber::Heard;
use texts::Texts;
use time_series::Span;
use watch::{Source, Watch};

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct PersistArgs {
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: Common,
    /// A run that has a name, in place of --rate; baseline is what happens anyway
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["rate", "fill", "drain"])]
    pub(crate) preset: Option<Preset>,
    /// Messages to publish, 500,000 if nothing is said; with --duration as many as there is time for
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Messages per second; without it as fast as they are confirmed
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<f64>,
    /// How long to publish
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with_all = ["fill", "drain"])]
    pub(crate) duration: Option<Duration>,
    /// RabbitMQ to publish to, amqp://…; without it messages go through the server, POST /v1/messages
    #[arg(long, env = "HUBBUB_LOG", value_name = "URL")]
    #[serde(skip)]
    pub(crate) log: Option<String>,
    /// Exchange to publish to
    #[arg(long, default_value = "chat.exchange", value_name = "NAME")]
    pub(crate) exchange: String,
    /// Queues whose messages are counted
    #[arg(long, default_value = "hubbub.room.0", value_delimiter = ',', value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// PostgreSQL to look at meanwhile, postgres://…
    #[arg(long, env = "HUBBUB_STORE", value_name = "URL")]
    #[serde(skip)]
    pub(crate) database: Option<String>,
    /// Names of processes whose processor time and memory are shown
    #[arg(long, default_value = "postgres,beam", value_delimiter = ',', value_name = "NAME")]
    pub(crate) watch: Vec<String>,
    /// Connections that publish
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) publishers: usize,
    /// Unconfirmed messages of a publisher; of a request, where they go through the server
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) window: usize,
    /// Rooms
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) rooms: u64,
    /// Users
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub(crate) users: u64,
    /// Bytes of a text
    #[arg(long, default_value_t = 120, value_name = "N")]
    pub(crate) text_bytes: usize,
    /// Rooms that are followed over a WebSocket, to measure from publishing to hearing
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) listen: u64,
    /// How long server, broker and database are looked at before and after, to see them idle
    #[arg(long, default_value = "3s", value_parser = duration, value_name = "TIME")]
    pub(crate) around: Duration,
    /// Longest time without any progress
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "TIME")]
    pub(crate) give_up: Duration,
    /// Publish only, whether a server runs or not: fills the broker's queues
    #[arg(long)]
    pub(crate) fill: bool,
    /// Publish nothing, wait until a server that was just started has stored --messages: empties what --fill filled
    #[arg(long, conflicts_with = "fill")]
    pub(crate) drain: bool,
}

pub(crate) async fn measure(args: &PersistArgs) -> anyhow::Result<Outcome> {
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    preset::check(args)?;
    let outcome = run(args, Plan::of(args), seed).await?;
    if args.preset != Some(Preset::Endurance) || !outcome.is_clean() {
        return Ok(outcome);
    }
    let maximum = outcome.stored_per_second;
    let mut kept_up = run(args, Plan::endurance(args, maximum), seed.wrapping_add(1)).await?;
    kept_up.maximum_per_second = Some(maximum);
    Ok(kept_up)
}

/// The same at a server that was started for it, with its database looked at.
#[cfg(feature = "postgres")]
pub(crate) async fn measure_at(server: &Server, database: &str, own: &[&str]) -> anyhow::Result<Outcome> {
    let pid = server.pid.to_string();
    let line = ["--quiet", "--target", &server.url, "--server-pid", &pid, "--database", database];
    measure(&arguments::<PersistArgs>("persist", &[&line[..], own].concat())?).await
}

async fn run(args: &PersistArgs, plan: Plan, seed: u64) -> anyhow::Result<Outcome> {
    let target = args.common.target()?;
    let texts = Arc::new(Texts::new(seed, args.rooms, args.users, args.text_bytes));
    let stored_before = stored_before(args, &plan, &target).await?;
    // What a server stored before it could be asked is part of what it drains.
    let stored_early = if args.drain { stored_before } else { 0 };
    let source = source(args).await?;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let mut listeners = JoinSet::new();
    let followed = args.listen.min(texts.rooms);
    if !args.fill && !args.drain && followed > 0 {
        listeners.spawn(subscriber::listen(target.clone(), followed, heard.clone()));
        subscribed(&heard, followed).await?;
    }
    let published = if args.drain { 0 } else { plan.messages };
    let ledger = Arc::new(PublishLedger::new(published, plan.rate, plan.time));
    let seen = (!args.fill).then(|| target.clone());
    let watch = Watch::start(seen, args.common.server_pid, args.watch.clone(), ledger.clone(), source);
    // What is to be drained is already on its way.
    if !args.fill && !args.drain {
        tokio::time::sleep(args.around).await;
    }

    let metrics_before = metrics(&target).await;
    let begun = Instant::now();
    let publishers = publishers(args, plan.rate, &target, &ledger, &texts)?;
    let before = stored_before - stored_early;
    let (published_at, stored, stored_at) =
        publish(args, &target, before, plan.messages, &ledger, publishers).await?;
    let metrics_after = metrics(&target).await;
    tokio::time::sleep(if args.fill { Duration::ZERO } else { args.around }).await;

    let at_s = |at: Instant| at.duration_since(watch.begun).as_secs_f64();
    let span = Span { from_s: at_s(begun), to_s: at_s(published_at.max(stored_at)) };
    let looks = watch.stop().await;
    // The last messages are on their way to the listener.
    listeners.shutdown().await;
    let heard = std::mem::take(&mut *heard.lock());
    let seen = Seen {
        messages: if args.drain { plan.messages } else { ledger.counts.sent.load(Ordering::Relaxed) },
        heard,
        looks,
        span,
        publish: published_at.duration_since(begun),
        store: stored_at.duration_since(begun),
        stored,
        stored_early,
        metrics: [metrics_before, metrics_after],
    };
    Ok(Outcome::new(args, &ledger, seen))
}

/// Messages that the server has stored already; none where it is not asked.
async fn stored_before(args: &PersistArgs, plan: &Plan, target: &Target) -> anyhow::Result<u64> {
    if args.fill {
        return Ok(0);
    }
    let counts = ServerCounts::ask(target).await;
    let stored = counts.with_context(|| format!("no hubbub server answers at {}", target.host))?.stored;
    ensure!(
        !args.drain || stored < plan.messages,
        "the server has stored {stored} messages already: start it anew to drain"
    );
    Ok(stored)
}

/// Publishes, and waits until all is stored. Answers when the last was published, how many are stored, and since when.
async fn publish(
    args: &PersistArgs,
    target: &Target,
    before: u64,
    messages: u64,
    ledger: &PublishLedger,
    publishers: JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<(Instant, u64, Instant)> {
    let (set_published, is_published) = signal::channel(false);
    let stored = async {
        if args.fill {
            return Ok((0, Instant::now()));
        }
        wait_stored(args, target, before, messages, ledger, is_published).await
    };
    let publishing = async {
        join(publishers).await?;
        set_published.send_replace(true);
        anyhow::Ok(Instant::now())
    };
    let (published_at, stored) = tokio::join!(publishing, stored);
    let (stored, stored_at) = stored?;
    Ok((published_at?, stored, stored_at))
}

async fn metrics(target: &Target) -> String {
    crate::caller::get(target, "/metrics").await.unwrap_or_default()
}

async fn subscribed(heard: &Mutex<Heard>, rooms: u64) -> anyhow::Result<()> {
    for _ in 0..200 {
        if heard.lock().subscribed >= rooms {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("{rooms} rooms could not be followed within 10 s")
}

fn publishers(
    args: &PersistArgs,
    rate: Option<f64>,
    target: &Target,
    ledger: &Arc<PublishLedger>,
    texts: &Arc<Texts>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut tasks = JoinSet::new();
    for _ in 0..if args.drain { 0 } else { args.publishers.max(1) } {
        match &args.log {
            Some(url) if url.starts_with("amqp") => {
                #[cfg(feature = "amqp")]
                tasks.spawn(amqp::publish(
                    url.clone(),
                    args.exchange.clone(),
                    args.window.max(1),
                    ledger.clone(),
                    texts.clone(),
                ));
                #[cfg(not(feature = "amqp"))]
                anyhow::bail!(
                    "{}: this program was built without the feature amqp",
                    url.split(':').next().unwrap_or_default()
                );
            }
            _ => {
                // At a rate, a request is what comes in ten milliseconds.
                let chunk = rate.map_or(args.window as u64, |rate| {
                    ((rate / args.publishers.max(1) as f64 * 0.01) as u64).clamp(1, args.window as u64)
                });
                tasks.spawn(ndjson::publish(target.clone(), chunk.max(1), ledger.clone(), texts.clone()));
            }
        }
    }
    Ok(tasks)
}

async fn source(args: &PersistArgs) -> anyhow::Result<Source> {
    #[allow(unused_mut)]
    let mut source = Source::default();
    #[cfg(feature = "amqp")]
    if let Some(url) = args.log.as_deref().filter(|url| url.starts_with("amqp")) {
        source.broker = Some((amqp::connect(url).await?.create_channel().await?, args.queues.clone()));
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = args.database.as_deref().filter(|url| url.starts_with("postgres")) {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .context("the database given by --database cannot be reached")?;
        tokio::spawn(connection);
        source.database = Some(Arc::new(client));
    }
    #[cfg(not(any(feature = "amqp", feature = "postgres")))]
    let _ = args;
    Ok(source)
}

/// Waits until as many are stored as were confirmed; tells how many, and when the last of them was seen.
async fn wait_stored(
    args: &PersistArgs,
    target: &Target,
    before: u64,
    messages: u64,
    ledger: &PublishLedger,
    mut is_published: Receiver<bool>,
) -> anyhow::Result<(u64, Instant)> {
    let (mut last, mut moved_at) = (0, Instant::now());
    loop {
        let counts = ServerCounts::ask(target).await.context("the server does not count any more")?;
        let stored = counts.stored.saturating_sub(before);
        if stored > last {
            (last, moved_at) = (stored, Instant::now());
        }
        // In this order: what is confirmed when all is published is what there will be.
        let is_over = *is_published.borrow();
        let wanted = if args.drain { messages } else { ledger.counts.accepted.load(Ordering::Relaxed) };
        if is_over && last >= wanted || moved_at.elapsed() > args.give_up {
            return Ok((last, moved_at));
        }
        if is_over {
            tokio::time::sleep(Duration::from_millis(20)).await;
        } else {
            // The server is not to be charged with many questions while it is measured.
            let _ = tokio::time::timeout(Duration::from_millis(250), is_published.wait_for(|is| *is)).await;
        }
    }
}
