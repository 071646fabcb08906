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
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; `None` when the stream ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
                self.text = rest.to_owned();
                // A comment has no data.
                if let Some(data) = data {
                    let kind = kind.unwrap_or_else(|| "message".into());
                    return Some(Event {
                        id: id.unwrap_or_default(),
                        kind,
                        data: serde_json::from_str(&data).unwrap(),
                    });
                }
                continue;
            }
            let frame = in_time("an event", self.body.frame()).await?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    pub(crate) async fn receive(&mut self, kind: &str) -> Event {
        let event = self.next().await.expect("the stream ended");
        assert_eq!(event.kind, kind, "{event:?}");
        event
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
        events.messages(0, 1).await;
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
