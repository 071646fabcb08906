//! `hubbub kv watch`: follows changes of keys. After a lost connection it continues behind the last change.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use super::connection::{Answer, Server, TIMEOUT};
use super::{print, print_json};

/// Pauses between attempts to reconnect, doubling.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// The server sends something every 15 s; after a longer silence the connection is considered lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Longest event: a key with every byte escaped, and its envelope.
const EVENT_BYTES_MAX: usize = 64 * 1024;

struct Watch<'a> {
    server: Server,
    prefix: &'a str,
    after: Option<u64>,
    left: Option<u64>,
    is_json: bool,
    /// Id of the last event; `None` before the first connection.
    last: Option<String>,
}

pub(super) async fn watch(
    server: Server,
    prefix: &str,
    after: Option<u64>,
    count: Option<u64>,
    is_json: bool,
) -> anyhow::Result<()> {
    let mut watch = Watch { server, prefix, after, left: count, is_json, last: None };
    let mut pause = PAUSE_FIRST;
    while watch.left != Some(0) {
        let before = watch.last.clone();
        let body = match watch.open().await {
            Ok(Ok(body)) => body,
            // A retry would be refused, too.
            Ok(Err(refused)) => return refused.success().map(|_| ()),
            Err(lost) if watch.last.is_none() => return Err(lost),
            Err(lost) => {
                eprintln!("hubbub: {lost:#}; reconnecting");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LAST);
                continue;
            }
        };
        if let Some(lost) = watch.follow(body).await? {
            eprintln!("hubbub: {lost}; reconnecting");
            if watch.last != before {
                pause = PAUSE_FIRST;
            }
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}

impl Watch<'_> {
    /// Opens the stream; the inner error is a refusal by the server.
    async fn open(&self) -> anyhow::Result<Result<Incoming, Answer>> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("prefix", self.prefix);
        if let Some(after) = self.after {
            query.append_pair("after", &after.to_string());
        }
        let path = format!("/v1/kv/watch?{}", query.finish());
        let headers = self.last.iter().map(|id| (HeaderName::from_static("last-event-id"), id.as_str()));
        let mut connection = self.server.connect().await?;
        let opening = connection.begin_with(Method::GET, &path, headers, "");
        let response = tokio::time::timeout(TIMEOUT, opening).await.context("no answer in time")??;
        let status = response.status();
        if status.is_success() {
            return Ok(Ok(response.into_body()));
        }
        let reading = tokio::time::timeout(TIMEOUT, response.into_body().collect());
        let body = reading.await.context("no answer in time")??.to_bytes();
        let answer = Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() };
        if answer.is_retryable() {
            answer.success()?;
            bail!("the server answered {}", status.as_u16());
        }
        Ok(Err(answer))
    }

    /// Prints events until there are enough, or the connection is lost; then returns the reason.
    async fn follow(&mut self, mut body: Incoming) -> anyhow::Result<Option<String>> {
        let mut text = Vec::new();
        loop {
            let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
                Err(_) => return Ok(Some("the server stopped sending".into())),
                Ok(None) => return Ok(Some("the server closed the connection".into())),
                Ok(Some(Err(error))) => return Ok(Some(error.to_string())),
                Ok(Some(Ok(frame))) => frame,
            };
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                self.apply(&String::from_utf8_lossy(&event))?;
                if self.left == Some(0) {
                    return Ok(None);
                }
            }
            if text.len() > EVENT_BYTES_MAX {
                bail!("the server sent an event without an end");
            }
        }
    }

    fn apply(&mut self, event: &str) -> anyhow::Result<()> {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        if let Some(id) = field("id: ") {
            self.last = Some(id.to_owned());
        }
        let Some(data) = field("data: ") else { return Ok(()) };
        let data: Value = serde_json::from_str(data).context("the server sent invalid JSON")?;
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or_default();
        match field("event: ").unwrap_or_default() {
            "watching" => {
                self.last = Some(format!("{}:{}", text("epoch"), number("after")));
                Ok(())
            }
            "error" => bail!("the server answered: {} ({})", text("detail"), text("code")),
            kind @ ("put" | "delete" | "expire") => {
                self.left = self.left.map(|left| left - 1);
                if self.is_json {
                    return print_json(
                        &json!({"event": kind, "key": text("key"), "revision": number("revision")}),
                    );
                }
                print(&format!("{:>10}  {kind:<6}  {}\n", number("revision"), text("key")))
            }
            _ => Ok(()),
        }
    }
}
