//! An HTTP client.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::in_time;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Each line of NDJSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Must be the problem `code`, with everything a problem has; returns it.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["type"], format!("urn:hubbub:error:{code}"), "{problem}");
        assert!(
            problem["retryable"].is_boolean() && !problem["title"].as_str().unwrap().is_empty(),
            "{problem}"
        );
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        problem
    }

    /// Must be a refusal of these fields, in this order.
    pub(crate) fn faults(&self, fields: &[&str]) {
        assert_eq!(faulty_fields(&self.problem(422, "invalid")), fields, "{}", self.text());
    }
}

/// The fields a problem names.
pub(crate) fn faulty_fields(problem: &Value) -> Vec<&str> {
    let faults = problem["errors"].as_array().unwrap();
    assert!(faults.iter().all(|fault| !fault["rule"].as_str().unwrap().is_empty()), "{problem}");
    faults.iter().map(|fault| fault["field"].as_str().unwrap()).collect()
}

/// One connection.
pub(crate) struct Http {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl Http {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.unwrap()
    }

    pub(crate) async fn try_connect(address: SocketAddr) -> Option<Self> {
        let stream = in_time("connecting", TcpStream::connect(address)).await.ok()?;
        stream.set_nodelay(true).ok()?;
        Self::over(stream, address).await
    }

    /// Over a stream that is open.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) -> Option<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(Self { address, sender })
    }

    /// `None` when the connection was lost.
    pub(crate) async fn try_request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        in_time(path, async {
            self.sender.ready().await.ok()?;
            let response = self.sender.send_request(request).await.ok()?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some(Answer { status, headers, body })
        })
        .await
    }

    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_request(method, path, headers, body).await.unwrap_or_else(|| panic!("{path}: no answer"))
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.request(Method::POST, path, &[], body).await
    }
}
