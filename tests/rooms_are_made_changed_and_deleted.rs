//! Rooms by hand: made, changed, listed, deleted, and made again behind their old numbers.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Server, seqs};

const ROOM: &str = "/v1/rooms/tea";

#[tokio::test]
async fn rooms_are_made_and_changed() {
    let server = Server::start();
    let body = json!({"title": "Tea", "membersOnly": true, "retention": "30d"});
    let made = server.call("ada", Method::PUT, ROOM, body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut room = json!({
        "roomId": "tea", "title": "Tea", "membersOnly": true, "retention": 30 * 86_400,
        "head": 0, "oldest": 1, "messages": 0, "members": 1, "lastReceivedAt": null,
    });
    assert_eq!(made.json(), room);
    assert_eq!(server.get(ROOM).await.json(), room);
    assert_eq!(server.get("/v1/rooms").await.json()["rooms"], json!([room]));

    // What the body does not name stays; null takes back.
    let changed = server.call("ada", Method::PUT, ROOM, json!({"title": null})).await;
    room["title"] = Value::Null;
    assert_eq!((changed.status, changed.json()), (200, room.clone()));
    let changed = server.call("", Method::PUT, ROOM, json!({"retention": null, "membersOnly": false})).await;
    (room["retention"], room["membersOnly"]) = (Value::Null, json!(false));
    assert_eq!((changed.status, changed.json()), (200, room.clone()));
    // Whoever asks without anything to change changes nothing.
    assert_eq!(server.call("", Method::PUT, ROOM, Value::Null).await.json(), room);
    server.call("bob", Method::PUT, ROOM, json!({"title": "Mine"})).await.problem(403, "not_member");
    assert_eq!(server.get(ROOM).await.json(), room);
}

#[tokio::test]
async fn a_deleted_room_is_gone_and_made_again_counts_on() {
    let server = Server::start();
    for text in ["one", "two"] {
        server.send("tea", text).await;
    }
    server.add_member("tea", "bob").await;
    let mut follower = server.subscriber("tea", json!({"after": 0})).await;
    assert_eq!(seqs(&follower.receive_many(2).await), [1, 2]);

    let deleted = server.call("", Method::DELETE, ROOM, Value::Null).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    let removed = follower.receive_type("error").await;
    assert_eq!((&removed["code"], &removed["roomId"]), (&json!("removed"), &json!("tea")));
    server.get(ROOM).await.problem(404, "unknown_room");
    server.get(&format!("{ROOM}/messages")).await.problem(404, "unknown_room");
    server.call("", Method::DELETE, ROOM, Value::Null).await.problem(404, "unknown_room");
    assert_eq!(server.get("/v1/rooms").await.json()["rooms"], json!([]));
    assert!(server.rooms_of("bob").await.is_empty());

    assert_eq!(server.send("tea", "three").await["seq"], 3);
    assert_eq!(seqs(&server.history("tea").await), [3]);
    assert_eq!(server.get(ROOM).await.json()["members"], 0);
    assert!(follower.receive_pending().await.is_empty(), "what was ended stays so");
    // The socket is as good as before.
    follower.subscribe("tea", json!({"after": 0})).await;
    assert_eq!(follower.receive().await["seq"], 3);
}

#[tokio::test]
async fn garbage_is_named() {
    let server = Server::start();
    server.put_room("tea", json!({})).await;
    let put = async |path: &str, body: Value| server.call("ada", Method::PUT, path, body).await;
    for (body, fields) in [
        (json!({"title": "x".repeat(257)}), &["title"][..]),
        (
            json!({"title": 7, "membersOnly": "yes", "retention": "soon"}),
            &["title", "membersOnly", "retention"],
        ),
        (
            json!({"title": "a\nb", "membersOnly": null, "retention": 0}),
            &["title", "membersOnly", "retention"],
        ),
    ] {
        put(ROOM, body).await.faults(fields);
    }
    for body in ["[]", "7", "{", "\u{1}"] {
        server.http().await.request(Method::PUT, ROOM, &[], body).await.problem(400, "malformed");
    }
    put("/v1/rooms/a%20b", json!({})).await.faults(&["roomId"]);
    put("/v1/rooms/tea/members/a%20b", Value::Null).await.faults(&["userId"]);
    for (body, fields) in [
        (json!({}), &["seq"][..]),
        (json!({"seq": "1"}), &["seq"]),
        (json!({"seq": -1}), &["seq"]),
        (json!({"seq": 1.5}), &["seq"]),
        (json!({"seq": null}), &["seq"]),
    ] {
        put("/v1/rooms/tea/read", body).await.faults(fields);
    }
    server.call("", Method::PUT, "/v1/rooms/tea/read", json!({"seq": 1})).await.faults(&["user"]);
    for path in ["/v1/rooms/tea/members?limit=0&after=a%20b", "/v1/users/ada/rooms?limit=1001&after=%C3%A4"] {
        server.get(path).await.faults(&["limit", "after"]);
    }
    server.get("/v1/users/a%20b/rooms").await.faults(&["userId"]);
    for (method, path, code) in [
        (Method::PUT, "/v1/rooms/nowhere/members/ada", "unknown_room"),
        (Method::DELETE, "/v1/rooms/nowhere/members/ada", "unknown_room"),
        (Method::GET, "/v1/rooms/nowhere/members", "unknown_room"),
    ] {
        server.call("", method, path, Value::Null).await.problem(404, code);
    }
    put("/v1/rooms/nowhere/read", json!({"seq": 1})).await.problem(404, "unknown_room");
    for (method, path, allow) in [
        (Method::POST, ROOM, "GET, HEAD, PUT, DELETE"),
        (Method::GET, "/v1/rooms/tea/members/ada", "PUT, DELETE"),
        (Method::POST, "/v1/rooms/tea/members", "GET, HEAD"),
        (Method::GET, "/v1/rooms/tea/read", "PUT"),
        (Method::POST, "/v1/users/ada/rooms", "GET, HEAD"),
        (Method::GET, "/v1/users/ada", "DELETE"),
    ] {
        let answer = server.call("", method, path, Value::Null).await;
        answer.problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
    }
}

#[tokio::test]
async fn frames_of_marks_and_of_all_rooms_name_what_is_wrong() {
    let server = Server::start();
    server.put_room("tea", json!({})).await;
    let mut ada = server.ws("/v1/ws?user=ada").await;
    let mut nobody = server.ws("/v1/ws").await;
    let fields = |frame: &Value| crate::harness::faulty_fields(frame).join(" ");
    for (frame, expected) in [
        (json!({"type": "read"}), "roomId seq"),
        (json!({"type": "read", "roomId": "*", "seq": "x"}), "roomId seq"),
        (json!({"type": "read", "roomId": "tea", "seq": -1}), "seq"),
        (json!({"type": "subscribe", "roomId": "*", "after": 1, "last": 2}), "after last"),
        (json!({"type": "subscribe", "roomId": "*", "cursors": [1]}), "cursors"),
        (json!({"type": "subscribe", "roomId": "*", "cursors": {"a b": 1}}), "cursors"),
        (json!({"type": "subscribe", "roomId": "*", "cursors": {"tea": -1}}), "cursors"),
        (json!({"type": "subscribe", "roomId": "*", "epoch": 1, "onReset": "never"}), "epoch onReset"),
        (json!({"type": "unsubscribe", "roomId": "*"}), "roomId"),
    ] {
        let error = ada.request(&frame).await;
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("error"), &json!("invalid")),
            "{frame}: {error}"
        );
        assert_eq!(fields(&error), expected, "{frame}");
    }
    for frame in
        [json!({"type": "read", "roomId": "tea", "seq": 1}), json!({"type": "subscribe", "roomId": "*"})]
    {
        assert_eq!(fields(&nobody.request(&frame).await), "user");
    }
    let refused = ada.request(&json!({"type": "read", "ref": 1, "roomId": "tea", "seq": 1})).await;
    assert_eq!((&refused["code"], &refused["ref"]), (&json!("not_member"), &json!(1)), "{refused}");
    assert_eq!(refused.get("messageId"), None);
    let refused = ada.request(&json!({"type": "read", "roomId": "nowhere", "seq": 1})).await;
    assert_eq!(refused["code"], "unknown_room");
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let server = Server::start();
    server.put_room("tea", json!({})).await;
    server.add_member("tea", "ada").await;
    let evil = [("origin", "http://evil.example"), ("hubbub-user", "ada")];
    for (method, path) in [
        (Method::PUT, "/v1/rooms/new"),
        (Method::DELETE, ROOM),
        (Method::PUT, "/v1/rooms/tea/members/mallory"),
        (Method::DELETE, "/v1/rooms/tea/members/ada"),
        (Method::PUT, "/v1/rooms/tea/read"),
        (Method::DELETE, "/v1/users/ada"),
    ] {
        server.http().await.request(method, path, &evil, "{}").await.problem(403, "forbidden");
    }
    assert_eq!(server.get(ROOM).await.json()["members"], 1);
    assert_eq!(server.get("/v1/rooms").await.json()["rooms"].as_array().unwrap().len(), 1);
}
