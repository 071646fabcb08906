//! Sends over the connections of a phase, shows its progress and waits for its end.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::clock::SeededRandom;
use tokio::task::JoinSet;

use crate::client::Codec;
use crate::load::feed::Feed;
use crate::load::in_flight::InFlight;
use crate::load::pace::{SLEEP_MIN, Schedule, feed_paced_from, supply};
use crate::load::phases::Timetable;
use crate::load::run::Run;
use crate::load::session::drive;
use crate::options::Sending;
use crate::progress::Live;
use crate::workloads::engine::Setup;

/// Messages to rooms, and the connections that send them: in an open loop by a schedule, else as fast as they are answered.
pub(crate) struct RoomLoad<'l> {
    pub(crate) setup: &'l Setup,
    pub(crate) run: &'l Arc<Run>,
    pub(crate) sending: &'l Sending,
    /// The room of each connection.
    pub(crate) rooms: &'l [u16],
    pub(crate) timetable: Timetable,
    pub(crate) schedule: Option<Schedule>,
    /// Numbers of the messages. With a schedule, which says how many there are, only the first counts.
    pub(crate) messages: Range<u64>,
}

impl RoomLoad<'_> {
    /// What is shown of it.
    pub(crate) fn live<'a>(&self, name: &'static str) -> Live<'a> {
        let Range { start, end } = self.messages;
        // Without a bound, nobody knows.
        let count = if end == u64::MAX { 0 } else { end - start };
        let count = self.schedule.map_or(count, |schedule| schedule.messages());
        let live = Live::new(name, count, self.setup.common.quiet);
        live.for_time(self.timetable.whole()).on_schedule(self.schedule)
    }

    /// Sends all of it, or as much as there is time for.
    pub(crate) async fn send<C: Codec + 'static>(self, live: &Live<'_>) {
        let Self { setup, run, sending, rooms, timetable, schedule, messages } = self;
        let feed = Feed::new(if schedule.is_some() { usize::MAX } else { sending.queue });
        let random = SeededRandom::new(setup.seed ^ messages.start);
        let time = timetable.whole();
        let patience = schedule.map_or(time, |schedule| Some(schedule.patience()));
        let (maker_run, maker) = (Arc::clone(run), Arc::clone(&feed));
        let make = move || match &schedule {
            Some(schedule) => {
                feed_paced_from(messages.start, &maker_run, &maker, schedule, SLEEP_MIN, &random);
            }
            None => {
                let time = time.unwrap_or(Duration::MAX);
                supply(&maker_run, &maker, messages, time, &random, |_| maker.wait_for_space());
            }
        };
        self::send::<C>(run, &feed, rooms, setup.seed, live, patience, make).await;
    }
}

/// Sends what `make` puts into `feed`, over a connection to each of `rooms`, until all of it is
/// answered. What is not sent after `time` is dropped.
pub(crate) async fn send<C: Codec + 'static>(
    run: &Arc<Run>,
    feed: &Arc<Feed>,
    rooms: &[u16],
    seed: u64,
    live: &Live<'_>,
    time: Option<Duration>,
    make: impl FnOnce() + Send + 'static,
) {
    let mut connections = JoinSet::new();
    for (who, &room) in rooms.iter().enumerate() {
        let in_flight = InFlight::new(Arc::clone(run), Arc::clone(feed), who, C::HAS_ROOM.then_some(room));
        let seed = seed.wrapping_add(who as u64);
        connections.spawn(drive::<C>(in_flight.with_seed(seed), run.shape.room_name(room), seed));
    }
    send_over(connections, run, feed, live, time, make).await;
}

/// The same over connections that are there already.
pub(crate) async fn send_over(
    mut connections: JoinSet<()>,
    run: &Run,
    feed: &Feed,
    live: &Live<'_>,
    time: Option<Duration>,
    make: impl FnOnce() + Send + 'static,
) {
    let maker = std::thread::spawn(make);
    let sending = async {
        let ended = finish(run, &mut connections, live, || _ = feed.abandon());
        if tokio::time::timeout(time.unwrap_or(Duration::MAX), ended).await.is_err() {
            feed.abandon();
            finish(run, &mut connections, live, || _ = feed.abandon()).await;
        }
    };
    run.followed.ask_during(run, sending).await;
    // Nobody takes any more.
    feed.end();
    // A maker that panicked made fewer messages than asked for, which the counts show.
    let _ = tokio::task::spawn_blocking(move || maker.join()).await;
}

/// Waits for all tasks; fails with the first that did.
pub(crate) async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task ended early")??;
    }
    Ok(())
}

const TICK: Duration = Duration::from_millis(500);

/// Waits until all connections have ended; calls `abandon` when the server has been silent for too long.
pub(crate) async fn finish(run: &Run, connections: &mut JoinSet<()>, live: &Live<'_>, abandon: impl Fn()) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { break },
            _ = tick.tick() => {
                if run.is_hopeless() {
                    abandon();
                }
                live.show(Some(run));
            }
        }
    }
    live.clear();
}
