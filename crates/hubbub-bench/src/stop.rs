//! What ends a measurement early: SIGINT and SIGTERM. It is dropped where it waits, and with it the servers that it started and
//! the directories that it made.

use std::error::Error;
use std::fmt::{self, Display};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// The process was told to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    by: &'static str,
    /// As shells have it: 128 and the number of the signal.
    pub(crate) code: u8,
}

const INTERRUPTED: Stopped = Stopped { by: "SIGINT", code: 130 };
const TERMINATED: Stopped = Stopped { by: "SIGTERM", code: 143 };

impl Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "stopped by {}; servers, databases and directories of the measurement are gone", self.by)
    }
}

impl Error for Stopped {}

/// Does `work`, unless the process is told to stop before it is done.
///
/// # Errors
/// [`Stopped`], and those of `work`.
pub(crate) async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut interrupted, mut terminated) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        biased;
        _ = interrupted.recv() => Err(INTERRUPTED.into()),
        _ = terminated.recv() => Err(TERMINATED.into()),
        done = work => done,
    }
}
