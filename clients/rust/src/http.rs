//! Requests over kept-alive HTTP/1.1 connections, repeated until there is a final answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::pool::{Moment, Pool};
use crate::random;
use crate::refusal::problem_of;

/// Longest answer that is read whole, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

type Sender = SendRequest<Full<Bytes>>;

/// A request, for what the methods of this crate do not offer.
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
    wait: Duration,
}

impl Request {
    /// A request for a path of the server, which may have a query.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new(), wait: Duration::ZERO }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// With a body of JSON.
    #[must_use]
    pub fn json(self, body: impl Into<Bytes>) -> Self {
        self.header(CONTENT_TYPE, "application/json").body(body)
    }

    /// The server may wait so long before it answers, besides [`Options::answer_max`].
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// Itself if it is a success, else the refusal it is.
    ///
    /// # Errors
    /// The refusal.
    pub fn success(self) -> Result<Self, Error> {
        if self.status.is_success() {
            Ok(self)
        } else {
            Err(problem_of(self.status, &self.headers, &self.body))
        }
    }

    /// The body's value, which has this member.
    pub(crate) fn value<T: DeserializeOwned>(&self, member: &str) -> Result<T, Error> {
        let members: HashMap<Cow<str>, IgnoredAny> =
            serde_json::from_slice(&self.body).map_err(Error::strange)?;
        if !members.contains_key(member) {
            return Err(Error::strange(format!("no {member}")));
        }
        serde_json::from_slice(&self.body).map_err(Error::strange)
    }
}

/// Makes requests of one server.
pub(crate) struct Http {
    pub(crate) address: Address,
    pub(crate) options: Options,
    token: Mutex<Option<String>>,
    idle: Pool<Sender>,
    /// Whether the client was closed.
    closing: watch::Sender<bool>,
}

/// Without the token, which every client, subscription and delivery would show otherwise.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, options, .. } = self;
        f.debug_struct("Http").field("address", address).field("options", options).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(address: Address, options: Options) -> Self {
        let token = Mutex::new(options.token.clone());
        Self { address, options, token, idle: Pool::default(), closing: watch::Sender::new(false) }
    }

    pub(crate) fn set_token(&self, token: Option<String>) {
        *self.token.lock() = token;
    }

    pub(crate) fn token(&self) -> Option<String> {
        self.token.lock().clone()
    }

    /// Ends what is under way, and refuses what comes.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        self.idle.clear();
    }

    /// Returns once the client is closed.
    pub(crate) async fn closed(&self) {
        // It cannot fail: what it waits for lives as long as this.
        let _ = self.closing.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// What `work` returns, or `closed` once the client is closed.
    pub(crate) async fn until_closed<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::closed()),
            done = work => Ok(done),
        }
    }

    /// The error of an attempt with this token. If there is another token by now, the refusal of the old one is not final.
    pub(crate) fn heed_renewal(&self, error: Error, token: Option<&str>) -> Error {
        let is_outdated = error.is_unauthorized() && self.token().as_deref() != token;
        error.with(|problem| problem.retryable |= is_outdated)
    }

    /// Headers that say who calls, with this token.
    ///
    /// # Errors
    /// `invalid` if they could not stand on a line.
    pub(crate) fn caller(&self, token: Option<&str>) -> Result<Vec<(HeaderName, String)>, Error> {
        let user = self.options.user.clone().map(|user| (HeaderName::from_static("hubbub-user"), user));
        let token = token.map(|token| (AUTHORIZATION, format!("Bearer {token}")));
        let headers: Vec<_> = user.into_iter().chain(token).collect();
        let is_printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        match headers.iter().find(|(_, value)| !is_printable(value)) {
            Some((name, _)) => Err(Error::new("invalid", format!("{name}: must be printable ASCII"))),
            None => Ok(headers),
        }
    }

    async fn sender(&self) -> Result<Sender, Error> {
        while let Some(mut sender) = self.idle.take(Moment::now()) {
            // One that was closed meanwhile is left out.
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        self.open().await
    }

    /// Opens a connection for the next request.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let sender = self.until_closed(in_time(self.options.answer_max, self.open())).await??;
        self.idle.keep(sender, Moment::now());
        Ok(())
    }

    async fn open(&self) -> Result<Sender, Error> {
        let stream = self.address.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // Its error reaches the request under way.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn start(
        &self,
        request: &Request,
        token: Option<&str>,
    ) -> Result<(Sender, Response<Incoming>), Error> {
        let mut made = hyper::Request::builder()
            .method(&request.method)
            .uri(format!("{}{}", self.address.prefix(), request.path))
            .header(HOST, self.address.host_header());
        for (name, value) in self.caller(token)?.into_iter().chain(request.headers.iter().cloned()) {
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                Error::new("invalid", format!("{name} has characters that no header may have"))
            })?;
            value.set_sensitive(name == AUTHORIZATION);
            made = made.header(name, value);
        }
        let made = made.body(Full::new(request.body.clone()));
        let made = made.map_err(|error| Error::new("invalid", format!("{}: {error}", request.path)))?;
        let mut sender = self.sender().await?;
        sender.ready().await.map_err(lost)?;
        let response = sender.send_request(made).await.map_err(lost)?;
        Ok((sender, response))
    }

    fn limit_of(&self, request: &Request) -> Duration {
        self.options.answer_max.saturating_add(request.wait)
    }

    /// The result of an attempt, if it has one in time. If not, the kept connections may lead nowhere, too.
    async fn attempting<T>(
        &self,
        request: &Request,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let attempt = tokio::time::timeout(self.limit_of(request), work);
        self.until_closed(attempt).await?.unwrap_or_else(|_| {
            self.idle.clear();
            Err(late())
        })
    }

    /// Makes one attempt, and returns before the body of a success is read.
    pub(crate) async fn begin(
        &self,
        request: &Request,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, Error> {
        self.attempting(request, async {
            let (_, response) = self.start(request, token).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let answer = whole(response).await?;
            Err(problem_of(answer.status, &answer.headers, &answer.body))
        })
        .await
    }

    /// Makes one attempt, and reads the whole answer, whatever its status.
    pub(crate) async fn attempt(&self, request: &Request, token: Option<&str>) -> Result<Answer, Error> {
        self.attempting(request, async {
            let (sender, response) = self.start(request, token).await?;
            let answer = whole(response).await?;
            self.idle.keep(sender, Moment::now());
            Ok(answer)
        })
        .await
    }

    /// Repeats a request until there is a final answer, or the patience ends.
    pub(crate) async fn call(&self, request: &Request) -> Result<Answer, Error> {
        let begun = Instant::now();
        let end = begun.checked_add(self.options.patience);
        let (mut is_open, mut attempt) = (false, 0);
        loop {
            let token = self.token();
            let refused = match self.attempt(request, token.as_deref()).await.and_then(Answer::success) {
                Ok(answer) => return Ok(answer),
                Err(refused) => self.heed_renewal(refused, token.as_deref()),
            };
            let pause = self.options.pause(attempt, refused.retry_after, random::fraction());
            attempt = attempt.saturating_add(1);
            let is_in_time = begun.elapsed() + pause <= self.limit_of(request);
            let is_due = attempt < self.options.attempts_min && is_in_time;
            if !refused.retryable || (!is_due && end.is_some_and(|end| Instant::now() + pause > end)) {
                return Err(refused.with(|problem| problem.is_open = is_open));
            }
            is_open |= refused.leaves_open();
            self.until_closed(tokio::time::sleep(pause)).await?;
        }
    }

    /// Repeats a request whose success has nothing to say, and the status for that.
    pub(crate) async fn done(&self, request: &Request) -> Result<(), Error> {
        match self.call(request).await?.status {
            StatusCode::NO_CONTENT => Ok(()),
            status => Err(Error::strange(format!("status {status}"))),
        }
    }

    /// Calls with a value, and reads one that has this member.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        member: &str,
        method: Method,
        path: &str,
        value: &impl Serialize,
        wait: Duration,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(value).map_err(|error| Error::new("invalid", error.to_string()))?;
        self.call(&Request::new(method, path).json(body).wait(wait)).await?.value(member)
    }
}

/// Also with the cause, which names what the system said.
fn lost(error: hyper::Error) -> Error {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    Error::unreachable(format!("the connection was lost: {error}{}", cause.unwrap_or_default()))
}

async fn whole(response: Response<Incoming>) -> Result<Answer, Error> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => Error::strange(format!("more than {ANSWER_BYTES_MAX} bytes")),
        false => Error::unreachable(format!("the answer was cut off: {error}")),
    });
    Ok(Answer { status: parts.status, headers: parts.headers, body: body?.to_bytes() })
}

/// The result of `work`, or an error after `limit`.
pub(crate) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let in_time = tokio::time::timeout(limit, work).await;
    in_time.unwrap_or_else(|_| Err(late()))
}

fn late() -> Error {
    Error::unreachable("no answer in time")
}

/// A part of a path or query, or a key as the server reads it there: everything but letters and digits is escaped.
pub(crate) fn escape(bytes: impl AsRef<[u8]>) -> String {
    percent_encoding::percent_encode(bytes.as_ref(), percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A path with the parameters that are given.
pub(crate) fn with_query<const N: usize>(path: &str, pairs: [(&str, Option<String>); N]) -> String {
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    format!("{path}?{}", form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish())
}
