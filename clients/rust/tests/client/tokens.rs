//! A newer token saves what the old one began, and a refusal of the newest is final.

use std::time::Duration;

use hubbub_client::{Delivery, Error, KeyEvent, Options, SendOptions, Start};
use serde_json::json;
use tokio::sync::mpsc;

use crate::scripted::{Came, Reply, Requests, answering_by, quick, serving, within};
use crate::socket::{follow, take};

const UNAUTHORIZED: Reply = Some((401, "", r#"{"code":"unauthorized","retryable":false}"#));

fn first() -> Options {
    Options { token: Some("first".into()), ..quick() }
}

/// The tokens of all requests.
fn tokens(requests: &Requests) -> Vec<String> {
    let requests = requests.lock();
    let token = |head: &str| head.split("bearer ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    requests.iter().map(|asked| token(&asked.head)).collect()
}

#[tokio::test]
async fn a_poll_goes_on() {
    let (client, requests) = answering_by(first(), |number, client| {
        match number {
            1 => client.set_token("second"),
            2 => return Some((200, "", r#"{"messages":[]}"#)),
            _ => {}
        }
        UNAUTHORIZED
    })
    .await;
    let queue = client.queue("q");
    let handler = async |_: &Delivery| Ok::<(), Error>(());
    let ended = within(queue.poll(Duration::from_secs(30), handler, |_| {})).await.unwrap_err();
    assert_eq!((ended.code.as_str(), ended.retryable), ("unauthorized", false));
    assert_eq!(tokens(&requests), ["first", "second", "second"]);
}

#[tokio::test]
async fn a_watch_goes_on() {
    let (client, requests) = answering_by(first(), |number, client| {
        match number {
            1 => client.set_token("second"),
            // What opens it is refused.
            2 => {
                client.set_token("third");
                return UNAUTHORIZED;
            }
            _ => {}
        }
        let stream = "event: watching\ndata: {\"epoch\":\"e\",\"after\":3}\n\n\
                      event: error\ndata: {\"code\":\"unauthorized\",\"status\":401,\"retryable\":false}\n\n";
        Some((200, "Content-Type: text/event-stream\r\n", stream))
    })
    .await;
    let mut watch = client.keys().watch("", Start::Now);
    for _ in 0..2 {
        let ready = within(watch.next()).await.unwrap().unwrap();
        assert_eq!(ready, KeyEvent::Ready { epoch: "e".into(), revision: 3 });
    }
    assert_eq!(within(watch.next()).await.unwrap().unwrap_err().code, "unauthorized");
    assert!(within(watch.next()).await.is_none());
    assert_eq!(tokens(&requests), ["first", "second", "third"]);
}

#[tokio::test]
async fn a_handshake_is_repeated() {
    let (client, requests) = answering_by(first(), |number, client| {
        if number == 1 {
            client.set_token("second");
        }
        UNAUTHORIZED
    })
    .await;
    let error = within(client.room("r").send("text")).await.unwrap_err();
    assert_eq!(error.code, "unauthorized");
    assert_eq!(tokens(&requests), ["first", "second"]);
}

#[tokio::test]
async fn a_socket_goes_on_with_a_token_that_it_refused() {
    let (sent, mut sending) = mpsc::unbounded_channel();
    let client = serving(first(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        match (frame["type"].as_str().unwrap(), peer.number) {
            ("subscribe", _) => peer.subscribed(&frame, 0, "e"),
            ("auth", _) => {
                peer.refuse(&frame, "overloaded", true);
                peer.close(4401, "the token has expired");
            }
            ("send", 1) => sent.send(()).unwrap(),
            _ if frame["message"] == json!("text") => peer.ack(&frame, 1),
            _ => peer.close(4401, "the token has expired"),
        }
    });
    let client = client.await;
    let mut subscription = follow(&client, Start::Now);
    assert_eq!(take(&mut subscription, 1).await, "ready");
    let text = client.room("r").send_later("text", SendOptions::default()).unwrap();
    within(sending.recv()).await.unwrap();
    client.set_token("second");
    within(text).await.unwrap();
    assert_eq!(take(&mut subscription, 1).await, "ready");
    // The handshake had the token of now.
    assert_eq!(within(client.room("r").send("more")).await.unwrap_err().code, "unauthorized");
    assert_eq!(within(subscription.next()).await.unwrap().unwrap_err().code, "unauthorized");
}
