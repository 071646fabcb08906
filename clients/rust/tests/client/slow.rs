//! Lines that carry little at a time: what moves is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hubbub_client::{Client, Options, SendOptions, Start};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::scripted::{Came, quick, server};
use crate::socket::{follow, take};

/// The address of a line to `url` that carries so many bytes in a second, in each direction, and how often it was used.
async fn slow_line(url: &str, rate: f64) -> (String, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (far, near) =
        (url["http://".len()..].trim_end_matches('/').to_owned(), listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let (from_client, to_client) = client.into_split();
            let Ok(server) = TcpStream::connect(&far).await else { return };
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, rate));
            tokio::spawn(carry(from_server, to_client, rate));
        }
    });
    (format!("http://{near}"), connections)
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    rate: f64,
) -> std::io::Result<()> {
    let (mut buffer, mut due, mut last) = (vec![0; 64 << 10], 0.0, Instant::now());
    loop {
        sleep(Duration::from_millis(5)).await;
        due = f64::min(due + last.elapsed().as_secs_f64() * rate, rate / 10.0);
        last = Instant::now();
        while due >= 1.0 {
            let most = (due as usize).min(buffer.len());
            let count = from.read(&mut buffer[..most]).await?;
            if count == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..count]).await?;
            due -= count as f64;
        }
    }
}

/// No receipt comes, and after twice the time for an answer the line still carries what was sent.
#[tokio::test]
async fn what_is_sent_may_take_longer_than_an_answer() {
    let answer_max = Duration::from_secs(2);
    let url = server(|_, _| {}).await;
    let (line, connections) = slow_line(&url, 3e6).await;
    let room = Client::new(&line, Options { answer_max, ..quick() }).unwrap().room("r");
    let later = |text: &str| room.send_later(text, SendOptions::default()).unwrap();
    // Whose answer is due is small: it has no time more for its own bytes.
    let first = later("first");
    let megabyte = "x".repeat(1 << 20);
    let others: Vec<_> = (0..24).map(|_| later(&megabyte)).collect();
    sleep(2 * answer_max).await;
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    drop((first, others));
}

#[tokio::test]
async fn a_message_may_take_longer_to_come_than_silence_lasts() {
    let url = server(|came, peer| match came {
        Came::Frame(frame) if frame["type"] == "subscribe" => {
            peer.subscribed(&frame, 8, "e");
            let text = "x".repeat(100_000);
            peer.answer(&json!({"type": "message", "roomId": "r", "message": text, "seq": peer.number}));
        }
        _ => {}
    });
    let short = Duration::from_millis(400);
    let options = Options { answer_max: short, silence_max: short, ..quick() };
    let client = Client::new(&slow_line(&url.await, 30e3).await.0, options).unwrap();
    let begun = Instant::now();
    assert_eq!(take(&mut follow(&client, Start::after(0)), 2).await, "ready 1");
    assert!(begun.elapsed() > 3 * short, "too quick to tell");
}
