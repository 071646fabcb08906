//! How late threads of this process run, and for how much of the time it stood still: a thread that sleeps a little at a
//! time, and notes how much later than it wanted it woke. For standing still, what it waited for a processor that others
//! used does not count: then the machine is too small, and the process did not stand still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;

use crate::results::record::Dist;

const SLEEP: Duration = Duration::from_millis(5);
/// Lateness that any machine has.
const USUAL: Duration = Duration::from_millis(2);

pub(super) struct Stall {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Lateness>>,
}

/// What the thread noted.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// Share of the time for which the process stood still; `None` if it could not be measured.
    pub(super) stopped_share: Option<f64>,
    /// How late it was, in microseconds, each time that it wanted to run.
    pub(super) delays: Dist,
}

impl Stall {
    pub(super) fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let watch = move || watch(&stopped);
        Self { stop, thread: std::thread::Builder::new().name("stall".into()).spawn(watch).ok() }
    }

    /// Nothing if there was no thread for it.
    pub(super) fn stop(mut self) -> Lateness {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn watch(stopped: &AtomicBool) -> Lateness {
    let (begun, waited, mut late, mut delays) = (Instant::now(), waited_s(), Duration::ZERO, Dist::default());
    loop {
        let asleep = Instant::now();
        std::thread::sleep(SLEEP);
        let over = asleep.elapsed().saturating_sub(SLEEP);
        note(over, &mut delays);
        if over > USUAL {
            late += over;
        }
        if stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    let share =
        |others: f64| (late.as_secs_f64() - others).max(0.0) / begun.elapsed().as_secs_f64().max(1e-9);
    let others = waited_s().zip(waited).map(|(now, before)| now - before);
    Lateness { stopped_share: others.map(share), delays }
}

/// Notes how late the thread was, and how late it would have been each time that it wanted to run meanwhile: else a long stop
/// would count as one delay among many.
fn note(mut over: Duration, delays: &mut Dist) {
    delays.add(saturate(over.as_micros()));
    while over > SLEEP {
        over -= SLEEP;
        delays.add(saturate(over.as_micros()));
    }
}

/// How long this thread has waited for a processor; `None` where the kernel does not say.
fn waited_s() -> Option<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(times.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e9)
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stop_counts_for_each_time_that_was_missed() {
        let mut delays = Dist::default();
        (0..100).for_each(|_| note(Duration::from_micros(60), &mut delays));
        note(Duration::from_millis(500), &mut delays);
        let stats = delays.stats();
        assert_eq!(stats.count, 200, "500, 495, … 5 ms");
        assert!(stats.median_ms < 0.1 && stats.p90_ms > 300.0 && stats.max_ms >= 500.0, "{stats:?}");
    }

    #[test]
    fn each_sleep_is_noted() {
        let Lateness { delays, .. } = Stall::start().stop();
        assert!(delays.len() > 0);
    }
}
