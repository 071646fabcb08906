//! `hubbub kv watch`: follows changes of keys. After a lost connection it continues behind the last change.

use anyhow::{Context, anyhow, bail};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use super::connection::{Answer, TIMEOUT, in_time};
use super::follow::{Failure, Follow, SILENCE_MAX, keep_following};
use super::session::{Session, with_query};
use super::{number, show, text};

/// Longest event: a key with every byte escaped, and its envelope.
const EVENT_BYTES_MAX: usize = 64 * 1024;

struct Watch {
    session: Session,
    path: String,
    left: Option<u64>,
    /// Id of the last event; `None` before the first connection.
    last: Option<String>,
}

pub(super) async fn watch(
    session: Session,
    prefix: String,
    after: Option<u64>,
    count: Option<u64>,
) -> anyhow::Result<()> {
    let pairs = [("prefix", Some(prefix)), ("after", after.map(|after| after.to_string()))];
    let path = with_query("/v1/kv/watch", pairs);
    keep_following(Watch { session, path, left: count, last: None }).await
}

impl Follow for Watch {
    async fn follow(&mut self) -> Result<(), Failure> {
        if self.left == Some(0) {
            return Ok(());
        }
        let mut body = self.open().await?;
        let mut text = Vec::new();
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
            let frame = frame.context("the server stopped sending")?;
            let frame = frame.context("the server closed the connection")??;
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                self.apply(&String::from_utf8_lossy(&event)).map_err(Failure::Final)?;
                if self.left == Some(0) {
                    return Ok(());
                }
            }
            if text.len() > EVENT_BYTES_MAX {
                return Err(Failure::Final(anyhow!("the server sent an event without an end")));
            }
        }
    }

    fn position(&self) -> Option<String> {
        self.last.clone()
    }
}

impl Watch {
    async fn open(&mut self) -> Result<Incoming, Failure> {
        let last = self.last.as_deref().map(|id| (HeaderName::from_static("last-event-id"), id));
        let headers: Vec<_> = last.into_iter().collect();
        let response = self.session.connection.begin(TIMEOUT, Method::GET, &self.path, &headers, "").await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = in_time(TIMEOUT, response.into_body().collect()).await?.to_bytes();
        let answer = Answer::lenient(status, &body);
        let is_retryable = answer.is_retryable();
        let refused = answer.success().map_or_else(|error| error, |_| anyhow!("{status} is no success"));
        Err(if is_retryable { Failure::Lost(refused) } else { Failure::Final(refused) })
    }

    fn apply(&mut self, event: &str) -> anyhow::Result<()> {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        if let Some(id) = field("id: ") {
            self.last = Some(id.to_owned());
        }
        let Some(data) = field("data: ") else { return Ok(()) };
        let data: Value = serde_json::from_str(data).context("the server sent invalid JSON")?;
        let (key, revision) = (text(&data, "key"), number(&data, "revision"));
        match field("event: ").unwrap_or_default() {
            "watching" => {
                self.last = Some(format!("{}:{}", text(&data, "epoch"), number(&data, "after")));
                Ok(())
            }
            "error" => bail!("the server answered: {} ({})", text(&data, "detail"), text(&data, "code")),
            kind @ ("put" | "delete" | "expire") => {
                self.left = self.left.map(|left| left - 1);
                let shown = json!({"event": kind, "key": key, "revision": revision});
                show(self.session.is_json, &shown, |_| format!("{revision:>10}  {kind:<6}  {key}\n"))
            }
            _ => Ok(()),
        }
    }
}
