//! Lines of JSON over a connection, bounded in length and in time.

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout, timeout_at};

use super::SILENCE;

/// Longest line that an agent takes, before and after it knows who speaks.
pub(super) const TASK_BYTES_MAX: usize = 256 * 1024;
/// Longest line that a coordinator takes: the steps of a day and the rooms of a run fit.
pub(super) const PART_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What comes.
pub(super) struct Incoming {
    half: OwnedReadHalf,
    /// What came of the next lines.
    held: Vec<u8>,
    /// Bytes of it in which no line ends.
    seen: usize,
    bytes_max: usize,
    heard: Instant,
}

/// Where to write.
pub(super) struct Outgoing(OwnedWriteHalf);

/// Both directions; a line that comes has `bytes_max` at most.
pub(super) fn lines(stream: TcpStream, bytes_max: usize) -> anyhow::Result<(Incoming, Outgoing)> {
    stream.set_nodelay(true)?;
    let (half, other) = stream.into_split();
    let incoming = Incoming { half, held: Vec::new(), seen: 0, bytes_max, heard: Instant::now() };
    Ok((incoming, Outgoing(other)))
}

impl Incoming {
    /// The next line. Nothing is lost where this is dropped early.
    ///
    /// # Errors
    /// The end of the connection, ten seconds of silence, and what is too long or no such line.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        loop {
            let unseen = self.held.get(self.seen..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', unseen) {
                let line: Vec<u8> = self.held.drain(..=self.seen + end).collect();
                self.seen = 0;
                return serde_json::from_slice(&line).context("a line that is not of this protocol");
            }
            self.seen = self.held.len();
            ensure!(self.seen <= self.bytes_max, "a line of more than {} bytes", self.bytes_max);
            let read = timeout_at(self.heard + SILENCE, self.half.read_buf(&mut self.held)).await;
            let count = read.with_context(|| format!("silent for {} s", SILENCE.as_secs()))?;
            if count.context("the connection broke")? == 0 {
                bail!("the connection was closed");
            }
            self.heard = Instant::now();
        }
    }

    /// The connection, for somebody else; fails where more came than was taken.
    pub(super) fn reunite(self, other: Outgoing) -> anyhow::Result<TcpStream> {
        ensure!(self.held.is_empty(), "more than was asked for");
        Ok(self.half.reunite(other.0)?)
    }
}

impl Outgoing {
    /// Writes a line.
    ///
    /// # Errors
    /// A connection that takes none within ten seconds.
    pub(super) async fn say(&mut self, what: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let written = timeout(SILENCE, self.0.write_all(&line)).await;
        written.context("nothing could be written for too long")?.context("the connection broke")
    }
}
