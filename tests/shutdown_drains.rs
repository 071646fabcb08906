//! SIGTERM under load: what was accepted is committed and acknowledged, sockets are closed with 1001, the exit code
//! is 0, and a restart finds exactly what was acknowledged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::tokens::{begin, read_until};
use crate::harness::{Dialect, Follower, Http, Setup, Writer, in_time, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_drains() {
    // Slow syncs: at any moment something is under way.
    let mut server = Setup::new().set("store.embedded.sync_delay=10ms").start();
    let address = server.address();
    let acked = Arc::new(AtomicU64::new(0));
    let mut follower = Follower::new("chat");
    assert!(follower.resume(address).await);

    let writers: Vec<_> = [
        ("a", "chat", Dialect::Chat),
        ("b", "chat", Dialect::Chat),
        ("c", "api", Dialect::Api),
        ("d", "api", Dialect::Api),
    ]
    .map(|(name, room, dialect)| {
        let acked = acked.clone();
        tokio::spawn(async move {
            let mut writer = Writer::new(name, room, dialect, 32);
            let mut counted = 0;
            let lost = writer
                .run(address, |writer| {
                    let new = writer.acked.len() as u64 - counted;
                    counted += new;
                    acked.fetch_add(new, Ordering::SeqCst);
                    false
                })
                .await;
            (writer, lost)
        })
    })
    .into();
    let posting: Vec<_> = (0..8)
        .map(|number| {
            tokio::spawn(async move {
                let mut receipts = Vec::new();
                let Some(mut http) = Http::try_connect(address).await else { return receipts };
                for count in 0.. {
                    let text = format!("{number}-{count}");
                    let body = json!({"userId": "ada", "message": text}).to_string();
                    match http.try_request(hyper::Method::POST, "/v1/rooms/http/messages", &[], body).await {
                        Some(answer) => {
                            assert_eq!(answer.status, 201, "{answer:?}");
                            receipts.push(text);
                        }
                        None => break,
                    }
                }
                receipts
            })
        })
        .collect();

    until("the load", async || acked.load(Ordering::SeqCst) >= 500).await;
    server.terminate();
    assert_eq!(server.exit().await.code(), Some(0));
    let closed = loop {
        if let Err(closed) = follower.next().await {
            break closed;
        }
    };
    assert_eq!(closed.map(|(code, _)| code), Some(1001), "the follower");
    let (mut finished, mut reasons) = (Vec::new(), BTreeSet::new());
    for writer in writers {
        let (writer, lost) = in_time("the writers", writer).await.unwrap();
        let closed = lost.unwrap_err().expect("closed without a word");
        assert_eq!(closed.0, 1001);
        assert!(closed.1.contains("; reconnect after ") && closed.1.ends_with(" ms"), "{closed:?}");
        reasons.insert(closed.1);
        finished.push(writer);
    }
    assert!(reasons.len() > 1, "they return at different times: {reasons:?}");
    let mut posted = BTreeSet::new();
    for posting in posting {
        posted.extend(in_time("the posts", posting).await.unwrap());
    }
    assert!(!posted.is_empty());

    server.restart();
    for room in ["chat", "api"] {
        let history = server.history(room).await;
        let mine = || finished.iter().filter(|writer| writer.room == room);
        mine().for_each(|writer| writer.check(&history));
        let acked: usize = mine().map(|writer| writer.acked.len()).sum();
        assert_eq!(history.len(), acked, "{room}: what was accepted was acknowledged");
        if room == "chat" {
            follower.check(&history[..follower.seen.len()]);
        }
    }
    let history = server.history("http").await;
    let stored: BTreeSet<_> =
        history.iter().map(|message| message["message"].as_str().unwrap().to_owned()).collect();
    assert_eq!(stored, posted, "every request that was accepted was answered");
}

#[tokio::test]
async fn an_idle_server_ends_at_once_on_sigint_too() {
    let mut server = Setup::new().start();
    let mut socket = server.ws("/v1/ws").await;
    server.interrupt();
    assert_eq!(socket.closed().await.0, 1001);
    assert_eq!(server.exit().await.code(), Some(0));
    assert!(Http::try_connect(server.address()).await.is_none());
}

/// Whether a stream ended with a pause that lets the next server come up, and began with one that replaces it: an `EventSource` keeps
/// the last one.
fn is_sent_away(text: &str) -> bool {
    let (_, stream) = text.split_once("\nretry: 3000\n").unwrap_or_default();
    let after = stream.rsplit_once("\nretry: ").and_then(|(_, after)| after.split_once("\n\n"));
    after.is_some_and(|(after, _)| (1_000..=6_000).contains(&after.parse::<u64>().unwrap()))
}

#[tokio::test]
async fn an_event_stream_says_when_to_reconnect() {
    let mut server = Setup::new().start();
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let request = b"GET /v1/rooms/r/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    until("the stream is live", async || server.metric("subscriptions").await == 1).await;
    server.terminate();
    let mut text = String::new();
    in_time("the end of the stream", stream.read_to_string(&mut text)).await.unwrap();
    assert!(is_sent_away(&text), "{text}");
    assert_eq!(server.exit().await.code(), Some(0));
}

/// Those that are of no room, too.
#[tokio::test]
async fn watches_say_when_to_reconnect() {
    for (path, begun) in [("/v1/kv/watch", "event: watching"), ("/v1/stats/live", "event: begun")] {
        let mut server = Setup::new().start();
        let close = [("connection", "close")];
        let (mut stream, _) = begin(server.address(), &format!("GET {path}"), &close, "").await;
        let mut text = read_until(&mut stream, begun).await;
        server.terminate();
        in_time("the end of the stream", stream.read_to_string(&mut text)).await.unwrap();
        assert!(is_sent_away(&text), "{path}: {text}");
        assert_eq!(server.exit().await.code(), Some(0));
    }
}

/// A stream of messages without end does not hold up the end. What was read whole is answered; its last line may be half a one.
#[tokio::test]
async fn a_bulk_request_ends() {
    let mut server = Setup::new().start();
    let head =
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let line = json!({"roomId": "r", "userId": "ada", "message": "x"}).to_string();
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let lines = format!("{line}\n{{\"roomId\":");
    stream.write_all(format!("{head}{:x}\r\n{lines}\r\n", lines.len()).as_bytes()).await.unwrap();
    let mut text = read_until(&mut stream, "\"duplicate\":false}").await;
    server.terminate();
    in_time("the end of the answer", stream.read_to_string(&mut text)).await.unwrap();
    // The half line is refused, so that nobody takes the answer for that of all lines.
    let (answered, refused) = text.split_once("\"duplicate\":false}\n").unwrap();
    assert!(!answered.contains("shutting_down") && refused.contains("shutting_down"), "{text}");
    assert!(text.ends_with("}\n\r\n0\r\n\r\n") && text.matches("roomId").count() < 2, "{text}");
    assert_eq!(server.exit().await.code(), Some(0));
}
