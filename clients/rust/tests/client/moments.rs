//! What is given up, renewed or lost at a bad moment.

use std::sync::Arc;
use std::time::Duration;

use hubbub_client::{Client, Options, SendOptions, Start, SubscribeOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::scripted::{Came, quick, serving, within};
use crate::socket::{Seen, follow, take};

#[tokio::test]
async fn what_is_given_up_behind_a_ping_holds_nothing_up() {
    let (ponged, mut pongs) = mpsc::unbounded_channel();
    let (texts, mut first) = (Seen::<Value>::default(), None);
    let seen = Arc::clone(&texts);
    let client = serving(quick(), move |came, peer| match came {
        Came::Frame(frame) => {
            seen.lock().push(frame["message"].clone());
            if frame["message"] != "given up" {
                return peer.ack(&frame, 2);
            }
            first = Some(frame);
            peer.raw(Message::Ping(b"here".to_vec().into()));
        }
        Came::Pong => ponged.send((first.take(), peer.clone())).unwrap(),
    });
    let client = client.await;
    let given_up = client.room("r").send_later("given up", SendOptions::default()).unwrap();
    let (first, peer) = within(pongs.recv()).await.unwrap();
    drop(given_up);
    let next = client.room("r").send_later("next", SendOptions::default()).unwrap();
    let elsewhere = client.room("s").send_later("elsewhere", SendOptions::default()).unwrap();
    peer.ack(&first.unwrap(), 1);
    within(next).await.unwrap();
    within(elsewhere).await.unwrap();
    assert_eq!(texts.lock().len(), 3);
}

#[tokio::test]
async fn what_is_given_up_counts_until_its_answer_and_is_not_sent_again() {
    let (came, mut frames) = mpsc::unbounded_channel();
    let client = serving(Options { in_flight_max: 1, ..quick() }, move |what, peer| {
        if let Came::Frame(frame) = what {
            came.send((frame, peer.clone())).unwrap();
        }
    });
    let room = client.await.room("r");
    let given_up = room.send_later("given up", SendOptions::default()).unwrap();
    let (first, peer) = within(frames.recv()).await.unwrap();
    drop(given_up);
    let next = room.send_later("next", SendOptions::default()).unwrap();
    // Answered only after another subscription, behind which "next" would have come.
    let _subscription = room.subscribe(Start::Now, SubscribeOptions::default()).unwrap();
    assert_eq!(within(frames.recv()).await.unwrap().0["type"], "subscribe");
    peer.refuse(&first, "overloaded", true);
    let (second, peer) = within(frames.recv()).await.unwrap();
    assert_eq!(second["message"], "next");
    peer.ack(&second, 1);
    within(next).await.unwrap();
}

#[tokio::test]
async fn the_newest_ones_are_asked_for_once() {
    let asked = Seen::<Value>::default();
    let seen = Arc::clone(&asked);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        // Lost before the first message came; meanwhile, ten more are stored.
        peer.subscribed(&frame, if peer.number == 1 { 9 } else { 19 }, "e");
        seen.lock().push(frame);
        if peer.number == 1 {
            peer.close(1001, "shutting down; reconnect after 1 ms");
        } else {
            (7..=19).for_each(|seq| peer.message("r", seq));
        }
    });
    let mut subscription = follow(&client.await, Start::Last(3));
    // Those nobody took yet are one.
    assert_eq!(take(&mut subscription, 1).await, "ready");
    let next = take(&mut subscription, 3).await;
    assert!(["ready 7 8", "7 8 9"].contains(&next.as_str()), "{next}");
    let asked = asked.lock();
    assert_eq!((&asked[0]["last"], asked[0].get("after")), (&json!(3), None));
    assert_eq!(
        (asked[1].get("last"), &asked[1]["after"], &asked[1]["epoch"]),
        (None, &json!(6), &json!("e"))
    );
}

#[tokio::test]
async fn a_reset_of_an_older_subscription_says_nothing() {
    let client = serving(quick(), |came, peer| {
        let Came::Frame(frame) = came else { return };
        peer.answer(&json!({"type": "reset", "roomId": "r", "epoch": "old", "oldest": 1, "head": 3}));
        peer.subscribed(&frame, 5, "e");
        peer.message("r", 5);
    });
    assert_eq!(take(&mut follow(&client.await, Start::after(4)), 2).await, "ready 5");
}

#[tokio::test]
async fn a_token_given_during_the_handshake_is_sent_behind_it() {
    let (listener, (opened, mut frames)) =
        (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), mpsc::unbounded_channel());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&url, Options::for_token("first")).unwrap();
    let sending = client.room("r").send_later("text", SendOptions::default()).unwrap();
    let (stream, _) = within(listener.accept()).await.unwrap();
    // The request has come, with the first token.
    let mut byte = [0];
    within(stream.peek(&mut byte)).await.unwrap();
    client.set_token("second");
    tokio::spawn(async move {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(Message::Text(text))) = futures_util::StreamExt::next(&mut socket).await {
            opened.send(serde_json::from_str::<Value>(&text).unwrap()).unwrap();
        }
    });
    let frame = within(frames.recv()).await.unwrap();
    assert_eq!((&frame["type"], &frame["token"]), (&json!("auth"), &json!("second")));
    assert_eq!(within(frames.recv()).await.unwrap()["type"], "send");
    drop(sending);
}

#[tokio::test]
async fn nothing_shows_the_token() {
    let (given, mut shown) = (Options { token: Some("verysecret".into()), ..quick() }, Vec::new());
    let client = serving(given, |came, peer| {
        if let Came::Frame(frame) = came {
            peer.subscribed(&frame, 0, "e");
        }
    });
    let client = client.await;
    client.set_token("verysecret2");
    let pending = client.room("r").send_later("text", SendOptions::default()).unwrap();
    let subscription = client.room("r").subscribe(Start::Now, SubscribeOptions::default()).unwrap();
    let mut watch = client.keys().watch("", Start::Now);
    // It keeps the token that it began with.
    let begun = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
    assert!(begun.is_err());
    shown.extend([
        format!("{client:?}"),
        format!("{:?}", client.room("r")),
        format!("{:?}", client.queue("q")),
    ]);
    shown.extend([format!("{:?}", client.keys()), format!("{watch:?}")]);
    shown.extend([format!("{pending:?}"), format!("{subscription:?}")]);
    for shown in shown {
        assert!(!shown.contains("verysecret") && shown.contains("127.0.0.1"), "{shown}");
    }
}

#[test]
fn a_client_outlives_the_runtime_it_was_used_in() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (listener, last) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), runtime());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&url, quick()).unwrap();
    let entered = last.enter();
    let first = client.room("r").send_later("text", SendOptions::default()).unwrap();
    drop(entered);
    drop(last);
    runtime().block_on(async {
        let again = client.room("r").send_later("text", SendOptions::default()).unwrap();
        assert_eq!(within(first).await.unwrap_err().code, "unreachable");
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (stream, _) = within(listener.accept()).await.unwrap();
        within(tokio_tungstenite::accept_async(stream)).await.unwrap();
        drop(again);
    });
}
