//! An HTTP/1.1 connection to a server, with error messages for people.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Time-out of an ordinary request.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Path of the metrics, which are text or JSON.
const METRICS: &str = "/metrics";

/// Address of a server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Host and port, as in the URL.
    pub(crate) authority: String,
    /// Prefix of every path: empty, or starting with a slash.
    pub(crate) prefix: String,
}

impl Server {
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("--server {url} is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!("--server {url}: must begin with http://");
        }
        let authority = uri.authority().with_context(|| format!("--server {url} names no host"))?;
        let port = uri.port_u16().unwrap_or(80);
        Ok(Self {
            authority: format!("{}:{port}", authority.host()),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    pub(crate) async fn connect_tcp(&self) -> anyhow::Result<TcpStream> {
        let connecting = tokio::time::timeout(TIMEOUT, TcpStream::connect(&self.authority));
        let stream = connecting.await.context("no answer in time").and_then(|result| Ok(result?));
        let stream = stream.with_context(|| {
            format!("cannot reach the server at {}; is it running? (hubbub serve, --server)", self.authority)
        })?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = self.connect_tcp().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("starting HTTP")?;
        // Its error reaches the current request.
        tokio::spawn(connection);
        Ok(Connection { server: self.clone(), sender })
    }
}

/// A server's answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        self.body.get("retryable").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The body of a success, or the server's error.
    pub(crate) fn success(self) -> anyhow::Result<Value> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = |name: &str| self.body.get(name).and_then(Value::as_str).unwrap_or_default();
        bail!("the server answered {}: {} ({})", self.status.as_u16(), text("detail"), text("code"))
    }
}

pub(crate) struct Connection {
    server: Server,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Answer> {
        self.request_within(TIMEOUT, method, path, body).await
    }

    /// The same with a longer time-out.
    pub(crate) async fn request_within(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Answer> {
        let (status, body) = self.whole(timeout, method, path, body).await?;
        let body = match body.as_ref() {
            b"" => Value::Null,
            body => {
                serde_json::from_slice(body).with_context(|| format!("{path} did not answer with JSON"))?
            }
        };
        Ok(Answer { status, body })
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(crate) async fn whole(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let asking = async {
            let response = self.begin(method, path, body).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, body))
        };
        tokio::time::timeout(timeout, asking).await.context("no answer in time")?
    }

    /// Sends a request, and returns before the answer's body is read.
    pub(crate) async fn begin(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Response<Incoming>> {
        // All other paths have a single format.
        let accept = if path == METRICS { "application/openmetrics-text" } else { "*/*" };
        let headers = [(ACCEPT, accept), (CONTENT_TYPE, "application/json")];
        self.begin_with(method, path, headers, body).await
    }

    /// The same with other headers, and any bytes.
    pub(crate) async fn begin_with<'a>(
        &mut self,
        method: Method,
        path: &str,
        headers: impl IntoIterator<Item = (HeaderName, &'a str)>,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.prefix))
            .header(HOST, &self.server.authority);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).context("making the request")?;
        self.sender.ready().await.context("the connection was lost")?;
        Ok(self.sender.send_request(request).await?)
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.request(Method::GET, path, String::new()).await?.success()
    }

    /// The server's metrics, as OpenMetrics text.
    pub(crate) async fn metrics(&mut self) -> anyhow::Result<String> {
        let (status, body) = self.whole(TIMEOUT, Method::GET, METRICS, String::new()).await?;
        if !status.is_success() {
            bail!("the server answered {} to {METRICS}", status.as_u16());
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
