//! Sending over HTTP: an open loop with a rate that may rise, or a closed loop; with listeners on WebSockets.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use clap::builder::ArgPredicate;
use hubbub_core::clock::SeededRandom;
use serde::Serialize;

use crate::agents::{Divided, split};
use crate::client::post::Post;
use crate::engine::{Account, Setup, Workload};
use crate::feed::Feed;
use crate::listener::Listeners;
use crate::live::Live;
use crate::options::{Sending, Traffic, duration, seconds};
use crate::pace::{Rate, SLEEP_MIN, Schedule, feed_paced, patience, supply};
use crate::phase;
use crate::report::MESSAGES;
use crate::run::Run;

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("connections", |arg| arg.default_value("64")))]
pub(crate) struct HttpArgs {
    /// Messages per second, whatever the server does: 5000, or a ramp 1000..10000, or 1000..10000..26000
    #[arg(long, value_name = "RATE", conflicts_with = "closed", default_value = "1000..10000")]
    #[arg(default_value_if("closed", ArgPredicate::Equals("true".into()), None))]
    pub(crate) rate: Option<Rate>,
    /// Closed loop: each connection sends its next message when the last is answered
    #[arg(long)]
    #[serde(skip)]
    pub(crate) closed: bool,
    /// How long to send
    #[arg(long, short, default_value = "30s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    pub(crate) duration: Duration,
    /// WebSockets that follow the rooms, in turn
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) listeners: usize,
    #[command(flatten)]
    pub(crate) sending: Sending,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
}

/// Listeners that are subscribed already.
pub(crate) struct Stage {
    run: Arc<Run>,
    listeners: Listeners,
}

impl Workload for HttpArgs {
    const NAME: &'static str = "http";
    const HAS_ROOMS: bool = true;
    type Stage = Stage;

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Stage> {
        let rules = self.sending.rules.clone();
        let run = Run::new(setup.targets.clone(), self.traffic.shape(), rules).with_rows(&setup.common)?;
        let run = Arc::new(if self.listeners > 0 { run.with_listeners() } else { run });
        let listeners = Listeners::gather(&run, self.listeners, self.traffic.rooms, setup.seed).await?;
        Ok(Stage { run, listeners })
    }

    async fn drive(&self, setup: &Setup, stage: &mut Stage) -> anyhow::Result<Arc<Run>> {
        let run = Arc::clone(&stage.run);
        run.begin();
        let feed = Feed::new(if self.closed { self.sending.queue } else { usize::MAX });
        let schedule = self.rate.map(|rate| Schedule::new(rate, self.duration, run.now_us()));
        let messages = schedule.map_or(0, |schedule| schedule.messages());
        let live = Live::new("sending", messages, setup.common.quiet)
            .for_time(Some(self.duration))
            .on_schedule(schedule)
            .followed_by(&stage.listeners);
        let (maker_run, maker, random) = (Arc::clone(&run), Arc::clone(&feed), SeededRandom::new(setup.seed));
        let duration = self.duration;
        let make = move || match &schedule {
            Some(schedule) => feed_paced(&maker_run, &maker, schedule, SLEEP_MIN, &random),
            None => {
                supply(&maker_run, &maker, 0..u64::MAX, duration, &random, |_| maker.wait_for_space());
            }
        };
        // Each connection sends to any room.
        let connections = vec![1; self.sending.connections];
        let time = Some(patience(self.duration));
        phase::send::<Post>(&run, &feed, &connections, setup.seed, &live, time, make).await;
        Ok(run)
    }

    fn divide(&self, setup: &Setup, agents: usize) -> anyhow::Result<Divided> {
        ensure!(
            self.listeners == 0,
            "--agents: --listeners hear only what their own process sent: leave one of them out"
        );
        let connections = split("connections", self.sending.connections as u64, agents)?;
        let rates = self.rate.map(|rate| rate.divided(&connections));
        let share = |(who, connections): (usize, &u64)| {
            let rate = rates.as_ref().and_then(|rates| rates.get(who));
            let rate = rate.map(|rate| ("rate", rate.to_string()));
            [("connections", connections.to_string())].into_iter().chain(rate).collect()
        };
        let shares = connections.iter().enumerate().map(share).collect();
        let (shape, rules) = (self.traffic.shape(), self.sending.rules.clone());
        Ok(Divided { shares, whole: Run::new(setup.targets.clone(), shape, rules) })
    }

    async fn close(&self, _: &Setup, stage: Stage, run: &Run) -> anyhow::Result<Account> {
        let delivery = stage.listeners.finish().await;
        let schedule = self.rate.map(|rate| Schedule::new(rate, self.duration, 0));
        Ok(Account {
            delivery: (self.listeners > 0).then_some(delivery),
            concurrency: self.closed.then(|| self.sending.concurrency()),
            asked_per_second: schedule.map(|schedule| schedule.mean_rate()),
            window: Some(self.sending.concurrency()),
            note: schedule.and_then(|schedule| schedule.never_sent(run, MESSAGES)),
            ..Account::default()
        })
    }
}
