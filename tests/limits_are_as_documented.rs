//! Every limit is documented, refuses what is beyond it in the way that is documented, and counts it. A limit without a line
//! in the table below fails `every_limit_has_its_line`.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, Certificates, Follower, Http, Server, Setup, TlsClient, Ws, in_time, until};

/// Limits whose settings stand in another section than `limits`.
const ELSEWHERE: [&str; 7] = [
    "server.connections",
    "server.header_timeout",
    "server.body_timeout",
    "server.write_timeout",
    "tls.handshake_timeout",
    "tls.handshakes",
    "queues.clients_max",
];

const INVALID: &str = "messages_rejected_total{reason=\"invalid\"}";
const TOO_LARGE: &str = "messages_rejected_total{reason=\"too_large\"}";
const TOO_MANY_SUBSCRIPTIONS: &str = "messages_rejected_total{reason=\"too_many_subscriptions\"}";
const TOO_MANY_REQUESTS: &str = "messages_rejected_total{reason=\"too_many_requests\"}";

macro_rules! limits {
    ($($test:ident: $setting:literal = $value:literal, $metric:expr, $exceed:expr;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                exceeded(concat!($setting, "=", $value), $metric, async |at: &At| $exceed(at).await).await;
            }
        )*

        const SETTINGS: &[&str] = &[$($setting),*];
        const METRICS: &[&str] = &[$($metric),*];
    };
}

limits! {
    connections: "server.connections" = "2", "connections_refused_total", third_connection;
    connections_of_an_address: "limits.address_connections" = "2", "connections_refused_by_address_total", third_connection;
    time_of_a_header: "server.header_timeout" = "300ms", "connections_timed_out_total", slow_header;
    time_of_a_body: "server.body_timeout" = "300ms", "messages_rejected_total{reason=\"request_timeout\"}", slow_body;
    time_of_an_answer: "server.write_timeout" = "300ms", "connections_timed_out_total", unread_answers;
    time_of_a_handshake: "tls.handshake_timeout" = "300ms", "tls_handshakes_failed_total", no_handshake;
    handshakes: "tls.handshakes" = "1", "tls_handshakes_failed_total", second_handshake;
    body: "limits.body_bytes" = "64KiB", TOO_LARGE, large_body;
    message: "limits.message_bytes" = "10B", INVALID, long_message;
    frame: "limits.message_bytes" = "11B", "websocket_bad_frames_total", large_frame;
    queue_message: "limits.queue_message_bytes" = "10B", INVALID, long_queue_message;
    unfinished: "limits.unfinished_bytes" = "0B", "unfinished_refused_total", unfinished_body;
    unread: "limits.unread_bytes" = "0B", "unread_given_up_total", two_unread_answers;
    value: "limits.value_bytes" = "10B", TOO_LARGE, long_value;
    page: "limits.page_messages" = "5", INVALID, long_page;
    subscriptions: "limits.subscriptions" = "1", TOO_MANY_SUBSCRIPTIONS, two_rooms;
    all_rooms: "limits.all_rooms" = "1", TOO_MANY_SUBSCRIPTIONS, all_of_two_rooms;
    rooms_of_a_user: "limits.user_rooms" = "1", "messages_rejected_total{reason=\"too_many_rooms\"}", join_two_rooms;
    clients: "queues.clients_max" = "1", "messages_rejected_total{reason=\"too_many_clients\"}", two_clients;
    outbox: "limits.outbox_messages" = "20", "slow_subscribers_total", slow_reader;
    outbox_bytes: "limits.outbox_bytes" = "200KiB", "slow_subscribers_total", slow_reader;
    requests_of_a_user: "limits.user_requests" = "1", TOO_MANY_REQUESTS, many_requests;
    bytes_of_a_user: "limits.user_bytes" = "1B", TOO_MANY_REQUESTS, many_requests;
    requests_of_an_address: "limits.address_requests" = "1", TOO_MANY_REQUESTS, many_requests;
    bytes_of_an_address: "limits.address_bytes" = "1B", TOO_MANY_REQUESTS, many_requests;
    requests_under_way: "limits.requests" = "1", TOO_MANY_REQUESTS, request_beside_a_poll;
    waiting: "limits.waiting" = "1", TOO_MANY_REQUESTS, poll_beside_a_poll;
}

#[test]
fn every_limit_has_its_line() {
    let tested: BTreeSet<&str> = SETTINGS.iter().copied().collect();
    let example = include_str!("../hubbub.example.toml");
    let section = example.split("\n[limits]\n").nth(1).unwrap().split("\n[").next().unwrap();
    // A setting follows the sign of a comment at once; what it means follows a space.
    let settings = section.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
    let names = settings.map(|(name, _)| name).filter(|name| !name.starts_with(' '));
    let limits: Vec<String> = names.map(|name| format!("limits.{name}")).collect();
    assert!(limits.len() > 10, "{limits:?}");
    let all: BTreeSet<&str> = limits.iter().map(String::as_str).chain(ELSEWHERE).collect();
    assert_eq!(tested, all, "each limit has a line in this test");
    let documents = include_str!("../docs/network.md");
    let rows: Vec<&str> = documents.lines().filter(|line| line.starts_with("| `")).collect();
    for setting in all {
        assert!(
            rows.iter().any(|row| row.contains(&format!("`{setting}`"))),
            "{setting} is not in the table of docs/network.md"
        );
    }
    for metric in METRICS {
        let name = format!("hubbub_{metric}");
        assert!(documents.contains(&format!("`{name}`")), "{name} is not in docs/network.md");
    }
}

/// A server with one limit. With TLS, if the limit is one of TLS.
struct At {
    server: Server,
    tls: Option<TlsClient>,
}

impl At {
    /// A value of `/metrics`; `None` while the server takes no connection.
    async fn metric(&self, name: &str) -> Option<u64> {
        let mut http = match &self.tls {
            Some(tls) => tls.try_http(&self.server).await?,
            None => Http::try_connect(self.server.address()).await?,
        };
        let text = http.try_request(Method::GET, "/metrics", &[], "").await?.text();
        let name = format!("hubbub_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        Some(value.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap())
    }

    async fn call(&self, user: &str, method: Method, path: &str, body: impl Into<String>) -> Answer {
        let mut http = self.server.http().await;
        let named = [("hubbub-user", user)];
        http.request(method, path, if user.is_empty() { &[] } else { &named }, body.into()).await
    }

    async fn stream(&self, beginning: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        stream
    }
}

/// Starts a server with the limit, exceeds it, and waits until that is counted.
async fn exceeded(setting: &str, metric: &str, exceed: impl AsyncFnOnce(&At)) {
    // With small slots, a store whose seals are late on a busy disk refuses messages.
    let mut setup = Setup::new().set("store.embedded.journal_slot=16MiB").set(setting);
    let mut tls = None;
    if setting.starts_with("tls.") {
        let certificates = Certificates::make(&setup, "tls");
        tls = Some(TlsClient::trusting(&[&certificates]));
        setup = certificates.serve(setup);
    }
    let at = At { server: setup.start(), tls };
    // Where time is limited, a machine that stands still has its own question cut off, and counted.
    let mut before = None;
    until("the server answers", async || {
        before = at.metric(metric).await;
        before.is_some()
    })
    .await;
    assert!(before == Some(0) || setting.contains("timeout"), "{before:?}");
    exceed(&at).await;
    until(&format!("{metric} of {setting}"), async || at.metric(metric).await > before).await;
}

/// What is read of a connection until its end.
async fn read_all(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    let _ = in_time("the end of a connection", stream.read_to_end(&mut read)).await;
    String::from_utf8_lossy(&read).into_owned()
}

async fn third_connection(at: &At) {
    let mut open = Vec::new();
    until("a connection is refused", async || match Ws::try_open(at.server.address(), "/v1/ws").await {
        Some(socket) => {
            open.push(socket);
            assert!(open.len() <= 2);
            false
        }
        None => open.len() == 2,
    })
    .await;
}

async fn slow_header(at: &At) {
    assert_eq!(read_all(at.stream("GET /v1/rooms HTTP/1.1\r\nx: ").await).await, "");
}

async fn slow_body(at: &At) {
    let head = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
    let answer = read_all(at.stream(head).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_timeout"), "{answer}");
}

/// More than the sockets in between hold.
async fn unread_answers(at: &At) {
    let value = "v".repeat(50_000);
    assert_eq!(at.server.http().await.request(Method::PUT, "/kv/k", &[], value).await.status, 201);
    let stream = at.stream(&"GET /kv/k HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000)).await;
    until("it is given up", async || at.metric("connections_timed_out_total").await > Some(0)).await;
    let read = read_all(stream).await;
    assert!(read.starts_with("HTTP/1.1 200 ") && read.len() < 50_000_000, "{} bytes", read.len());
}

/// Of two, whoever has taken nothing for longer is cut off.
async fn two_unread_answers(at: &At) {
    let value = "v".repeat(50_000);
    assert_eq!(at.server.http().await.request(Method::PUT, "/kv/k", &[], value).await.status, 201);
    let requests = "GET /kv/k HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000);
    let (first, second) = (at.stream(&requests).await, at.stream(&requests).await);
    until("one is given up", async || at.metric("unread_given_up_total").await > Some(0)).await;
    // The other one stays open.
    let read = tokio::select! {
        read = read_all(first) => read,
        read = read_all(second) => read,
    };
    assert!(read.len() < 50_000_000, "{} bytes", read.len());
}

async fn no_handshake(at: &At) {
    let _ = read_all(at.stream("\x16\x03\x01").await).await;
}

/// For one more handshake, the oldest is given up.
async fn second_handshake(at: &At) {
    let first = at.stream("\x16\x03\x01").await;
    until("the first is given up", async || at.metric("tls_handshakes_failed_total").await > Some(0)).await;
    let _ = read_all(first).await;
}

async fn unfinished_body(at: &At) {
    let head = "POST /v1/rooms/r/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
    let answer = read_all(at.stream(&format!("{head}{}", "x".repeat(90_000))).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("overloaded"), "{answer}");
}

async fn large_body(at: &At) {
    let body = json!({"message": "x".repeat(70_000)}).to_string();
    at.call("ada", Method::POST, "/v1/rooms/r/messages", body).await.problem(413, "too_large");
}

async fn long_message(at: &At) {
    let body = json!({"message": "x".repeat(11)}).to_string();
    at.call("ada", Method::POST, "/v1/rooms/r/messages", body).await.problem(422, "invalid");
}

async fn large_frame(at: &At) {
    let mut socket = at.server.ws("/v1/ws").await;
    socket.send(&json!({"type": "ping", "pad": "x".repeat(1 << 20)})).await;
    assert_eq!(socket.closed().await.0, 1009);
}

async fn long_queue_message(at: &At) {
    assert_eq!(at.call("", Method::PUT, "/v1/queues/q", "{}").await.status, 201);
    let body = json!({"sender": "ada", "message": "x".repeat(11)}).to_string();
    at.call("ada", Method::POST, "/v1/queues/q/messages", body).await.problem(422, "invalid");
}

async fn long_value(at: &At) {
    at.call("", Method::PUT, "/kv/key", "x".repeat(11)).await.problem(413, "too_large");
}

async fn long_page(at: &At) {
    at.server.send("r", "hello").await;
    at.call("", Method::GET, "/v1/rooms/r/messages?limit=6", "").await.problem(422, "invalid");
}

async fn two_rooms(at: &At) {
    let mut socket = at.server.subscriber("a", json!({})).await;
    let refused = socket.request(&json!({"type": "subscribe", "roomId": "b"})).await;
    assert_eq!(refused["code"], "too_many_subscriptions");
}

async fn all_of_two_rooms(at: &At) {
    for room in ["a", "b"] {
        assert_eq!(at.call("ada", Method::PUT, &format!("/v1/rooms/{room}"), "").await.status, 201);
    }
    let mut socket = at.server.ws("/v1/ws?user=ada").await;
    socket.send(&json!({"type": "subscribe", "roomId": "*"})).await;
    assert_eq!(socket.receive_error().await["code"], "too_many_subscriptions");
}

async fn join_two_rooms(at: &At) {
    assert_eq!(at.call("ada", Method::PUT, "/v1/rooms/a", "").await.status, 201);
    let problem = at.call("ada", Method::PUT, "/v1/rooms/b", "").await.problem(429, "too_many_rooms");
    assert_eq!(problem["retryable"], false);
}

async fn two_clients(at: &At) {
    assert_eq!(at.call("", Method::PUT, "/v1/clients/a", "").await.status / 100, 2);
    at.call("", Method::PUT, "/v1/clients/b", "").await.problem(429, "too_many_clients");
}

async fn slow_reader(at: &At) {
    let mut slow = Follower::new("r");
    assert!(slow.resume(at.server.address()).await);
    let body = json!({"userId": "ada", "message": "x".repeat(50_000)}).to_string();
    until("the reader is cut off", async || {
        assert_eq!(at.call("", Method::POST, "/v1/rooms/r/messages", body.clone()).await.status, 201);
        at.metric("slow_subscribers_total").await > Some(0)
    })
    .await;
    let closed = loop {
        if let Err(closed) = slow.next().await {
            break closed.expect("cut off without a word");
        }
    };
    assert_eq!(closed.0, 4409, "{closed:?}");
}

async fn many_requests(at: &At) {
    let body = json!({"message": "x".repeat(3_600)}).to_string();
    until("somebody asks for too much", async || {
        let answer = at.call("ada", Method::POST, "/v1/rooms/r/messages", body.clone()).await;
        if answer.status == 201 {
            return false;
        }
        let problem: Value = answer.problem(429, "too_many_requests");
        assert!(problem["retryable"] == true && answer.header("retry-after").is_some(), "{problem}");
        true
    })
    .await;
}

/// Asks while somebody waits for a queue's next message.
async fn beside_a_poll(at: &At, ask: impl AsyncFn() -> Answer) {
    // Nothing else may be under way.
    until("the queue is there", async || {
        at.call("", Method::PUT, "/v1/queues/q", "{}").await.status / 100 == 2
    })
    .await;
    let mut waiting = Box::pin(poll(at));
    until("somebody waits", async || {
        tokio::select! {
            biased;
            answer = &mut waiting => panic!("{answer:?}"),
            count = at.metric("queue_waiting_consumers") => count == Some(1),
        }
    })
    .await;
    ask().await.problem(429, "too_many_requests");
}

async fn poll(at: &At) -> Answer {
    let body = json!({"receiver": "ada", "waitMs": 20_000}).to_string();
    at.call("", Method::POST, "/v1/queues/q/get", body).await
}

async fn request_beside_a_poll(at: &At) {
    beside_a_poll(at, async || at.call("", Method::GET, "/v1/rooms", "").await).await;
}

async fn poll_beside_a_poll(at: &At) {
    beside_a_poll(at, async || poll(at).await).await;
}
