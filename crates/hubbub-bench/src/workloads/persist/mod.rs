//! `hubbub bench persist`: messages through the log into the store, as many as there are or at a given rate, until all
//! of them are stored.
//!
//! The engine's generator draws messages → publishers ([`amqp`], as any other program would, or [`ndjson`], through the
//! server) send them and note what became of them → listeners receive some of them at the other end. Then it waits until
//! the server has stored everything; what it counted meanwhile is a part of the report ([`persisted`]).

#[cfg(feature = "amqp")]
pub(crate) mod amqp;
mod ndjson;
pub(crate) mod persisted;
mod preset;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::analysis::backlog::REPEATS;
use crate::analysis::main_phase::EarlyEnd;
use crate::client::Targets;
use crate::host::cleanup::Makes;
use crate::host::sample::Source;
use crate::load::feed::Feed;
use crate::load::in_flight::InFlight;
use crate::load::message_plan::{BENCH_PREFIX, Shape};
use crate::load::pace::{SLEEP_MIN, feed_paced, supply};
use crate::load::room_load;
use crate::load::run::Run;
use crate::load::subscribers::Listeners;
use crate::options::{Common, Patience, Rules, TEXT_BYTES_MAX, arguments, duration, sizes};
use crate::progress::Live;
use crate::report::MESSAGES;
use crate::results::ledger::sum;
use crate::workloads::engine::{self, Account, Loading, Setup, Workload};
use persisted::{Persisted, Stored};
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
    /// Messages published before, so that their rooms and users are known
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with_all = ["fill", "drain"])]
    pub(crate) warmup_messages: u64,
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
    #[arg(long, default_value_t = 120, value_parser = sizes(TEXT_BYTES_MAX), value_name = "N")]
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
}

/// At a rate, a request of each publisher is its share of what comes in this time.
const REQUEST_EVERY: Duration = Duration::from_millis(10);
/// Least messages that the generator makes ahead.
const AHEAD_MIN: usize = 1_000;

/// Between two looks at what is stored.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Listeners, which are there before anything is published.
pub(crate) struct Stage {
    run: Arc<Run>,
    listeners: Listeners,
    plan: Plan,
    /// Messages per second that were stored just before, of which a share is to be kept up.
    maximum: Option<f64>,
    /// Once all is stored; nothing where the server is not asked.
    outcome: Option<Outcome>,
}

/// What came of waiting until all was stored.
struct Outcome {
    persisted: Persisted,
    /// Messages that the servers had stored before, and that are none of this run.
    uncounted: u64,
    /// When the wait ended.
    at: Instant,
}

impl Workload for PersistArgs {
    const NAME: &'static str = "persist";
    const HAS_ROOMS: bool = true;
    type Stage = Stage;

    /// It asks by itself: in a database that servers share, what the store holds does not tell of a restart.
    fn has_server_counts(&self) -> bool {
        false
    }

    fn log_url(&self) -> Option<&str> {
        self.log.as_deref().filter(|log| log.contains("://"))
    }

    /// What is to be drained is already on its way.
    fn around(&self) -> [Duration; 2] {
        [!self.fill && !self.drain, !self.fill]
            .map(|is_idle| if is_idle { self.around } else { Duration::ZERO })
    }

    fn check(&self) -> anyhow::Result<()> {
        preset::check(self)
    }

    /// What only fills the broker, or empties it, is one half of a measurement: what it has stored is looked at later.
    fn makes(&self) -> Makes {
        if self.fill || self.drain {
            return Makes::Nothing;
        }
        Makes::Rooms { prefix: BENCH_PREFIX.to_owned(), count: self.rooms.max(1) }
    }

    async fn source(&self, setup: &Setup, stage: &Stage) -> anyhow::Result<Source> {
        Source::of_persisting(self, setup, Arc::clone(&stage.run)).await
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Stage> {
        preset::check_watched(self, &setup.common)?;
        if !self.fill {
            stored_by(&setup.targets).await?;
        }
        let maximum = self.run_before(setup).await?;
        let plan = maximum.map_or_else(|| Plan::of(self), |maximum| Plan::endurance(self, maximum));
        let shape = Shape::of_residents(crate::host::machine::seed(), self.users, self.text_bytes);
        let shape = shape.of_rooms(self.rooms);
        let run = Run::new(setup.targets.clone(), shape, self.rules()?);
        let run = Arc::new(run.scheduled(plan.schedule(0)?.as_ref()));
        let followed = self.followed();
        let listeners =
            Listeners::gather(&run, usize::from(followed) * self.listeners, followed, setup.seed).await?;
        Ok(Stage { run, listeners, plan, maximum, outcome: None })
    }

    async fn drive(&self, setup: &Setup, stage: &mut Stage) -> anyhow::Result<Arc<Run>> {
        let run = Arc::clone(&stage.run);
        if self.fill {
            setup.begin(&run, &self.timetable());
            self.publish(setup, stage).await?;
            return Ok(run);
        }
        let before = stored_by(&setup.targets).await?;
        setup.begin(&run, &self.timetable());
        if self.drain {
            stage.plan.check_undrained(before.0)?;
        } else {
            self.publish(setup, stage).await?;
        }
        let uncounted = if self.drain { 0 } else { before.0 };
        let persisted = self.wait_stored(setup, stage, before).await?.of_maximum(stage.maximum);
        stage.outcome = Some(Outcome { persisted, uncounted, at: Instant::now() });
        Ok(run)
    }

    async fn close(&self, setup: &Setup, stage: Stage, run: &Run) -> anyhow::Result<Account> {
        let Stage { listeners, plan, outcome, .. } = stage;
        let delivery = if listeners.is_empty() { None } else { Some(listeners.finish().await) };
        let persisted = match outcome {
            Some(outcome) => Some(self.in_the_end(&setup.targets, outcome).await?),
            None => None,
        };
        let stored = persisted.as_ref().filter(|_| !self.drain).map(|persisted| persisted.stored);
        Ok(Account {
            delivery,
            asked_per_second: plan.rate,
            window: Some((self.publishers.max(1) * self.window) as f64),
            stored,
            persisted,
            note: plan.schedule(0)?.and_then(|schedule| schedule.never_sent(run, MESSAGES)),
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

    /// What goes before: the warm-up, and the run whose rate is returned where a share of that is to be kept up.
    async fn run_before(&self, setup: &Setup) -> anyhow::Result<Option<f64>> {
        if self.warmup_messages > 0 {
            measured(setup, preset::of_warm_up(self), "the warm-up").await?;
        }
        match preset::of_maximum(self) {
            Some(own) => Ok(Some(measured(setup, own, "measuring the maximum").await?)),
            None => Ok(None),
        }
    }

    /// Rooms that are listened to.
    fn followed(&self) -> u16 {
        if self.fill || self.drain { 0 } else { self.listen.min(self.rooms.max(1)) }
    }

    async fn publish(&self, setup: &Setup, Stage { run, listeners, plan, .. }: &Stage) -> anyhow::Result<()> {
        let publishers = self.publishers.max(1);
        let feed = Feed::new(AHEAD_MIN.max(2 * publishers * self.window));
        let failed = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        for who in 0..publishers {
            let publishing =
                self.publisher(who, InFlight::new(Arc::clone(run), Arc::clone(&feed), who, None))?;
            let (feed, failed) = (Arc::clone(&feed), Arc::clone(&failed));
            tasks.spawn(async move {
                if let Err(error) = publishing.await {
                    failed.lock().get_or_insert(error);
                    feed.abandon();
                }
            });
        }
        let schedule = plan.schedule(run.now_us())?;
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
        room_load::send_over(tasks, run, &feed, &live, patience, make).await;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)
    }

    /// What publishes the messages of one connection.
    fn publisher(
        &self,
        who: usize,
        in_flight: InFlight,
    ) -> anyhow::Result<Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>> {
        let Some(url) = self.broker() else {
            return Ok(Box::pin(ndjson::publish(in_flight.run.targets.of(who).clone(), in_flight)));
        };
        #[cfg(feature = "amqp")]
        return Ok(Box::pin(amqp::publish(url.to_owned(), self.exchange.clone(), in_flight)));
        #[cfg(not(feature = "amqp"))]
        anyhow::bail!(
            "{}: this program was built without the feature amqp",
            url.split(':').next().unwrap_or_default()
        )
    }

    /// Waits until as many are stored as were confirmed, or are to be drained, or nothing moves any more. `before` is what
    /// the servers had stored before, and their figures.
    async fn wait_stored(
        &self,
        setup: &Setup,
        Stage { run, plan, .. }: &Stage,
        (stored_before, before): (u64, String),
    ) -> anyhow::Result<Persisted> {
        let [sent, confirmed, ..] = run.counts.totals();
        let (wanted, least, uncounted, early) = if self.drain {
            (plan.messages, plan.messages, 0, stored_before)
        } else {
            (sent, confirmed, stored_before, 0)
        };
        let (mut last, mut moved_at, mut stalled) = (0, Instant::now(), None);
        loop {
            let (stored, metrics) = stored_by(&run.targets).await?;
            let stored = stored.saturating_sub(uncounted);
            if stored > last {
                (last, moved_at, stalled) = (stored, Instant::now(), None);
            } else {
                // Whether this is the end shows later.
                stalled.get_or_insert_with(|| EarlyEnd::take(setup, metrics, moved_at));
            }
            if last >= least || moved_at.elapsed() > self.give_up {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if let Some(end) = stalled.filter(|_| last < least) {
            // It is set once in a run.
            let _ = setup.early_end.set(end);
        }
        let stored = Stored {
            wanted,
            stored: last,
            early,
            after: moved_at.saturating_duration_since(run.instant(0)),
            confirmed_after: Duration::from_micros(run.record.lock().last_us),
        };
        let (_, after) = stored_by(&run.targets).await?;
        Ok(Persisted::new(stored, &[before, after], run.followed.questions()))
    }

    /// The same with all that is stored by now, once nothing has been for some time: a message that is stored twice may be so after
    /// the last one that was waited for.
    async fn in_the_end(&self, targets: &Targets, outcome: Outcome) -> anyhow::Result<Persisted> {
        let Outcome { persisted, uncounted, at } = outcome;
        let (mut stored, mut moved_at, begun) = (persisted.stored, at, Instant::now());
        loop {
            let now = stored_by(targets).await?.0.saturating_sub(uncounted);
            if now != stored {
                (stored, moved_at) = (now, Instant::now());
            }
            // Where others store, too, it never rests.
            if moved_at.elapsed() >= REPEATS || begun.elapsed() > self.give_up {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let persisted = persisted.with_stored(stored);
        Ok(if self.drain { persisted.drained() } else { persisted })
    }
}

/// The rate of a run within the preparation of another. In a box: without one, the state of a run would hold itself.
fn measured<'a>(
    setup: &'a Setup,
    own: PersistArgs,
    what: &'a str,
) -> Pin<Box<dyn Future<Output = anyhow::Result<f64>> + 'a>> {
    Box::pin(async move {
        let common = Common { out: None, ..setup.common.clone() };
        let report = engine::measure(&Loading { common, own }).await?;
        report.must_be_clean(what)?;
        Ok(report.rate())
    })
}

/// Messages that the servers have stored since they began, and all their figures.
async fn stored_by(targets: &Targets) -> anyhow::Result<(u64, String)> {
    let metrics = targets.metrics().await.unwrap_or_default();
    let host = &targets.first().host;
    let stored = sum(&metrics, "hubbub_messages_stored_total");
    Ok((stored.with_context(|| format!("no hubbub server answers at {host}"))?, metrics))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::backlog::tests::repeating;

    #[tokio::test]
    async fn what_is_stored_again_after_the_wait_is_counted() {
        let (targets, _) = repeating().await;
        let outcome = || {
            let (after, confirmed_after) = (Duration::from_secs(2), Duration::from_secs(1));
            let stored = Stored { wanted: 5, stored: 5, early: 0, after, confirmed_after };
            let persisted = Persisted::new(stored, &Default::default(), 0);
            Outcome { persisted, uncounted: 0, at: Instant::now() }
        };
        let persist = arguments::<PersistArgs>("persist", &[]).unwrap();
        let persisted = persist.in_the_end(&targets, outcome()).await.unwrap();
        let seen = (persisted.stored, persisted.stored_per_second, persisted.fault);
        assert_eq!(seen, (6, 2.5, None), "the rate is that until all were stored");
        let drain = arguments::<PersistArgs>("persist", &["--drain"]).unwrap();
        let drained = drain.in_the_end(&targets, outcome()).await.unwrap();
        assert_eq!(drained.fault.unwrap(), "5 were to be drained, but 6 stored");
    }
}
