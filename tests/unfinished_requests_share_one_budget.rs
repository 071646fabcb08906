//! Bodies, frames and commands that have not arrived whole take a bounded memory together. Who sends little is in nobody's way,
//! and nobody's place is held for ever.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{RawWs, Server, Setup, in_time, masked, until};

/// A frame of a text, one byte short.
fn cut_frame(payload_bytes: usize) -> Vec<u8> {
    let mut frame = masked(0x81, &vec![b'a'; payload_bytes]);
    frame.pop();
    frame
}

/// What of a frame has come is held by the server.
async fn hold(server: &Server, bytes: usize) -> RawWs {
    let before = server.metric("unfinished_bytes").await;
    let mut socket = RawWs::open(server.address(), "/v1/ws?user=ada").await;
    socket.exchange(&[cut_frame(bytes)], 0).await;
    until("it is held", async || server.metric("unfinished_bytes").await > before).await;
    socket
}

fn close_code((first, payload): &(u8, Vec<u8>)) -> u16 {
    assert_eq!(*first, 0x88);
    u16::from_be_bytes([payload[0], payload[1]])
}

async fn begin(server: &Server, head: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer may come before all is written.
    let _ = stream.write_all(&vec![b' '; bytes]).await;
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    in_time("an answer", async {
        while !String::from_utf8_lossy(&read).contains("overloaded")
            && stream.read_buf(&mut read).await.unwrap() > 0
        {}
    })
    .await;
    String::from_utf8_lossy(&read).into_owned()
}

/// More than there is space for at all.
#[tokio::test]
async fn unfinished_requests_share_one_budget() {
    let server = Setup::new().line().set("limits.unfinished_bytes=200KiB").start();
    // It has no space: over a WebSocket, as a body, as a line of many.
    let mut socket = RawWs::open(server.address(), "/v1/ws?user=bob").await;
    let frames = socket.exchange(&[cut_frame(380_000)], 1).await;
    assert_eq!(close_code(&frames[0]), 1013, "{frames:?}");
    let head = "PUT /kv/k HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n";
    let refused = answer(begin(&server, head, 249_000).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after"), "{refused}");
    let head = "PUT /kv/k HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3d090\r\n";
    let refused = answer(begin(&server, head, 249_000).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    let head = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n";
    let refused = answer(begin(&server, head, 249_000).await).await;
    assert!(refused.starts_with("HTTP/1.1 200 ") && refused.contains("\"code\":\"overloaded\""), "{refused}");
    assert_eq!(server.metric("unfinished_refused_total").await, 4);
    until("all is free", async || server.metric("unfinished_bytes").await == 0).await;
    // Whoever sends little, or what comes whole, is served as ever. What is held goes with its connection.
    let held = hold(&server, 200_000).await;
    server.send("r", &"x".repeat(10_000)).await;
    let mut socket = server.ws("/v1/ws?user=cleo").await;
    let sent = socket
        .request(&json!({"type": "send", "roomId": "r", "ref": "1", "message": "x".repeat(10_000)}))
        .await;
    assert_eq!(sent["type"], "ack", "{sent}");
    let mut client = server.line().await;
    client.request("ping\nx:y\n", &["OK"]).await;
    assert_eq!(server.metric("unfinished_refused_total").await, 4);
    drop(held);
    until("all is free", async || server.metric("unfinished_bytes").await == 0).await;
}

/// A few that stop in the middle, over whatever interface, keep nobody else out.
#[tokio::test]
async fn whoever_stops_makes_space_for_others() {
    let server = Setup::new().line().set("limits.unfinished_bytes=240KiB").start();
    let value = "v".repeat(250_000);
    let held = async || server.metric("unfinished_bytes").await > 40_000;
    let pass = async |refused| {
        let mut stream =
            begin(&server, "PUT /kv/k HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n", 240_000).await;
        until("another one has come", async || server.metric("unfinished_refused_total").await == refused)
            .await;
        stream.write_all(&value.as_bytes()[240_000..]).await.unwrap();
        let mut read = Vec::new();
        in_time("an answer", stream.read_buf(&mut read)).await.unwrap();
        let answer = String::from_utf8_lossy(&read);
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        drop(stream);
        until("all is free", async || server.metric("unfinished_bytes").await == 0).await;
    };
    let mut socket = RawWs::open(server.address(), "/v1/ws?user=ada").await;
    socket.exchange(&[cut_frame(230_000)], 0).await;
    until("it is held", held).await;
    pass(1).await;
    assert_eq!(close_code(&socket.exchange(&[], 1).await[0]), 1013);
    let body =
        begin(&server, "PUT /kv/k HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n", 249_000).await;
    until("it is held", held).await;
    pass(2).await;
    assert!(answer(body).await.starts_with("HTTP/1.1 503 "));
    let head = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n";
    let mut lines = begin(&server, head, 249_000).await;
    until("it is held", held).await;
    pass(3).await;
    let mut read = Vec::new();
    // The answer is broken off.
    let _ = in_time("the end", lines.read_to_end(&mut read)).await;
    assert!(!String::from_utf8_lossy(&read).ends_with("0\r\n\r\n"));
    let mut line = server.line().await;
    line.send("x".repeat(60_000)).await;
    until("it is held", held).await;
    pass(4).await;
    assert_eq!(line.receive().await.as_deref(), Some("Error"));
    assert_eq!(line.receive().await, None);
}

/// Errors name what they are about, however long that is.
#[tokio::test]
async fn errors_repeat_little() {
    let server = Setup::new().start();
    let long = "ä".repeat(100_000);
    let mut socket = server.ws("/v1/ws?user=ada").await;
    let refused = socket.request(&json!({"type": long})).await;
    let detail = refused["detail"].as_str().unwrap();
    assert!(refused["code"] == "unknown_type" && detail.contains("ää…' is not one of"), "{detail}");
    assert!(detail.len() < 500, "{detail}");
    let refused =
        socket.request(&json!({"type": "send", "roomId": "r", "message": "a", "messageId": long})).await;
    assert_eq!(refused["messageId"], format!("{}…", "ä".repeat(64)));
    let refused = server.http().await.post("/v1/rooms/r/messages", json!(long).to_string()).await;
    let problem = refused.problem(400, "malformed");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("ää") && detail.contains("column") && detail.len() < 700, "{detail}");
}

#[tokio::test]
async fn a_long_command_takes_its_part() {
    let server = Setup::new().line().set("limits.unfinished_bytes=40KiB").start();
    let mut client = server.line().await;
    client.send("x".repeat(60_000)).await;
    assert_eq!(client.receive().await.as_deref(), Some("Error"));
    assert_eq!(client.receive().await, None);
    until("all is free", async || server.metric("unfinished_bytes").await == 0).await;
    let mut client = server.line().await;
    client.send("x".repeat(50_000)).await;
    until("it is held", async || server.metric("unfinished_bytes").await > 0).await;
    client.request("\nping\nx:y\n", &["Bad Request", "OK"]).await;
    assert_eq!(server.metric("unfinished_bytes").await, 0);
}

/// A message in fragments, each in time, with everything that keeps a socket alive, is ended all the same.
#[tokio::test]
async fn nobody_holds_a_part_for_ever() {
    /// Messages that each come in two parts, which all together take longer than one may.
    const PARTS: usize = 6;
    let mut server =
        Setup::new().line().set("server.body_timeout=400ms").set("server.terms_timeout=400ms").start();
    let mut socket = RawWs::open(server.address(), "/v1/ws?user=ada").await;
    let begun = masked(0x01, &[b'a'; 30_000]);
    socket.exchange(&[begun], 0).await;
    let frames = in_time("the socket is closed", async {
        loop {
            let frames = socket.exchange(&[masked(0x00, b"a"), masked(0x8A, b"")], 0).await;
            assert!(frames.is_empty());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let gone = server.metric("websocket_connections").await == 0;
            if gone {
                return socket.exchange(&[], 1).await;
            }
        }
    })
    .await;
    assert_eq!(close_code(&frames[0]), 4408, "{frames:?}");
    // Messages that follow each other may take as long as they like together.
    server.restart_with(&["server.body_timeout=3s"]);
    let mut socket = RawWs::open(server.address(), "/v1/ws?user=ada").await;
    let mut rest = Vec::new();
    for _ in 0..PARTS {
        // The end of one, and the beginning of the next.
        let text = masked(0x81, br#"{"type":"ping"}"#);
        rest.extend_from_slice(&text[..10]);
        let frames = socket.exchange(&[std::mem::take(&mut rest)], 0).await;
        assert!(frames.is_empty());
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        rest = text[10..].to_vec();
    }
    let frames = socket.exchange(&[rest], PARTS).await;
    assert_eq!(frames.len(), PARTS);
    assert!(frames.iter().all(|(first, _)| *first == 0x81), "{frames:?}");
    let mut client = server.line().await;
    client.send("x".repeat(50_000)).await;
    assert_eq!(client.receive().await.as_deref(), Some("Bad Request"));
    assert_eq!(client.receive().await, None);
}
