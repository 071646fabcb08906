//! A WebSocket client on an implementation that shares no code with the server.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::http::Request;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::in_time;

/// How a socket ended: with a code and a reason, or without a word.
pub(crate) type Closed = Option<(u16, String)>;

/// A TCP stream, or something on top of one.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub(crate) struct Ws(WebSocketStream<Box<dyn Duplex>>);

impl Ws {
    /// A handshake of one's own.
    pub(super) async fn with(request: Request<()>, stream: TcpStream) -> Result<Self, Error> {
        let stream: Box<dyn Duplex> = Box::new(stream);
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        Ok(Self(socket))
    }

    pub(crate) async fn open(address: SocketAddr, path: &str) -> Self {
        Self::try_open(address, path).await.unwrap_or_else(|| panic!("{path} is no WebSocket"))
    }

    pub(crate) async fn try_open(address: SocketAddr, path: &str) -> Option<Self> {
        in_time(path, async {
            let stream = TcpStream::connect(address).await.ok()?;
            stream.set_nodelay(true).ok()?;
            Self::over(stream, address, path).await
        })
        .await
    }

    /// Over a stream that is open.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
        path: &str,
    ) -> Option<Self> {
        let url = format!("ws://{address}{path}");
        let stream: Box<dyn Duplex> = Box::new(stream);
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.ok()?;
        Some(Self(socket))
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_text(frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: impl Into<String>) {
        self.send_message(Message::text(text.into())).await;
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        assert!(self.try_send(message).await, "the socket is closed");
    }

    /// Whether it could be sent.
    pub(crate) async fn try_send(&mut self, message: Message) -> bool {
        in_time("sending", self.0.send(message)).await.is_ok()
    }

    /// Puts frames into the buffer, and sends them all at once.
    pub(crate) async fn send_all(&mut self, frames: &[Value]) {
        assert!(self.try_send_all(frames).await, "the socket is closed");
    }

    pub(crate) async fn try_send_all(&mut self, frames: &[Value]) -> bool {
        in_time("sending", async {
            for frame in frames {
                self.0.feed(Message::text(frame.to_string())).await?;
            }
            self.0.flush().await
        })
        .await
        .is_ok()
    }

    /// The next text, or how the socket ended. Pings are no progress.
    pub(crate) async fn next(&mut self) -> Result<Value, Closed> {
        in_time("receiving", self.next_whenever()).await
    }

    /// The same, however long it takes.
    pub(crate) async fn next_whenever(&mut self) -> Result<Value, Closed> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(bytes))) => panic!("the server never sends binary: {bytes:?}"),
                Some(Ok(Message::Close(frame))) => {
                    let closed = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                    // Answers the close frame, and waits until the server has closed the connection.
                    while self.0.next().await.is_some_and(|next| next.is_ok()) {}
                    return Err(closed);
                }
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// The next raw message, control frames too.
    pub(crate) async fn next_message(&mut self) -> Message {
        in_time("receiving", self.0.next()).await.expect("the stream ended").expect("the socket failed")
    }

    /// The next text.
    pub(crate) async fn receive(&mut self) -> Value {
        self.next().await.unwrap_or_else(|closed| panic!("closed with {closed:?}"))
    }

    /// Drops texts until one of that `type` in that room comes.
    pub(crate) async fn receive_until(&mut self, kind: &str, room: &str) -> Value {
        loop {
            let frame = self.receive().await;
            if frame["type"] == kind && frame["roomId"] == room {
                return frame;
            }
        }
    }

    /// Drops texts until an error comes.
    pub(crate) async fn receive_error(&mut self) -> Value {
        loop {
            let frame = self.receive().await;
            if frame["type"] == "error" {
                return frame;
            }
        }
    }

    /// All frames that arrive before the answer to a ping.
    pub(crate) async fn receive_pending(&mut self) -> Vec<Value> {
        self.send(&json!({"type": "ping", "ref": "so far"})).await;
        let mut all = Vec::new();
        loop {
            let frame = self.receive().await;
            if frame["type"] == "pong" {
                return all;
            }
            all.push(frame);
        }
    }

    pub(crate) async fn receive_many(&mut self, count: usize) -> Vec<Value> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            all.push(self.receive().await);
        }
        all
    }

    /// The next text, which must be of that `type`.
    pub(crate) async fn receive_type(&mut self, kind: &str) -> Value {
        let frame = self.receive().await;
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    pub(crate) async fn request(&mut self, frame: &Value) -> Value {
        self.send(frame).await;
        self.receive().await
    }

    /// Subscribes with the given members, and returns the `subscribed` frame.
    pub(crate) async fn subscribe(&mut self, room: &str, how: Value) -> Value {
        let mut frame = json!({"type": "subscribe", "roomId": room});
        frame.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        self.send(&frame).await;
        self.receive_type("subscribed").await
    }

    /// Drops texts until the socket ends; how it ended, with a code.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(closed) = self.next().await {
                return closed.expect("the socket ended without a close frame");
            }
        }
    }

    /// Closes in order.
    pub(crate) async fn close(mut self) {
        let _ = in_time("closing", self.0.close(None)).await;
        while in_time("closing", self.0.next()).await.is_some_and(|next| next.is_ok()) {}
    }
}
