//! Requests to a server, with error messages for people.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use hubbub_client::{Client, Error, Request};
use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::{Method, Response, StatusCode};
use serde_json::Value;

use super::address::Server;
pub(crate) use super::address::TIMEOUT;
use crate::output::Refusal;

/// Headers of a request with JSON.
pub(crate) const JSON: &[(HeaderName, &str)] = &[(hyper::header::CONTENT_TYPE, "application/json")];

impl Server {
    /// A connection that the first request opens.
    pub(crate) fn connection(self) -> Connection {
        Connection { client: self.client(), is_proven: false }
    }

    /// An open connection.
    pub(crate) async fn connect(self) -> anyhow::Result<Connection> {
        let mut connection = self.connection();
        connection.prove().await.map_err(failed)?;
        Ok(connection)
    }
}

/// The result of `work`, or an error after `timeout`.
pub(crate) async fn in_time<T, E>(
    timeout: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    Ok(tokio::time::timeout(timeout, work).await.context("no answer in time")??)
}

/// What is said of some causes in the place of their own words.
const ADVICE: [(&str, &str); 4] = [
    ("is it running?", "is it running? (hubbub serve, --server)"),
    ("invalid HTTP version parsed", "the answer is no HTTP; this port may speak TLS: try https://"),
    // What the same server does to a WebSocket.
    (
        "closed the connection during the handshake",
        "closed the connection during the handshake; if this port speaks TLS, use https://",
    ),
    (
        "Other(OtherError(CaUsedAsEndEntity))",
        "it says that it is an authority's; make one for the server with basicConstraints=CA:FALSE",
    ),
];

/// The reason with what to do about it.
pub(super) fn advised(reason: &str) -> String {
    ADVICE.iter().fold(reason.to_owned(), |text, (cause, advice)| text.replacen(cause, advice, 1))
}

/// A refusal by the server as this program reports it; any other error as it is.
pub(crate) fn failed(error: Error) -> anyhow::Error {
    if error.status == 0 {
        return anyhow!(advised(&error.to_string()));
    }
    refused(&error)
}

/// The same of an answer to `path`, which need not be a Hubbub server's.
pub(super) fn failed_at(path: &str, error: &Error) -> anyhow::Error {
    match error.status {
        0 => anyhow!(advised(&error.to_string())),
        status if error.is("unexpected") => no_json(path, status, &error.content_type),
        _ => refused(error),
    }
}

/// What a server ended as this program reports it.
pub(super) fn refused(error: &Error) -> anyhow::Error {
    let (status, code, detail) = (error.status, error.code.clone(), error.detail.clone());
    anyhow!(Refusal { status, code, detail })
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// An answer whose body need not be JSON.
    pub(crate) fn lenient(status: StatusCode, body: &[u8]) -> Self {
        Self { status, body: serde_json::from_slice(body).unwrap_or_default() }
    }

    /// The body of a success, or the server's error.
    pub(crate) fn success(self) -> anyhow::Result<Value> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = |name: &str| super::text(&self.body, name).to_owned();
        Err(anyhow!(Refusal { status: self.status.as_u16(), code: text("code"), detail: text("detail") }))
    }
}

/// A connection that is opened again by the first request after it was lost.
pub(crate) struct Connection {
    client: Client,
    /// Somebody listens at the address, so it is not a wrong one.
    is_proven: bool,
}

impl Connection {
    /// Connects, if it has not done so before.
    async fn prove(&mut self) -> Result<(), Error> {
        if !self.is_proven {
            self.client.connect().await?;
            self.is_proven = true;
        }
        Ok(())
    }

    /// Reads what is at `path`; repeats that until the answer is final. Where nobody listens from the beginning, it says so
    /// at once.
    pub(crate) async fn read(&mut self, path: &str) -> Result<hubbub_client::Answer, Error> {
        self.prove().await?;
        self.client.request(&request(TIMEOUT, Method::GET, path, &[], "")).await
    }

    /// The same as JSON.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        let answer = self.read(path).await.map_err(|error| failed_at(path, &error))?;
        Ok(json(path, answer)?.body)
    }

    /// Sends a request with JSON.
    pub(crate) async fn request(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let answer = self.whole(timeout, method, path, JSON, body).await?;
        json(path, answer)
    }

    /// The same; repeats it until the answer is final.
    pub(crate) async fn retry(&mut self, method: Method, path: &str, body: String) -> anyhow::Result<Answer> {
        let answer = self.client.request(&request(TIMEOUT, method, path, JSON, body)).await;
        json(path, answer.map_err(|error| failed_at(path, &error))?)
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(crate) async fn whole(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<hubbub_client::Answer> {
        self.client.attempt(&request(timeout, method, path, headers, body)).await.map_err(failed)
    }

    /// Sends a request, and returns before the body of its success is read.
    pub(crate) async fn begin(&mut self, method: Method, path: &str) -> Result<Response<Incoming>, Error> {
        self.client.begin(&request(TIMEOUT, method, path, &[], "")).await
    }

    /// The client, for what it has methods for.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn request(
    timeout: Duration,
    method: Method,
    path: &str,
    headers: &[(HeaderName, &str)],
    body: impl Into<Bytes>,
) -> Request {
    let request = Request::new(method, path).body(body).wait(timeout.saturating_sub(TIMEOUT));
    headers.iter().fold(request, |request, (name, value)| request.header(name.clone(), *value))
}

pub(super) fn json(path: &str, answer: hubbub_client::Answer) -> anyhow::Result<Answer> {
    let body = match answer.body.as_ref() {
        b"" => Value::Null,
        body => serde_json::from_slice(body).map_err(|_| {
            let kind = answer.headers.get(hyper::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            no_json(path, answer.status.as_u16(), kind.unwrap_or_default())
        })?,
    };
    Ok(Answer { status: answer.status, body })
}

/// Names what tells a wrong address from a proxy's error.
fn no_json(path: &str, status: u16, kind: &str) -> anyhow::Error {
    let kind = if kind.is_empty() { "no content type" } else { kind };
    anyhow!("{path} was not answered with JSON (status {status}, {kind}); is it a Hubbub server? (--server)")
}
