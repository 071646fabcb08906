//! Answers that clients do not take hold a bounded memory together. Who reads is in nobody's way, however slowly, and who takes
//! nothing keeps nobody from reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Server, Setup, in_time, until};

const REQUEST: &[u8] = b"GET /kv/k HTTP/1.1\r\nhost: x\r\n\r\n";
const VALUE_BYTES: usize = 200_000;
/// With [`MUCH`], more than the system takes for a client that does not read.
const REQUESTS: usize = 150;
const MUCH: usize = REQUESTS * VALUE_BYTES / 2;

/// A client that asks for more than it takes.
async fn ask(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(&REQUEST.repeat(REQUESTS)).await.unwrap();
    stream
}

/// How many bytes come until the connection ends, or that many requests are answered.
async fn read(stream: &mut TcpStream) -> usize {
    let (mut all, mut buffer) = (0, vec![0; 200_000]);
    while all < REQUESTS * VALUE_BYTES {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => all += count,
        }
    }
    all
}

/// What a client that reads slowly has taken, and whether it is to stop.
#[derive(Default)]
struct Slow {
    taken: AtomicUsize,
    stops: AtomicBool,
}

/// Takes what comes slowly, and asks for as much again, until it is to stop. Returns whether it got all it asked for.
async fn read_slowly(mut stream: TcpStream, slow: &Slow) -> bool {
    let (mut all, mut asked, mut buffer) = (0, REQUESTS, vec![0; 200_000]);
    while all < asked * VALUE_BYTES {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => all += count,
        }
        slow.taken.store(all, Ordering::SeqCst);
        while !slow.stops.load(Ordering::SeqCst) && all + REQUESTS * VALUE_BYTES > asked * VALUE_BYTES {
            if stream.write_all(REQUEST).await.is_err() {
                return false;
            }
            asked += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

#[tokio::test]
async fn unread_answers_share_one_budget() {
    // There is space for two that take nothing.
    let server = Setup::new().set("limits.unread_bytes=450KiB").start();
    let put = server.http().await.request(Method::PUT, "/kv/k", &[], "v".repeat(VALUE_BYTES)).await;
    assert_eq!(put.status, 201);
    let slow = Arc::new(Slow::default());
    let reading = tokio::spawn({
        let (stream, slow) = (ask(&server).await, slow.clone());
        async move { read_slowly(stream, &slow).await }
    });
    let mut silent = Vec::new();
    for given_up in 0..3 {
        silent.push(ask(&server).await);
        let is_given_up = async || server.metric("unread_given_up_total").await == given_up;
        until("another one is given up", is_given_up).await;
        // The server sees in large steps that the slow one takes something: when the system has space for more.
        let before = slow.taken.load(Ordering::SeqCst);
        until("much is read", async || slow.taken.load(Ordering::SeqCst) > before + MUCH).await;
    }
    slow.stops.store(true, Ordering::SeqCst);
    assert!(in_time("all is read", reading).await.unwrap(), "who reads is not given up");
    for stream in &mut silent[..2] {
        assert!(in_time("it ends", read(stream)).await < REQUESTS * VALUE_BYTES);
    }
    // The last one gets all of it once it reads.
    assert!(in_time("all is read", read(&mut silent[2])).await >= REQUESTS * VALUE_BYTES);
    assert_eq!(server.metric("unread_given_up_total").await, 2);
    until("all is free", async || server.metric("unread_bytes").await == 0).await;
}
