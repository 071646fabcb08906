//! What is too large is refused before it has been read, and the server goes on.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::tokens::read_until;
use crate::harness::{Server, Setup, in_time};

/// Sends `head`, then filling without end, until the server answers or ends the connection: its answer, and how many bytes
/// it had been sent by then.
async fn overfill(server: &Server, head: &str, filling: &[u8]) -> (String, usize) {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(head.as_bytes()).await.unwrap();
    let writing = async {
        let mut sent = 0;
        while let Ok(count) = writer.write(filling).await {
            sent += count;
        }
        sent
    };
    let reading = async {
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..count]);
        }
        answer
    };
    let (answer, sent) =
        in_time("the end of an endless request", async { tokio::join!(reading, writing) }).await;
    (String::from_utf8_lossy(&answer).into_owned(), sent)
}

#[tokio::test]
async fn oversize_is_refused_cheaply() {
    let server = Setup::new().set("limits.body_bytes=64KiB").set("limits.message_bytes=64KiB").start();
    let post = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\n";
    let filling = vec![b'x'; 64 * 1024];
    // What announces itself as too large, and what does not.
    let chunk = [b"10000\r\n", &filling[..], b"\r\n"].concat();
    for (head, filling) in [
        (format!("{post}content-length: 100000000000\r\n\r\n"), &filling),
        (format!("{post}transfer-encoding: chunked\r\n\r\n"), &chunk),
        // A header without end.
        (format!("{post}x: "), &filling),
        // One line of a streamed body.
        ("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000000\r\n\r\n".into(), &filling),
    ] {
        let (answer, sent) = overfill(&server, &head, filling).await;
        let is_refused =
            ["HTTP/1.1 413", "HTTP/1.1 431", "too_large"].iter().any(|part| answer.contains(part));
        assert!(is_refused, "{head:?}: {answer}");
        // Buffers of the system hold some MB.
        assert!(sent < 64 << 20, "{head:?}: {sent} bytes were taken");
        assert_eq!(server.send_as("r", "m", "hi").await.status / 100, 2);
    }
    assert_eq!(server.history("r").await.len(), 1);
}

/// A client that writes all of its body first finds the answer, and goes on over the same connection.
#[tokio::test]
async fn who_reads_late_reads_the_refusal() {
    let server = Setup::new().set("limits.body_bytes=64KiB").start();
    let body = vec![b'x'; 8 << 20];
    for (request, status) in
        [("PUT /kv/a", 413), ("POST /v1/rooms/r/messages", 413), ("POST /v1/nothing", 404)]
    {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        let next = "GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        for part in [head.as_bytes(), &body, next.as_bytes()] {
            stream.write_all(part).await.unwrap();
        }
        let mut answers = String::new();
        in_time("both answers", stream.read_to_string(&mut answers)).await.unwrap();
        assert!(answers.starts_with(&format!("HTTP/1.1 {status}")), "{answers}");
        assert!(answers.contains("HTTP/1.1 200"), "{answers}");
    }
}

/// The same, where the server asked for the body, and then finds it too long.
#[tokio::test]
async fn who_was_asked_for_a_body_reads_its_refusal() {
    let server = Setup::new().set("limits.body_bytes=64KiB").start();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let asked = read_until(&mut stream, "\r\n\r\n").await;
    assert!(asked.starts_with("HTTP/1.1 100"), "{asked}");
    let chunk = [b"10000\r\n", &[b'x'; 64 * 1024][..], b"\r\n"].concat();
    let next = b"0\r\n\r\nGET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for part in std::iter::repeat_n(&chunk[..], 128).chain([&next[..]]) {
        stream.write_all(part).await.unwrap();
    }
    let mut answers = String::new();
    in_time("both answers", stream.read_to_string(&mut answers)).await.unwrap();
    assert!(answers.starts_with("HTTP/1.1 413") && answers.contains("HTTP/1.1 200"), "{answers}");
}
