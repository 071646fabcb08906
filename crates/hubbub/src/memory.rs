//! Gives memory back to the operating system once the server has become quiet.
//!
//! The allocator keeps what is freed for a while and returns it when somebody allocates again: on a server that has
//! fallen idle, never. What other threads free of a thread's memory is kept until that thread collects it. So when the
//! process has used little processor time for [`TICK`], every worker of the runtime and the main thread collect. The
//! store's own threads are left out: they keep a few MiB at most.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time between two looks.
const TICK: Duration = Duration::from_secs(2);
/// With less processor time in a tick the server is quiet.
const QUIET: Duration = Duration::from_millis(200);
/// Processor time since the last collection that makes another one worth it.
const WORTH: Duration = Duration::from_millis(50);
/// Longest time a worker waits for the others, so that each runs one of the tasks.
const MEET: Duration = Duration::from_millis(20);

/// Keeps the system from backing memory with huge pages, where it does so unasked: one page of 4 KiB that is touched
/// takes 2 MiB then, and memory that was returned is taken back while nothing happens. To be called first.
pub(crate) fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot refuse huge pages; the server may take more memory");
    }
}

/// Collects again and again when it is worth it; for the main thread.
pub(crate) async fn give_back() -> Infallible {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut before, mut collected) = (Duration::ZERO, Duration::ZERO);
    loop {
        tick.tick().await;
        let now = processor_time();
        let is_quiet = now.saturating_sub(before) < QUIET;
        before = now;
        if !is_quiet {
            continue;
        }
        if now.saturating_sub(collected) >= WORTH {
            collect_on_workers().await;
            collected = processor_time();
        }
        // In every quiet tick, because threads that end while nothing happens leave memory that nobody returns.
        collect();
    }
}

/// What all threads of the process have used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

async fn collect_on_workers() {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let met = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..workers).map(|_| tokio::spawn(collect_and_meet(met.clone(), workers))).collect();
    for task in tasks {
        // It does not panic, and if the runtime ends, so does this.
        let _ = task.await;
    }
}

/// Collects on this worker, and keeps it until the others have, too: a worker that was free again would take a task
/// from the others.
async fn collect_and_meet(met: Arc<AtomicUsize>, workers: usize) {
    collect();
    met.fetch_add(1, Ordering::SeqCst);
    let step = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while met.load(Ordering::SeqCst) < workers && waited < MEET {
        std::thread::sleep(step);
        waited += step;
    }
}

/// Returns what this thread does not need.
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code, reason = "the allocator's interface is C")]
fn collect() {
    // SAFETY: may be called at any time by any thread that is not inside the allocator.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// The system's allocator does so by itself.
#[cfg(not(feature = "mimalloc"))]
fn collect() {}
