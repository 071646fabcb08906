//! Ends the process when an essential thread or task dies: logs its name, commits what it can, and exits with code 1, so
//! that the supervisor restarts the server.
//!
//! If it writes the store, the process ends at once: no other thread may continue its half-finished write, and everything
//! acknowledged is durable. Otherwise the server stops as after SIGTERM, but in bounded time: the task that would answer or
//! close connections may be dead.

use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::bail;
use hubbub_core::essential::{self, Death, Essential, Hooks};
use tokio::sync::Notify;

use crate::exit;

/// How long connections may take to finish after the death of an essential task.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the whole shutdown may take; then the process exits.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

static FIRST_DEATH: OnceLock<Essential> = OnceLock::new();
static DIED: Notify = Notify::const_new();

/// Starts to supervise essential threads and tasks.
pub(crate) fn start() {
    essential::set_hooks(Hooks {
        on_start: |essential| tracing::debug!(name = essential.name, "essential thread or task started"),
        on_death,
        before_step: victim::before_step,
    });
}

/// Returns once an essential task has died.
pub(crate) async fn death() {
    DIED.notified().await;
}

/// An error if an essential task has died.
pub(crate) fn result() -> anyhow::Result<()> {
    if let Some(dead) = FIRST_DEATH.get() {
        bail!("the server ended because its {} died; start it again", dead.name);
    }
    Ok(())
}

fn on_death(essential: Essential, death: Death) {
    let how = match death {
        Death::Panicked => "panicked; the panic's message is above",
        Death::Returned => "ended early",
    };
    let name = essential.name;
    tracing::error!(name, "the server exits because its {name} {how}; start it again");
    if essential.writes_store {
        process::exit(exit::FAILURE.into());
    }
    // The first death is the cause; others may be its consequences.
    let _ = FIRST_DEATH.set(essential);
    essential::begin_shutdown();
    let watchdog = std::thread::Builder::new().name("watchdog".into()).spawn(|| {
        std::thread::sleep(STOP_TIMEOUT);
        tracing::error!("the shutdown timed out; operations that are not committed were not acknowledged");
        process::exit(exit::FAILURE.into());
    });
    if watchdog.is_err() {
        process::exit(exit::FAILURE.into());
    }
    DIED.notify_one();
}

/// For tests that kill each essential thread and task. Not in release builds.
#[cfg(debug_assertions)]
mod victim {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::{Mutex, OnceLock};
    use std::task::Waker;
    use std::time::Duration;

    use hubbub_core::Essential;

    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    static WAKERS: Mutex<BTreeMap<&str, Waker>> = Mutex::new(BTreeMap::new());

    /// Panics if the file named by `HUBBUB_TEST_PANIC` contains this name.
    pub(super) fn before_step(essential: Essential, waker: Option<&Waker>) {
        if FILE.get_or_init(watch_victim_file).is_none() {
            return;
        }
        assert!(!is_victim(essential.name), "a test wants the {} to panic", essential.name);
        if let (Ok(mut wakers), Some(waker)) = (WAKERS.lock(), waker) {
            wakers.insert(essential.name, waker.clone());
        }
    }

    fn watch_victim_file() -> Option<PathBuf> {
        let file = PathBuf::from(std::env::var_os("HUBBUB_TEST_PANIC")?);
        // An idle task must be woken to panic.
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(POLL_INTERVAL);
                let Ok(wakers) = WAKERS.lock() else { return };
                wakers.iter().filter(|(name, _)| is_victim(name)).for_each(|(_, waker)| waker.wake_by_ref());
            }
        });
        Some(file)
    }

    fn is_victim(name: &str) -> bool {
        let file = FILE.get().and_then(Option::as_ref);
        file.and_then(|file| std::fs::read_to_string(file).ok()).is_some_and(|victim| victim.trim() == name)
    }
}

#[cfg(not(debug_assertions))]
mod victim {
    pub(super) fn before_step(_: hubbub_core::Essential, _: Option<&std::task::Waker>) {}
}
