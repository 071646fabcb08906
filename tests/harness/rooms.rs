//! What tests do with rooms, over HTTP and with sockets.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, Server, Ws};

impl Server {
    /// Makes members-only or changes a room; must succeed.
    pub(crate) async fn put_room(&self, room: &str, settings: Value) -> Value {
        let answer = self.call("", Method::PUT, &format!("/v1/rooms/{room}"), settings).await;
        assert!(answer.status == 200 || answer.status == 201, "{}", answer.text());
        answer.json()
    }

    /// Makes somebody a member; must succeed.
    pub(crate) async fn add_member(&self, room: &str, user: &str) {
        let path = format!("/v1/rooms/{room}/members/{user}");
        let answer = self.call("", Method::PUT, &path, Value::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// The same the other way round.
    pub(crate) async fn remove_member(&self, room: &str, user: &str) {
        let path = format!("/v1/rooms/{room}/members/{user}");
        let answer = self.call("", Method::DELETE, &path, Value::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// The rooms of a user by name.
    pub(crate) async fn rooms_of(&self, user: &str) -> BTreeMap<String, Value> {
        let answer = self.get(&format!("/v1/users/{user}/rooms?limit=1000")).await;
        let rooms = answer.json()["rooms"].as_array().unwrap().clone();
        rooms.into_iter().map(|room| (room["roomId"].as_str().unwrap().to_owned(), room)).collect()
    }

    pub(crate) async fn ws(&self, path: &str) -> Ws {
        Ws::open(self.address(), path).await
    }

    /// A socket of `/v1/ws` that follows `room` with the given members of the `subscribe` frame; it is read behind
    /// `subscribed`.
    pub(crate) async fn subscriber(&self, room: &str, how: Value) -> Ws {
        let mut socket = self.ws("/v1/ws").await;
        socket.subscribe(room, how).await;
        socket
    }

    /// A socket of `user` that follows the room from now on.
    pub(crate) async fn subscriber_of(&self, user: &str, room: &str) -> Ws {
        let mut socket = self.ws(&format!("/v1/ws?user={user}")).await;
        socket.subscribe(room, json!({})).await;
        socket
    }

    /// Sends one message that must be stored, and gives its receipt.
    pub(crate) async fn send(&self, room: &str, text: &str) -> Value {
        let message = json!({"userId": "ada", "message": text});
        let answer = self.post(&format!("/v1/rooms/{room}/messages"), &message).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// The same with an id.
    pub(crate) async fn send_as(&self, room: &str, id: &str, text: &str) -> Answer {
        let message = json!({"userId": "ada", "message": text, "messageId": id});
        self.post(&format!("/v1/rooms/{room}/messages"), &message).await
    }

    /// All messages of a room, page by page; none when there is no such room.
    pub(crate) async fn history(&self, room: &str) -> Vec<Value> {
        let mut http = self.http().await;
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let answer = http.get(&format!("/v1/rooms/{room}/messages?limit=1000&after={after}")).await;
            if answer.status == 404 {
                return all;
            }
            assert_eq!(answer.status, 200, "{}", answer.text());
            let mut page = answer.json();
            all.append(page["messages"].as_array_mut().unwrap());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => return all,
            }
        }
    }
}
