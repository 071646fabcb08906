//! `limits.user_rooms`: how many rooms one user is a member of, whoever adds it, on every store.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{Http, Postgres, Server, Setup};

async fn put(server: &Server, user: &str, path: &str) -> u16 {
    server.call(user, Method::PUT, path, json!({})).await.status
}

async fn check(server: &Server) {
    for room in ["a", "b", "c", "d", "closed"] {
        assert_eq!(put(server, "", &format!("/v1/rooms/{room}")).await, 201);
    }
    server.put_room("closed", json!({"membersOnly": true})).await;
    assert_eq!(put(server, "bob", "/v1/rooms/of-bob").await, 201);
    assert_eq!(put(server, "ada", "/v1/rooms/a/members/ada").await, 204);
    assert_eq!(put(server, "ada", "/v1/rooms/of-ada").await, 201, "who creates a room is in it");
    // Not one more, in whatever way.
    for (user, path) in [
        ("ada", "/v1/rooms/b/members/ada"),
        ("ada", "/v1/rooms/new"),
        ("bob", "/v1/rooms/of-bob/members/ada"),
    ] {
        let refused = server.call(user, Method::PUT, path, json!({})).await;
        refused.problem(429, "too_many_rooms");
    }
    assert_eq!(server.get("/v1/rooms/new").await.status, 404, "it was not created");
    // What makes nobody a member, and what is refused for another reason, is answered as ever.
    assert_eq!(put(server, "ada", "/v1/rooms/a/members/ada").await, 204);
    assert_eq!(put(server, "ada", "/v1/rooms/of-ada").await, 200);
    assert_eq!(put(server, "ada", "/v1/rooms/nowhere/members/ada").await, 404);
    assert_eq!(put(server, "ada", "/v1/rooms/closed/members/ada").await, 403);
    // Others are not concerned, and messages neither.
    assert_eq!(put(server, "bob", "/v1/rooms/b/members/bob").await, 204);
    server.call("ada", Method::POST, "/v1/rooms/b/messages", json!({"message": "a guest"})).await;
    // Administrators may make more; who has more than allowed joins no other.
    assert_eq!(put(server, "", "/v1/rooms/c/members/ada").await, 204);
    server.remove_member("a", "ada").await;
    assert_eq!(put(server, "ada", "/v1/rooms/d/members/ada").await, 429);
    server.remove_member("c", "ada").await;
    assert_eq!(put(server, "ada", "/v1/rooms/d/members/ada").await, 204);
    assert_eq!(server.rooms_of("ada").await.into_keys().collect::<Vec<_>>(), ["d", "of-ada"]);
}

#[tokio::test]
async fn rooms_of_a_user_are_limited() {
    check(&Setup::new().set("limits.user_rooms=2").start()).await;
}

#[tokio::test]
async fn rooms_of_a_user_are_limited_on_postgres() {
    let postgres = Postgres::start("");
    check(&Setup::new().store(&postgres.url("postgres")).set("limits.user_rooms=2").start()).await;
}

/// Joins that come together are counted one after another.
#[tokio::test]
async fn joins_at_the_same_time_are_limited() {
    let server = Setup::new().set("limits.user_rooms=5").start();
    let mut joins = JoinSet::new();
    for room in 0..40 {
        let address = server.address();
        joins.spawn(async move {
            let mut http = Http::connect(address).await;
            let path = format!("/v1/rooms/{room}");
            http.request(Method::PUT, &path, &[("hubbub-user", "ada")], "").await.status
        });
    }
    let answers = joins.join_all().await;
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 5, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status, 201 | 429)), "{answers:?}");
    assert_eq!(server.rooms_of("ada").await.len(), 5);
}

/// A join whose client has hung up is counted before the next one all the same.
#[tokio::test]
async fn joins_that_are_given_up_are_limited() {
    let slow = "store.embedded.sync_delay=200ms";
    let server = Setup::new().set("limits.user_rooms=1").set(slow).start();
    // While this is synced, what comes waits for the next batch.
    let mut busy = TcpStream::connect(server.address()).await.unwrap();
    busy.write_all(b"PUT /v1/rooms/busy HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    for room in 0..6 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let join = format!("PUT /v1/rooms/{room}?user=ada HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(join.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(put(&server, "ada", "/v1/rooms/last").await, 429);
    assert_eq!(server.rooms_of("ada").await.len(), 1);
}
