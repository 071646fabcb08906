//! Whoever asks for more than the limits allow is refused, told when to come back, and keeps nobody else from anything.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::tokens::{call, token};
use crate::harness::{Http, Server, Setup, Ws, in_time, texts, until};

fn send(user: &str, room: &str, text: &str) -> Value {
    json!({"type": "send", "roomId": room, "userId": user, "message": text})
}

async fn post(http: &mut Http, user: &str, text: &str) -> crate::harness::Answer {
    let body = json!({"userId": user, "message": text}).to_string();
    http.request(hyper::Method::POST, "/v1/rooms/r/messages", &[("hubbub-user", user)], body).await
}

async fn rejected(server: &Server) -> u64 {
    let text = server.get("/metrics").await.text();
    let name = "hubbub_messages_rejected_total{reason=\"too_many_requests\"} ";
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

/// What is left of a flood of one user over HTTP, and that somebody else notices nothing.
#[tokio::test]
async fn flood_is_limited_others_unharmed() {
    // An hour to earn one more.
    let server = Setup::new().set("limits.user_bytes=1B").start();
    let (mut flooding, mut other) = (server.http().await, server.http().await);
    let long = "x".repeat(3_600);
    assert_eq!(
        post(&mut flooding, "mallory", &long).await.status,
        201,
        "what is larger than the rate passes"
    );
    for round in 0..20 {
        let refused = post(&mut flooding, "mallory", "again").await;
        let problem = refused.problem(429, "too_many_requests");
        assert_eq!(problem["retryable"], true);
        let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((3_000..4_000).contains(&retry_after), "{retry_after}");
        // Over any connection, and not by another way.
        let mut third = server.http().await;
        post(&mut third, "mallory", "again").await.problem(429, "too_many_requests");
        if round < 1 {
            assert_eq!(post(&mut other, "ada", "hello").await.status, 201);
        }
        assert_eq!(server.get("/health").await.status, 200);
    }
    assert_eq!(post(&mut other, "bob", "hello").await.status, 201);
    assert_eq!(texts(&server.history("r").await), [&long, "hello", "hello"]);
    assert_eq!(rejected(&server).await, 40);
}

/// Frames in one write, of which some are too many: each is answered, and what is stored is a prefix, even though the
/// rate would have allowed for later ones.
#[tokio::test]
async fn refused_frames_keep_their_order() {
    let server = Setup::new().set("limits.user_requests=20").start();
    let mut socket = server.ws("/v1/ws?user=mallory").await;
    let sent: Vec<String> = (0..400).map(|number| number.to_string()).collect();
    let frames: Vec<Value> = sent.iter().map(|text| send("mallory", "r", text)).collect();
    socket.send_all(&frames).await;
    let answers = socket.receive_many(frames.len()).await;
    let (acked, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer["type"] == "ack");
    assert!(acked.len() >= 10 && refused.len() >= 10, "{} {}", acked.len(), refused.len());
    let first = refused.first().unwrap();
    assert_eq!((&first["code"], &first["retryable"]), (&json!("too_many_requests"), &json!(true)), "{first}");
    assert!(first["messageId"].is_string(), "{first}");
    assert_eq!(texts(&server.history("r").await), sent[..acked.len()].iter().collect::<Vec<_>>());
    assert!(answers[..acked.len()].iter().all(|answer| answer["type"] == "ack"), "a prefix");
    // Once it knows, and has waited, it goes on where it was refused.
    for text in &sent[acked.len()..acked.len() + 5] {
        until("another message", async || socket.request(&send("mallory", "r", text)).await["type"] == "ack")
            .await;
    }
    assert_eq!(texts(&server.history("r").await), sent[..acked.len() + 5].iter().collect::<Vec<_>>());
    // Frames that are no messages are limited, too.
    let pings = vec![json!({"type": "ping"}); 100];
    socket.send_all(&pings).await;
    let pongs = socket.receive_many(pings.len()).await;
    assert!(pongs.iter().any(|pong| pong["code"] == "too_many_requests"), "{pongs:?}");
}

async fn flood(mut socket: Ws) -> (u16, String) {
    let frames = vec![send("mallory", "r", "x"); 500];
    in_time("the end of a flood", async {
        loop {
            if !socket.try_send_all(&frames).await {
                return socket.closed().await;
            }
            for _ in 0..frames.len() {
                if let Err(closed) = socket.next().await {
                    return closed.unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_socket_that_goes_on_is_closed_with_4429() {
    let server =
        Setup::new().set("limits.address_requests=1").set("server.trusted_proxies=127.0.0.0/8").start();
    let behind = |address: &'static str| ("x-forwarded-for", address);
    // The address is the one a trusted proxy names; the test's own is the proxy's.
    let (code, reason) = flood(server.ws("/chat/r?user=mallory").await).await;
    assert_eq!(code, 4429, "{reason}");
    let mut http = server.http().await;
    let body = json!({"userId": "ada", "message": "hello"}).to_string();
    let path = "/v1/rooms/r/messages";
    let from = async |http: &mut Http, address| {
        http.request(hyper::Method::POST, path, &[behind(address)], body.clone()).await.status
    };
    assert_eq!(from(&mut http, "192.0.2.1").await, 201);
    until("192.0.2.1 has had enough", async || from(&mut http, "192.0.2.1").await == 429).await;
    assert_eq!(from(&mut http, "192.0.2.1, 192.0.2.2").await, 201);
    assert!(server.get("/metrics").await.text().contains("hubbub_flooding_sockets_total 1\n"));
}

#[tokio::test]
async fn lines_and_commands_are_limited_in_order() {
    let server = Setup::new().line().set("limits.address_requests=10").start();
    // In bulk, everything behind the first refusal is refused.
    let lines: String = (0..100)
        .map(|n| format!("{}\n", json!({"roomId": "r", "userId": "ada", "message": n.to_string()})))
        .collect();
    let answers = server.http().await.post("/v1/messages", lines).await.lines();
    let accepted = answers.iter().take_while(|answer| answer["code"].is_null()).count();
    assert!((5..90).contains(&accepted), "{accepted}");
    assert!(answers[accepted..].iter().all(|answer| answer["code"] == "too_many_requests"), "{answers:?}");
    let expected: Vec<String> = (0..accepted).map(|n| n.to_string()).collect();
    let history = async || {
        let mut answer = server.get("/v1/rooms/r/messages").await;
        until("the address may read again", async || {
            answer = server.get("/v1/rooms/r/messages").await;
            answer.status == 200
        })
        .await;
        answer.json()["messages"].as_array().unwrap().clone()
    };
    assert_eq!(texts(&history().await), expected);
    // The line protocol has one word for it.
    let mut line = server.line().await;
    line.send("ping\nx:y\n".repeat(200)).await;
    let mut lines = Vec::new();
    while lines.len() < 200 {
        lines.push(line.receive().await.unwrap());
    }
    assert!(lines.iter().any(|line| line == "Error"), "{lines:?}");
    assert!(lines.iter().all(|line| line == "Error" || line == "OK"), "{lines:?}");
}

/// Nor is it free to ask for what is nowhere, or how one may not.
#[tokio::test]
async fn requests_that_lead_nowhere_are_limited() {
    for (method, path) in [(hyper::Method::GET, "/nowhere"), (hyper::Method::PATCH, "/v1/rooms")] {
        let server = Setup::new().set("limits.address_requests=1").start();
        let mut http = server.http().await;
        let mut status = async || http.request(method.clone(), path, &[], "").await.status;
        assert_ne!(status().await, 429);
        until("the address has had enough", async || status().await == 429).await;
    }
}

/// Bad tokens are paid for by the address that they come from, and cost no verification once it has had enough.
#[tokio::test]
async fn bad_tokens_are_limited_others_unharmed() {
    let server = Setup::new()
        .with_tokens()
        .set("limits.address_requests=1")
        .set("server.trusted_proxies=127.0.0.0/8")
        .start();
    let good = token(json!({"sub": "ada", "rooms": {"*": "rw"}}));
    let bad = format!("{}x", good.split_at(good.len() - 1).0);
    let mut http = server.http().await;
    let mut status = async |token: &str, address: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", address)];
        http.request(hyper::Method::GET, "/v1/rooms", &headers, "").await.status
    };
    assert_eq!(status(&bad, "192.0.2.1").await, 401);
    until("the address has had enough", async || status(&bad, "192.0.2.1").await == 429).await;
    assert_eq!(status(&good, "192.0.2.2").await, 200);
}

/// A token that comes too soon is not refused for good: clients would forget it.
#[tokio::test]
async fn a_first_token_beyond_the_rate_may_come_again() {
    let server = Setup::new().with_tokens().set("limits.address_bytes=1B").start();
    let mut socket = server.ws("/v1/ws").await;
    let token = token(json!({"sub": "ada", "rooms": {"*": "rw"}}));
    let long = json!({"message": "x".repeat(3_600)});
    let sent = call(server.address(), &token, hyper::Method::POST, "/v1/rooms/r/messages", long).await;
    assert_eq!(sent.status, 201);
    socket.send(&json!({"type": "auth", "token": token})).await;
    assert_eq!(socket.next().await.unwrap()["code"], "too_many_requests");
    assert_eq!(socket.close_code().await, Some(4429));
}

/// Once it is known whose connection of the line protocol it is, the user pays, whatever else it does.
#[tokio::test]
async fn users_of_lines_are_limited() {
    let server = Setup::new().with_tokens().line().set("limits.user_bytes=1B").start();
    let mut line = server.line().await;
    line.send(format!("auth\ntoken:{}\n", token(json!({"sub": "7"})))).await;
    line.expect_lines(&["OK"]).await;
    line.send("ping\n\n".repeat(600)).await;
    let mut lines = Vec::new();
    while lines.len() < 600 {
        lines.push(line.receive().await.unwrap());
    }
    assert_eq!(lines[0], "OK");
    assert!(lines[1..].iter().all(|line| line == "Error"), "{lines:?}");
}

/// A stream that goes on although it is refused is ended, as a socket is.
#[tokio::test]
async fn a_bulk_request_that_floods_is_ended() {
    let server = Setup::new().set("limits.address_bytes=1B").start();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let line = json!({"roomId": "r", "userId": "ada", "message": "x".repeat(3_600)}).to_string() + "\n";
    let piece = format!("{:x}\r\n{line}\r\n", line.len()).repeat(20);
    // Far more than the buffers in between take.
    let writing = async {
        for _ in 0..5_000 {
            if writer.write_all(piece.as_bytes()).await.is_err() {
                return true;
            }
        }
        false
    };
    let reading = async {
        let mut read = Vec::new();
        let _ = reader.read_to_end(&mut read).await;
        String::from_utf8_lossy(&read).matches("too_many_requests").count()
    };
    let (is_ended, refused) = in_time("the end", async { tokio::join!(writing, reading) }).await;
    assert!(is_ended, "{refused} lines were refused");
}

#[tokio::test]
async fn connections_of_an_address_are_bounded() {
    let server = Setup::new().set("limits.address_connections=2").start();
    let (mut first, second) = (server.http().await, server.ws("/v1/ws").await);
    assert_eq!(first.get("/health/live").await.status, 200);
    assert!(Ws::try_open(server.address(), "/v1/ws").await.is_none());
    let text = first.get("/metrics").await.text();
    assert!(text.contains("hubbub_connections_refused_by_address_total 1\n"), "{text}");
    second.close().await;
    until("a free place", async || Ws::try_open(server.address(), "/v1/ws").await.is_some()).await;
}

#[tokio::test]
async fn requests_under_way_are_bounded() {
    for (limit, path) in [("limits.requests=1", "/v1/rooms"), ("limits.waiting=1", "")] {
        let server = Setup::new().set(limit).start();
        let poll = async || {
            let body = json!({"receiver": "ada", "waitMs": 20_000}).to_string();
            server.http().await.post("/v1/queues/q/get", body).await
        };
        let another = async || if path.is_empty() { poll().await } else { server.get(path).await };
        assert_eq!(server.call("", hyper::Method::PUT, "/v1/queues/q", json!({})).await.status, 201);
        let mut waiting = Box::pin(poll());
        until("somebody waits", async || {
            tokio::select! {
                biased;
                answer = &mut waiting => panic!("{answer:?}"),
                count = server.metric("queue_waiting_consumers") => count == 1,
            }
        })
        .await;
        another().await.problem(429, "too_many_requests");
        // Whoever watches the server still can.
        assert_eq!(server.get("/health").await.status, 200);
        drop(waiting);
        until("the place is free", async || server.metric("queue_waiting_consumers").await == 0).await;
        until("others are answered", async || server.get("/v1/rooms").await.status == 200).await;
    }
}

/// Status of the answer to a message in a body that does not say how long it is.
async fn post_chunked(server: &Server, address: &str) -> u16 {
    let mut stream = in_time("connecting", TcpStream::connect(server.address())).await.unwrap();
    let body = json!({"userId": "ada", "message": "hello"}).to_string();
    let head = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let headers = format!("x-forwarded-for: {address}\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    stream.write_all(format!("{head}{headers}{chunks}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time("the answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Its bytes are paid for when they are there; the request was before, and is no second one.
#[tokio::test]
async fn a_body_of_unknown_length_is_charged_once() {
    let behind_proxy = || Setup::new().set("server.trusted_proxies=127.0.0.0/8");
    let server = behind_proxy().set("limits.address_requests=1").start();
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        for nth in ["a second's worth", "and one"] {
            assert_eq!(post_chunked(&server, address).await, 201, "{nth}");
        }
    }
    let server = behind_proxy().set("limits.address_bytes=1B").start();
    assert_eq!(post_chunked(&server, "192.0.2.1").await, 201);
    assert_eq!(post_chunked(&server, "192.0.2.1").await, 429);
}

/// A body costs what is taken of it at most, not what is announced.
#[tokio::test]
async fn a_body_that_never_comes_locks_nobody_out() {
    let server = Setup::new().set("limits.address_bytes=1MiB").start();
    let post = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    for head in ["GET /openapi.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n", post] {
        let mut stream = in_time("connecting", TcpStream::connect(server.address())).await.unwrap();
        let request = format!("{head}content-length: 1000000000000000000\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = in_time("the answer", stream.read_to_end(&mut answer)).await;
        until("the address has paid", async || server.get("/v1/rooms").await.status == 200).await;
    }
}
