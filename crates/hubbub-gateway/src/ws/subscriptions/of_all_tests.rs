use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use hubbub_core::clock::ManualClock;
use hubbub_core::{RoomChange, RoomSettings};
use hubbub_pipeline::Waiter;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Gateway;
use crate::auth::caller::{Caller, Identity};
use crate::fixture::{self, caller};
use crate::follow::OnReset;

/// A socket of ada that follows all rooms, and what it is told.
struct Follower {
    gateway: Arc<Gateway>,
    subscriptions: Subscriptions,
    socket: Socket,
    _client: TcpStream,
}

impl Follower {
    async fn start(gateway: &Arc<Gateway>, rooms: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = Socket::new(listener.accept().await.unwrap().0);
        let mut subscriptions = Subscriptions::new(gateway.clone(), Arc::new(Waiter::ordered()));
        subscriptions.set_caller(&ada(gateway, rooms));
        subscriptions.open();
        let (cursors, on_reset) = (HashMap::new(), OnReset::Replay);
        let request = AllRoomsRequest { reference: "1".into(), cursors, epoch: None, on_reset };
        subscriptions.subscribe_all(request).unwrap();
        Self { gateway: gateway.clone(), subscriptions, socket, _client: client }
    }

    fn may_read(&mut self, rooms: &str) -> Vec<RoomId> {
        self.subscriptions.set_caller(&ada(&self.gateway, rooms))
    }

    /// Goes on until it follows these rooms, live, and knows of no others to come.
    async fn until_it_follows(&mut self, rooms: &[&str]) {
        for _ in 0..2_000 {
            poll_fn(|context| {
                self.subscriptions.poll(context, &mut self.socket, true);
                Poll::Ready(())
            })
            .await;
            let mut followed: Vec<&str> = self.subscriptions.rooms.keys().map(RoomId::as_str).collect();
            followed.sort_unstable();
            if followed == rooms && self.subscriptions.catching_up.is_empty() && self.announced() > 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("waited in vain for {rooms:?}: {:?}", self.subscriptions.rooms.keys());
    }

    async fn until_all_are_read(&mut self) {
        while !self.subscriptions.all.as_ref().unwrap().is_complete() {
            poll_fn(|context| {
                self.subscriptions.poll(context, &mut self.socket, true);
                Poll::Ready(())
            })
            .await;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// How often it was told that all rooms are live.
    fn announced(&mut self) -> usize {
        String::from_utf8_lossy(self.socket.out()).matches("\"roomId\":\"*\",\"rooms\":").count()
    }
}

fn ada(gateway: &Gateway, rooms: &str) -> Caller {
    caller(gateway, json!({"sub": "ada", "rooms": {rooms: "r"}}))
}

async fn join(gateway: &Arc<Gateway>, room: &str) {
    let administrator = Caller::unnamed(Identity::Anyone).unwrap();
    let settings = RoomSettings::default();
    gateway.change(&administrator, RoomChange::PutRoom { room, settings }).await.unwrap();
    gateway.change(&administrator, RoomChange::AddMember { room, user: "ada" }).await.unwrap();
}

#[tokio::test]
async fn a_wider_token_brings_the_rooms_that_a_narrow_one_left_out() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
    for room in ["garden", "lobby", "tea"] {
        join(&gateway, room).await;
    }
    let mut follower = Follower::start(&gateway, "lobby").await;
    follower.until_it_follows(&["lobby"]).await;
    // Joined while the token does not allow it.
    join(&gateway, "later").await;
    join(&gateway, "lobby-2").await;
    follower.until_it_follows(&["lobby"]).await;
    assert!(follower.may_read("*").is_empty());
    follower.until_it_follows(&["garden", "later", "lobby", "lobby-2", "tea"]).await;
    // Taken away and given back.
    assert_eq!(follower.may_read("lobby*").len(), 3);
    follower.until_it_follows(&["lobby", "lobby-2"]).await;
    assert_eq!(follower.may_read("tea").len(), 2);
    follower.until_it_follows(&["tea"]).await;
    follower.may_read("*");
    follower.until_it_follows(&["garden", "later", "lobby", "lobby-2", "tea"]).await;
    assert_eq!(follower.announced(), 1);
}

/// Reading all rooms again is no joining again.
#[tokio::test]
async fn a_room_that_was_unsubscribed_does_not_come_back_with_a_wider_token() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
    for room in ["lobby", "lobby-2", "tea"] {
        join(&gateway, room).await;
    }
    let mut follower = Follower::start(&gateway, "lobby*").await;
    follower.until_it_follows(&["lobby", "lobby-2"]).await;
    assert!(follower.subscriptions.unsubscribe(&RoomId::new("lobby").unwrap()));
    follower.may_read("*");
    follower.until_it_follows(&["lobby-2", "tea"]).await;
    follower.until_all_are_read().await;
    follower.until_it_follows(&["lobby-2", "tea"]).await;
}

/// A socket stays for long, and its user joins and leaves.
#[tokio::test]
async fn what_was_unsubscribed_is_forgotten_once_it_is_left() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
    join(&gateway, "lobby").await;
    join(&gateway, "tea").await;
    let mut follower = Follower::start(&gateway, "*").await;
    follower.until_it_follows(&["lobby", "tea"]).await;
    assert!(follower.subscriptions.unsubscribe(&RoomId::new("lobby").unwrap()));
    let administrator = Caller::unnamed(Identity::Anyone).unwrap();
    for number in 0..250 {
        let room = RoomId::new(&format!("room{number}")).unwrap();
        join(&gateway, room.as_str()).await;
        follower.until_it_follows(&[room.as_str(), "tea"]).await;
        assert!(follower.subscriptions.unsubscribe(&room));
        let left = RoomChange::RemoveMember { room: room.as_str(), user: "ada" };
        gateway.change(&administrator, left).await.unwrap();
    }
    follower.until_it_follows(&["tea"]).await;
    let kept = follower.subscriptions.all.as_ref().unwrap().unsubscribed_count();
    assert!((1..=100).contains(&kept), "{kept}");
    // It was not left.
    follower.until_all_are_read().await;
    follower.until_it_follows(&["tea"]).await;
    join(&gateway, "room0").await;
    follower.until_it_follows(&["room0", "tea"]).await;
    assert_eq!(follower.announced(), 1);
}

/// Reading all rooms costs something; a token is renewed again and again.
#[tokio::test]
async fn a_token_with_the_same_rights_has_nothing_read_again() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
    join(&gateway, "lobby").await;
    join(&gateway, "tea").await;
    let mut follower = Follower::start(&gateway, "lobby").await;
    follower.until_it_follows(&["lobby"]).await;
    let has_left_out = |follower: &Follower| follower.subscriptions.all.as_ref().unwrap().has_left_out;
    follower.may_read("lobby");
    assert!(has_left_out(&follower));
    follower.may_read("lobby*");
    assert!(!has_left_out(&follower), "all rooms are being read");
    follower.until_it_follows(&["lobby"]).await;
}
