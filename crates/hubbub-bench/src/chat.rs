//! The classic chat load test: warm up, then send many messages over WebSockets that each wait for their answers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use serde::Serialize;

use crate::agents::{Divided, divided, split};
use crate::client::chat::Chat;
use crate::engine::{Account, Setup, Workload};
use crate::feed::Feed;
use crate::live::Live;
use crate::options::{Sending, Traffic, duration, seconds};
use crate::pace::supply;
use crate::phase;
use crate::run::Run;

#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChatArgs {
    /// Messages in all, the warm-up included
    #[arg(long, short = 'n', default_value_t = 500_000, value_name = "N")]
    pub(crate) messages: u64,
    /// End the measured phase after this time, even if messages are left
    #[arg(long, short, value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    pub(crate) duration: Option<Duration>,
    /// Connections of the warm-up
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub(crate) warmup_connections: usize,
    /// Messages that each connection of the warm-up sends
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) warmup_messages: u64,
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

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Arc<Run>> {
        let shape = self.traffic.shape().of_rooms(self.rooms(self.warmup_connections));
        let run = Run::new(setup.targets.clone(), shape, self.sending.rules.clone());
        Ok(self.send(run, setup, self.warmup_connections, "warm-up", 0..self.warm_up(), None).await)
    }

    async fn drive(&self, setup: &Setup, warmed: &mut Arc<Run>) -> anyhow::Result<Arc<Run>> {
        let rules = self.sending.rules.clone();
        let shape = warmed.shape.clone().of_rooms(self.rooms(self.sending.connections));
        let run = Run::new(setup.targets.clone(), shape, rules).with_rows(&setup.common)?;
        let messages = self.warm_up()..self.messages;
        Ok(self.send(run, setup, self.sending.connections, "main", messages, self.duration).await)
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
        let share = |(((connections, warming), measured), warm_up): (((&u64, &u64), &u64), &u64)| {
            vec![
                ("connections", connections.to_string()),
                ("warmup-connections", warming.to_string()),
                ("messages", (measured + warm_up).to_string()),
            ]
        };
        let shares = connections.iter().zip(&warming).zip(&measured).zip(&warm_up).map(share).collect();
        let shape = self.traffic.shape().of_rooms(rooms);
        Ok(Divided { shares, whole: Run::new(setup.targets.clone(), shape, self.sending.rules.clone()) })
    }

    async fn close(&self, _: &Setup, warmed: Arc<Run>, _: &Run) -> anyhow::Result<Account> {
        let concurrency = Some(self.sending.concurrency());
        Ok(Account { warm_up: Some(warmed), concurrency, ..Account::default() })
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

    async fn send(
        &self,
        run: Run,
        setup: &Setup,
        connections: usize,
        name: &'static str,
        messages: Range<u64>,
        time: Option<Duration>,
    ) -> Arc<Run> {
        let rooms = usize::from(run.shape.rooms);
        let rooms_of: Vec<u16> = (0..connections).map(|i| (i % rooms) as u16 + 1).collect();
        let (run, feed) = (Arc::new(run), Feed::new(self.sending.queue));
        let random = SeededRandom::new(setup.seed ^ messages.start);
        let live = Live::new(name, messages.end - messages.start, setup.common.quiet).for_time(time);
        let (maker_run, maker) = (Arc::clone(&run), Arc::clone(&feed));
        let make = move || {
            supply(&maker_run, &maker, messages, Duration::MAX, &random, |_| maker.wait_for_space());
        };
        phase::send::<Chat>(&run, &feed, &rooms_of, setup.seed, &live, time, make).await;
        run
    }
}
