//! Lines of JSON over a connection, bounded in length and in time.

use std::time::Duration;

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
    silence: Duration,
}

/// Where to write.
pub(super) struct Outgoing(OwnedWriteHalf);

/// Both directions; a line that comes has `bytes_max` at most.
pub(super) fn lines(stream: TcpStream, bytes_max: usize) -> anyhow::Result<(Incoming, Outgoing)> {
    stream.set_nodelay(true)?;
    let (half, other) = stream.into_split();
    let heard = Instant::now();
    let incoming = Incoming { half, held: Vec::new(), seen: 0, bytes_max, heard, silence: SILENCE };
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
            let read = timeout_at(self.heard + self.silence, self.half.read_buf(&mut self.held)).await;
            let Ok(count) = read else { bail!("silent for {:?}", self.silence) };
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
        let Ok(written) = timeout(SILENCE, self.0.write_all(&line)).await else {
            bail!("nothing could be written for {SILENCE:?}");
        };
        written.context("the connection broke")
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A connection: what one side says, the other hears; and the other direction, to be kept open.
    async fn both(bytes_max: usize) -> (Outgoing, Incoming, (Incoming, Outgoing)) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (unheard, outgoing) = lines(stream, bytes_max).unwrap();
        let (incoming, unsaid) = lines(listener.accept().await.unwrap().0, bytes_max).unwrap();
        (outgoing, incoming, (unheard, unsaid))
    }

    #[tokio::test]
    async fn lines_come_as_they_were_said() {
        let (mut outgoing, mut incoming, _open) = both(100_000).await;
        let said = ["", "a line", &"x".repeat(50_000)].map(str::to_owned);
        for line in &said {
            outgoing.say(line).await.unwrap();
        }
        for line in said {
            assert_eq!(incoming.next::<String>().await.unwrap(), line);
        }
        drop(outgoing);
        assert_eq!(incoming.next::<String>().await.unwrap_err().to_string(), "the connection was closed");
    }

    #[tokio::test]
    async fn what_is_too_long_or_does_not_come_is_an_error() {
        let (mut outgoing, mut incoming, _open) = both(50).await;
        outgoing.0.write_all(&[b'x'; 51]).await.unwrap();
        let error = incoming.next::<String>().await.unwrap_err().to_string();
        assert_eq!(error, "a line of more than 50 bytes");
        let (_outgoing, mut incoming, _open) = both(50).await;
        incoming.silence = Duration::from_millis(1);
        let error = incoming.next::<String>().await.unwrap_err().to_string();
        assert_eq!(error, "silent for 1ms");
    }
}
