//! Tokens, and requests with them.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use hubbub_gateway::auth::{Claims, mint};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{Answer, Http, Setup, Ws, in_time};

pub(crate) const SECRET: &str = "a secret of the tests, which is long enough";

pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A token with these claims, for an hour unless they say otherwise.
pub(crate) fn token(claims: Value) -> String {
    token_by(SECRET, claims)
}

pub(crate) fn token_by(secret: &str, mut claims: Value) -> String {
    if claims.get("exp").is_none() {
        claims["exp"] = json!(now() + 3_600.0);
    }
    if claims.get("iat").is_none() {
        // Whole milliseconds, as servers go by.
        claims["iat"] = json!((now() * 1e3).floor() / 1e3);
    }
    let claims: Claims = serde_json::from_value(claims).unwrap();
    mint(&claims, secret).unwrap()
}

pub(crate) fn admin() -> String {
    token(json!({"sub": "root", "admin": true}))
}

impl Setup {
    /// A server that asks for tokens, and whose clock is that of the tests.
    pub(crate) fn with_tokens(self) -> Self {
        self.env("HUBBUB_AUTH_SECRET", SECRET).set("auth.leeway=0s")
    }
}

/// A request with a token; empty = without one. `null` = without a body.
pub(crate) async fn call(
    address: SocketAddr,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let headers = if token.is_empty() { &[][..] } else { &headers[..] };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Http::connect(address).await.request(method, path, headers, body).await
}

pub(crate) async fn get(address: SocketAddr, token: &str, path: &str) -> Answer {
    call(address, token, Method::GET, path, Value::Null).await
}

/// The status of an answer that may never end, to a request with these headers.
pub(crate) async fn status(address: SocketAddr, head: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    let (_stream, head) = begin(address, head, headers, body).await;
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends a request, and reads the head of the answer.
pub(crate) async fn begin(
    address: SocketAddr,
    head: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (TcpStream, String) {
    let mut stream = in_time("connecting", TcpStream::connect(address)).await.unwrap();
    let mut request = format!("{head} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("\r\n{body}");
    in_time("sending", stream.write_all(request.as_bytes())).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(in_time("the answer", stream.read_u8()).await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

/// Reads until the text is there, or the end; all that came.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        if in_time(text, stream.read_buf(&mut read)).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

impl Ws {
    /// A socket whose handshake has this header.
    pub(crate) async fn with_header(
        address: SocketAddr,
        path: &str,
        name: &'static str,
        value: &str,
    ) -> Result<Self, u16> {
        let stream = in_time("connecting", TcpStream::connect(address)).await.unwrap();
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        let opened = in_time("the handshake", Self::with(request, stream)).await;
        match opened {
            Ok(socket) => Ok(socket),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A socket that is opened with a token.
    pub(crate) async fn with_token(address: SocketAddr, path: &str, token: &str) -> Self {
        let opened = Self::with_header(address, path, "authorization", &format!("Bearer {token}")).await;
        opened.unwrap_or_else(|status| panic!("{path}: {status}"))
    }

    /// The close code with which the socket ends, whatever is said before.
    pub(crate) async fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Err(closed) = self.next().await {
                return closed.map(|(code, _)| code);
            }
        }
    }
}
