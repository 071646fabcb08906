//! Sends over the connections of a phase, shows its progress and waits for its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;

use crate::client::Codec;
use crate::feed::Feed;
use crate::lane::Lane;
use crate::live::Live;
use crate::run::Run;
use crate::session::drive;

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
    let mut lanes = JoinSet::new();
    for (who, &room) in rooms.iter().enumerate() {
        let lane = Lane::new(Arc::clone(run), Arc::clone(feed), who, C::HAS_ROOM.then_some(room));
        lanes.spawn(drive::<C>(lane, run.shape.room_name(room), seed.wrapping_add(who as u64)));
    }
    send_over(lanes, run, feed, live, time, make).await;
}

/// The same over connections that are there already.
pub(crate) async fn send_over(
    mut lanes: JoinSet<()>,
    run: &Run,
    feed: &Feed,
    live: &Live<'_>,
    time: Option<Duration>,
    make: impl FnOnce() + Send + 'static,
) {
    let maker = std::thread::spawn(make);
    let sending = async {
        let ended = finish(run, &mut lanes, live, || _ = feed.abandon());
        if tokio::time::timeout(time.unwrap_or(Duration::MAX), ended).await.is_err() {
            feed.abandon();
            finish(run, &mut lanes, live, || _ = feed.abandon()).await;
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

/// Waits until all lanes have ended; calls `abandon` when the server has been silent for too long.
pub(crate) async fn finish(run: &Run, lanes: &mut JoinSet<()>, live: &Live<'_>, abandon: impl Fn()) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            ended = lanes.join_next() => if ended.is_none() { break },
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
