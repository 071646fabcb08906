//! A room for members only: every way in, for an administrator, a member and a stranger; and what of it is remembered.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Postgres, Server, Setup, texts};

async fn club() -> Server {
    let server = Server::start();
    let body = json!({"membersOnly": true});
    assert_eq!(server.call("ada", Method::PUT, "/v1/rooms/club", body).await.status, 201);
    server.send("club", "hello").await;
    server
}

/// A stranger's status is 403; the others' is given.
#[tokio::test]
async fn every_path_asks_who_calls() {
    let server = club().await;
    let message = |user: &str| json!({"userId": user, "message": "x"});
    for (method, path, body, status) in [
        (Method::GET, "/v1/rooms/club", Value::Null, 200),
        (Method::PUT, "/v1/rooms/club", json!({"title": "Club"}), 200),
        (Method::GET, "/v1/rooms/club/messages", Value::Null, 200),
        (Method::GET, "/v1/rooms/club/presence", Value::Null, 200),
        (Method::GET, "/v1/rooms/club/members", Value::Null, 200),
        (Method::PUT, "/v1/rooms/club/members/cleo", Value::Null, 204),
        (Method::DELETE, "/v1/rooms/club/members/cleo", Value::Null, 204),
        (Method::POST, "/v1/rooms/club/messages", Value::Null, 201),
        (Method::PUT, "/v1/rooms/club/read", json!({"seq": 1}), 200),
    ] {
        for user in ["", "ada", "bob"] {
            let body = if path.ends_with("messages") && method == Method::POST {
                // Nobody but a member may be made the sender, whoever sends it.
                message(if user.is_empty() { "ada" } else { user })
            } else {
                body.clone()
            };
            let answer = server.call(user, method.clone(), path, body).await;
            match user {
                "bob" => drop(answer.problem(403, "not_member")),
                // An administrator has no read mark.
                "" if path.ends_with("read") => answer.faults(&["user"]),
                _ => assert_eq!(answer.status, status, "{method} {path} as '{user}': {}", answer.text()),
            }
        }
    }
    server.call("bob", Method::GET, "/v1/rooms/club/events", Value::Null).await.problem(403, "not_member");
    // A stranger cannot bring himself in, nor delete the room; a member can leave and a member can delete.
    server
        .call("bob", Method::PUT, "/v1/rooms/club/members/bob", Value::Null)
        .await
        .problem(403, "not_member");
    server.call("bob", Method::DELETE, "/v1/rooms/club", Value::Null).await.problem(403, "not_member");
    assert_eq!(server.call("ada", Method::DELETE, "/v1/rooms/club", Value::Null).await.status, 204);
}

#[tokio::test]
async fn sockets_ask_who_calls() {
    let server = club().await;
    let subscribe = json!({"type": "subscribe", "ref": "s", "roomId": "club", "after": 0});
    let send = json!({"type": "send", "ref": "m", "roomId": "club", "message": "x"});
    let mut bob = server.ws("/v1/ws?user=bob").await;
    for frame in [&subscribe, &send] {
        let error = bob.request(frame).await;
        assert_eq!((&error["code"], &error["ref"]), (&json!("not_member"), &frame["ref"]), "{error}");
    }
    for path in ["/v1/ws?user=ada", "/v1/ws"] {
        let mut socket = server.ws(path).await;
        assert_eq!(socket.request(&subscribe).await["type"], "subscribed");
        assert_eq!(socket.receive().await["message"], "hello");
    }
    let mut chat = server.ws("/chat/club?user=bob").await;
    let mut message = crate::harness::chat_message("id", "x");
    message["userId"] = json!("bob");
    let answer = chat.request(&message).await;
    assert_eq!((&answer["status"], &answer["code"]), (&json!("error"), &json!("not_member")), "{answer}");
    assert_eq!(texts(&server.history("club").await), ["hello"]);
}

#[tokio::test]
async fn lists_show_nobody_what_is_not_theirs() {
    let server = Server::start();
    for number in 0..30 {
        let settings = json!({"membersOnly": number % 3 > 0});
        server.put_room(&format!("room-{number:02}"), settings).await;
    }
    server.add_member("room-16", "ada").await;
    let list = async |user: &str| {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page =
                server.call(user, Method::GET, &format!("/v1/rooms?limit=4{after}"), Value::Null).await;
            let page = page.json();
            let rooms = page["rooms"].as_array().unwrap();
            all.extend(rooms.iter().map(|room| room["roomId"].as_str().unwrap()["room-".len()..].to_owned()));
            match page["next"].as_str() {
                Some(next) => {
                    assert_eq!(rooms.len(), 4, "a page that is not the last one is full");
                    assert!(next.ends_with(all.last().unwrap()), "no name is told that is not shown");
                    after = format!("&after={next}");
                }
                None => return all,
            }
        }
    };
    let numbers = |keep: fn(u32) -> bool| -> Vec<String> {
        (0..30).filter(|n| keep(*n)).map(|n| format!("{n:02}")).collect()
    };
    assert_eq!(list("").await, numbers(|_| true));
    assert_eq!(list("ada").await, numbers(|n| n % 3 == 0 || n == 16));
    assert_eq!(list("bob").await, numbers(|n| n % 3 == 0));

    // What a user takes part in is the user's own business.
    server.call("bob", Method::GET, "/v1/users/ada/rooms", Value::Null).await.problem(403, "forbidden");
    server.call("bob", Method::DELETE, "/v1/users/ada", Value::Null).await.problem(403, "forbidden");
    let own = server.call("ada", Method::GET, "/v1/users/ada/rooms", Value::Null).await.json();
    assert_eq!(own["rooms"][0]["roomId"], "room-16");
}

#[tokio::test]
async fn what_is_remembered_is_corrected_at_once() {
    let server = Setup::new().set("members.cache_ttl=1h").start();
    server.put_room("club", json!({})).await;
    let status =
        async |user: &str| server.call(user, Method::GET, "/v1/rooms/club/members", Value::Null).await.status;
    for _ in 0..5 {
        assert_eq!((status("ada").await, status("bob").await), (200, 200));
    }
    let (hits, misses) =
        (server.metric("members_cache_hits_total").await, server.metric("members_cache_misses_total").await);
    // Asked before and after what is shown is read.
    assert_eq!((hits, misses), (18, 2));
    server.put_room("club", json!({"membersOnly": true})).await;
    assert_eq!((status("ada").await, status("bob").await), (403, 403));
    for _ in 0..10 {
        server.add_member("club", "ada").await;
        assert_eq!((status("ada").await, status("bob").await), (200, 403));
        server.remove_member("club", "ada").await;
        assert_eq!((status("ada").await, status("bob").await), (403, 403));
    }
    server.put_room("club", json!({"membersOnly": false})).await;
    assert_eq!(status("bob").await, 200);
}

/// Who was refused at one server and is let in through another one need not wait until the refusal is forgotten.
#[tokio::test]
async fn who_is_let_in_elsewhere_reads_at_once() {
    let postgres = Postgres::start("");
    let [here, there] =
        [(); 2].map(|()| Setup::new().store(&postgres.url("postgres")).set("members.cache_ttl=1h").start());
    here.put_room("club", json!({"membersOnly": true})).await;
    let status = async || there.call("ada", Method::GET, "/v1/rooms/club/members", Value::Null).await.status;
    assert_eq!(status().await, 403);
    here.add_member("club", "ada").await;
    assert_eq!(status().await, 200);
}

/// Whoever is removed at one server, or was a guest of a room that closes there, reads nothing that was sent behind that at
/// another one, whatever that one remembers.
#[tokio::test]
async fn who_is_removed_elsewhere_reads_nothing_more() {
    let postgres = Postgres::start("");
    let [here, there] =
        [(); 2].map(|()| Setup::new().store(&postgres.url("postgres")).set("members.cache_ttl=1h").start());
    here.put_room("club", json!({"membersOnly": true})).await;
    here.put_room("open", json!({})).await;
    here.add_member("club", "ada").await;
    for room in ["club", "open"] {
        here.add_member(room, "bob").await;
    }
    let send = async |room: &str| {
        let path = format!("/v1/rooms/{room}/messages");
        assert_eq!(here.call("bob", Method::POST, &path, json!({"message": "x"})).await.status, 201);
    };
    let read = async |room: &str| {
        there.call("ada", Method::GET, &format!("/v1/rooms/{room}/messages"), Value::Null).await
    };
    for room in ["club", "open"] {
        send(room).await;
        assert_eq!(read(room).await.json()["messages"].as_array().unwrap().len(), 1);
    }
    here.remove_member("club", "ada").await;
    here.put_room("open", json!({"membersOnly": true})).await;
    for room in ["club", "open"] {
        send(room).await;
        read(room).await.problem(403, "not_member");
    }
}

/// Whoever followed an open room and is no member hears that it closed, and nothing of it afterwards.
#[tokio::test]
async fn a_room_that_closes_sends_strangers_away() {
    let server = Server::start();
    server.send("r", "open").await;
    server.add_member("r", "ada").await;
    let (mut ada, mut bob) = (server.ws("/v1/ws?user=ada").await, server.ws("/v1/ws?user=bob").await);
    for socket in [&mut ada, &mut bob] {
        socket.subscribe("r", json!({"after": 0})).await;
        socket.receive_until("message", "r").await;
    }
    server.put_room("r", json!({"membersOnly": true})).await;
    server.send("r", "closed").await;
    assert_eq!(ada.receive_until("message", "r").await["message"], "closed");
    let heard = bob.receive_pending().await;
    assert!(heard.iter().all(|frame| frame["type"] != "message"), "{heard:?}");
    assert_eq!(heard.last().unwrap()["code"], "removed");
}
