//! Returns memory to the operating system when the server is idle.
//!
//! The allocator returns freed memory only at later allocations: on an idle server, never. Memory that other threads freed
//! is kept until its owning thread collects it. So when the process has used little processor time for
//! [`CHECK_INTERVAL`], every worker of the runtime and the main thread collect. The store's threads do not: they keep a
//! few MiB at most.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// With less processor time per interval the server is idle.
const IDLE_CPU_TIME: Duration = Duration::from_millis(200);
/// Processor time since the last collection that justifies another one.
const MIN_CPU_TIME: Duration = Duration::from_millis(50);
/// Longest time a worker waits for the others, so that each runs exactly one task.
const BARRIER_TIMEOUT: Duration = Duration::from_millis(20);

/// Disables transparent huge pages. With them, one touched page of 4 KiB takes 2 MiB, and returned memory is taken again
/// while the server is idle. Call first.
pub(crate) fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot disable huge pages; the server may use more memory");
    }
}

/// Collects whenever the server is idle. Runs on the main thread.
pub(crate) async fn release_when_idle() -> Infallible {
    let mut tick = tokio::time::interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut before, mut collected) = (Duration::ZERO, Duration::ZERO);
    loop {
        tick.tick().await;
        let now = processor_time();
        let is_idle = now.saturating_sub(before) < IDLE_CPU_TIME;
        before = now;
        if !is_idle {
            continue;
        }
        if now.saturating_sub(collected) >= MIN_CPU_TIME {
            collect_on_workers().await;
            collected = processor_time();
        }
        // In every idle interval: threads that end while the server is idle leave memory behind.
        collect();
    }
}

/// Processor time of all threads.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

async fn collect_on_workers() {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let arrived = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> =
        (0..workers).map(|_| tokio::spawn(collect_with_barrier(arrived.clone(), workers))).collect();
    for task in tasks {
        // The task does not panic, and a shutdown of the runtime ends this task, too.
        let _ = task.await;
    }
}

/// Collects on this worker, and blocks it until all others have collected: a free worker would take another's task.
async fn collect_with_barrier(arrived: Arc<AtomicUsize>, workers: usize) {
    collect();
    arrived.fetch_add(1, Ordering::SeqCst);
    let step = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while arrived.load(Ordering::SeqCst) < workers && waited < BARRIER_TIMEOUT {
        std::thread::sleep(step);
        waited += step;
    }
}

/// Returns this thread's unused memory.
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code, reason = "the allocator's interface is C")]
fn collect() {
    // SAFETY: may be called at any time by any thread that is not inside the allocator.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// The system's allocator returns memory by itself.
#[cfg(not(feature = "mimalloc"))]
fn collect() {}
