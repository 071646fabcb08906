//! Sends over the connections of a phase, shows its progress and waits for its end.

use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use crate::client::Codec;
use crate::feed::Supplier;
use crate::lane::Lane;
use crate::run::Run;
use crate::session::drive;

/// Sends what `make` puts into the queues of `supplier`, over a connection to each of `rooms`, until all of it is
/// answered. What is not sent after `time` is dropped; the answer is how many messages that were.
pub(crate) async fn send<C: Codec + 'static>(
    run: &Arc<Run>,
    supplier: &Arc<Supplier>,
    rooms: &[u16],
    seed: u64,
    progress: Progress,
    time: Option<Duration>,
    make: impl FnOnce() + Send + 'static,
) -> usize {
    let mut lanes = JoinSet::new();
    for (who, &room) in rooms.iter().enumerate() {
        if let Some(feed) = supplier.feed(room) {
            let lane = Lane::new(Arc::clone(run), Arc::clone(feed), who, C::HAS_ROOM);
            lanes.spawn(drive::<C>(lane, run.shape.room_name(room), seed.wrapping_add(who as u64)));
        }
    }
    let maker = std::thread::spawn(make);
    let mut dropped = 0;
    let ended = finish(run, &mut lanes, progress, || _ = supplier.abandon());
    if tokio::time::timeout(time.unwrap_or(Duration::MAX), ended).await.is_err() {
        dropped = supplier.abandon();
        finish(run, &mut lanes, progress, || _ = supplier.abandon()).await;
    }
    // A maker that panicked made fewer messages than asked for, which the counts show.
    let _ = tokio::task::spawn_blocking(move || maker.join()).await;
    dropped
}

/// A bar for work whose size is known, where somebody can see it.
pub(crate) fn bar(name: &'static str, count: u64, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos} of {human_len}, {per_sec}, {eta} left");
    let bar = ProgressBar::new(count).with_message(name);
    // The template is a constant that is right.
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) name: &'static str,
    /// How many there will be; 0 if that is not known.
    pub(crate) messages: u64,
    pub(crate) quiet: bool,
}

const TICK: Duration = Duration::from_millis(500);

/// Waits until all lanes have ended; calls `abandon` when the server has been silent for too long.
pub(crate) async fn finish(run: &Run, lanes: &mut JoinSet<()>, progress: Progress, abandon: impl Fn()) {
    let show = !progress.quiet && std::io::stderr().is_terminal();
    let mut tick = tokio::time::interval(TICK);
    let mut last = (run.now_us(), 0);
    loop {
        tokio::select! {
            ended = lanes.join_next() => if ended.is_none() { break },
            _ = tick.tick() => {
                if run.is_hopeless() {
                    abandon();
                }
                if show {
                    last = show_line(run, progress, last);
                }
            }
        }
    }
    if show {
        // Nobody can be told that the terminal is gone.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn show_line(run: &Run, progress: Progress, last: (u64, u64)) -> (u64, u64) {
    let (now_us, done) = (run.now_us(), run.counts.accepted.load(Ordering::Relaxed));
    let per_second = (done - last.1) as f64 * 1e6 / (now_us - last.0).max(1) as f64;
    let whole = if progress.messages > 0 {
        format!(" of {} ({:.0} %)", progress.messages, 100.0 * done as f64 / progress.messages as f64)
    } else {
        String::new()
    };
    let retries = run.counts.retries.load(Ordering::Relaxed);
    let line = format!("{}: {done}{whole}, {per_second:.0}/s", progress.name);
    let retries = if retries > 0 { format!(", {retries} retries") } else { String::new() };
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}{retries}");
    (now_us, done)
}
