//! HTTP/2, chosen by ALPN: the same answers, many of them at a time; and an end for connections that nobody uses.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Certificates, Server, Setup, TlsClient, in_time, texts, until};

/// What each side says first (RFC 9113 §3.4), and a frame of settings without any.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const NO_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    async fn connect(client: &TlsClient, server: &Server) -> (Self, tokio::task::JoinHandle<()>) {
        let stream = client.connect(server).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        (Self(sender), tokio::spawn(async move { connection.await.unwrap_or_default() }))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> hyper::Result<Response<Incoming>> {
        let uri = format!("https://localhost{path}");
        let mut request = Request::builder().method(method).uri(uri).version(hyper::Version::HTTP_2);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.0.clone();
        in_time(path, async {
            sender.ready().await?;
            sender.send_request(request.body(Full::new(body.into())).unwrap()).await
        })
        .await
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> (u16, Value) {
        let response = self.send(method, path, headers, body).await.unwrap();
        assert_eq!(response.version(), hyper::Version::HTTP_2);
        let status = response.status().as_u16();
        let body = in_time(path, response.into_body().collect()).await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

fn encrypted(setup: Setup) -> (Server, TlsClient) {
    let certificates = Certificates::make(&setup, "tls");
    let client = TlsClient::trusting(&[&certificates]);
    (certificates.serve(setup).start(), client)
}

#[tokio::test]
async fn many_requests_of_one_connection() {
    let (mut server, client) = encrypted(Setup::new());
    let (http, connection) = Http2::connect(&client.with_http2(), &server).await;
    // A stream that stays open holds up nobody.
    let mut events = http.send(Method::GET, "/v1/rooms/r/events", &[], "").await.unwrap().into_body();
    // More at a time than the server allows: the others wait.
    let sends = (0..300).map(|n| {
        let message =
            json!({"userId": "ada", "message": n.to_string(), "messageId": format!("m-{n}")}).to_string();
        http.answer(Method::POST, "/v1/rooms/r/messages", &[], message)
    });
    let answers = futures_util::future::join_all(sends).await;
    let mut seqs: Vec<_> = answers
        .iter()
        .map(|(status, answer)| {
            assert_eq!(*status, 201, "{answer}");
            answer["seq"].as_u64().unwrap()
        })
        .collect();
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(1..=300));
    // All of them are events, in order, behind the id of where the stream began.
    let mut text = String::new();
    while text.matches("\nid: ").count() < 301 {
        let frame = in_time("an event", events.frame()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    let ids: Vec<u64> = ids.map(|id| id.rsplit(['-', ':', '.']).next().unwrap().parse().unwrap()).collect();
    assert!(ids.iter().copied().eq(0..=300), "{ids:?}");
    // A page that is larger than any window, read beside it.
    let (status, page) = http.answer(Method::GET, "/v1/rooms/r/messages?after=0&limit=300", &[], "").await;
    assert_eq!((status, texts(page["messages"].as_array().unwrap()).len()), (200, 300));
    // A socket has a connection of its own, with HTTP/1.1, whatever others chose.
    let mut socket = client.ws(&server, "/v1/ws").await;
    socket.subscribe("r", json!({"after": 299})).await;
    assert_eq!(socket.receive_many(1).await[0]["seq"], 300);
    // Its answers are written before the connection ends.
    let last = http.send(
        Method::POST,
        "/v1/rooms/r/messages",
        &[],
        json!({"userId": "a", "message": "x"}).to_string(),
    );
    let (last, ()) = tokio::join!(last, async { server.terminate() });
    if let Ok(last) = last {
        assert!(matches!(last.status().as_u16(), 201 | 503), "{last:?}");
    }
    in_time("the end of the events", async { while let Some(Ok(_)) = events.frame().await {} }).await;
    drop(http);
    in_time("the end of the connection", connection).await.unwrap();
    assert!(server.exit().await.success());
}

/// The cookie of a page that came encrypted is sent encrypted only.
#[tokio::test]
async fn people_log_in_over_http2() {
    let (server, client) = encrypted(Setup::new().with_tokens().set("auth.accounts=true"));
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    let bearer = format!("Bearer {}", crate::harness::tokens::admin());
    let ada = json!({"user": "ada", "password": "twelve small penguins"}).to_string();
    let (status, made) =
        http.answer(Method::POST, "/v1/auth/accounts", &[("authorization", &bearer)], ada.clone()).await;
    assert_eq!(status, 201, "{made}");
    let origin = |origin: &'static str| [("origin", origin)];
    let (status, _) =
        http.answer(Method::POST, "/v1/auth/login", &origin("https://evil.example"), ada.clone()).await;
    assert_eq!(status, 403);
    let login = http.send(Method::POST, "/v1/auth/login", &origin("https://localhost"), ada).await.unwrap();
    assert_eq!(login.status(), 200);
    let login = in_time("the login", login.into_body().collect()).await.unwrap().to_bytes();
    let login: Value = serde_json::from_slice(&login).unwrap();
    let ada = format!("Bearer {}", login["token"].as_str().unwrap());
    let headers = [("origin", "https://localhost"), ("authorization", ada.as_str())];
    let session = http.send(Method::POST, "/v1/auth/session", &headers, "").await.unwrap();
    let cookie = session.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let (status, _) = http.answer(Method::GET, "/v1/auth/me", &[("cookie", cookie)], "").await;
    assert_eq!(status, 401);
    let by_cookie = [("cookie", cookie), ("accept", "text/event-stream")];
    let (status, me) = http.answer(Method::GET, "/v1/auth/me", &by_cookie, "").await;
    assert_eq!((status, me["account"].as_str()), (200, Some("ada")));
}

#[tokio::test]
async fn requests_are_checked_as_ever() {
    let (server, client) = encrypted(Setup::new());
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    for (origin, status) in
        [("https://localhost", 201), ("https://evil.example", 403), ("http://localhost:1", 403)]
    {
        let (answered, problem) = http.answer(Method::PUT, "/kv/a", &[("origin", origin)], "x").await;
        assert_eq!(answered, status, "{origin}: {problem}");
    }
    let (status, problem) = http.answer(Method::GET, "/nothing", &[], "").await;
    assert_eq!((status, problem["code"].as_str()), (404, Some("not_found")));
    // There is no switching of protocols.
    let (status, _) = http.answer(Method::GET, "/v1/ws", &[], "").await;
    assert!((400..500).contains(&status), "{status}");
    // A header beyond the limit ends its request, not the server.
    let long = "x".repeat(20_000);
    if let Ok(response) = http.send(Method::GET, "/health/live", &[("x-long", &long)], "").await {
        assert_eq!(response.status(), 431);
    }
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    assert_eq!(http.answer(Method::GET, "/health/live", &[], "").await.0, 200);
}

#[tokio::test]
async fn idle_connections_end() {
    let (server, client) = encrypted(Setup::new().set("server.header_timeout=1500ms"));
    let http2 = client.with_http2();
    // Nothing at all, half of what is said first, all of it, and a header that does not end.
    let endless = [PREFACE, NO_SETTINGS, &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]].concat();
    for said in [&b""[..], &PREFACE[..9], &[PREFACE, NO_SETTINGS].concat(), &endless] {
        let mut stream = http2.connect(&server).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        let _ = in_time("the end", stream.read_to_end(&mut heard)).await;
    }
    // One that was of use.
    let (http, connection) = Http2::connect(&http2, &server).await;
    assert_eq!(http.answer(Method::GET, "/health/live", &[], "").await.0, 200);
    in_time("the end of an idle connection", connection).await.unwrap();
    // Not while an answer is read, however long that takes: this one goes on after the idle time of all others.
    let (http, _connection) = Http2::connect(&http2, &server).await;
    let mut events = http.send(Method::GET, "/v1/rooms/r/events", &[], "").await.unwrap().into_body();
    let (other, connection) = Http2::connect(&http2, &server).await;
    assert_eq!(other.answer(Method::GET, "/health/live", &[], "").await.0, 200);
    in_time("the end of another", connection).await.unwrap();
    let message = json!({"userId": "ada", "message": "still"}).to_string();
    assert_eq!(http.answer(Method::POST, "/v1/rooms/r/messages", &[], message).await.0, 201);
    let mut text = String::new();
    while !text.contains("still") {
        let frame = in_time("an event", events.frame()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let (server, client) = encrypted(Setup::new());
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    assert_eq!(http.answer(Method::PUT, "/kv/a", &[], "value").await.0, 201);
    let mut http1 = client.http(&server).await;
    for path in ["/kv/a", "/nothing", "/health/live", "/", "/v1/rooms", "/v1/kv/watch"] {
        let answer = http.send(Method::HEAD, path, &[], "").await.unwrap();
        let other = http1.request(Method::HEAD, path, &[], "").await;
        assert_eq!(answer.status().as_u16(), other.status, "{path}");
        let length = answer.headers().get("content-length").map(|length| length.to_str().unwrap());
        assert_eq!(length, other.header("content-length"), "{path}");
        // A client refuses a body here, as it must.
        let body = in_time(path, answer.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(body, "", "{path}");
    }
    assert_eq!(http.answer(Method::GET, "/health/live", &[], "").await.0, 200);
}

#[tokio::test]
async fn a_page_that_is_read_slowly_arrives() {
    // One slot takes all of it: a store that waits for seals refuses messages for a moment, as it should.
    let (mut server, client) = encrypted(Setup::new().set("store.embedded.journal_slot=8MiB"));
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    let text = "x".repeat(60_000);
    for number in 0..40 {
        let message = json!({"userId": "ada", "message": format!("{number} {text}")}).to_string();
        assert_eq!(http.answer(Method::POST, "/v1/rooms/r/messages", &[], message).await.0, 201);
    }
    server.restart_with(&["server.header_timeout=1500ms"]);
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    let page = http.send(Method::GET, "/v1/rooms/r/messages?after=0&limit=40", &[], "").await.unwrap();
    // Nothing is read until another connection that did nothing more was ended.
    let (other, connection) = Http2::connect(&client.with_http2(), &server).await;
    assert_eq!(other.answer(Method::GET, "/health/live", &[], "").await.0, 200);
    in_time("the end of another", connection).await.unwrap();
    let page = in_time("the page", page.into_body().collect()).await.unwrap().to_bytes();
    let page: Value = serde_json::from_slice(&page).unwrap();
    assert_eq!(page["messages"].as_array().unwrap().len(), 40);
}

/// Who takes its receipts too late has only some of them, and is told so.
#[tokio::test]
async fn receipts_that_are_taken_too_late_end_with_an_error() {
    let (server, client) = encrypted(Setup::new().set("server.write_timeout=300ms"));
    let stream = client.with_http2().connect(&server).await.unwrap();
    let mut small = http2::Builder::new(TokioExecutor::new());
    small.initial_stream_window_size(16 * 1024);
    let (sender, connection) = small.handshake(TokioIo::new(stream)).await.unwrap();
    let _connection = tokio::spawn(async move { connection.await.unwrap_or_default() });
    let line = json!({"roomId": "r", "userId": "ada", "message": "x"}).to_string() + "\n";
    // One message for each receipt, and far more of them than windows and buffers hold.
    let answer = Http2(sender).send(Method::POST, "/v1/messages", &[], line.repeat(10_000)).await.unwrap();
    assert_eq!(answer.status(), 200);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let taken = in_time("the end of the receipts", answer.into_body().collect()).await;
    assert!(taken.is_err(), "{} bytes, as if that were all", taken.unwrap().to_bytes().len());
}

/// A stream that was given up is over at once, although its connection stays.
#[tokio::test]
async fn event_streams_end_with_their_readers() {
    let (server, client) = encrypted(Setup::new());
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    for path in ["/v1/rooms/r/events", "/v1/kv/watch?prefix=a", "/v1/stats/live"] {
        let events = http.send(Method::GET, path, &[], "").await.unwrap();
        assert_eq!(events.status(), 200, "{path}");
        drop(events);
    }
    let listed = async || {
        let (_, page) = http.answer(Method::GET, "/v1/connections", &[], "").await;
        page["connections"].as_array().map_or(usize::MAX, Vec::len)
    };
    until("the end of all streams", async || listed().await == 0).await;
}

/// Where others need the memory, a connection ends with all the answers that wait on it.
#[tokio::test]
async fn a_connection_whose_answers_nobody_takes_makes_way() {
    const VALUE_BYTES: usize = 200_000;
    let (server, client) = encrypted(Setup::new().set("limits.unread_bytes=10800KiB"));
    let (http, _connection) = Http2::connect(&client.with_http2(), &server).await;
    assert_eq!(http.answer(Method::PUT, "/kv/k", &[], "v".repeat(VALUE_BYTES)).await.0, 201);
    let metric = async |name: &str| {
        let answer = http.send(Method::GET, "/metrics", &[], "").await.unwrap();
        let text = in_time("metrics", answer.into_body().collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        line.unwrap()
    };
    // More than the client's windows let through, and less than the budget: nobody else is given up for it.
    let ask = async || {
        let (http, connection) = Http2::connect(&client.with_http2(), &server).await;
        let mut answers = Vec::new();
        for _ in 0..60 {
            answers.push(http.send(Method::GET, "/kv/k", &[], "").await.unwrap());
        }
        (http, answers, connection)
    };
    let (_first, _unread, ended) = ask().await;
    until("answers wait", async || metric("hubbub_unread_bytes").await > 0).await;
    let (_second, answers, _connection) = ask().await;
    in_time("the end of the first", ended).await.unwrap();
    assert_eq!(metric("hubbub_unread_given_up_total").await, 1);
    // At the same time: what waits of others takes up the window that all of them share.
    let bodies = answers.into_iter().map(|answer| answer.into_body().collect());
    for body in in_time("all answers", futures_util::future::join_all(bodies)).await {
        assert_eq!(body.unwrap().to_bytes().len(), VALUE_BYTES);
    }
    until("all is free", async || metric("hubbub_unread_bytes").await == 0).await;
}
