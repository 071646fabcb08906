//! Servers that do what a script says. Their WebSocket is not ours, so that a misreading cannot agree with itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hubbub_client::{Client, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// A client that waits for nothing long.
pub(crate) fn quick() -> Options {
    Options {
        user: Some("ada".into()),
        backoff_first: Duration::from_millis(1),
        backoff_max: Duration::from_millis(4),
        patience: Duration::from_secs(10),
        ..Options::default()
    }
}

/// Bounds a test that waits for what never comes.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it never came")
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

/// Answer of a scripted server: status, headers, body; `None` breaks the connection.
pub(crate) type Reply = Option<(u16, &'static str, &'static str)>;

/// A request: its first line without the version, its head, its body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: Value,
}

pub(crate) type Requests = Arc<Mutex<Vec<Asked>>>;

/// A client of a server with these answers, one after another, the last one again and again.
pub(crate) async fn answering(options: Options, replies: Vec<Reply>) -> (Client, Requests) {
    answering_by(options, move |number, _| replies[number.min(replies.len()) - 1]).await
}

/// A client of a server whose answers `on` makes, from the number of the request, from 1; it may do something to the client.
pub(crate) async fn answering_by(
    options: Options,
    on: impl Fn(usize, &Client) -> Reply + Send + Sync + 'static,
) -> (Client, Requests) {
    let (listener, url) = listen().await;
    let (client, requests) = (Client::new(&url, options).unwrap(), Requests::default());
    let (seen, asking, on) = (Arc::clone(&requests), client.clone(), Arc::new(on));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (seen, asking, on) = (Arc::clone(&seen), asking.clone(), Arc::clone(&on));
            tokio::spawn(async move { answer(stream, &seen, |number| on(number, &asking)).await });
        }
    });
    (client, requests)
}

async fn answer(stream: TcpStream, seen: &Requests, on: impl Fn(usize) -> Reply) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (stream.read_line(&mut head).await.ok()? > 0).then_some(())?;
        }
        let head = head.to_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let line = head.split(" http/1.1").next().unwrap().to_owned();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let number = {
            let mut seen = seen.lock();
            seen.push(Asked { line, head, body });
            seen.len()
        };
        let (status, headers, body) = on(number)?;
        let length = body.len();
        let response = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        stream.write_all(response.as_bytes()).await.ok()?;
    }
}

/// The server's end of a socket.
#[derive(Clone)]
pub(crate) struct Peer {
    frames: mpsc::UnboundedSender<Message>,
    /// Which connection it is, from 1.
    pub(crate) number: usize,
}

impl Peer {
    pub(crate) fn raw(&self, message: Message) {
        // A test that is over closes it.
        let _ = self.frames.send(message);
    }

    pub(crate) fn answer(&self, frame: &Value) {
        self.raw(Message::text(frame.to_string()));
    }

    pub(crate) fn ack(&self, frame: &Value, seq: usize) {
        self.answer(&json!({
            "type": "ack", "ref": frame["ref"], "messageId": frame["messageId"], "seq": seq, "epoch": "e",
        }));
    }

    pub(crate) fn refuse(&self, frame: &Value, code: &str, retryable: bool) {
        self.answer(&json!({"type": "error", "ref": frame["ref"], "code": code, "retryable": retryable}));
    }

    pub(crate) fn subscribed(&self, frame: &Value, head: u64, epoch: &str) {
        self.answer(&json!({
            "type": "subscribed", "ref": frame["ref"], "roomId": frame["roomId"], "epoch": epoch, "oldest": 1,
            "head": head,
        }));
    }

    pub(crate) fn message(&self, room: &str, seq: u64) {
        self.answer(&json!({
            "type": "message", "roomId": room, "messageId": "m", "userId": "u", "message": "text", "seq": seq,
        }));
    }

    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.raw(Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() })));
    }
}

/// What comes on a socket.
pub(crate) enum Came {
    Frame(Value),
    Pong,
}

/// A client of a server whose sockets answer what comes by `on`.
pub(crate) async fn serving(options: Options, on: impl FnMut(Came, &Peer) + Send + 'static) -> Client {
    Client::new(&server(on).await, options).unwrap()
}

/// The address of such a server.
pub(crate) async fn server(on: impl FnMut(Came, &Peer) + Send + 'static) -> String {
    let (listener, url) = listen().await;
    let (on, connections) = (Arc::new(Mutex::new(on)), AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (on, number) = (Arc::clone(&on), connections.fetch_add(1, Ordering::Relaxed) + 1);
            tokio::spawn(async move {
                let (frames, mut outgoing) = mpsc::unbounded_channel();
                let peer = Peer { frames, number };
                let mut socket = tokio_tungstenite::accept_async(stream).await.ok()?;
                loop {
                    tokio::select! {
                        Some(message) = outgoing.recv() => socket.send(message).await.ok()?,
                        came = socket.next() => match came?.ok()? {
                            Message::Text(text) => {
                                on.lock()(Came::Frame(serde_json::from_str(&text).unwrap()), &peer);
                            }
                            Message::Pong(_) => on.lock()(Came::Pong, &peer),
                            _ => {}
                        },
                    }
                }
                #[allow(unreachable_code, reason = "names the type")]
                Some(())
            });
        }
    });
    url
}
