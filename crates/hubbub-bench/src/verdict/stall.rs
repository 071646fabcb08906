//! For how much of the time this process stood still: a thread that sleeps a little at a time, and adds up how much later
//! than it wanted it woke. What it waited for a processor that others used does not count: then the machine is too small,
//! and the process did not stand still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(5);
/// Lateness that any machine has.
const USUAL: Duration = Duration::from_millis(2);

pub(super) struct Stall {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<f64>>>,
}

impl Stall {
    pub(super) fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let watch = move || {
            let (begun, waited, mut late) = (Instant::now(), waited_s(), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                std::thread::sleep(SLEEP);
                let over = asleep.elapsed().saturating_sub(SLEEP);
                if over > USUAL {
                    late += over;
                }
            }
            let others = waited_s()? - waited?;
            Some((late.as_secs_f64() - others).max(0.0) / begun.elapsed().as_secs_f64().max(1e-9))
        };
        Self { stop, thread: std::thread::Builder::new().name("stall".into()).spawn(watch).ok() }
    }

    /// Share of the time; `None` if it could not be measured.
    pub(super) fn stop(mut self) -> Option<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()?
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
