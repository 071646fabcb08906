//! Peers that open a connection and then say nothing, or too little, do not keep it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Server, Setup, in_time, until};

/// Writes `request` and gives what comes until the server closes the connection.
async fn last_words(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = in_time("the end of a silent connection", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn no_connection_is_left(server: &Server) {
    // The one that asks is open.
    until("the end of all others", async || server.metric("connections").await == 1).await;
    assert_eq!(server.metric("websocket_connections").await, 0);
}

#[tokio::test]
async fn a_header_that_does_not_end_is_dropped() {
    let server = Setup::new().set("server.header_timeout=200ms").start();
    for request in ["", "GET / HT", "GET /health HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        last_words(&server, request).await;
    }
    // Byte by byte is no way around it.
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let mut byte = [0];
    in_time("a slow header", async {
        loop {
            tokio::select! {
                read = stream.read(&mut byte) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                },
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
            if stream.write_all(b"G").await.is_err() {
                return;
            }
        }
    })
    .await;
    // An answered connection that stays idle ends too.
    let words = last_words(&server, "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(words.starts_with("HTTP/1.1 200"), "{words}");
    no_connection_is_left(&server).await;
}

#[tokio::test]
async fn a_body_that_does_not_end_is_answered_408() {
    let server = Setup::new().set("server.body_timeout=200ms").set("server.header_timeout=1s").start();
    let request = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{\"userId\"";
    let words = last_words(&server, request).await;
    assert!(words.starts_with("HTTP/1.1 408") && words.contains("request_timeout"), "{words}");
    let request = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{\"userId\"";
    last_words(&server, request).await;
    no_connection_is_left(&server).await;
}

const UPGRADE: &str = "GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn a_half_open_socket_is_closed_with_4408() {
    let server = Setup::new().set("server.ping_interval=300ms").set("server.pong_timeout=3s").start();
    // It reads, but never answers a ping.
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    // One that answers, because tungstenite does while it is read, is left alone for longer than that.
    let mut alive = server.ws("/v1/ws").await;
    let mut answer = Vec::new();
    let mut pings = 0;
    let (mut closed, mut living) = (false, true);
    in_time("4408", async {
        while !(closed && pings >= 3) {
            tokio::select! {
                read = stream.read_buf(&mut answer), if !closed => closed = read.unwrap_or(0) == 0,
                message = alive.next_message() => {
                    living &= message.is_ping();
                    pings += 1;
                }
            }
        }
    })
    .await;
    assert!(living, "a socket that answers is only pinged");
    let answer =
        String::from_utf8_lossy(&answer[answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4..])
            .into_owned();
    assert!(answer.starts_with("\u{FFFD}\0\u{FFFD}"), "a ping, then the close frame: {answer:?}");
    assert!(answer.contains("\u{11}8no pong"), "4408 is 0x1138: {answer:?}");
    alive.close().await;
    no_connection_is_left(&server).await;
}

/// A client that goes away without a word leaves nothing behind.
#[tokio::test]
async fn a_vanished_client_leaves_nothing() {
    let server = Server::start();
    let socket = server.subscriber("r", serde_json::json!({})).await;
    assert_eq!((server.metric("websocket_connections").await, server.metric("subscriptions").await), (1, 1));
    drop(socket);
    no_connection_is_left(&server).await;
    assert_eq!(server.metric("subscriptions").await, 0);
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed() {
    let server = Setup::new().set("server.connections=2").start();
    let first = server.ws("/v1/ws").await;
    let mut http = server.http().await;
    assert_eq!(http.get("/health").await.status, 200);
    assert_eq!(last_words(&server, "").await, "");
    assert!(http.get("/metrics").await.text().contains("hubbub_connections_refused_total 1\n"));
    // The place of one that ends is free again.
    first.close().await;
    until("a free place", async || crate::harness::Ws::try_open(server.address(), "/v1/ws").await.is_some())
        .await;
}
