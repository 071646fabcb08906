//! Sending over HTTP: an open loop with a rate that may rise, or a closed loop; with listeners on WebSockets.

use std::sync::Arc;

use anyhow::ensure;
use clap::Args;
use clap::builder::ArgPredicate;
use serde::Serialize;

use crate::agents::{Divided, Share, split};
use crate::client::post::Post;
use crate::host::cleanup::Makes;
use crate::load::phases::{Pacing, Phases, Timetable};
use crate::load::room_load::RoomLoad;
use crate::load::run::Run;
use crate::load::subscribers::Listeners;
use crate::options::{Sending, Traffic};
use crate::report::MESSAGES;
use crate::workloads::engine::{Account, Setup, Workload};

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("connections", |arg| arg.default_value("64")))]
#[command(mut_arg("duration", |arg| arg.default_value("30s")))]
#[command(mut_arg("rate", |arg| arg.conflicts_with("closed").default_value("1000..10000").default_value_if(
    "closed", ArgPredicate::Equals("true".into()), None
)))]
pub(crate) struct HttpArgs {
    /// Closed loop: each connection sends its next message when the last is answered
    #[arg(long)]
    #[serde(skip)]
    pub(crate) closed: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) phases: Phases,
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

    fn timetable(&self) -> Timetable {
        self.phases.timetable(self.pacing.rate)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.closed || self.pacing.think.is_zero(),
            "--think: connections wait in a closed loop only: give --closed, too"
        );
        self.pacing.check(&self.phases)
    }

    fn makes(&self) -> Makes {
        Makes::Rooms { prefix: self.traffic.room_prefix.clone(), count: self.traffic.rooms.max(1) }
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Stage> {
        let rules = self.sending.rules.clone();
        let run = Run::new(setup.targets.clone(), self.traffic.shape(), rules).with_rows(&setup.common)?;
        let run = run.paced(&self.pacing, &self.phases);
        let run = Arc::new(if self.listeners > 0 { run.with_listeners() } else { run });
        let listeners = Listeners::gather(&run, self.listeners, self.traffic.rooms, setup.seed).await?;
        Ok(Stage { run, listeners })
    }

    async fn drive(&self, setup: &Setup, stage: &mut Stage) -> anyhow::Result<Arc<Run>> {
        // Each connection sends to any room.
        let rooms = vec![1; self.sending.connections];
        setup.begin(&stage.run, &self.timetable());
        let load = RoomLoad {
            setup,
            run: &stage.run,
            sending: &self.sending,
            rooms: &rooms,
            timetable: self.timetable(),
            schedule: self.pacing.schedule(&self.phases),
            messages: 0..u64::MAX,
        };
        let live = load.live("sending").followed_by(&stage.listeners);
        load.send::<Post>(&live).await;
        Ok(Arc::clone(&stage.run))
    }

    fn divide(&self, setup: &Setup, agents: usize) -> anyhow::Result<Divided> {
        ensure!(
            self.listeners == 0,
            "--agents: --listeners hear only what their own process sent: leave one of them out"
        );
        let connections = split("connections", self.sending.connections as u64, agents)?;
        let share = |(connections, rate): (&u64, Share)| {
            [("connections", connections.to_string())].into_iter().chain(rate).collect()
        };
        let shares = connections.iter().zip(self.pacing.shares(&connections)).map(share).collect();
        let (shape, rules) = (self.traffic.shape(), self.sending.rules.clone());
        let whole = Run::new(setup.targets.clone(), shape, rules).paced(&self.pacing, &self.phases);
        Ok(Divided { shares, whole })
    }

    async fn close(&self, _: &Setup, stage: Stage, run: &Run) -> anyhow::Result<Account> {
        let delivery = stage.listeners.finish().await;
        let schedule = self.pacing.schedule(&self.phases);
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
