//! A bad request is answered with a typed problem that names the field and the rule, and changes nothing.

use hyper::Method;
use serde_json::json;

use crate::harness::{Server, Setup};

const MESSAGES: &str = "/v1/rooms/r/messages";

#[tokio::test]
async fn bad_requests_name_the_rule() {
    let server = Server::start();
    let mut http = server.http().await;
    for malformed in
        ["", "{", "[]", "7", "\"x\"", "{\"userId\":\"a\",\"message\":\"b\"", "{\"message\":\"\u{1}\"}"]
    {
        let problem = http.post(MESSAGES, malformed).await.problem(400, "malformed");
        assert_eq!(problem["retryable"], false);
    }
    http.post(MESSAGES, &b"{\"userId\":\"a\",\"message\":\"\xC3\x28\"}"[..]).await.problem(400, "malformed");
    let long = "x".repeat((64 << 10) + 1);
    for (body, fields) in [
        (json!({}), &["userId", "message"][..]),
        (json!({"userId": "a"}), &["message"]),
        (json!({"userId": "ä", "message": "x", "messageId": "a/b"}), &["userId", "messageId"]),
        (
            json!({"userId": [], "messageId": {}, "username": 1, "message": true, "messageType": [], "timestamp": {}}),
            &["userId", "messageId", "username", "message", "messageType", "timestamp"],
        ),
        (json!({"userId": "a", "message": "a\0b"}), &["message"]),
        (json!({"userId": "a", "message": long}), &["message"]),
        (json!({"userId": "a", "message": "x", "timestamp": "2026-13-01T00:00:00Z"}), &["timestamp"]),
        (json!({"userId": "a", "message": "x", "username": "x".repeat(256)}), &["username"]),
    ] {
        http.post(MESSAGES, body.to_string()).await.faults(fields);
    }
    for room in ["a%20b", "%C3%A4", &"x".repeat(65)] {
        let path = format!("/v1/rooms/{room}/messages");
        http.post(&path, json!({"userId": "a", "message": "x"}).to_string()).await.faults(&["roomId"]);
        http.get(&path).await.faults(&["roomId"]);
    }
    // The caller speaks for itself only, and its name is an id.
    let body = json!({"userId": "bob", "message": "x"}).to_string();
    for (path, headers) in [(MESSAGES, &[("hubbub-user", "ada")][..]), ("/v1/rooms/r/messages?user=ada", &[])]
    {
        http.request(Method::POST, path, headers, body.clone()).await.faults(&["userId"]);
    }
    http.request(Method::POST, MESSAGES, &[("hubbub-user", "a b")], body.clone()).await.faults(&["user"]);
    http.request(Method::POST, MESSAGES, &[("idempotency-key", "a b")], body).await.faults(&["messageId"]);
    // Two ids that differ: a repeat by one of them would not find what the other stored.
    let key = [("idempotency-key", "one")];
    let body = json!({"userId": "bob", "message": "x", "messageId": "two"}).to_string();
    http.request(Method::POST, MESSAGES, &key, body).await.faults(&["messageId"]);
    let queue = "/v1/queues/q/messages";
    let body = json!({"sender": "bob", "message": "x", "messageId": "two"});
    http.request(Method::POST, queue, &key, body.to_string()).await.faults(&["messageId"]);
    http.request(Method::POST, queue, &key, json!([body]).to_string()).await.faults(&["Idempotency-Key"]);
    http.request(Method::POST, "/v1/messages", &key, body.to_string()).await.faults(&["Idempotency-Key"]);

    assert_eq!(http.get("/v1/rooms").await.json()["rooms"], json!([]), "none of it made the room");
    // Exactly at the limit, and an integer as an id.
    let body = json!({"userId": 42, "message": &long[1..], "messageId": 7});
    assert_eq!(http.post(MESSAGES, body.to_string()).await.json()["messageId"], "7");
    let stored = server.history("r").await;
    assert_eq!(
        (&stored[0]["userId"], stored[0]["message"].as_str().unwrap().len()),
        (&json!("42"), 64 << 10)
    );
}

#[tokio::test]
async fn bad_queries_name_the_rule() {
    let server = Server::start();
    server.send("r", "x").await;
    let mut http = server.http().await;
    for (query, fields) in [
        ("after=x", &["after"][..]),
        ("after=-1", &["after"]),
        ("after=1&before=2", &["before"]),
        ("before=1.5", &["before"]),
        ("limit=0", &["limit"]),
        ("limit=1001", &["limit"]),
        ("limit=many&after=&from=soon&to=later", &["after", "from", "to", "limit"]),
    ] {
        http.get(&format!("{MESSAGES}?{query}")).await.faults(fields);
    }
    for (query, fields) in
        [("limit=0", &["limit"][..]), ("limit=1001", &["limit"]), ("after=a%20b", &["after"])]
    {
        http.get(&format!("/v1/rooms?{query}")).await.faults(fields);
    }
}

#[tokio::test]
async fn unknown_places_are_told() {
    let server = Server::start();
    let mut http = server.http().await;
    for path in
        ["/nothing", "/v1/nothing", "/v1/rooms/r/nothing", "/v1/rooms/r/messages/1", &"/x".repeat(100)]
    {
        http.get(path).await.problem(404, "not_found");
    }
    for path in ["/v1/rooms/r/messages", "/v1/rooms/r"] {
        http.get(path).await.problem(404, "unknown_room");
    }
    for (method, path, allow) in [
        (Method::DELETE, MESSAGES, "GET, HEAD, POST"),
        (Method::GET, "/v1/messages", "POST"),
        (Method::PUT, "/v1/rooms", "GET, HEAD"),
        (Method::POST, "/metrics", "GET, HEAD"),
        (Method::POST, "/health", "GET, HEAD"),
        (Method::POST, "/v1/ws", "GET"),
        (Method::POST, "/chat/1", "GET"),
    ] {
        let answer = http.request(method, path, &[], "").await;
        answer.problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
    }
    for path in ["/v1/ws", "/chat/1"] {
        let problem = http.get(path).await.problem(400, "malformed");
        assert!(problem["detail"].as_str().unwrap().contains("WebSocket"), "{problem}");
    }
}

#[tokio::test]
async fn a_huge_body_is_refused() {
    let server = Setup::new().set("limits.body_bytes=64KiB").start();
    let body = |room: &str, bytes: usize| {
        json!({"roomId": room, "userId": "a", "message": "x".repeat(bytes)}).to_string()
    };
    server.http().await.post(MESSAGES, body("r", 64 << 10)).await.problem(413, "too_large");
    // A stream has no size, but its lines have: a little too long, and so long that the rest is not read.
    let lines =
        [body("r", 1), body("r", 64 << 10), body("r", 2), body("r", 1 << 20), body("r", 3)].join("\n");
    let lines = server.http().await.post("/v1/messages", lines).await.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!((&lines[0]["seq"], &lines[2]["seq"]), (&json!(1), &json!(2)));
    assert_eq!((&lines[1]["code"], &lines[3]["code"]), (&json!("too_large"), &json!("too_large")));
    assert_eq!(server.history("r").await.len(), 2);
}

#[tokio::test]
async fn without_autocreate_unknown_rooms_are_refused() {
    let mut server = Server::start();
    server.send("known", "x").await;
    server.restart_with(&["rooms.autocreate=false"]);
    let problem = server.send_as("unknown", "id", "x").await.problem(404, "unknown_room");
    assert_eq!((&problem["messageId"], &problem["retryable"]), (&json!("id"), &json!(false)));
    let lines: String = ["unknown", "known"]
        .map(|room| format!("{}\n", json!({"roomId": room, "userId": "a", "message": "y"})))
        .concat();
    let lines = server.http().await.post("/v1/messages", lines).await.lines();
    assert_eq!((&lines[0]["code"], &lines[1]["seq"]), (&json!("unknown_room"), &json!(2)));
    let mut socket = server.ws("/v1/ws?user=ada").await;
    let error = socket.request(&json!({"type": "send", "roomId": "unknown", "message": "x"})).await;
    assert_eq!(error["code"], "unknown_room", "{error}");
    let mut chat = server.ws("/chat/unknown").await;
    let answer = chat.request(&crate::harness::chat_message("id", "x")).await;
    assert_eq!((&answer["status"], &answer["code"]), (&json!("error"), &json!("unknown_room")), "{answer}");
    let rooms = server.get("/v1/rooms").await.json();
    assert_eq!(rooms["rooms"].as_array().unwrap().len(), 1, "{rooms}");
}

/// What a page of another site has the browser send is refused on every way in; reading is left to the browser.
#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let server = Server::start();
    let mut http = server.http().await;
    let evil = [("origin", "http://evil.example")];
    let body = r#"{"userId":"ada","message":"hello"}"#;
    let sent = http.request(hyper::Method::POST, "/v1/rooms/r/messages", &evil, body).await;
    sent.problem(403, "forbidden");
    let socket = [
        ("origin", "http://evil.example"),
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut http = server.http().await;
    http.request(hyper::Method::GET, "/v1/ws", &socket, "").await.problem(403, "forbidden");
    assert_eq!(server.get("/v1/rooms").await.json()["rooms"], serde_json::json!([]));
    let own = format!("http://{}", server.address());
    let mut http = server.http().await;
    let host = server.address().to_string();
    let headers = [("origin", own.as_str()), ("host", host.as_str())];
    let sent = http.request(hyper::Method::POST, "/v1/rooms/r/messages", &headers, body).await;
    assert_eq!(sent.status, 201);
}

/// A page whose own name points here for a moment is of this server by its origin, but not by its host.
#[tokio::test]
async fn names_of_other_sites_are_refused_where_nobody_needs_a_token() {
    let server = Setup::new().set("server.allowed_origins=https://chat.example").start();
    let body = r#"{"userId":"ada","message":"hello"}"#;
    for (host, status) in [
        ("evil.example:8080", 403),
        ("chat.example", 201),
        ("localhost:8080", 201),
        ("127.0.0.1:8080", 201),
        ("[::1]:8080", 201),
    ] {
        let origin = format!("http://{host}");
        let mut http = server.http().await;
        let headers = [("origin", origin.as_str()), ("host", host)];
        let sent = http.request(hyper::Method::POST, "/v1/rooms/r/messages", &headers, body).await;
        assert_eq!(sent.status, status, "{host}");
        let mut http = server.http().await;
        let read = http.request(hyper::Method::GET, "/v1/rooms/r/messages", &[("host", host)], "").await;
        assert_eq!(read.status, if status == 403 { 403 } else { 200 }, "{host}");
    }
}

/// With `--insecure` whoever comes is let in, unless the sites are listed.
#[tokio::test]
async fn listed_sites_are_the_only_ones_without_tokens() {
    for (origins, status) in [("", 200), ("https://chat.example", 403)] {
        let origins = format!("server.allowed_origins={origins}");
        let server = Setup::new().set("server.insecure=true").set(&origins).start();
        let mut http = server.http().await;
        let headers = [("host", "evil.example")];
        let read = http.request(hyper::Method::GET, "/v1/rooms", &headers, "").await;
        assert_eq!(read.status, status, "{origins:?}");
    }
}

#[tokio::test]
async fn pages_of_listed_sites_may_read_answers() {
    let server = Setup::new().set("server.allowed_origins=https://chat.example").start();
    let mut http = server.http().await;
    for (path, status) in [("/v1/rooms", 200), ("/v1/rooms/none", 404), ("/v1/nothing", 404)] {
        for (origin, allowed) in [("https://chat.example", true), ("https://evil.example", false)] {
            let answer = http.request(hyper::Method::GET, path, &[("origin", origin)], "").await;
            assert_eq!(answer.status, status, "{path}");
            let told = answer.header("access-control-allow-origin");
            assert_eq!(told, allowed.then_some(origin), "{path}");
            assert_eq!(answer.header("vary"), Some("origin"), "{path}");
        }
    }
    let asks = |origin| {
        [
            ("origin", origin),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "authorization"),
        ]
    };
    let page = asks("https://chat.example");
    let allowed = http.request(hyper::Method::OPTIONS, "/kv/a", &page, "").await;
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-methods"), Some("GET, HEAD, PUT, DELETE"));
    assert_eq!(allowed.header("access-control-allow-headers"), Some("authorization"));
    assert_eq!(http.request(hyper::Method::OPTIONS, "/nothing", &page, "").await.status, 404);
    let refused = http.request(hyper::Method::OPTIONS, "/kv/a", &asks("https://evil.example"), "").await;
    assert_eq!(refused.status, 403);
    let plain = http.request(hyper::Method::OPTIONS, "/kv/a", &[], "").await;
    plain.problem(405, "method_not_allowed");
}
