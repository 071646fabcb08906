//! Changes of keys, from one event stream after another.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Response};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::connection::ConnectionState;
use crate::error::{Error, Problem};
use crate::following::Cursor;
use crate::http::{Http, Request, with_query};
use crate::keys::unescape;
use crate::random;
use crate::rooms::{Ready, Reset, Start};

/// Longest event, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// What a watch brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyEvent {
    /// The changes behind `revision` follow: at every connection.
    Ready {
        /// History that the revisions belong to.
        epoch: String,
        /// Where it continues.
        revision: u64,
    },
    /// A change.
    Change(KeyChange),
    /// Changes are missing: list the keys anew. Those behind its `head` follow.
    Reset(Reset),
}

/// Change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// `put`, `delete` or `expire`.
    pub kind: String,
    /// The key.
    pub key: Vec<u8>,
    /// The key as the server writes it: percent-escaped.
    pub escaped: String,
    /// Revision of the change.
    pub revision: u64,
}

impl KeyChange {
    /// The key as text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

/// Changes of keys with a prefix. They are read when they are asked for. Dropping it ends it, as does [`crate::Client::close`].
pub struct Watch {
    http: Arc<Http>,
    prefix: String,
    cursor: Cursor,
    /// Of the last connection.
    token: Option<String>,
    /// The connection that is being opened.
    opening: JoinSet<Result<Response<Incoming>, Error>>,
    body: Option<Incoming>,
    text: Vec<u8>,
    attempt: u32,
    /// End of a pause.
    resume_at: Option<Instant>,
    /// When something came last: how long it is silent does not depend on how often it is asked.
    heard_at: Instant,
    is_over: bool,
    connection: watch::Sender<ConnectionState>,
}

/// Without the token.
impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { http, prefix, cursor, .. } = self;
        let mut shown = f.debug_struct("Watch");
        shown.field("http", http).field("prefix", prefix).field("cursor", cursor).finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    epoch: String,
    after: u64,
    key: String,
    revision: u64,
}

impl Watch {
    pub(crate) fn new(http: Arc<Http>, prefix: String, start: Start) -> Self {
        Self {
            http,
            prefix,
            cursor: Cursor::of(start),
            token: None,
            opening: JoinSet::new(),
            body: None,
            text: Vec::new(),
            attempt: 0,
            resume_at: None,
            heard_at: Instant::now(),
            is_over: false,
            connection: watch::Sender::new(ConnectionState::Connecting),
        }
    }

    /// How its connection is.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.connection.subscribe()
    }

    /// The next event; `None` behind an error, and once the client is closed. May be dropped and called again.
    ///
    /// # Errors
    /// The server's final refusal; it is the last event.
    pub async fn next(&mut self) -> Option<Result<KeyEvent, Error>> {
        while !self.is_over {
            let http = Arc::clone(&self.http);
            let Ok(progressed) = http.until_closed(self.progress()).await else {
                self.is_over = true;
                self.body = None;
                self.opening.abort_all();
                break;
            };
            let error = match progressed {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => continue,
                Err(error) => self.http.heed_renewal(error, self.token.as_deref()),
            };
            self.body = None;
            self.text.clear();
            if error.is("reset") || error.is("compacted") {
                let at = Ready { epoch: error.epoch.clone(), oldest: error.oldest, head: error.head };
                return Some(Ok(KeyEvent::Reset(self.cursor.reset(at, error.head))));
            }
            if !error.retryable {
                self.is_over = true;
                return Some(Err(error));
            }
            let pause = self.http.options.pause(self.attempt, error.retry_after, random::fraction());
            self.attempt = self.attempt.saturating_add(1);
            self.resume_at = Some(Instant::now() + pause);
            self.connection.send_replace(ConnectionState::Lost {
                reason: error.to_string(),
                code: error.code.clone(),
                status: error.status,
            });
        }
        None
    }

    /// Does the next step: waits, connects, or reads.
    async fn progress(&mut self) -> Result<Option<KeyEvent>, Error> {
        if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            return self.on_event(&String::from_utf8_lossy(&event));
        }
        if self.text.len() > EVENT_BYTES_MAX {
            return Err(Error::new("protocol", "the server sent an event without an end"));
        }
        if let Some(resume_at) = self.resume_at {
            sleep_until(resume_at).await;
            self.resume_at = None;
        }
        let Some(body) = &mut self.body else {
            let request = Request::new(Method::GET, self.path()).header(ACCEPT, "text/event-stream");
            // One connection is opened however often this is dropped meanwhile.
            if self.opening.is_empty() {
                let (http, token) = (Arc::clone(&self.http), self.http.token());
                self.token.clone_from(&token);
                self.opening.spawn(async move { http.begin(&request, token.as_deref()).await });
            }
            let Some(Ok(opened)) = self.opening.join_next().await else {
                return Err(Error::unreachable("the runtime that the connection was opened in has ended"));
            };
            self.body = Some(opened?.into_body());
            self.heard_at = Instant::now();
            self.connection.send_replace(ConnectionState::Open);
            return Ok(None);
        };
        let silent_at = self.heard_at.checked_add(self.http.options.silence_max);
        let silent = async {
            match silent_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let frame = tokio::select! {
            biased;
            frame = body.frame() => Ok(frame),
            () = silent => Err(()),
        };
        let frame = frame.map_err(|_| Error::unreachable("the server stopped sending"))?;
        let frame = frame.ok_or_else(|| Error::unreachable("the server closed the connection"))?;
        let frame = frame.map_err(|error| Error::unreachable(format!("the connection was lost: {error}")))?;
        self.heard_at = Instant::now();
        self.text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        Ok(None)
    }

    fn path(&self) -> String {
        let epoch = Some(self.cursor.epoch.clone()).filter(|epoch| !epoch.is_empty());
        let pairs = [
            ("prefix", Some(self.prefix.clone())),
            ("after", self.cursor.seq.map(|seq| seq.to_string())),
            ("epoch", epoch.filter(|_| self.cursor.seq.is_some())),
        ];
        with_query("/v1/kv/watch", pairs)
    }

    fn on_event(&mut self, event: &str) -> Result<Option<KeyEvent>, Error> {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        if let Some((epoch, revision)) = field("id: ").split_once(':')
            && let Ok(revision) = revision.parse()
        {
            self.cursor = Cursor { epoch: epoch.to_owned(), seq: Some(revision) };
        }
        let (kind, text) = (field("event: "), field("data: "));
        if kind.is_empty() {
            return Ok(None);
        }
        let strange = |error| Error::unreachable(format!("the server sent invalid JSON: {error}"));
        if kind == "error" {
            return Err(serde_json::from_str::<Problem>(text).map_err(strange)?.into());
        }
        let data: Data = serde_json::from_str(text).map_err(strange)?;
        if matches!(kind, "watching" | "put" | "delete" | "expire") {
            self.attempt = 0;
        }
        Ok(match kind {
            "watching" => {
                self.cursor = Cursor { epoch: data.epoch.clone(), seq: Some(data.after) };
                Some(KeyEvent::Ready { epoch: data.epoch, revision: data.after })
            }
            "put" | "delete" | "expire" => Some(KeyEvent::Change(KeyChange {
                kind: kind.to_owned(),
                key: unescape(&data.key),
                escaped: data.key,
                revision: data.revision,
            })),
            _ => None,
        })
    }
}
