//! A client of the stream of changes of keys.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Server, in_time};

/// Somebody who watches keys.
pub(crate) struct Watch {
    body: Incoming,
    text: String,
    /// The id of `watching`.
    pub(crate) begun: String,
}

impl Watch {
    /// Begins, with a query; must be allowed to.
    pub(crate) async fn open(server: &Server, query: &str, last_id: Option<&str>) -> Self {
        Self::try_open(server.address(), query, last_id).await.expect("nobody answers")
    }

    /// `None` when nobody answers.
    pub(crate) async fn try_open(address: SocketAddr, query: &str, last_id: Option<&str>) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let mut request = Request::builder().uri(format!("/v1/kv/watch{query}")).header("host", "x");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = in_time("the answer", sender.send_request(request)).await.ok()?;
        let status = response.status().as_u16();
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200);
        let mut watch = Self { body: response.into_body(), text: String::new(), begun: String::new() };
        let (begun, kind, data) = watch.next().await?;
        assert_eq!(kind, "watching");
        assert!(begun.ends_with(&format!(":{}", data["after"])), "{begun}: {data}");
        watch.begun = begun;
        Some(watch)
    }

    /// The next event: id, kind and data; `None` when the stream ended.
    pub(crate) async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
                self.text = rest.to_owned();
                if let Some(data) = data {
                    return Some((
                        id.unwrap_or_default(),
                        kind.unwrap(),
                        serde_json::from_str(&data).unwrap(),
                    ));
                }
                continue;
            }
            let frame = in_time("an event", self.body.frame()).await?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// The next events must be these; the id of the last.
    pub(crate) async fn receive(&mut self, events: &[(&str, &str, u64)]) -> String {
        let mut last = String::new();
        for (kind, key, revision) in events {
            let (id, said, data) = self.next().await.expect("the stream ended");
            assert_eq!(
                (said.as_str(), data["key"].as_str().unwrap(), data["revision"].as_u64().unwrap()),
                (*kind, *key, *revision)
            );
            assert!(id.ends_with(&format!(":{revision}")), "{id}");
            last = id;
        }
        last
    }
}
