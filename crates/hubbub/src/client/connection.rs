//! An HTTP/1.1 connection to a server, with error messages for people.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::address::Server;
use crate::output::Refusal;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Headers of a request with JSON.
pub(crate) const JSON: &[(HeaderName, &str)] = &[(CONTENT_TYPE, "application/json")];

impl Server {
    /// A connection that the first request opens.
    pub(crate) fn connection(self) -> Connection {
        Connection { server: self, sender: None }
    }

    /// An open connection.
    pub(crate) async fn connect(self) -> anyhow::Result<Connection> {
        let sender = Some(self.open().await?);
        Ok(Connection { server: self, sender })
    }

    async fn open(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = self.connect_stream().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("starting HTTP")?;
        // Its error reaches the current request.
        tokio::spawn(connection);
        Ok(sender)
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

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// An answer whose body need not be JSON.
    pub(crate) fn lenient(status: StatusCode, body: &[u8]) -> Self {
        Self { status, body: serde_json::from_slice(body).unwrap_or_default() }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        super::is_true(&self.body, "retryable")
    }

    /// The body of a success, or the server's error.
    pub(crate) fn success(self) -> anyhow::Result<Value> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = |name: &str| super::text(&self.body, name);
        let (code, detail) = (text("code").to_owned(), text("detail").to_owned());
        bail!(Refusal { status: self.status.as_u16(), code, detail })
    }
}

/// A connection that is opened again by the first request after it was lost.
pub(crate) struct Connection {
    server: Server,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Sends a request with JSON.
    pub(crate) async fn request(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let response = self.whole(timeout, method, path, JSON, body).await?;
        let body = match response.body().as_ref() {
            b"" => Value::Null,
            body => {
                serde_json::from_slice(body).with_context(|| format!("{path} did not answer with JSON"))?
            }
        };
        Ok(Answer { status: response.status(), body })
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(crate) async fn whole(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Bytes>> {
        let answer = in_time(timeout, async {
            let (parts, body) = self.begin(timeout, method, path, headers, body).await?.into_parts();
            anyhow::Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
        });
        let answer = answer.await;
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    /// Sends a request, and returns before the answer's body is read.
    pub(crate) async fn begin(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.server.open().await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.prefix))
            .header(HOST, self.server.host_header());
        if let Some(authorization) = self.server.authorization() {
            request = request.header(AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Full::new(body.into())).context("making the request")?;
        let response = in_time(timeout, async {
            sender.ready().await.context("the connection was lost")?;
            anyhow::Ok(sender.send_request(request).await?)
        });
        let response = response.await?;
        self.sender = Some(sender);
        Ok(response)
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.request(TIMEOUT, Method::GET, path, "").await?.success()
    }
}
