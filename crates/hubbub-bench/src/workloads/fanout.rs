//! Fan-out: a few senders, one room, many subscribers. The senders never run further ahead of the slowest subscriber
//! than a window allows, so the rate is what all of them can take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use serde::Serialize;

use crate::client::chat::Chat;
use crate::host::cleanup::Makes;
use crate::load::feed::Feed;
use crate::load::message_plan::Shape;
use crate::load::pace::supply;
use crate::load::phases::{Phases, Timetable};
use crate::load::room_load;
use crate::load::run::Run;
use crate::load::subscribers::{Audience, Listeners};
use crate::options::{Rules, TEXT_BYTES_MAX, arguments, duration, seconds, sizes};
use crate::progress::Live;
use crate::report::Delivery;
use crate::workloads::engine::{Account, Setup, Workload};

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("duration", |arg| arg.default_value("10s").help("Length of the main phase: what begins in it is measured")))]
pub(crate) struct FanoutArgs {
    /// WebSockets that follow the room
    #[arg(long, short, default_value_t = 100, value_name = "N")]
    pub(crate) subscribers: usize,
    /// Connections that send
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) senders: usize,
    /// Messages that may be on their way to the subscribers
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub(crate) window: u64,
    /// One of the subscribers rests so long after each read
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "slowByS", serialize_with = "seconds")]
    pub(crate) slow_by: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// The room; by default one of its own for each run
    #[arg(long, default_value = "fanout-", value_name = "TEXT")]
    #[serde(skip)]
    pub(crate) room_prefix: String,
    /// Random texts of exactly this length in place of the 50 phrases
    #[arg(long, value_parser = sizes(TEXT_BYTES_MAX), value_name = "N")]
    pub(crate) text_bytes: Option<usize>,
}

impl Workload for FanoutArgs {
    const NAME: &'static str = "fanout";
    const HAS_ROOMS: bool = true;
    type Stage = (Arc<Run>, Listeners);

    fn timetable(&self) -> Timetable {
        self.phases.timetable(None)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.phases.check()
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Self::Stage> {
        let run_id = crate::host::machine::seed();
        let room_prefix = format!("{}{:x}-", self.room_prefix, run_id & 0xff_ffff_ffff);
        let shape = Shape::new(run_id, 100_000, self.text_bytes, &room_prefix);
        let makes = Makes::Rooms { prefix: room_prefix.clone(), count: 1 };
        setup.common.made.announce(&setup.targets, setup.common.shared, &makes).await;
        let usual: Rules = arguments("rules", &[])?;
        let in_flight = saturate::<_, usize>(self.window).div_ceil(self.senders.max(1));
        let rules = Rules { in_flight, ..usual };
        let run = Run::new(setup.targets.clone(), shape, rules).with_rows(&setup.common)?;
        let run = Arc::new(run.with_listeners());
        let subscribers = Listeners::gather_slow(&run, self.subscribers, 1, setup.seed, self.slow_by).await?;
        Ok((run, subscribers))
    }

    async fn drive(&self, setup: &Setup, (run, subscribers): &mut Self::Stage) -> anyhow::Result<Arc<Run>> {
        let timetable = self.timetable();
        setup.begin(run, &timetable);
        let feed = Feed::new(usize::MAX);
        let (maker_run, maker, audience) =
            (Arc::clone(run), Arc::clone(&feed), Arc::clone(&subscribers.audience));
        let (window, random) = (self.window.max(1), SeededRandom::new(setup.seed));
        let time = timetable.whole().unwrap_or(Duration::MAX);
        let make = move || {
            let space = |sent| space(&maker_run, &audience, window, sent);
            supply(&maker_run, &maker, 0..u64::MAX, time, &random, space);
        };
        let live = Live::new("sending", 0, setup.common.quiet);
        let live = live.for_time(timetable.whole()).followed_by(subscribers);
        let senders = vec![1; self.senders];
        let sending = room_load::send::<Chat>(run, &feed, &senders, setup.seed, &live, None, make);
        tokio::select! {
            () = sending => {}
            () = subscribers.audience.look_behind() => {}
        }
        Ok(Arc::clone(run))
    }

    async fn close(&self, _: &Setup, (_, subscribers): Self::Stage, _: &Run) -> anyhow::Result<Account> {
        let delivery = Delivery { window: Some(self.window as f64), ..subscribers.finish().await };
        Ok(Account { delivery: Some(delivery), ..Account::default() })
    }
}

/// How many messages more the slowest subscriber takes, after `sent`; waits a moment where these are few.
fn space(run: &Run, audience: &Audience, window: u64, sent: u64) -> u64 {
    audience.watch_floor();
    // What was refused reaches nobody.
    let failed = run.counts.rejected.load(Ordering::Relaxed) + run.counts.unconfirmed.load(Ordering::Relaxed);
    let under_way = sent - audience.floor().saturating_add(failed).min(sent);
    let free = window.saturating_sub(under_way);
    // Handing over a few at a time would wake the senders for little.
    if free < window.div_ceil(8) {
        std::thread::park_timeout(Duration::from_millis(1));
        return 0;
    }
    free
}
