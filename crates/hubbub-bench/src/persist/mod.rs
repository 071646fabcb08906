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

/// A run under way.
struct Course<'a> {
    args: &'a PersistArgs,
    plan: Plan,
    target: Target,
    ledger: Arc<PublishLedger>,
}

async fn run(args: &PersistArgs, plan: Plan, seed: u64) -> anyhow::Result<Outcome> {
    let target = args.common.target()?;
    let texts = Arc::new(Texts::new(seed, args.rooms, args.users, args.text_bytes));
    let followed = args.listen.min(texts.rooms);
    let published = Plan { messages: if args.drain { 0 } else { plan.messages }, ..plan };
    let ledger = PublishLedger::new(published, texts);
    let course = Course { args, plan, target, ledger };
    let stored_before = course.stored_before().await?;
    // What a server stored before it could be asked is part of what it drains.
    let stored_early = if args.drain { stored_before } else { 0 };
    let source = Source::open(args, course.ledger.clone()).await?;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let mut listeners = JoinSet::new();
    if !args.fill && !args.drain && followed > 0 {
        listeners.spawn(subscriber::listen(course.target.clone(), followed, heard.clone()));
        subscribed(&heard, followed).await?;
    }
    let watch = Watch::start(source);
    // What is to be drained is already on its way.
    if !args.fill && !args.drain {
        tokio::time::sleep(args.around).await;
    }

    let metrics_before = course.metrics().await;
    let begun = Instant::now();
    let (published_at, stored, stored_at) = course.publish(stored_before - stored_early).await?;
    let metrics_after = course.metrics().await;
    tokio::time::sleep(if args.fill { Duration::ZERO } else { args.around }).await;

    let at_s = |at: Instant| at.duration_since(watch.begun).as_secs_f64();
    let span = Span { from_s: at_s(begun), to_s: at_s(published_at.max(stored_at)) };
    let looks = watch.stop().await;
    // The last messages are on their way to the listener.
    listeners.shutdown().await;
    let heard = std::mem::take(&mut *heard.lock());
    let sent = course.ledger.counts.sent.load(Ordering::Relaxed);
    let seen = Seen {
        messages: if args.drain { plan.messages } else { sent },
        heard,
        looks,
        span,
        publish: published_at.duration_since(begun),
        store: stored_at.duration_since(begun),
        stored,
        stored_early,
        metrics: [metrics_before, metrics_after],
    };
    Ok(Outcome::new(args, &course.ledger, seen))
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

impl PersistArgs {
    /// Where RabbitMQ is, when messages go through it.
    fn broker(&self) -> Option<&str> {
        self.log.as_deref().filter(|url| url.starts_with("amqp"))
    }
}

impl Course<'_> {
    /// Messages that the server has stored already; none where it is not asked.
    async fn stored_before(&self) -> anyhow::Result<u64> {
        if self.args.fill {
            return Ok(0);
        }
        let counts = ServerCounts::ask(&self.target).await;
        let stored =
            counts.with_context(|| format!("no hubbub server answers at {}", self.target.host))?.stored;
        ensure!(
            !self.args.drain || stored < self.plan.messages,
            "the server has stored {stored} messages already: start it anew to drain"
        );
        Ok(stored)
    }

    async fn metrics(&self) -> String {
        crate::caller::get(&self.target, "/metrics").await.unwrap_or_default()
    }

    /// Publishes, and waits until all is stored. Answers when the last was published, how many are stored, and since when.
    async fn publish(&self, before: u64) -> anyhow::Result<(Instant, u64, Instant)> {
        let (set_published, is_published) = signal::channel(false);
        let publishers = self.publishers()?;
        let publishing = async {
            join(publishers).await?;
            set_published.send_replace(true);
            Ok(Instant::now())
        };
        let (published_at, (stored, stored_at)) =
            tokio::try_join!(publishing, self.wait_stored(before, is_published))?;
        Ok((published_at, stored, stored_at))
    }

    fn publishers(&self) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let Self { args, plan, target, ledger } = self;
        let mut tasks = JoinSet::new();
        for _ in 0..if args.drain { 0 } else { args.publishers.max(1) } {
            if let Some(url) = args.broker() {
                #[cfg(feature = "amqp")]
                tasks.spawn(amqp::publish(
                    url.to_owned(),
                    args.exchange.clone(),
                    args.window.max(1),
                    ledger.clone(),
                ));
                #[cfg(not(feature = "amqp"))]
                anyhow::bail!(
                    "{}: this program was built without the feature amqp",
                    url.split(':').next().unwrap_or_default()
                );
            } else {
                // At a rate, a request is what comes in ten milliseconds.
                let chunk = plan.rate.map_or(args.window as u64, |rate| {
                    ((rate / args.publishers.max(1) as f64 * 0.01) as u64).clamp(1, args.window as u64)
                });
                tasks.spawn(ndjson::publish(target.clone(), chunk.max(1), ledger.clone()));
            }
        }
        Ok(tasks)
    }

    /// Waits until as many are stored as were confirmed; tells how many, and when the last of them was seen.
    async fn wait_stored(
        &self,
        before: u64,
        mut is_published: Receiver<bool>,
    ) -> anyhow::Result<(u64, Instant)> {
        let (mut last, mut moved_at) = (0, Instant::now());
        if self.args.fill {
            return Ok((last, moved_at));
        }
        loop {
            let counts = ServerCounts::ask(&self.target).await;
            let counts = counts.context("the server does not count any more")?;
            let stored = counts.stored.saturating_sub(before);
            if stored > last {
                (last, moved_at) = (stored, Instant::now());
            }
            // In this order: what is confirmed when all is published is what there will be.
            let is_over = *is_published.borrow();
            let confirmed = self.ledger.counts.accepted.load(Ordering::Relaxed);
            let wanted = if self.args.drain { self.plan.messages } else { confirmed };
            if is_over && last >= wanted || moved_at.elapsed() > self.args.give_up {
                return Ok((last, moved_at));
            }
            if is_over {
                tokio::time::sleep(Duration::from_millis(20)).await;
            } else {
                // The server is not to be charged with many questions while it is measured.
                let _ =
                    tokio::time::timeout(Duration::from_millis(250), is_published.wait_for(|is| *is)).await;
            }
        }
    }
}
