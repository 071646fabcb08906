//! The classic chat load test: warm up, then send many messages over WebSockets that each wait for their answers; or send at a
//! given rate.

use std::ops::Range;
use std::sync::Arc;

use anyhow::ensure;
use clap::Args;
use hubbub_core::invariant::saturate;
use serde::Serialize;

use crate::agents::{Divided, Share, divided, split};
use crate::client::chat::Chat;
use crate::host::cleanup::Makes;
use crate::load::phases::{Pacing, Phases, Timetable};
use crate::load::room_load::RoomLoad;
use crate::load::run::Run;
use crate::options::{CONNECTIONS_MAX, Sending, Traffic, sizes};
use crate::report::MESSAGES;
use crate::workloads::engine::{Account, Setup, Workload};

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(mut_arg("rate", |arg| arg.conflicts_with("messages")))]
#[command(mut_arg("duration", |arg| arg.help(
    "Length of the main phase, even if messages are left then; of each step, where --rate has several"
)))]
pub(crate) struct ChatArgs {
    /// Messages in all, those of --warmup-connections included
    #[arg(long, short = 'n', default_value_t = 500_000, value_name = "N")]
    pub(crate) messages: u64,
    /// Connections that send --warmup-messages each, and are closed before the load begins
    #[arg(long, default_value_t = 32, value_parser = sizes(CONNECTIONS_MAX), value_name = "N")]
    pub(crate) warmup_connections: usize,
    /// Messages that each of --warmup-connections sends
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) warmup_messages: u64,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) phases: Phases,
    #[command(flatten)]
    pub(crate) sending: Sending,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
}

impl Workload for ChatArgs {
    const NAME: &'static str = "chat";
    const HAS_ROOMS: bool = true;
    /// The warm-up.
    type Stage = Arc<Run>;

    fn timetable(&self) -> Timetable {
        self.phases.timetable(self.pacing.rate)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.pacing.check(&self.phases)
    }

    fn accepted_before(warmed: &Arc<Run>) -> u64 {
        let [_, accepted, ..] = warmed.counts.totals();
        accepted
    }

    fn makes(&self) -> Makes {
        let connections = self.sending.connections.max(self.warmup_connections);
        Makes::Rooms { prefix: self.traffic.room_prefix.clone(), count: self.rooms(connections) }
    }

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Arc<Run>> {
        let shape = self.traffic.shape().of_rooms(self.rooms(self.warmup_connections));
        let run = Arc::new(Run::new(setup.targets.clone(), shape, self.sending.rules.clone()));
        let rooms = rooms_of(&run, self.warmup_connections);
        let load = self.load(setup, &run, &rooms, 0..self.warm_up());
        let load = RoomLoad { timetable: Timetable::default(), schedule: None, ..load };
        let live = load.live("warm-up");
        load.send::<Chat>(&live).await;
        Ok(run)
    }

    async fn drive(&self, setup: &Setup, warmed: &mut Arc<Run>) -> anyhow::Result<Arc<Run>> {
        let rules = self.sending.rules.clone();
        let shape = warmed.shape.clone().of_rooms(self.rooms(self.sending.connections));
        let run = Run::new(setup.targets.clone(), shape, rules).with_rows(&setup.common)?;
        let run = Arc::new(run.paced(&self.pacing, &self.phases));
        let rooms = rooms_of(&run, self.sending.connections);
        let load = self.load(setup, &run, &rooms, self.warm_up()..self.messages);
        let live = load.live("main");
        setup.begin(&run, &load.timetable);
        load.send::<Chat>(&live).await;
        Ok(run)
    }

    /// Each sends to all rooms, and of the messages what is in proportion to its connections.
    fn divide(&self, setup: &Setup, agents: usize) -> anyhow::Result<Divided> {
        let rooms = self.rooms(self.sending.connections);
        let connections = split("connections", self.sending.connections as u64, agents)?;
        ensure!(
            connections.iter().all(|connections| *connections >= u64::from(rooms)),
            "--agents: each of the {agents} agents needs a connection to each of the {rooms} rooms: give more --connections, \
             or fewer --rooms"
        );
        let warming = divided(self.warmup_connections as u64, &vec![1; agents]);
        let measured = divided(self.messages - self.warm_up(), &connections);
        let warm_up = divided(self.warm_up(), &warming);
        let is_open = self.pacing.rate.is_some();
        let share = |(((connections, warming), messages), rate): (((&u64, &u64), u64), Share)| {
            // At a rate, time says how many.
            let messages = (!is_open).then(|| ("messages", messages.to_string()));
            let own = [("connections", connections.to_string()), ("warmup-connections", warming.to_string())];
            own.into_iter().chain(messages).chain(rate).collect()
        };
        let messages = measured.iter().zip(&warm_up).map(|(measured, warm_up)| measured + warm_up);
        let rates = self.pacing.shares(&connections);
        let shares = connections.iter().zip(&warming).zip(messages).zip(rates).map(share).collect();
        let shape = self.traffic.shape().of_rooms(rooms);
        let whole = Run::new(setup.targets.clone(), shape, self.sending.rules.clone());
        Ok(Divided { shares, whole: whole.paced(&self.pacing, &self.phases) })
    }

    async fn close(&self, _: &Setup, warmed: Arc<Run>, run: &Run) -> anyhow::Result<Account> {
        let (concurrency, schedule) = (Some(self.sending.concurrency()), self.pacing.schedule(&self.phases));
        Ok(Account {
            warm_up: Some(warmed),
            concurrency: concurrency.filter(|_| schedule.is_none()),
            asked_per_second: schedule.map(|schedule| schedule.mean_rate()),
            window: concurrency,
            note: schedule.and_then(|schedule| schedule.never_sent(run, MESSAGES)),
            ..Account::default()
        })
    }
}

impl ChatArgs {
    fn warm_up(&self) -> u64 {
        (self.warmup_connections as u64 * self.warmup_messages).min(self.messages)
    }

    /// Those that so many connections send to: with one connection, one room.
    fn rooms(&self, connections: usize) -> u16 {
        self.traffic.rooms.clamp(1, saturate::<_, u16>(connections).max(1))
    }

    fn load<'l>(
        &'l self,
        setup: &'l Setup,
        run: &'l Arc<Run>,
        rooms: &'l [u16],
        messages: Range<u64>,
    ) -> RoomLoad<'l> {
        let (timetable, schedule) = (self.timetable(), self.pacing.schedule(&self.phases));
        RoomLoad { setup, run, sending: &self.sending, rooms, timetable, schedule, messages }
    }
}

/// The rooms of so many connections, in turn.
fn rooms_of(run: &Run, connections: usize) -> Vec<u16> {
    let rooms = usize::from(run.shape.rooms);
    (0..connections).map(|i| (i % rooms) as u16 + 1).collect()
}
