//! Connections that send as slowly as they can take no place from others for long, in whatever they began.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Certificates, Http, Server, Setup, TlsClient, in_time, until};

/// What many slow connections begin with.
const BEGINNINGS: [&str; 4] = [
    "",
    "GET / HTTP/1.1\r\nx: ",
    "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
    "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
];

async fn begin(server: &Server, beginning: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(beginning.as_bytes()).await.unwrap();
    stream
}

/// Writes a byte now and then until the server ends the connection.
async fn drip(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    in_time("the end of a slow connection", async {
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => if read.is_err() || read.is_ok_and(|count| count == 0) { return },
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {
                    if stream.write_all(b"x").await.is_err() { return }
                }
            }
        }
    })
    .await;
}

fn timed() -> Setup {
    Setup::new().set("server.header_timeout=300ms").set("server.body_timeout=300ms")
}

#[tokio::test]
async fn slow_loris_is_dropped() {
    let server = timed().set("server.connections=41").start();
    let mut slow = tokio::task::JoinSet::new();
    for number in 0..40 {
        slow.spawn(drip(begin(&server, BEGINNINGS[number % 3]).await));
    }
    // The last place is for somebody who is quick, and then all are.
    until("somebody quick is answered", async || {
        let Some(mut http) = Http::try_connect(server.address()).await else { return false };
        let body = json!({"userId": "ada", "message": "hi"}).to_string();
        let answer = http.try_request(hyper::Method::POST, "/v1/rooms/r/messages", &[], body).await;
        answer.is_some_and(|answer| answer.status == 201)
    })
    .await;
    in_time("the end of all slow connections", slow.join_all()).await;
    until("all places are free", async || server.metric("connections").await == 1).await;
}

#[tokio::test]
async fn a_silent_stream_is_dropped() {
    let server = timed().start();
    for beginning in BEGINNINGS {
        let mut stream = begin(&server, beginning).await;
        let mut said = Vec::new();
        let _ = in_time("the end of a silent connection", stream.read_to_end(&mut said)).await;
    }
    until("all places are free", async || server.metric("connections").await == 1).await;
}

#[tokio::test]
async fn slow_loris_is_dropped_with_tls() {
    let setup = timed().set("tls.handshake_timeout=300ms");
    let certificates = Certificates::make(&setup, "tls");
    let client = TlsClient::trusting(&[&certificates]);
    let server = certificates.serve(setup).start();
    // Slow within the handshake, and slow after it.
    drip(begin(&server, "\x16\x03\x01\x02\x00\x01").await).await;
    until("a handshake that is quick enough", async || {
        let Ok(mut stream) = client.connect(&server).await else { return false };
        if stream.write_all(b"GET / HTTP/1.1\r\nx: ").await.is_ok() {
            let _ = in_time("the end of a slow header", stream.read_to_end(&mut Vec::new())).await;
        }
        true
    })
    .await;
    until("somebody quick is answered", async || {
        let Some(mut http) = client.try_http(&server).await else { return false };
        let answer = http.try_request(hyper::Method::GET, "/health/live", &[], "").await;
        answer.is_some_and(|answer| answer.status == 200)
    })
    .await;
}
