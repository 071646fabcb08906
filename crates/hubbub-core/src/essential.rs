//! Essential threads and tasks: when one of them ends unexpectedly, the process must end, too.
//!
//! Without its dispatcher, for example, a server would still accept messages and answer nobody. So each essential thread
//! runs in [`run`], and each essential task in [`supervise`]. Both report an unexpected end to the hooks that the program
//! has set. The program then ends with a clear message, and its supervisor restarts it.
//!
//! The hooks are global, like the standard library's panic hook, because they concern the whole process. Without hooks (in
//! tests of single parts) a writer's panic aborts the process, and nothing else is reported.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

/// A thread or task that must live as long as the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Essential {
    /// Its name, for the log.
    pub name: &'static str,
    /// Whether it writes the store. Nothing may continue a half-finished write, so the process ends at once. After the
    /// death of others, accepted operations are committed first.
    pub writes_store: bool,
}

/// How an essential thread or task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It panicked; the panic's message is on standard error.
    Panicked,
    /// It returned before the shutdown began.
    Returned,
}

/// Callbacks of the program. They are called from any thread, and must not panic.
#[derive(Debug, Clone, Copy)]
pub struct Hooks {
    /// Called when one starts.
    pub on_start: fn(Essential),
    /// Called when one ended unexpectedly. May end the process.
    pub on_death: fn(Essential, Death),
    /// Called before each step, with the waker of a task; in debug builds only. Does nothing, unless a test wants a panic
    /// there.
    pub before_step: fn(Essential, Option<&Waker>),
}

/// Poll interval of [`wait_for_shutdown`].
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static HOOKS: OnceLock<Hooks> = OnceLock::new();
static IS_SHUTTING_DOWN: AtomicBool = AtomicBool::new(false);

/// Sets the hooks. Only the first call has an effect.
pub fn set_hooks(hooks: Hooks) {
    // Only the program itself sets them, before it starts anything.
    let _ = HOOKS.set(hooks);
}

/// Begins the shutdown: essential threads and tasks may return. A panic is still reported.
pub fn begin_shutdown() {
    IS_SHUTTING_DOWN.store(true, Ordering::Release);
}

/// Waits until the shutdown has begun, at most for `timeout`. For a thread that ends because another one died: the cause
/// is reported, not its consequence.
pub fn wait_for_shutdown(timeout: Duration) {
    let mut left = timeout;
    while !IS_SHUTTING_DOWN.load(Ordering::Acquire) && !left.is_zero() {
        std::thread::sleep(POLL_INTERVAL);
        left = left.saturating_sub(POLL_INTERVAL);
    }
}

impl Essential {
    /// A thread or task that does not write the store.
    pub const fn new(name: &'static str) -> Self {
        Self { name, writes_store: false }
    }

    /// A thread or task that writes the store.
    pub const fn writer(name: &'static str) -> Self {
        Self { name, writes_store: true }
    }

    /// Marks the beginning of a step. Threads call it in their loop; tasks need not.
    #[inline]
    pub fn step(self) {
        self.step_of(None);
    }

    #[inline]
    fn step_of(self, waker: Option<&Waker>) {
        if cfg!(debug_assertions)
            && let Some(hooks) = HOOKS.get()
        {
            (hooks.before_step)(self, waker);
        }
    }
}

/// Runs the body of an essential thread. The body returns at shutdown, and calls [`Essential::step`] in its loop.
pub fn run<T>(essential: Essential, body: impl FnOnce() -> T) -> T {
    let watch = Watch::begin(essential);
    let result = body();
    watch.end();
    result
}

/// Wraps an essential task. Aborting it is not reported: only the owner of the task can do that.
pub async fn supervise<T>(essential: Essential, task: impl Future<Output = T>) -> T {
    let watch = Watch::begin(essential);
    let mut task = pin!(task);
    let result = poll_fn(|context| {
        essential.step_of(Some(context.waker()));
        task.as_mut().poll(context)
    })
    .await;
    watch.end();
    result
}

/// Reports a panic when it is dropped, and an early return by [`Watch::end`].
struct Watch(Essential);

impl Watch {
    fn begin(essential: Essential) -> Self {
        if let Some(hooks) = HOOKS.get() {
            (hooks.on_start)(essential);
        }
        Self(essential)
    }

    fn end(self) {
        if !IS_SHUTTING_DOWN.load(Ordering::Acquire) {
            report(self.0, Death::Returned);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report(self.0, Death::Panicked);
        }
    }
}

fn report(essential: Essential, death: Death) {
    match HOOKS.get() {
        Some(hooks) => (hooks.on_death)(essential, death),
        None if essential.writes_store && death == Death::Panicked => std::process::abort(),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use super::*;

    static SEEN: Mutex<Vec<(&str, Death)>> = Mutex::new(Vec::new());

    fn take_seen() -> Vec<(&'static str, Death)> {
        std::mem::take(&mut SEEN.lock().unwrap())
    }

    /// One test, because hooks are global.
    #[test]
    fn panics_and_returns_are_reported_and_aborts_are_not() {
        set_hooks(Hooks {
            on_start: |_| {},
            on_death: |essential, death| SEEN.lock().unwrap().push((essential.name, death)),
            before_step: |essential, _| assert!(essential.name != "doomed", "as the test wants it"),
        });
        let ended =
            std::thread::spawn(|| run(Essential::writer("thread"), || panic!("as the test wants it")));
        assert!(ended.join().is_err());
        assert_eq!(take_seen(), [("thread", Death::Panicked)]);

        run(Essential::new("early"), || ());
        assert_eq!(take_seen(), [("early", Death::Returned)]);

        let ended = std::thread::spawn(|| {
            let mut task = pin!(supervise(Essential::new("doomed"), std::future::ready(())));
            let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        });
        assert!(ended.join().is_err());
        assert_eq!(take_seen(), [("doomed", Death::Panicked)]);

        let mut given_up = Box::pin(supervise(Essential::new("aborted"), std::future::pending::<()>()));
        assert_eq!(given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        drop(given_up);
        assert_eq!(take_seen(), []);

        begin_shutdown();
        run(Essential::new("asked"), || ());
        assert_eq!(take_seen(), []);
        let ended = std::thread::spawn(|| run(Essential::new("late"), || panic!("as the test wants it")));
        assert!(ended.join().is_err());
        assert_eq!(take_seen(), [("late", Death::Panicked)]);
    }
}
