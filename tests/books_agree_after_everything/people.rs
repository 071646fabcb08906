//! Who joins rooms, reads there and leaves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hyper::Method;
use serde_json::json;

use super::books::Book;
use super::world::{Client, World, below};

const USERS: [&str; 3] = ["u0", "u1", "u2"];

/// Read marks of members as they were last told.
#[derive(Default)]
pub(super) struct Members(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

pub(super) async fn come_and_go(world: Arc<World>, members: Arc<Members>) {
    let (random, mut client) = (world.random(), world.client());
    while let Some(_turn) = world.turn(&random).await {
        let (room, user) = (super::ROOMS[below(&random, 2) as usize], USERS[below(&random, 3) as usize]);
        let mark = members.0.lock().unwrap().get(&(room, user)).copied();
        let path = format!("/v1/rooms/{room}/members/{user}");
        let kind = below(&random, 20);
        let Some(mark) = mark else {
            let answer = client.request_again(Method::PUT, &path, "").await;
            assert_eq!(answer.status, 204, "{}", answer.text());
            members.0.lock().unwrap().insert((room, user), 0);
            continue;
        };
        if kind == 0 {
            let answer = client.request_again(Method::DELETE, &path, "").await;
            assert_eq!(answer.status, 204, "{}", answer.text());
            members.0.lock().unwrap().remove(&(room, user));
            continue;
        }
        let head = client.get(&format!("/v1/rooms/{room}")).await["head"].as_u64().unwrap();
        let seq = head.saturating_sub(below(&random, 50));
        let body = json!({"seq": seq}).to_string();
        let path = format!("/v1/rooms/{room}/read?user={user}");
        let answer = client.request_again(Method::PUT, &path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = answer.json()["readSeq"].as_u64().unwrap();
        assert!(told >= seq.max(mark), "{user} read {room} to {seq}, {mark} before, and is told {told}");
        members.0.lock().unwrap().insert((room, user), told);
    }
}

/// Everybody is a member of the rooms told, has read as much as told, and the rest is unread.
pub(super) async fn check(members: &Members, client: &mut Client, books: &[Book]) {
    let members = members.0.lock().unwrap().clone();
    for user in USERS {
        let rooms = client.get(&format!("/v1/users/{user}/rooms")).await;
        let rooms = rooms["rooms"].as_array().unwrap();
        let names: Vec<_> = rooms.iter().map(|room| room["roomId"].as_str().unwrap()).collect();
        let expected: Vec<_> =
            members.keys().filter(|(_, member)| *member == user).map(|(room, _)| *room).collect();
        assert_eq!(names, expected, "rooms of {user}");
        for room in rooms {
            let book = books.iter().find(|book| room["roomId"] == book.room).unwrap();
            let mark = room["readSeq"].as_u64().unwrap();
            let least = members[&(book.room, user)];
            assert!(mark >= least, "{user} read {} to {least}: {room}", book.room);
            let unread = book.entries.iter().filter(|entry| entry.seq > mark).count();
            let (head, messages) = (book.entries.last().map(|last| last.seq), book.entries.len());
            assert_eq!(room["unread"], unread, "{user}: {room}");
            assert_eq!(
                (&room["head"], &room["messages"]),
                (&json!(head), &json!(messages)),
                "{user}: {room}"
            );
        }
    }
}
