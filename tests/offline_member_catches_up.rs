//! `"*"`: all rooms of a user over one socket. Who was away gets what is unread, without a gap or a repeat; rooms joined
//! later come by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Dialect, Server, Setup, Writer, Ws, in_time, seqs};

const ALL: &str = "*";

async fn send_as(server: &Server, room: &str, user: &str, text: &str) -> u64 {
    let body = json!({"userId": user, "message": text});
    let answer = server.post(&format!("/v1/rooms/{room}/messages"), &body).await;
    answer.json()["seq"].as_u64().unwrap_or_else(|| panic!("{}", answer.text()))
}

/// Opens a socket that asks for all rooms, and reads it until all of them are live. What came, by room.
async fn all_of(server: &Server, user: &str, how: Value) -> (Ws, BTreeMap<String, Vec<Value>>) {
    let mut socket = server.ws(&format!("/v1/ws?user={user}")).await;
    let mut frame = json!({"type": "subscribe", "ref": "all", "roomId": ALL});
    frame.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
    socket.send(&frame).await;
    let mut rooms: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    loop {
        let frame = socket.receive().await;
        let room = frame["roomId"].as_str().unwrap_or_else(|| panic!("{frame}")).to_owned();
        match frame["type"].as_str().unwrap() {
            "subscribed" if room == ALL => {
                assert_eq!((&frame["ref"], &frame["rooms"]), (&json!("all"), &json!(rooms.len())), "{frame}");
                return (socket, rooms);
            }
            "subscribed" => {
                assert_eq!(frame["ref"], "all");
                assert_eq!(rooms.insert(room, vec![frame]), None, "a room is announced once");
            }
            "message" | "reset" => rooms.get_mut(&room).expect("announced before").push(frame),
            _ => {}
        }
    }
}

/// The messages behind the announcement.
fn missed(rooms: &BTreeMap<String, Vec<Value>>, room: &str) -> Vec<u64> {
    seqs(&rooms[room][1..])
}

#[tokio::test]
async fn offline_member_catches_up() {
    let server = Server::start();
    for room in ["a", "b", "c", "d"] {
        send_as(&server, room, "bob", "before she came").await;
        if room != "d" {
            server.add_member(room, "ada").await;
        }
    }
    let (socket, rooms) = all_of(&server, "ada", json!({})).await;
    assert_eq!(rooms.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(rooms.values().all(|frames| frames.len() == 1), "nothing is unread: {rooms:?}");
    assert_eq!((&rooms["a"][0]["head"], &rooms["a"][0]["readSeq"]), (&json!(1), &json!(1)));
    socket.close().await;

    for number in 2..=100 {
        send_as(&server, if number % 2 == 0 { "a" } else { "b" }, "bob", &number.to_string()).await;
    }
    send_as(&server, "d", "bob", "not for her").await;
    let marked = server.call("ada", Method::PUT, "/v1/rooms/a/read", json!({"seq": 11})).await.json();
    assert_eq!(marked, json!({"roomId": "a", "readSeq": 11, "unread": 40, "head": 51}));
    let list = server.rooms_of("ada").await;
    let unread: Vec<_> = list.values().map(|room| room["unread"].as_u64().unwrap()).collect();
    assert_eq!(unread, [40, 49, 0]);

    let (mut socket, rooms) = all_of(&server, "ada", json!({})).await;
    for (room, unread) in list.keys().zip(unread) {
        assert_eq!(missed(&rooms, room).len() as u64, unread, "what comes is what is unread");
    }
    assert_eq!(missed(&rooms, "a"), (12..=51).collect::<Vec<_>>());
    assert_eq!(missed(&rooms, "b"), (2..=50).collect::<Vec<_>>());
    // And live from there.
    for (room, seq) in [("b", 51), ("c", 2), ("a", 52)] {
        assert_eq!(send_as(&server, room, "bob", "live").await, seq);
        assert_eq!(socket.receive_until("message", room).await["seq"], seq);
    }
}

/// Under load, and cut off again and again: by cursors there is neither a gap nor a repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rooms_go_on_where_they_were() {
    let server = Server::start();
    let address = server.address();
    let rooms = ["a", "b", "c"];
    for room in rooms {
        server.put_room(room, json!({})).await;
        server.add_member(room, "ada").await;
    }
    let writers: Vec<_> = rooms
        .map(|room| {
            tokio::spawn(async move {
                let mut writer = Writer::new("w", room, Dialect::Api, 64);
                writer.run(address, |writer| writer.acked.len() >= 3_000).await.unwrap();
            })
        })
        .into();
    let mut seen: BTreeMap<String, Vec<u64>> = rooms.map(|room| (room.to_owned(), vec![])).into();
    let mut rounds = 0;
    loop {
        let was_complete = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let cursors: BTreeMap<_, _> =
            seen.iter().map(|(room, seen)| (room, seen.last().unwrap_or(&0))).collect();
        let mut socket = server.ws("/v1/ws?user=ada").await;
        socket.send(&json!({"type": "subscribe", "roomId": ALL, "cursors": cursors})).await;
        let (mut is_live, mut count) = (false, 0);
        // Cut off somewhere; the last time only when everything is live, which is then all there is.
        while if was_complete { !is_live } else { count < 700 } {
            let are_over = || writers.iter().all(tokio::task::JoinHandle::is_finished);
            let frame = tokio::select! {
                frame = socket.receive() => frame,
                // Nothing more may come of writers that have ended.
                () = tokio::time::sleep(Duration::from_millis(100)), if !was_complete => {
                    if is_live && are_over() {
                        break;
                    }
                    continue;
                }
            };
            assert_ne!(frame["type"], "error", "{frame}");
            is_live |= frame["type"] == "subscribed" && frame["roomId"] == ALL;
            if frame["type"] == "message" {
                count += 1;
                seen.get_mut(frame["roomId"].as_str().unwrap()).unwrap().push(frame["seq"].as_u64().unwrap());
            } else if is_live && are_over() {
                break;
            }
        }
        rounds += 1;
        if was_complete {
            break;
        }
    }
    println!("cut off {rounds} times");
    for writer in writers {
        in_time("the writers", writer).await.unwrap();
    }
    for (room, seen) in seen {
        assert_eq!(seen, seqs(&server.history(&room).await), "{room}");
    }
}

#[tokio::test]
async fn rooms_joined_later_come_by_themselves() {
    let server = Server::start();
    let (mut ada, _) = all_of(&server, "ada", json!({})).await;
    send_as(&server, "old", "bob", "before").await;
    server.add_member("old", "ada").await;
    let announced = ada.receive_type("subscribed").await;
    assert_eq!(
        (&announced["ref"], &announced["roomId"], &announced["readSeq"]),
        (&json!("all"), &json!("old"), &json!(1)),
    );
    send_as(&server, "old", "bob", "after").await;
    assert_eq!(ada.receive_until("message", "old").await["seq"], 2);
    // Whoever makes a room is its first member.
    server.call("ada", Method::PUT, "/v1/rooms/new", json!({"membersOnly": true})).await;
    send_as(&server, "new", "ada", "first").await;
    assert_eq!(ada.receive_until("message", "new").await["seq"], 1);

    // A room is followed once, by name or as one of all; what was ended stays so until it is joined anew.
    let error = ada.request(&json!({"type": "subscribe", "roomId": "old"})).await;
    assert_eq!(error["errors"][0]["field"], "roomId", "{error}");
    let error = ada.request(&json!({"type": "subscribe", "roomId": ALL})).await;
    assert_eq!(error["errors"][0]["field"], "roomId", "{error}");
    assert_eq!(ada.request(&json!({"type": "unsubscribe", "roomId": "old"})).await["type"], "unsubscribed");
    send_as(&server, "old", "bob", "unheard").await;
    assert!(ada.receive_pending().await.is_empty());
    server.remove_member("old", "ada").await;
    server.add_member("old", "ada").await;
    assert_eq!(ada.receive_until("subscribed", "old").await["readSeq"], 3);

    // And all of it ends at once.
    let answer = ada.request(&json!({"type": "unsubscribe", "roomId": ALL, "ref": 5})).await;
    assert_eq!(answer, json!({"type": "unsubscribed", "roomId": ALL, "ref": 5}));
    for room in ["old", "new"] {
        send_as(&server, room, "ada", "unheard").await;
    }
    server.add_member("new", "cleo").await;
    assert!(ada.receive_pending().await.is_empty());
    assert_eq!(ada.request(&json!({"type": "subscribe", "roomId": "old"})).await["type"], "subscribed");
}

/// A room followed by name stays so; made a member meanwhile, its subscription goes over to all rooms when the named one
/// ends.
#[tokio::test]
async fn a_room_followed_by_name_becomes_one_of_all() {
    let server = Server::start();
    send_as(&server, "r", "bob", "one").await;
    let (mut ada, _) = all_of(&server, "ada", json!({})).await;
    assert_eq!(ada.subscribe("r", json!({"ref": "named"})).await["ref"], "named");
    server.add_member("r", "ada").await;
    send_as(&server, "r", "bob", "two").await;
    assert_eq!(ada.receive_until("message", "r").await["seq"], 2);
    ada.send(&json!({"type": "unsubscribe", "roomId": "r"})).await;
    ada.receive_type("unsubscribed").await;
    let announced = ada.receive_type("subscribed").await;
    assert_eq!((&announced["ref"], &announced["readSeq"]), (&json!("all"), &json!(1)), "{announced}");
    assert_eq!(ada.receive_until("message", "r").await["seq"], 2, "as all rooms do, it begins at the mark");
}

#[tokio::test]
async fn cursors_that_cannot_be_honoured_are_reset_one_by_one() {
    let server = Server::start();
    for room in ["a", "b"] {
        server.put_room(room, json!({})).await;
        server.add_member(room, "ada").await;
        for number in 0..3 {
            send_as(&server, room, "bob", &number.to_string()).await;
        }
    }
    let (_, rooms) = all_of(&server, "ada", json!({"cursors": {"a": 9, "zzz": 4}})).await;
    assert_eq!(rooms["a"][1]["type"], "reset");
    assert_eq!(seqs(&rooms["a"][2..]), [1, 2, 3]);
    assert_eq!(missed(&rooms, "b"), [1, 2, 3], "not listed: from the mark");
    let (_, rooms) =
        all_of(&server, "ada", json!({"cursors": {"a": 2}, "epoch": "x", "onReset": "live"})).await;
    assert_eq!((rooms["a"].len(), &rooms["a"][1]["type"]), (2, &json!("reset")));
    assert_eq!(missed(&rooms, "b"), [1, 2, 3], "a mark belongs to no epoch");
}

#[tokio::test]
async fn more_rooms_than_may_be_are_refused_as_a_whole() {
    let server = Setup::new().set("limits.subscriptions=5").set("limits.all_rooms=150").start();
    for number in 0..150 {
        let room = format!("room-{number}");
        server.call("ada", Method::PUT, &format!("/v1/rooms/{room}"), json!({})).await;
    }
    // More than may be followed by name; those come on top.
    let (mut ada, rooms) = all_of(&server, "ada", json!({})).await;
    assert_eq!(rooms.len(), 150);
    for number in 0..5 {
        assert_eq!(ada.subscribe(&format!("named-{number}"), json!({})).await["head"], 0);
    }
    let error = ada.request(&json!({"type": "subscribe", "roomId": "named-5"})).await;
    assert_eq!(error["code"], "too_many_subscriptions");

    server.call("ada", Method::PUT, "/v1/rooms/one-more", json!({})).await;
    let error = ada.receive_error().await;
    assert_eq!((&error["code"], &error["ref"]), (&json!("too_many_subscriptions"), &json!("all")), "{error}");
    send_as(&server, "room-7", "ada", "unheard").await;
    send_as(&server, "named-1", "ada", "heard").await;
    assert_eq!(ada.receive_until("message", "named-1").await["message"], "heard");
    ada.send(&json!({"type": "subscribe", "ref": "again", "roomId": ALL})).await;
    let error = ada.receive_error().await;
    assert_eq!(
        (&error["code"], &error["ref"]),
        (&json!("too_many_subscriptions"), &json!("again")),
        "{error}"
    );
}
