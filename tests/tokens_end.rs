//! What is open ends with the right to it: when the token expires, when it is revoked, when another one allows less.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::tokens::{admin, begin, call, get, now, read_until, token};
use crate::harness::{Postgres, Server, Setup, Ws, until};

fn start() -> Server {
    Setup::new().with_tokens().line().start()
}

fn ada(more: Value) -> Value {
    let mut claims = json!({"sub": "ada", "rooms": {"*": "rw"}, "queues": {"*": "rw"}, "kv": {"": "rw"}});
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// Long enough to open everything on a busy machine, short enough to wait for.
fn soon() -> Value {
    json!({"exp": now() + 10.0})
}

async fn subscribed(server: &Server, token: &str, room: &str) -> Ws {
    let mut socket = Ws::with_token(server.address(), "/v1/ws", token).await;
    socket.send(&json!({"type": "subscribe", "roomId": room})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "subscribed");
    socket
}

async fn send(server: &Server, room: &str) {
    let path = format!("/v1/rooms/{room}/messages");
    let message = json!({"userId": "root", "message": "hello"});
    let answer = call(server.address(), &admin(), Method::POST, &path, message).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

async fn revoke(server: &Server, what: Value) {
    let answer = call(server.address(), &admin(), Method::POST, "/v1/auth/revocations", what).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[tokio::test]
async fn expired_token_closes_socket() {
    let server = start();
    let token = token(ada(soon()));
    let mut idle = Ws::with_token(server.address(), "/v1/ws", &token).await;
    let mut live = subscribed(&server, &token, "lobby").await;
    let mut chat = Ws::with_token(server.address(), "/chat/lobby?live=1", &token).await;
    for (what, socket) in [("idle", &mut idle), ("live", &mut live), ("chat", &mut chat)] {
        let closed = loop {
            if let Err(closed) = socket.next().await {
                break closed;
            }
        };
        assert_eq!(closed, Some((4401, "the token has expired".into())), "{what}");
    }
    get(server.address(), &token, "/v1/rooms").await.problem(401, "unauthorized");
}

/// Streams, waiting requests and connections of the line protocol outlive no token either.
#[tokio::test]
async fn expired_token_ends_streams_and_waits() {
    let server = start();
    let answer = call(server.address(), &admin(), Method::PUT, "/v1/queues/1", Value::Null).await;
    assert_eq!(answer.status, 201);
    let claims = soon();
    let token_of_ada = token(ada(claims.clone()));
    let bearer = format!("Bearer {token_of_ada}");
    let headers = [("authorization", bearer.as_str())];
    let (mut events, _) = begin(server.address(), "GET /v1/rooms/lobby/events", &headers, "").await;
    let (mut watch, _) = begin(server.address(), "GET /v1/kv/watch", &headers, "").await;
    let mut line = server.line().await;
    let mut seven = ada(claims);
    seven["sub"] = "7".into();
    line.request(format!("auth\ntoken:{}\nping\n\n", token(seven)), &["OK", "OK"]).await;
    let waiting =
        call(server.address(), &token_of_ada, Method::POST, "/v1/queues/1/get", json!({"waitMs": 20_000}));
    waiting.await.problem(401, "unauthorized");
    for (what, stream) in [("events", &mut events), ("watch", &mut watch)] {
        let read = read_until(stream, "\"unauthorized\"").await;
        assert!(read.contains("event: error") && read.contains("unauthorized"), "{what}: {read}");
    }
    assert_eq!(line.receive().await, None);
}

/// Whoever sends the head of a request, and its body once the token is revoked, changes nothing any more.
#[tokio::test]
async fn a_body_that_comes_after_the_revocation_is_refused() {
    let server = start();
    let ada = token(ada(json!({"jti": "held"})));
    let body = r#"{"message":"too late"}"#;
    let mut held = Vec::new();
    for head in ["PUT /kv/config", "POST /v1/rooms/lobby/messages", "POST /v1/queues/1/messages"] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ada}\r\nexpect: 100-continue\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server asks for the body, so the token was good.
        assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100"), "{head}");
        held.push(stream);
    }
    revoke(&server, json!({"jti": "held"})).await;
    for mut stream in held {
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    assert_eq!(get(server.address(), &admin(), "/kv/config").await.status, 404);
}

/// Whoever never says who it is holds no connection for good.
#[tokio::test]
async fn silent_line_clients_are_dropped() {
    let server = start();
    let (mut silent, mut slow) = (server.line().await, server.line().await);
    slow.send("ping\n\nping\n").await;
    slow.expect_lines(&["Unauthorized"]).await;
    while silent.receive().await.is_some() {}
    while slow.receive().await.is_some() {}
}

/// Before a token came, a socket may send no more than one has bytes.
#[tokio::test]
async fn unknown_sockets_hold_little() {
    let server = start();
    let mut socket = server.ws("/v1/ws").await;
    let long = "x".repeat(60_000);
    socket.send(&json!({"type": "auth", "token": long})).await;
    assert_eq!(socket.close_code().await, Some(1009));
    // Afterwards, as much as anybody.
    let mut socket = server.ws("/v1/ws").await;
    socket.send(&json!({"type": "auth", "token": token(ada(json!({})))})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "authenticated");
    socket.send(&json!({"type": "send", "roomId": "lobby", "message": long})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "ack");
}

#[tokio::test]
async fn renewed_token_keeps_socket() {
    let server = start();
    let short = token(ada(soon()));
    let mut kept = subscribed(&server, &short, "lobby").await;
    let mut other = subscribed(&server, &short, "lobby").await;
    kept.send(&json!({"type": "auth", "ref": 1, "token": token(ada(json!({})))})).await;
    let answer = kept.next().await.unwrap();
    assert_eq!(
        (&answer["type"], &answer["ref"], &answer["userId"]),
        (&json!("authenticated"), &json!(1), &json!("ada"))
    );
    // A token that is refused changes nothing.
    kept.send(&json!({"type": "auth", "token": "x"})).await;
    assert_eq!(kept.next().await.unwrap()["code"], "unauthorized");
    assert_eq!(other.close_code().await, Some(4401));
    send(&server, "lobby").await;
    assert_eq!(kept.next().await.unwrap()["message"], "hello");
    kept.send(&json!({"type": "send", "roomId": "lobby", "message": "still here"})).await;
    assert!(kept.next().await.unwrap()["type"] != "error");
}

#[tokio::test]
async fn a_token_for_somebody_else_closes_the_socket() {
    let server = start();
    let mut socket = subscribed(&server, &token(ada(json!({}))), "lobby").await;
    socket.send(&json!({"type": "auth", "token": token(json!({"sub": "eve", "rooms": {"*": "r"}}))})).await;
    assert_eq!(socket.next().await.unwrap()["code"], "forbidden");
    assert_eq!(socket.close_code().await, Some(4403));
    // Nor may one become the administrator, or stop being it, under way.
    let mut socket = Ws::with_token(server.address(), "/v1/ws", &token(ada(json!({})))).await;
    socket.send(&json!({"type": "auth", "token": token(json!({"sub": "ada", "admin": true}))})).await;
    assert_eq!(socket.close_code().await, Some(4403));
}

#[tokio::test]
async fn lost_permission_takes_effect() {
    let server = start();
    let mut socket = subscribed(&server, &token(ada(json!({}))), "lobby").await;
    socket.send(&json!({"type": "subscribe", "roomId": "team-1"})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "subscribed");
    // A token that allows less: what it does not allow ends at once, the rest goes on.
    let less = token(json!({"sub": "ada", "rooms": {"team-*": "r"}}));
    socket.send(&json!({"type": "auth", "token": less})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "authenticated");
    let ended = socket.next().await.unwrap();
    assert_eq!((&ended["code"], &ended["roomId"]), (&json!("forbidden"), &json!("lobby")));
    send(&server, "lobby").await;
    send(&server, "team-1").await;
    assert_eq!(socket.next().await.unwrap()["roomId"], "team-1");
    socket.send(&json!({"type": "send", "roomId": "team-1", "message": "x"})).await;
    assert_eq!(socket.next().await.unwrap()["code"], "forbidden");
    // Revoked, by id and by user: every socket of it closes.
    let one = token(ada(json!({"jti": "t-1"})));
    let mut by_id = subscribed(&server, &one, "lobby").await;
    revoke(&server, json!({"jti": "t-1"})).await;
    get(server.address(), &one, "/v1/rooms").await.problem(401, "unauthorized");
    assert_eq!(by_id.close_code().await, Some(4401));
    revoke(&server, json!({"user": "ada"})).await;
    assert_eq!(socket.next().await, Err(Some((4401, "the token was revoked".into()))));
    get(server.address(), &token(ada(json!({"iat": now() - 60.0}))), "/v1/rooms")
        .await
        .problem(401, "unauthorized");
    get(server.address(), &token(ada(json!({"exp": now() + 60.0, "iat": now() - 1.0}))), "/v1/rooms")
        .await
        .problem(401, "unauthorized");
    // Tokens issued from now on are good, and so are others' tokens.
    assert_eq!(get(server.address(), &token(ada(json!({}))), "/v1/rooms").await.status, 200);
    assert_eq!(get(server.address(), &admin(), "/v1/rooms").await.status, 200);
}

/// A connection is not its first token: each request is that of the token it has, and of none after its end.
#[tokio::test]
async fn each_request_of_a_connection_has_its_own_token() {
    let server = start();
    let bearer = |token: &str| format!("Bearer {token}");
    let (one, other) = (bearer(&token(ada(json!({"jti": "t-4"})))), bearer(&admin()));
    let mut http = server.http().await;
    let mut me = async |tokens: &[&str]| {
        let headers: Vec<_> = tokens.iter().map(|token| ("authorization", *token)).collect();
        let answer = http.request(Method::GET, "/v1/auth/me", &headers, "").await;
        if answer.status == 200 { answer.json()["userId"].clone() } else { json!(answer.status) }
    };
    for _ in 0..2 {
        assert_eq!(me(&[&one]).await, "ada");
        assert_eq!(me(&[]).await, 401);
        assert_eq!(me(&[&one, &other]).await, 401, "two can be read differently");
        assert_eq!(me(&[&one]).await, "ada");
        assert_eq!(me(&[&other]).await, Value::Null, "the administrator has no name");
        assert_eq!(me(&[&one[..one.len() - 1]]).await, 401);
    }
    assert_eq!(me(&[&one]).await, "ada");
    revoke(&server, json!({"jti": "t-4"})).await;
    assert_eq!(me(&[&one]).await, 401);
    assert_eq!(me(&[&other]).await, Value::Null);
}

/// A revocation outlives a restart, and so does the key of a service.
#[tokio::test]
async fn keys_and_revocations_outlive_a_restart() {
    let mut server = start();
    let revoked = token(ada(json!({"jti": "t-2"})));
    revoke(&server, json!({"jti": "t-2"})).await;
    let draft = json!({"name": "importer", "user": "importer", "rooms": {"team-*": "w"}});
    let made = call(server.address(), &admin(), Method::POST, "/v1/auth/keys", draft).await.json();
    let (key, id) = (made["apiKey"].as_str().unwrap().to_owned(), made["keyId"].as_str().unwrap().to_owned());
    server.restart();
    get(server.address(), &revoked, "/v1/rooms").await.problem(401, "unauthorized");
    let send = async |room: &str, key: &str| {
        let path = format!("/v1/rooms/{room}/messages");
        call(server.address(), key, Method::POST, &path, json!({"message": "x"})).await
    };
    assert_eq!(send("team-1", &key).await.status, 201);
    send("lobby", &key).await.problem(403, "forbidden");
    send("team-1", &key[..key.len() - 1]).await.problem(401, "unauthorized");
    get(server.address(), &key, "/v1/rooms/team-1/messages").await.problem(403, "forbidden");
    // The secret is nowhere: not in lists, and not in the keys that clients see.
    let listed = get(server.address(), &admin(), "/v1/auth/keys").await.text();
    let secret = key.rsplit_once('_').unwrap().1;
    assert!(listed.contains(&id) && !listed.contains(secret) && !listed.contains("hash"), "{listed}");
    let mut socket = Ws::with_token(server.address(), "/v1/ws", &key).await;
    let path = format!("/v1/auth/keys/{id}");
    assert_eq!(call(server.address(), &admin(), Method::DELETE, &path, Value::Null).await.status, 204);
    send("team-1", &key).await.problem(401, "unauthorized");
    assert_eq!(socket.close_code().await, Some(4401));
    call(server.address(), &admin(), Method::DELETE, &path, Value::Null).await.problem(404, "not_found");
    server.stop().await;
    assert!(!server.log().contains(secret), "{}", server.log());
}

/// Two servers on one database: from the answer of one on, no server accepts the key.
#[tokio::test]
async fn revoked_key_is_refused_on_every_node() {
    let postgres = Postgres::start("");
    let [one, two] = [(); 2].map(|()| Setup::new().with_tokens().store(&postgres.url("postgres")).start());
    for round in 0..5 {
        let draft = json!({"name": "importer", "user": "importer", "rooms": {"*": "rw"}});
        let made = call(one.address(), &admin(), Method::POST, "/v1/auth/keys", draft).await.json();
        let (key, id) =
            (made["apiKey"].as_str().unwrap().to_owned(), made["keyId"].as_str().unwrap().to_owned());
        assert_eq!(get(two.address(), &key, "/v1/rooms").await.status, 200, "{round}: at once");
        let mut socket = Ws::with_token(two.address(), "/v1/ws", &key).await;
        let path = format!("/v1/auth/keys/{id}");
        assert_eq!(call(one.address(), &admin(), Method::DELETE, &path, Value::Null).await.status, 204);
        get(two.address(), &key, "/v1/rooms").await.problem(401, "unauthorized");
        get(one.address(), &key, "/v1/rooms").await.problem(401, "unauthorized");
        assert_eq!(socket.close_code().await, Some(4401), "{round}");
    }
    let token = token(ada(json!({"jti": "t-3"})));
    let mut socket = Ws::with_token(two.address(), "/v1/ws", &token).await;
    revoke(&one, json!({"jti": "t-3"})).await;
    assert_eq!(socket.close_code().await, Some(4401));
    until("the revocation on the other server", async || {
        get(two.address(), &token, "/v1/rooms").await.status == 401
    })
    .await;
}

/// Whoever hangs up in the middle has revoked a key for the running server, too, if for the store.
#[tokio::test]
async fn a_revocation_whose_client_hangs_up_is_gone_by() {
    let server = start();
    let mut keys = Vec::new();
    for _ in 0..40 {
        let draft = json!({"name": "importer", "user": "importer", "rooms": {"*": "r"}});
        let made = call(server.address(), &admin(), Method::POST, "/v1/auth/keys", draft).await.json();
        keys.push((made["apiKey"].as_str().unwrap().to_owned(), made["keyId"].as_str().unwrap().to_owned()));
    }
    // Every change takes a revision, and this one is behind those before it.
    let revision = async || {
        let put = call(server.address(), &admin(), Method::PUT, "/kv/x", json!("x")).await;
        assert_eq!(put.status / 100, 2, "{}", put.text());
        get(server.address(), &admin(), "/v1/kv?prefix=x").await.json()["revision"].as_u64().unwrap()
    };
    let before = revision().await;
    // From after the answer to before the beginning. Each revocation that is answered has all earlier ones applied.
    for (step, (_, id)) in (0..40_u64).rev().zip(&keys) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = format!(
            "DELETE /v1/auth/keys/{id} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            server.address(),
            admin()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // Finer than the timer of the runtime.
        std::thread::sleep(Duration::from_micros(50 * step));
    }
    let revoked = revision().await - before - 1;
    assert_ne!(revoked, 0);
    until("the end of the revoked keys", async || {
        let mut refused = 0;
        for (key, _) in &keys {
            refused += u64::from(get(server.address(), key, "/v1/rooms").await.status == 401);
        }
        refused >= revoked
    })
    .await;
}
