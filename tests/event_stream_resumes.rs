//! Server-Sent Events of a room: what was missed, then what comes, and on behind `Last-Event-ID` after a `kill -9`.

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::harness::{Server, in_time};

/// One event: its id, its kind (`message` unless said), its data.
#[derive(Debug)]
pub(crate) struct Event {
    id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

pub(crate) struct Events {
    body: Incoming,
    text: String,
    /// What an `EventSource` sends when it comes back.
    last_id: Option<String>,
}

impl Events {
    pub(crate) async fn open(server: &Server, query: &str, last_id: Option<&str>) -> Self {
        Self::over(TcpStream::connect(server.address()).await.unwrap(), query, last_id).await
    }

    /// Over a stream that is open.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        query: &str,
        last_id: Option<&str>,
    ) -> Self {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().uri(format!("/v1/rooms/r/events{query}")).header("host", "x");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = in_time("the answer", sender.send_request(request)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Self { body: response.into_body(), text: String::new(), last_id: last_id.map(Into::into) }
    }

    /// The next event; `None` when the stream ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            self.read().await?;
        }
    }

    /// The next event of what was read.
    fn take(&mut self) -> Option<Event> {
        while let Some((event, rest)) = self.text.split_once("\n\n") {
            let field =
                |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
            self.text = rest.to_owned();
            self.last_id = id.clone().or(self.last_id.take());
            // A comment has no data.
            let Some(data) = data else { continue };
            let kind = kind.unwrap_or_else(|| "message".into());
            let data = serde_json::from_str(&data).unwrap();
            return Some(Event { id: id.unwrap_or_default(), kind, data });
        }
        None
    }

    async fn read(&mut self) -> Option<()> {
        let frame = in_time("an event", self.body.frame()).await?.ok()?;
        self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        Some(())
    }

    pub(crate) async fn receive(&mut self, kind: &str) -> Event {
        let event = self.next().await.expect("the stream ended");
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// The seq of the last id.
    fn last_seq(&self) -> Option<u64> {
        self.last_id.as_ref()?.rsplit_once(':')?.1.parse().ok()
    }

    /// Messages up to this seq, beginning behind `seq`; the id of the last one.
    async fn messages(&mut self, seq: u64, to: u64) -> String {
        let mut last = String::new();
        for expected in seq + 1..=to {
            let event = self.receive("message").await;
            assert_eq!(event.data["seq"], expected, "{event:?}");
            assert!(event.id.ends_with(&format!(":{expected}")), "{event:?}");
            last = event.id;
        }
        last
    }
}

#[tokio::test]
async fn event_stream_resumes() {
    let mut server = Server::start();
    for n in 1..=5 {
        server.send("r", &n.to_string()).await;
    }
    let mut events = Events::open(&server, "?after=0", None).await;
    assert_eq!(events.receive("subscribed").await.data["head"], 5);
    events.messages(0, 5).await;
    server.send("r", "live\nwith a line break").await;
    let last = events.messages(5, 6).await;
    server.restart();
    while events.next().await.is_some() {}
    server.send("r", "missed").await;

    let mut events = Events::open(&server, "", Some(&last)).await;
    events.receive("subscribed").await;
    server.send("r", "live").await;
    events.messages(6, 8).await;
    // Live and missed messages look the same: as in the history.
    let history = server.history("r").await;
    let mut all = Events::open(&server, "?last=8", None).await;
    all.receive("subscribed").await;
    for message in &history {
        assert_eq!(all.receive("message").await.data, *message);
    }
    let mut live = Events::open(&server, "", None).await;
    live.receive("subscribed").await;
    server.send("r", "9").await;
    assert_eq!(live.receive("message").await.data, server.history("r").await[8]);
}

/// A reader that is cut off before the first message comes back to where it began.
#[tokio::test]
async fn a_stream_without_a_message_resumes_where_it_began() {
    let server = Server::start();
    // There is no room yet.
    for query in ["", "?last=5"] {
        let mut events = Events::open(&server, query, None).await;
        events.receive("subscribed").await;
        assert_eq!(events.last_seq(), Some(0), "{query}");
    }
    for n in 1..=3 {
        server.send("r", &n.to_string()).await;
    }
    let mut begun = Vec::new();
    for (query, began_at) in [("", 3), ("?after=3", 3), ("?after=1", 1), ("?after=0", 0)] {
        let mut events = Events::open(&server, query, None).await;
        events.receive("subscribed").await;
        assert_eq!(events.last_seq(), Some(began_at), "{query}");
        begun.push((query, began_at, events.last_id.unwrap()));
    }
    // The last messages come again.
    let mut last = Events::open(&server, "?last=2", None).await;
    last.receive("subscribed").await;
    assert_eq!(last.last_id, None);
    for n in 4..=5 {
        server.send("r", &n.to_string()).await;
    }
    for (query, began_at, id) in begun {
        let mut events = Events::open(&server, query, Some(&id)).await;
        events.receive("subscribed").await;
        events.messages(began_at, 5).await;
    }
}

/// Of the last messages none may be left.
#[tokio::test]
async fn a_stream_of_erased_messages_resumes_behind_them() {
    let server = Server::start();
    for n in 1..=3 {
        server.send("r", &n.to_string()).await;
    }
    let sender = server.history("r").await[0]["userId"].as_str().unwrap().to_owned();
    let path = format!("/v1/users/{sender}");
    let erased = server.call("", hyper::Method::DELETE, &path, Value::Null).await;
    assert_eq!((erased.status, &erased.json()["messages"]), (200, &json!(3)));
    let mut events = Events::open(&server, "?last=1", None).await;
    events.receive("subscribed").await;
    in_time("the cursor", async {
        while events.last_id.is_none() {
            events.read().await;
            events.take();
        }
    })
    .await;
    let last = events.last_id.unwrap();
    for n in 4..=5 {
        server.send("r", &n.to_string()).await;
    }
    let mut events = Events::open(&server, "?last=1", Some(&last)).await;
    events.receive("subscribed").await;
    events.messages(3, 5).await;
}

#[tokio::test]
async fn a_stale_event_id_is_reset() {
    let server = Server::start();
    let epoch = server.send("r", "1").await["epoch"].as_str().unwrap().to_owned();
    for id in ["0123456789abcdef:1", &format!("{epoch}:9")] {
        let mut events = Events::open(&server, "", Some(id)).await;
        let reset = loop {
            let event = events.next().await.unwrap();
            if event.kind != "subscribed" {
                break event;
            }
        };
        assert_eq!((reset.kind.as_str(), &reset.data["head"]), ("reset", &json!(1)), "{reset:?}");
        assert_eq!(events.last_seq(), Some(0));
        events.messages(0, 1).await;
        let mut live = Events::open(&server, "?onReset=live", Some(id)).await;
        live.receive("reset").await;
        assert_eq!(live.last_seq(), Some(1));
    }
    let mut http = server.http().await;
    let headers = [("last-event-id", "nonsense")];
    http.request(hyper::Method::GET, "/v1/rooms/r/events", &headers, "").await.faults(&["Last-Event-ID"]);
    http.get("/v1/rooms/r/events?after=x&last=1001").await.faults(&["after", "last"]);
}

/// Shutdown does not wait for readers of an endless stream.
#[tokio::test]
async fn streams_end_at_shutdown() {
    let mut server = Server::start();
    let mut events = Events::open(&server, "", None).await;
    events.receive("subscribed").await;
    server.terminate();
    assert!(events.next().await.is_none());
    assert_eq!(server.exit().await.code(), Some(0));
}
