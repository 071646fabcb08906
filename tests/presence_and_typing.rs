//! Who is in a room, and who writes: told to those who follow it now, counted by user and not by socket.

use serde_json::{Value, json};

use crate::harness::{Server, until};

fn subscribe(room: &str) -> Value {
    json!({"type": "subscribe", "roomId": room})
}

async fn users(server: &Server) -> Value {
    server.get("/v1/rooms/r/presence").await.json()["users"].clone()
}

#[tokio::test]
async fn presence_is_told_to_the_others() {
    let server = Server::start();
    let mut ada = server.ws("/v1/ws?user=ada").await;
    assert_eq!(ada.request(&subscribe("r")).await["type"], "subscribed");
    until("ada is present", async || users(&server).await == json!(["ada"])).await;

    let mut bob = server.ws("/v1/ws?user=bob").await;
    assert_eq!(bob.request(&subscribe("r")).await["type"], "subscribed");
    let came = json!({"type": "presence", "roomId": "r", "userId": "bob", "online": true});
    assert_eq!(ada.receive().await, came);
    assert_eq!(users(&server).await, json!(["ada", "bob"]));

    // A second socket of bob's is no news, neither when it comes nor when it goes.
    let mut second = server.ws("/v1/ws?user=bob").await;
    assert_eq!(second.request(&subscribe("r")).await["type"], "subscribed");
    assert_eq!(second.request(&json!({"type": "unsubscribe", "roomId": "r"})).await["type"], "unsubscribed");
    drop(bob);
    assert_eq!(
        ada.receive().await,
        json!({"type": "presence", "roomId": "r", "userId": "bob", "online": false})
    );
    assert_eq!(users(&server).await, json!(["ada"]));
}

#[tokio::test]
async fn typing_reaches_the_others_once_a_second() {
    let server = Server::start();
    let typing = json!({"type": "typing", "roomId": "r"});
    let mut nobody = server.ws("/v1/ws").await;
    assert_eq!(nobody.request(&typing).await["errors"][0]["field"], "user");
    let mut ada = server.ws("/v1/ws?user=ada").await;
    assert_eq!(ada.request(&typing).await["errors"][0]["field"], "roomId");
    assert_eq!(ada.request(&subscribe("r")).await["type"], "subscribed");
    until("ada is present", async || users(&server).await == json!(["ada"])).await;
    let mut bob = server.ws("/v1/ws?user=bob").await;
    assert_eq!(bob.request(&subscribe("r")).await["type"], "subscribed");
    assert_eq!(ada.receive().await["type"], "presence");
    bob.send_all(&vec![typing; 5]).await;
    // The pong comes after whatever the five were answered with, which is nothing.
    assert_eq!(bob.request(&json!({"type": "ping"})).await["type"], "pong");
    server.send("r", "after").await;
    assert_eq!(ada.receive().await, json!({"type": "typing", "roomId": "r", "userId": "bob"}));
    assert_eq!(ada.receive().await["message"], "after", "five within a second are one");
}

/// Whether somebody may follow the room is asked after the subscription has begun.
#[tokio::test]
async fn nobody_is_told_that_a_stranger_types() {
    let server = Server::start();
    server.put_room("club", json!({"membersOnly": true})).await;
    server.add_member("club", "ada").await;
    let mut ada = server.ws("/v1/ws?user=ada").await;
    assert_eq!(ada.request(&subscribe("club")).await["type"], "subscribed");
    let mut eve = server.ws("/v1/ws?user=eve").await;
    eve.send_all(&[subscribe("club"), json!({"type": "typing", "roomId": "club"})]).await;
    assert_eq!(eve.receive_error().await["code"], "not_member");
    server.send("club", "after").await;
    assert_eq!(ada.receive().await["message"], "after");
}

/// Whoever follows the room anew is not told more often.
#[tokio::test]
async fn typing_is_told_once_a_second_for_all_subscriptions_of_a_room() {
    let server = Server::start();
    let mut ada = server.ws("/v1/ws?user=ada").await;
    assert_eq!(ada.request(&subscribe("r")).await["type"], "subscribed");
    let mut bob = server.ws("/v1/ws?user=bob").await;
    for _ in 0..3 {
        assert_eq!(bob.request(&subscribe("r")).await["type"], "subscribed");
        bob.send(&json!({"type": "typing", "roomId": "r"})).await;
        assert_eq!(bob.request(&json!({"type": "unsubscribe", "roomId": "r"})).await["type"], "unsubscribed");
    }
    server.send("r", "after").await;
    let mut told = 0;
    loop {
        let frame = ada.receive().await;
        match frame["type"].as_str() {
            Some("typing") => told += 1,
            Some("presence") => {}
            _ => break assert_eq!(frame["message"], "after"),
        }
    }
    assert_eq!(told, 1);
}
