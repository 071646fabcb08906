//! `hubbub bench persist`: messages through the log into the store, as many as there are or at a given rate, until all
//! of them are stored.
//!
//! The engine's generator draws messages → publishers ([`amqp`], as any other program would, or [`ndjson`], through the
//! server) send them and note what became of them → listeners receive some of them at the other end, and the sampler
//! looks at server, broker, database and machine once a second. The [`outcome`] shows the report together with what was
//! seen.

#[cfg(feature = "amqp")]
pub(crate) mod amqp;
mod ndjson;
pub(crate) mod outcome;
mod preset;
mod show;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::Targets;
use crate::engine::{self, Account, Findings as _, Loading, Setup, Workload};
use crate::feed::Feed;
use crate::job::Shape;
use crate::lane::Lane;
use crate::ledger::ServerCounts;
use crate::listener::Listeners;
use crate::live::Live;
use crate::options::{Patience, Rules, arguments, duration};
use crate::pace::{Rate, SLEEP_MIN, Schedule, feed_paced, supply};
use crate::phase;
use crate::report::MESSAGES;
use crate::run::Run;
use crate::sample::{Sampler, Source};
#[cfg(any(feature = "postgres", all(feature = "kafka", feature = "scylla")))]
use crate::spawn::Server;
use outcome::{Outcome, Persisted, Seen};
use preset::{Plan, Preset};

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct PersistArgs {
    /// A run that has a name, in place of --rate; baseline is what happens anyway
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["rate", "fill", "drain"])]
    pub(crate) preset: Option<Preset>,
    /// Messages to publish, 500,000 if nothing is said; with --duration as many as there is time for. With --preset endurance
    /// those that the maximum is measured with, else it is measured for a minute
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
    /// Connections that publish
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) publishers: usize,
    /// Unconfirmed messages of a publisher; of a request, where they go through the server
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) window: usize,
    /// Rooms
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) rooms: u16,
    /// Users
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub(crate) users: u32,
    /// Bytes of a text
    #[arg(long, default_value_t = 120, value_name = "N")]
    pub(crate) text_bytes: usize,
    /// Rooms that are followed over a WebSocket, to measure from publishing to hearing
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) listen: u16,
    /// WebSockets that follow each of these rooms
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) listeners: usize,
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
    /// Messages per second that were stored just before, of which a share is to be kept up.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) maximum: Option<f64>,
}

/// At a rate, a request of each publisher is its share of what comes in this time.
const REQUEST_EVERY: Duration = Duration::from_millis(10);
/// Least messages that the generator makes ahead.
const AHEAD_MIN: usize = 1_000;

pub(crate) async fn measure(args: &Loading<PersistArgs>) -> anyhow::Result<Outcome> {
    preset::check(args)?;
    let outcome = Outcome::of(engine::measure(args).await?)?;
    if args.own.preset != Some(Preset::Endurance) || !outcome.is_clean() {
        return Ok(outcome);
    }
    let own = PersistArgs { maximum: Some(outcome.persisted.stored_per_second), ..args.own.clone() };
    Outcome::of(engine::measure(&Loading { own, ..args.clone() }).await?)
}

/// The same at a server that was started for it.
#[cfg(any(feature = "postgres", all(feature = "kafka", feature = "scylla")))]
pub(crate) async fn measure_at(server: &Server, own: &[&str]) -> anyhow::Result<Outcome> {
    Outcome::of(server.load::<PersistArgs>(None, own).await?)
}

/// Listeners and the sampler, which are there before anything is published.
pub(crate) struct Stage {
    run: Arc<Run>,
    listeners: Listeners,
    sampler: Sampler,
    /// Messages that the server had stored already. Those count as drained: it stored them before it could be asked.
    stored_before: u64,
    stored: u64,
    stored_at: Instant,
    /// The servers' figures just before and just after, and how many of the requests in between only asked about messages.
    metrics: [String; 2],
    questions: u64,
}

impl Workload for PersistArgs {
    const NAME: &'static str = "persist";
    const HAS_ROOMS: bool = true;
    const SAMPLES_ITSELF: bool = true;
    type Stage = Stage;

    /// It asks by itself: in a database that servers share, what the store holds does not tell of a restart.
    fn has_server_counts(&self) -> bool {
        false
    }

    fn log_url(&self) -> Option<&str> {
        self.log.as_deref().filter(|log| log.contains("://"))
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Stage> {
        let shape = Shape::of_residents(crate::machine::seed(), self.users, self.text_bytes);
        let shape = shape.of_rooms(self.rooms);
        let run = Arc::new(Run::new(setup.targets.clone(), shape, self.rules()?));
        let stored_before = self.stored_before(&setup.targets).await?;
        let source = Source::of_persisting(self, setup, Arc::clone(&run)).await?;
        let followed = self.followed();
        let listeners =
            Listeners::gather(&run, usize::from(followed) * self.listeners, followed, setup.seed).await?;
        let sampler = Sampler::start(source);
        // What is to be drained is already on its way.
        if !self.fill && !self.drain {
            tokio::time::sleep(self.around).await;
        }
        let (stored, stored_at) = (0, Instant::now());
        let metrics = [metrics(&setup.targets).await, String::new()];
        Ok(Stage { run, listeners, sampler, stored_before, stored, stored_at, metrics, questions: 0 })
    }

    async fn drive(&self, setup: &Setup, stage: &mut Stage) -> anyhow::Result<Arc<Run>> {
        let run = Arc::clone(&stage.run);
        run.begin();
        self.publish(setup, &run, &stage.listeners).await?;
        if !self.fill {
            let before = if self.drain { 0 } else { stage.stored_before };
            (stage.stored, stage.stored_at) = self.wait_stored(&run, before).await?;
        }
        let [_, after] = &mut stage.metrics;
        (*after, stage.questions) = (metrics(&setup.targets).await, run.followed.questions());
        Ok(run)
    }

    async fn close(&self, _: &Setup, stage: Stage, run: &Run) -> anyhow::Result<Account> {
        tokio::time::sleep(if self.fill { Duration::ZERO } else { self.around }).await;
        let begun = run.instant(0);
        let published = Duration::from_micros(run.record.lock().last_us);
        let store = stage.stored_at.saturating_duration_since(begun);
        let span = stage.sampler.span(begun, begun + published.max(store));
        let Stage { metrics, questions, .. } = stage;
        let seen = Seen { samples: stage.sampler.stop().await, span, metrics, questions, store };
        let delivery = stage.listeners.finish().await;
        let [sent, ..] = run.counts.totals();
        let (messages, early) =
            if self.drain { (self.plan().messages, stage.stored_before) } else { (sent, 0) };
        Ok(Account {
            delivery: Some(delivery),
            asked_per_second: self.plan().rate,
            window: Some((self.publishers.max(1) * self.window) as f64),
            stored: (!self.fill && !self.drain).then_some(stage.stored),
            persisted: Some(Persisted::new(self, messages, stage.stored, early, seen)),
            note: self.schedule(0)?.and_then(|schedule| schedule.never_sent(run, MESSAGES)),
            ..Account::default()
        })
    }
}

impl PersistArgs {
    /// Where RabbitMQ is, when messages go through it.
    pub(crate) fn broker(&self) -> Option<&str> {
        self.log.as_deref().filter(|url| url.starts_with("amqp"))
    }

    /// As other workloads have them. A broker's driver sends nothing again: when it fails, the run does.
    fn rules(&self) -> anyhow::Result<Rules> {
        let usual: Rules = arguments("rules", &[])?;
        let patience = Patience { give_up: self.give_up, ..usual.patience };
        let retries = if self.broker().is_some() { 0 } else { usual.retries };
        Ok(Rules { in_flight: self.window, retries, patience, ..usual })
    }

    fn plan(&self) -> Plan {
        self.maximum.map_or_else(|| Plan::of(self), |maximum| Plan::endurance(self, maximum))
    }

    /// Rooms that are listened to.
    fn followed(&self) -> u16 {
        if self.fill || self.drain { 0 } else { self.listen.min(self.rooms.max(1)) }
    }

    /// Messages that the server has stored already; none where it is not asked.
    async fn stored_before(&self, targets: &Targets) -> anyhow::Result<u64> {
        if self.fill {
            return Ok(0);
        }
        let counts = ServerCounts::ask(targets).await;
        let host = &targets.first().host;
        let stored = counts.with_context(|| format!("no hubbub server answers at {host}"))?.stored;
        ensure!(
            !self.drain || stored < self.plan().messages,
            "the server has stored {stored} messages already: start it anew to drain"
        );
        Ok(stored)
    }

    /// Of an open loop.
    fn schedule(&self, start_us: u64) -> anyhow::Result<Option<Schedule>> {
        let Plan { messages, rate, .. } = self.plan();
        let schedule = |rate: f64| {
            // Half a message more, so that rounding leaves none out.
            let time = Duration::try_from_secs_f64((messages as f64 + 0.5) / rate);
            let time =
                time.with_context(|| format!("--rate {rate} must be more than 0, and end some day"))?;
            Ok(Schedule::new(Rate::constant(rate), time, start_us))
        };
        rate.map(schedule).transpose()
    }

    /// Publishes everything; nothing where something is drained.
    async fn publish(&self, setup: &Setup, run: &Arc<Run>, listeners: &Listeners) -> anyhow::Result<()> {
        if self.drain {
            return Ok(());
        }
        let publishers = self.publishers.max(1);
        let feed = Feed::new(AHEAD_MIN.max(2 * publishers * self.window));
        let failed = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        for who in 0..publishers {
            let publishing = self.publisher(who, Lane::new(Arc::clone(run), Arc::clone(&feed), who, None))?;
            let (feed, failed) = (Arc::clone(&feed), Arc::clone(&failed));
            tasks.spawn(async move {
                if let Err(error) = publishing.await {
                    failed.lock().get_or_insert(error);
                    feed.abandon();
                }
            });
        }
        let plan = self.plan();
        let schedule = self.schedule(run.now_us())?;
        let patience = schedule.map(|schedule| schedule.patience());
        let every =
            if self.broker().is_some() { SLEEP_MIN } else { REQUEST_EVERY / saturate::<_, u32>(publishers) };
        let (maker_run, maker, random) = (Arc::clone(run), Arc::clone(&feed), SeededRandom::new(setup.seed));
        let messages = plan.messages;
        let time = plan.time.unwrap_or(Duration::MAX);
        let make = move || match &schedule {
            Some(schedule) => feed_paced(&maker_run, &maker, schedule, every, &random),
            None => {
                supply(&maker_run, &maker, 0..messages, time, &random, |_| maker.wait_for_space());
            }
        };
        let live = Live::new("publishing", plan.expected(), setup.common.quiet)
            .for_time(plan.time)
            .on_schedule(schedule)
            .followed_by(listeners);
        phase::send_over(tasks, run, &feed, &live, patience, make).await;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)
    }

    /// What publishes the messages of one connection.
    fn publisher(
        &self,
        who: usize,
        lane: Lane,
    ) -> anyhow::Result<Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>> {
        let Some(url) = self.broker() else {
            return Ok(Box::pin(ndjson::publish(lane.run.targets.of(who).clone(), lane)));
        };
        #[cfg(feature = "amqp")]
        return Ok(Box::pin(amqp::publish(url.to_owned(), self.exchange.clone(), lane)));
        #[cfg(not(feature = "amqp"))]
        anyhow::bail!(
            "{}: this program was built without the feature amqp",
            url.split(':').next().unwrap_or_default()
        )
    }

    /// Waits until as many are stored as were confirmed; tells how many, and when the last of them was seen.
    async fn wait_stored(&self, run: &Run, before: u64) -> anyhow::Result<(u64, Instant)> {
        let (mut last, mut moved_at) = (0, Instant::now());
        let confirmed = run.counts.accepted.load(Ordering::Relaxed);
        let wanted = if self.drain { self.plan().messages } else { confirmed };
        loop {
            let counts = ServerCounts::ask(&run.targets).await;
            let counts = counts.context("the server does not count any more")?;
            let stored = counts.stored.saturating_sub(before);
            if stored > last {
                (last, moved_at) = (stored, Instant::now());
            }
            if last >= wanted || moved_at.elapsed() > self.give_up {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((last, moved_at))
    }
}

async fn metrics(targets: &Targets) -> String {
    targets.metrics().await.unwrap_or_default()
}
