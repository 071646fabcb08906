//! Read marks and unread counts: exact, told to every socket of the user, and durable.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Server, UnreadCounter, Ws};

async fn send(server: &Server, user: &str, count: u64) {
    for _ in 0..count {
        let body = json!({"userId": user, "message": "x"});
        assert_eq!(server.post("/v1/rooms/r/messages", &body).await.status, 201);
    }
}

async fn standing(server: &Server) -> (u64, u64) {
    let rooms = server.rooms_of("ada").await;
    (rooms["r"]["readSeq"].as_u64().unwrap(), rooms["r"]["unread"].as_u64().unwrap())
}

fn notice(seq: u64, unread: u64) -> Value {
    json!({"type": "read", "roomId": "r", "userId": "ada", "seq": seq, "unread": unread, "head": 7})
}

#[tokio::test]
async fn marks_reach_every_socket_of_the_user() {
    let server = Server::start();
    send(&server, "bob", 2).await;
    for user in ["ada", "bob"] {
        server.add_member("r", user).await;
    }
    assert_eq!(standing(&server).await, (2, 0), "what was there before is not unread");
    send(&server, "bob", 5).await;
    assert_eq!(standing(&server).await, (2, 5));

    // Three devices: what each of them follows does not matter.
    let mut devices: Vec<Ws> = Vec::new();
    for _ in 0..3 {
        devices.push(server.ws("/v1/ws?user=ada").await);
    }
    devices[1].subscribe("other", json!({})).await;
    let mut bob = server.ws("/v1/ws?user=bob").await;
    let answer = devices[0].request(&json!({"type": "read", "ref": "r1", "roomId": "r", "seq": 4})).await;
    let mut expected = notice(4, 3);
    expected["ref"] = json!("r1");
    assert_eq!(answer, expected);
    for device in &mut devices {
        assert_eq!(device.receive().await, notice(4, 3));
    }
    // Over HTTP it is the same; beyond the head means the head.
    let answer = server.call("ada", Method::PUT, "/v1/rooms/r/read", json!({"seq": 99})).await;
    assert_eq!(answer.json(), json!({"roomId": "r", "readSeq": 7, "unread": 0, "head": 7}));
    for device in &mut devices {
        assert_eq!(device.receive().await, notice(7, 0));
    }
    // Backward is no change, and nobody is told; whoever asked is answered.
    let answer = devices[2].request(&json!({"type": "read", "ref": 2, "roomId": "r", "seq": 3})).await;
    assert_eq!((&answer["seq"], &answer["unread"], &answer["ref"]), (&json!(7), &json!(0), &json!(2)));
    devices[2].send(&json!({"type": "read", "roomId": "r", "seq": 3})).await;
    for device in &mut devices {
        assert!(device.receive_pending().await.is_empty());
    }
    assert!(bob.receive_pending().await.is_empty(), "marks are the user's own");
    assert_eq!(standing(&server).await, (7, 0));
}

/// Sends and marks of one socket are answered in their order.
#[tokio::test]
async fn marks_keep_their_place_among_sends() {
    let server = Server::start();
    server.put_room("r", json!({})).await;
    server.add_member("r", "ada").await;
    let mut ada = server.ws("/v1/ws?user=ada").await;
    let frames: Vec<Value> = (1..=200)
        .map(|n| match n % 3 {
            0 => json!({"type": "read", "ref": n, "roomId": "r", "seq": n}),
            _ => json!({"type": "send", "ref": n, "roomId": "r", "message": "x"}),
        })
        .collect();
    ada.send_all(&frames).await;
    let mut refs = Vec::new();
    while refs.len() < frames.len() {
        let answer = ada.receive().await;
        refs.extend(answer["ref"].as_u64());
        assert!(matches!(answer["type"].as_str(), Some("ack" | "read")), "{answer}");
    }
    assert_eq!(refs, (1..=200).collect::<Vec<_>>());
    assert_eq!(
        standing(&server).await,
        (134, 0),
        "one's own messages are read as long as nothing else is unread"
    );
}

/// Two devices that count for themselves, by the rule in docs/api.md, come to what the server says.
#[tokio::test]
async fn devices_count_as_the_server_does() {
    let server = Server::start();
    server.put_room("r", json!({})).await;
    for user in ["ada", "bob"] {
        server.add_member("r", user).await;
    }
    let mut devices = Vec::new();
    for _ in 0..2 {
        let mut socket = server.ws("/v1/ws?user=ada").await;
        socket.send(&json!({"type": "subscribe", "roomId": "*"})).await;
        socket.receive_until("subscribed", "*").await;
        devices.push((socket, UnreadCounter::new("ada")));
    }
    let mut bob = server.ws("/v1/ws?user=bob").await;
    let say = json!({"type": "send", "roomId": "r", "message": "x"});
    // All at once, so that sends and marks of several sockets meet in one batch.
    for round in 1..=30_u64 {
        for _ in 0..round % 4 {
            bob.send(&say).await;
        }
        let mark = json!({"type": "read", "roomId": "r", "seq": round * 3});
        devices[0].0.send_all(&[say.clone(), mark, say.clone()]).await;
        devices[1].0.send(&say).await;
    }
    bob.send(&json!({"type": "send", "roomId": "r", "message": "end"})).await;
    let total = 30 * 3 + (1..=30).map(|round| round % 4).sum::<u64>() + 1;
    for (socket, counter) in &mut devices {
        while counter.newest() < total {
            counter.take(&socket.receive().await);
        }
        // Notices that were committed behind the last message.
        for frame in socket.receive_pending().await {
            counter.take(&frame);
        }
    }
    let expected = standing(&server).await;
    for (_, counter) in &devices {
        assert_eq!((counter.read, counter.unread), expected);
    }
}

#[tokio::test]
async fn members_and_marks_survive_a_kill() {
    let mut server = Server::start();
    server.put_room("r", json!({"title": "Tea", "membersOnly": true, "retention": "7d"})).await;
    for user in ["ada", "bob", "cleo"] {
        server.add_member("r", user).await;
    }
    send(&server, "bob", 10).await;
    server.call("ada", Method::PUT, "/v1/rooms/r/read", json!({"seq": 4})).await;
    server.remove_member("r", "cleo").await;
    let before = (server.get("/v1/rooms/r").await.json(), server.get("/v1/rooms/r/members").await.json());
    for _ in 0..2 {
        server.restart();
        let after = (server.get("/v1/rooms/r").await.json(), server.get("/v1/rooms/r/members").await.json());
        assert_eq!(after, before);
        assert_eq!(standing(&server).await, (4, 6));
    }
    let members = json!([{"userId": "ada", "readSeq": 4}, {"userId": "bob", "readSeq": 10}]);
    assert_eq!(before.1, json!({"members": members, "next": null}));
    server.call("cleo", Method::GET, "/v1/rooms/r", Value::Null).await.problem(403, "not_member");
    // The list of members page by page.
    let page = server.get("/v1/rooms/r/members?limit=1").await.json();
    assert_eq!((&page["members"][0]["userId"], &page["next"]), (&json!("ada"), &json!("ada")));
    let page = server.get("/v1/rooms/r/members?limit=1&after=ada").await.json();
    assert_eq!((&page["members"][0]["userId"], &page["next"]), (&json!("bob"), &Value::Null));
}

#[tokio::test]
async fn an_erased_user_leaves_nothing() {
    let server = Server::start();
    for user in ["ada", "bob"] {
        send(&server, user, 3).await;
        server.add_member("r", user).await;
    }
    let mut ada = server.ws("/v1/ws?user=ada").await;
    ada.send(&json!({"type": "subscribe", "roomId": "*"})).await;
    ada.receive_until("subscribed", "*").await;
    let erased = server.call("ada", Method::DELETE, "/v1/users/ada", Value::Null).await;
    assert_eq!((erased.status, erased.json()), (200, json!({"userId": "ada", "messages": 3})));
    assert_eq!(ada.receive().await["code"], "removed");
    assert_eq!(crate::harness::seqs(&server.history("r").await), [4, 5, 6]);
    assert!(server.rooms_of("ada").await.is_empty());
    assert_eq!(
        server.get("/v1/rooms/r/members").await.json()["members"],
        json!([{"userId": "bob", "readSeq": 6}])
    );
    let again = server.call("", Method::DELETE, "/v1/users/ada", Value::Null).await;
    assert_eq!(again.json()["messages"], 0);
}
