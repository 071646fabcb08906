//! A real nginx, with the configurations in `deploy/`: requests and sockets are spread, nothing is sent twice, nobody misses
//! anything when a server behind it is killed, and limits count clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::event_stream_resumes::Events;
use crate::harness::nginx::{Nginx, has_nginx};
use crate::harness::{
    Certificates, Dialect, Http, Kind, Load, Postgres, Server, Setup, TlsClient, Ws, in_time, rounds, until,
};
use crate::ndjson_answers_line_by_line::wait_for_each_answer;

/// Reads requests, and answers them or, while it is mute, ends their connections.
#[derive(Default)]
struct Stub {
    connections: AtomicUsize,
    requests: AtomicUsize,
    is_mute: AtomicBool,
}

impl Stub {
    async fn listen(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stub = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stub.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(stub.clone().serve(stream));
            }
        });
        address
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        loop {
            let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
                continue;
            }
            text.clear();
            self.requests.fetch_add(1, Ordering::SeqCst);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if self.is_mute.load(Ordering::SeqCst) || stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

/// Three of them behind nginx.
struct Stubs {
    stubs: [Arc<Stub>; 3],
    nginx: Nginx,
}

impl Stubs {
    async fn start() -> Self {
        let stubs: [Arc<Stub>; 3] = Default::default();
        let addresses = [stubs[0].listen().await, stubs[1].listen().await, stubs[2].listen().await];
        Self { nginx: Nginx::balancing(addresses, &[]).await, stubs }
    }

    /// How many requests each has read.
    fn requests(&self) -> [usize; 3] {
        self.stubs.each_ref().map(|stub| stub.requests.load(Ordering::SeqCst))
    }

    fn set_mute(&self, is_mute: bool) {
        for stub in &self.stubs {
            stub.is_mute.store(is_mute, Ordering::SeqCst);
        }
    }

    /// The status of a request over a connection of its own.
    async fn ask(&self, method: Method) -> u16 {
        let body = if method == Method::POST { "x" } else { "" };
        Http::connect(self.nginx.address()).await.request(method, "/", &[], body).await.status
    }

    /// How often a request is read by servers that all end before they answer.
    async fn reads_in_vain(&self, method: Method) -> usize {
        self.set_mute(true);
        let before: usize = self.requests().iter().sum();
        assert_eq!(self.ask(method).await, 502);
        self.requests().iter().sum::<usize>() - before
    }

    /// All answer. Those that failed are tried again a moment later.
    async fn recover(&self) {
        self.set_mute(false);
        let before = self.requests();
        until("all answer", async || {
            let status = self.ask(Method::POST).await;
            status == 200 && self.requests().iter().zip(before).all(|(now, before)| *now > before)
        })
        .await;
    }
}

#[tokio::test]
async fn requests_are_spread_over_connections_that_are_kept() {
    if !has_nginx() {
        return;
    }
    let stubs = Stubs::start().await;
    let mut http = Http::connect(stubs.nginx.address()).await;
    for _ in 0..30 {
        assert_eq!(http.get("/").await.status, 200);
    }
    assert_eq!(stubs.requests(), [10; 3]);
    let connections = stubs.stubs.each_ref().map(|stub| stub.connections.load(Ordering::SeqCst));
    assert_eq!(connections, [1; 3]);
}

/// nginx makes a 502 of a connection that ends while it still sends.
#[tokio::test]
async fn what_is_too_large_is_refused_with_the_reason() {
    if !has_nginx() {
        return;
    }
    let server = Server::start();
    let nginx = Nginx::balancing([server.address(); 3], &[]).await;
    for _ in 0..10 {
        let mut http = Http::connect(nginx.address()).await;
        let answer = http.request(Method::PUT, "/kv/a", &[], "x".repeat(4 << 20)).await;
        answer.problem(413, "too_large");
    }
}

/// A message without an id would be stored twice.
#[tokio::test]
async fn a_post_is_never_sent_to_two_servers() {
    if !has_nginx() {
        return;
    }
    let stubs = Stubs::start().await;
    // Over a connection that is new, and over one that was kept.
    assert_eq!(stubs.reads_in_vain(Method::POST).await, 1);
    stubs.recover().await;
    assert_eq!(stubs.reads_in_vain(Method::POST).await, 1);
    stubs.recover().await;
    let reads = stubs.reads_in_vain(Method::GET).await;
    assert!(reads > 1, "{reads}");
}

#[tokio::test]
async fn sockets_are_spread_evenly() {
    if !has_nginx() {
        return;
    }
    let servers = [(); 3].map(|()| Server::start());
    let nginx = Nginx::balancing(servers.each_ref().map(Server::address), &[]).await;
    let mut sockets = Vec::new();
    for _ in 0..12 {
        sockets.push(Ws::open(nginx.address(), "/v1/ws").await);
    }
    for server in &servers {
        until("a third is there", async || server.metric("websocket_connections").await == 4).await;
    }
}

/// Sends messages without ids, each once, until told to stop: their texts, and whether they were acknowledged.
async fn post(address: SocketAddr, room: &str, stop: Arc<AtomicBool>) -> Vec<(String, bool)> {
    let mut sent = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let text = format!("{}", sent.len());
        let body = json!({"userId": "ada", "message": text}).to_string();
        let mut http = Http::connect(address).await;
        let answer = http.try_request(Method::POST, &format!("/v1/rooms/{room}/messages"), &[], body).await;
        sent.push((text, answer.is_some_and(|answer| answer.status == 201)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sent
}

const KINDS: [Kind; 1] = [Kind { name: "many", dialect: Dialect::Api, window: 20, outlives_outages: true }];
const ROOMS: usize = 3;
/// Most messages acknowledged before the next server is killed.
const MESSAGES_MAX: u64 = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_killed_server_go_on_at_another() {
    if !has_nginx() {
        return;
    }
    let (rounds, random) = rounds(3);
    let postgres = Postgres::start("");
    let mut servers = [(); 3].map(|()| Setup::new().store(&postgres.url("postgres")).start());
    let nginx = Nginx::balancing(servers.each_ref().map(Server::address), &[]).await;
    // As many clients as for three servers, all of which know only nginx.
    let load = Load::start(&[nginx.address(); 3], ROOMS, &KINDS);
    let stop = Arc::new(AtomicBool::new(false));
    let posting = tokio::spawn(post(nginx.address(), "posted", stop.clone()));
    for round in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        let server = &mut servers[usize::try_from(round).unwrap() % 3];
        until("somebody follows there", async || server.metric("subscriptions").await > 0).await;
        server.kill();
        load.go_on(&random, MESSAGES_MAX).await;
        server.restart();
    }
    stop.store(true, Ordering::SeqCst);
    let posted = in_time("the last one posted", posting).await.unwrap();
    load.finish(&mut servers[0]).await;
    let history = servers[0].history("posted").await;
    for (text, is_acknowledged) in &posted {
        let stored = history.iter().filter(|message| message["message"] == **text).count();
        assert!(stored == 1 || stored == 0 && !is_acknowledged, "{text}: {stored}, {is_acknowledged}");
    }
    assert!(posted.iter().any(|(_, is_acknowledged)| *is_acknowledged));
}

/// nginx ends what is silent for its read timeout. Pings of the server are not silence.
#[tokio::test]
async fn sockets_stay_while_the_server_pings() {
    if !has_nginx() {
        return;
    }
    let changes = [("proxy_read_timeout 120s", "proxy_read_timeout 14s")];
    // A pong is waited for before the next ping.
    let pinging = Setup::new().set("server.ping_interval=2s").set("server.pong_timeout=8s").start();
    let silent = Setup::new().set("server.ping_interval=1h").start();
    let (before_pinging, before_silent) = tokio::join!(
        Nginx::balancing([pinging.address(); 3], &changes),
        Nginx::balancing([silent.address(); 3], &changes)
    );
    let stays = async {
        let mut socket = Ws::open(before_pinging.address(), "/v1/ws").await;
        let mut pings = 0;
        // Two take longer than that.
        while pings < 2 {
            pings += u32::from(matches!(socket.next_message().await, Message::Ping(_)));
        }
        assert_eq!(socket.request(&json!({"type": "ping"})).await["type"], "pong");
    };
    let ends = async { Ws::open(before_silent.address(), "/v1/ws").await.next().await };
    let ((), ended) = tokio::join!(stays, ends);
    assert_eq!(ended, Err(None), "nginx ends a socket without a word");
}

/// A connection to `to` from another address of this machine.
async fn http_from(from: [u8; 4], to: SocketAddr) -> Http {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    Http::over(socket.connect(to).await.unwrap(), to).await.unwrap()
}

/// Nor does a client choose its address.
#[tokio::test]
async fn limits_count_the_clients_of_a_proxy() {
    if !has_nginx() {
        return;
    }
    let server =
        Setup::new().set("limits.address_requests=1").set("server.trusted_proxies=127.0.0.1").start();
    let nginx = Nginx::balancing([server.address(); 3], &[]).await;
    let mut flooding = http_from([127, 9, 0, 1], nginx.address()).await;
    let mut claim = 0;
    until("it has had enough", async || {
        claim += 1;
        let claimed = format!("192.0.2.{}", claim % 250);
        let headers = [("x-forwarded-for", claimed.as_str())];
        flooding.request(Method::GET, "/v1/rooms", &headers, "").await.status == 429
    })
    .await;
    let mut other = http_from([127, 9, 0, 2], nginx.address()).await;
    assert_eq!(other.get("/v1/rooms").await.status, 200);
}

/// `deploy/nginx.conf`: a server on the same machine.
#[tokio::test]
async fn a_proxy_speaks_tls_for_a_server() {
    if !has_nginx() {
        return;
    }
    let setup = Setup::new();
    let certificates = Certificates::make(&setup, "certificates");
    let server = setup.start();
    let nginx = Nginx::with_tls(server.address(), &certificates).await;
    let (client, address) = (TlsClient::trusting(&[&certificates]), nginx.address());
    let connect = async || client.connect_to(address).await.unwrap();

    // Pages of this site may act here, others may not.
    let mut http = Http::over(connect().await, address).await.unwrap();
    let body = json!({"userId": "ada", "message": "one"}).to_string();
    for (origin, status) in [(format!("https://{address}"), 201), ("https://evil.example".to_owned(), 403)] {
        let headers = [("origin", origin.as_str())];
        let answer = http.request(Method::POST, "/v1/rooms/r/messages", &headers, body.clone()).await;
        assert_eq!(answer.status, status, "{origin}: {}", answer.text());
    }
    // Each event and frame comes before the next one is sent.
    let mut events = Events::over(connect().await, "?after=0", None).await;
    events.receive("subscribed").await;
    let mut socket = Ws::over(connect().await, address, "/v1/ws").await.unwrap();
    socket.subscribe("r", json!({"after": 0})).await;
    for text in ["one", "two", "three"] {
        if text != "one" {
            server.send("r", text).await;
        }
        assert_eq!(events.receive("message").await.data["message"], text);
        assert_eq!(socket.receive_type("message").await["message"], text);
    }
    wait_for_each_answer(connect().await).await;
    assert_eq!(nginx.errors(), "");
}
