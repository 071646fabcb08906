//! A TCP proxy that passes everything on later than it came: a network of a given round trip.
//!
//! What is read is kept with the time when it is due, half of the round trip later, and written then, in order. As much may
//! be under way as [`CHUNKS`] reads hold; then the sender is held up, as by a full window. The timer wakes within a
//! millisecond, so that round trips are right within one.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until};

const CHUNK_BYTES: usize = 16 * 1024;
/// Reads of one direction of a connection that may be under way.
const CHUNKS: usize = 64;
/// The timer is late by this on average.
const TIMER_LATE: Duration = Duration::from_micros(500);
/// Between attempts to accept, where that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until the process ends; prints `ready http://ADDR` when it listens.
pub(crate) async fn serve(to: SocketAddr, round_trip: Duration) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let mut out = std::io::stdout();
    writeln!(out, "ready http://{}", listener.local_addr()?)?;
    out.flush()?;
    accept(listener, to, round_trip).await
}

async fn accept(listener: TcpListener, to: SocketAddr, round_trip: Duration) -> anyhow::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(relay(stream, to, round_trip / 2))),
            // Too many sockets, as a rule: others will close.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Passes on what comes from each side until that side ends; the other one goes on.
async fn relay(client: TcpStream, to: SocketAddr, delay: Duration) -> anyhow::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = pass(from_client, to_server, delay);
    let back = pass(from_server, to_client, delay);
    let (there, back) = tokio::join!(there, back);
    there.and(back)
}

async fn pass(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    delay: Duration,
) -> anyhow::Result<()> {
    let (sender, receiver) = channel(CHUNKS);
    let (taken, given) = tokio::join!(take(from, sender, delay), give(to, receiver));
    taken.and(given)
}

async fn take(
    mut from: impl AsyncRead + Unpin,
    chunks: Sender<(Instant, Bytes)>,
    delay: Duration,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        let due = Instant::now() + delay.saturating_sub(TIMER_LATE);
        // The end comes as late as everything else.
        let bytes = Bytes::copy_from_slice(buffer.get(..read).unwrap_or_default());
        if chunks.send((due, bytes)).await.is_err() || read == 0 {
            return Ok(());
        }
    }
}

async fn give(mut to: impl AsyncWrite + Unpin, mut chunks: Receiver<(Instant, Bytes)>) -> anyhow::Result<()> {
    while let Some((due, bytes)) = chunks.recv().await {
        sleep_until(due).await;
        if bytes.is_empty() {
            break;
        }
        to.write_all(&bytes).await?;
    }
    Ok(to.shutdown().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each read with the same, and ends when its client does.
    async fn echo(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut input, mut output) = stream.split();
        tokio::io::copy(&mut input, &mut output).await.unwrap();
    }

    async fn through(delay: Duration) -> TcpStream {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (to, at) = (server.local_addr().unwrap(), proxy.local_addr().unwrap());
        tokio::spawn(echo(server));
        tokio::spawn(accept(proxy, to, delay));
        TcpStream::connect(at).await.unwrap()
    }

    #[tokio::test]
    async fn everything_comes_later_in_order_and_whole() {
        let mut stream = through(Duration::from_millis(20)).await;
        let begun = Instant::now();
        stream.write_all(b"x").await.unwrap();
        let mut one = [0];
        stream.read_exact(&mut one).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(19), "{:?}", begun.elapsed());
        // More than may be under way at once.
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut input, mut output) = stream.split();
        let (mut received, writing) = (Vec::new(), async {
            output.write_all(&sent).await.unwrap();
            output.shutdown().await.unwrap();
        });
        let reading = async { input.read_to_end(&mut received).await.unwrap() };
        tokio::join!(writing, reading);
        assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    }
}
