//! Sending and following.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_client::{
    Client, Error, Event, Options, Pending, Position, Room, SendOptions, Start, SubscribeOptions,
    Subscription,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::scripted::{Came, answering, quick, serving, within};

pub(crate) type Seen<T> = Arc<Mutex<Vec<T>>>;

/// All of these, without waiting for receipts in between.
async fn send_all(room: &Room, texts: &[&str]) -> Vec<Result<u64, String>> {
    let later = |text: &&str| room.send_later(text, SendOptions::default()).unwrap();
    let pending: Vec<Pending> = texts.iter().map(later).collect();
    let mut results = Vec::new();
    for pending in pending {
        results.push(within(pending).await.map(|receipt| receipt.seq).map_err(|error| error.code.clone()));
    }
    results
}

/// The next events: "ready", "reset" or a seq.
pub(crate) async fn take(subscription: &mut Subscription, count: usize) -> String {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(match within(subscription.next()).await.unwrap().unwrap() {
            Event::Ready(_) => "ready".to_owned(),
            Event::Reset(_) => "reset".to_owned(),
            Event::Message(message) => message.seq.to_string(),
        });
    }
    found.join(" ")
}

pub(crate) fn follow(client: &Client, start: Start) -> Subscription {
    client.room("r").subscribe(start, SubscribeOptions::default()).unwrap()
}

async fn code(subscription: &mut Subscription) -> String {
    within(subscription.next()).await.unwrap().unwrap_err().code.clone()
}

#[tokio::test]
async fn after_an_overload_the_rest_goes_out_again_in_order() {
    let (asked, stored) = (Seen::<Value>::default(), Seen::<Value>::default());
    let (seen, kept) = (Arc::clone(&asked), Arc::clone(&stored));
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        seen.lock().push(frame["message"].clone());
        if seen.lock().len() <= 3 {
            return peer.refuse(&frame, "overloaded", true);
        }
        kept.lock().push(frame["message"].clone());
        peer.ack(&frame, kept.lock().len());
    });
    let results = send_all(&client.await.room("r"), &["a", "b", "c"]).await;
    assert_eq!(results, [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(*stored.lock(), ["a", "b", "c"]);
    // One is asked for after a refusal: what follows waits for its receipt.
    assert_eq!(asked.lock().len(), 6);
}

#[tokio::test]
async fn nothing_overtakes_a_refusal_behind_its_pong() {
    let texts = Seen::<Value>::default();
    let (ponged, mut pongs) = mpsc::unbounded_channel();
    let (seen, mut first) = (Arc::clone(&texts), None);
    let client = serving(quick(), move |came, peer| match came {
        Came::Frame(frame) => {
            seen.lock().push(frame["message"].clone());
            if seen.lock().len() > 1 {
                return peer.ack(&frame, 1);
            }
            first = Some(frame);
            peer.raw(Message::Ping(b"here".to_vec().into()));
        }
        // The server takes frames again from here on.
        Came::Pong => ponged.send((first.take(), peer.clone())).unwrap(),
    });
    let room = client.await.room("r");
    let one = room.send_later("one", SendOptions::default()).unwrap();
    let (first, peer) = within(pongs.recv()).await.unwrap();
    let two = room.send_later("two", SendOptions::default()).unwrap();
    peer.refuse(&first.unwrap(), "overloaded", true);
    within(one).await.unwrap();
    within(two).await.unwrap();
    assert_eq!(*texts.lock(), ["one", "one", "two"]);
}

#[tokio::test]
async fn a_final_refusal_fails_one_message_alone() {
    let client = serving(quick(), |came, peer| match came {
        Came::Frame(frame) if frame["message"] == "bad" => peer.refuse(&frame, "id_reused", false),
        Came::Frame(frame) => peer.ack(&frame, 1),
        Came::Pong => {}
    });
    let results = send_all(&client.await.room("r"), &["a", "bad", "b"]).await;
    assert_eq!(results, [Ok(1), Err("id_reused".to_owned()), Ok(1)]);
}

#[tokio::test]
async fn the_same_ids_go_out_after_a_lost_connection() {
    let ids = Seen::<Value>::default();
    let seen = Arc::clone(&ids);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        seen.lock().push(frame["messageId"].clone());
        if peer.number == 2 {
            peer.ack(&frame, 1);
        } else if seen.lock().len() == 3 {
            peer.close(4409, "slow");
        }
    });
    assert_eq!(send_all(&client.await.room("r"), &["a", "b", "c"]).await, [Ok(1), Ok(1), Ok(1)]);
    let ids = ids.lock();
    assert!(ids.len() == 6 && ids[..3] == ids[3..], "{ids:?}");
}

#[tokio::test]
async fn the_time_of_a_message_is_that_of_the_call() {
    let times = Seen::<Value>::default();
    let seen = Arc::clone(&times);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        seen.lock().push(frame["timestamp"].clone());
        if peer.number == 2 { peer.ack(&frame, 1) } else { peer.close(1001, "reconnect after 50 ms") }
    });
    let room = client.await.room("r");
    within(room.send("text")).await.unwrap();
    let given = SendOptions { timestamp: Some("2026-01-31T12:00:00Z".into()), ..SendOptions::default() };
    within(room.send_later("text", given).unwrap()).await.unwrap();
    let times = times.lock();
    assert!(times[0].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{times:?}");
    assert_eq!((&times[1], &times[2]), (&times[0], &json!("2026-01-31T12:00:00Z")));
}

#[tokio::test]
async fn a_connection_without_an_answer_is_replaced() {
    let short = Duration::from_millis(100);
    let options = Options { answer_max: short, silence_max: short, ..quick() };
    let client = serving(options, |came, peer| match came {
        Came::Frame(frame) if peer.number >= 2 => peer.ack(&frame, 1),
        _ => {}
    });
    assert_eq!(send_all(&client.await.room("r"), &["text"]).await, [Ok(1)]);
}

#[tokio::test]
async fn what_waits_is_bounded_and_ends_with_the_client() {
    let client = serving(Options { waiting_max: 2, ..quick() }, |_, _| {}).await;
    let room = client.room("r");
    let later = |text| room.send_later(text, SendOptions::default());
    let first = later("a").unwrap();
    let second = later("b").unwrap();
    assert_eq!(later("c").unwrap_err().code, "queue_full");
    // One that is given up makes place.
    drop(second);
    let third = later("c").unwrap();
    client.close();
    for pending in [first, third] {
        assert_eq!(within(pending).await.unwrap_err().code, "closed");
    }
    assert_eq!(later("d").unwrap_err().code, "closed");
    assert_eq!(room.subscribe(Start::Now, SubscribeOptions::default()).unwrap_err().code, "closed");
}

#[tokio::test]
async fn a_message_too_big_for_a_frame_fails_alone() {
    let client = serving(quick(), |came, peer| match came {
        Came::Frame(frame) if frame["message"].as_str().unwrap().len() > 9 => peer.close(1009, "too big"),
        Came::Frame(frame) => peer.ack(&frame, 1),
        Came::Pong => {}
    });
    let results = send_all(&client.await.room("r"), &["a", "much too long", "b"]).await;
    assert_eq!(results, [Ok(1), Err("too_large".to_owned()), Ok(1)]);
}

#[tokio::test]
async fn it_goes_on_behind_the_last_message_and_drops_repeats() {
    let asked = Seen::<Value>::default();
    let seen = Arc::clone(&asked);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        peer.subscribed(&frame, 9, "e");
        seen.lock().push(frame);
        let seqs: &[u64] = if peer.number == 1 { &[5, 7] } else { &[7, 8] };
        seqs.iter().for_each(|seq| peer.message("r", *seq));
        if peer.number == 1 {
            peer.close(1001, "shutting down; reconnect after 1 ms");
        }
    });
    let mut subscription = follow(&client.await, Start::after(4));
    assert_eq!(take(&mut subscription, 5).await, "ready 5 7 ready 8");
    assert_eq!(*subscription.position(), Position { epoch: "e".into(), seq: 8 });
    let asked = asked.lock();
    assert_eq!((&asked[0]["after"], asked[0].get("epoch")), (&json!(4), None));
    assert_eq!((&asked[1]["after"], &asked[1]["epoch"]), (&json!(7), &json!("e")));
}

#[tokio::test]
async fn one_reset_and_none_again_for_a_connection_lost_behind_it() {
    let asked = Seen::<Value>::default();
    let seen = Arc::clone(&asked);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        peer.subscribed(&frame, 3, "f");
        seen.lock().push(frame);
        if peer.number == 1 {
            peer.answer(&json!({"type": "reset", "roomId": "r", "epoch": "f", "oldest": 1, "head": 3}));
            peer.close(4410, "");
        } else {
            peer.message("r", 1);
        }
    });
    let mut subscription = follow(&client.await, Start::After(Position { epoch: "e".into(), seq: 9 }));
    assert_eq!(take(&mut subscription, 4).await, "ready reset ready 1");
    let asked = asked.lock();
    assert_eq!((&asked[1]["after"], &asked[1]["epoch"]), (&json!(0), &json!("f")));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_pauses_and_an_unsubscribing_is_repeated() {
    let frames = Seen::<(Value, Value)>::default();
    let (left, mut leaving) = mpsc::unbounded_channel();
    let (seen, mut leaves) = (Arc::clone(&frames), 0);
    let client = serving(quick(), move |came, peer| {
        let Came::Frame(frame) = came else { return };
        seen.lock().push((frame["type"].clone(), frame["after"].clone()));
        if frame["type"] == "subscribe" {
            peer.subscribed(&frame, 8, "e");
            return (frame["after"].as_u64().unwrap() + 1..9).for_each(|seq| peer.message("r", seq));
        }
        leaves += 1;
        if leaves == 1 {
            return peer.refuse(&frame, "too_many_requests", true);
        }
        peer.answer(&json!({"type": "unsubscribed", "roomId": "r"}));
        left.send(()).unwrap();
    });
    let options = SubscribeOptions { buffer_max: 4, ..SubscribeOptions::default() };
    let mut subscription = client.await.room("r").subscribe(Start::after(0), options).unwrap();
    within(leaving.recv()).await.unwrap();
    // How often it pauses depends on who is faster.
    let mut found = take(&mut subscription, 4).await;
    while !found.ends_with(" 7") {
        found = format!("{found} {}", take(&mut subscription, 1).await);
    }
    assert_eq!(found.replace("ready ", ""), "1 2 3 4 5 6 7");
    let wanted = [("subscribe", json!(0)), ("unsubscribe", json!(null)), ("unsubscribe", json!(null))];
    let wanted =
        wanted.into_iter().chain([("subscribe", json!(3))]).map(|(kind, after)| (json!(kind), after));
    assert!(frames.lock().iter().take(4).cloned().eq(wanted), "{frames:?}");
}

#[tokio::test]
async fn what_the_server_ends_is_an_error_behind_what_came_before() {
    for ending in ["removed", "forbidden"] {
        let client = serving(quick(), move |came, peer| {
            let Came::Frame(frame) = came else { return };
            peer.subscribed(&frame, 1, "e");
            peer.message("r", 1);
            peer.answer(&json!({"type": "error", "code": ending, "roomId": "r", "retryable": false}));
        });
        let mut subscription = follow(&client.await, Start::after(0));
        assert_eq!(take(&mut subscription, 2).await, "ready 1");
        assert_eq!(code(&mut subscription).await, ending);
        assert!(within(subscription.next()).await.is_none());
    }
}

#[tokio::test]
async fn what_the_server_ends_before_it_began_is_an_error() {
    let client = serving(quick(), |came, peer| {
        let Came::Frame(frame) = came else { return };
        peer.refuse(&frame, "removed", false);
    });
    assert_eq!(code(&mut follow(&client.await, Start::Now)).await, "removed");
}

#[tokio::test]
async fn the_end_of_an_older_subscription_is_not_taken_by_the_next() {
    let client = serving(quick(), |came, peer| {
        let Came::Frame(frame) = came else { return };
        if frame["type"] == "unsubscribe" {
            peer.answer(&json!({"type": "error", "roomId": "r", "code": "forbidden", "retryable": false}));
            return peer.answer(&json!({"type": "unsubscribed", "roomId": "r"}));
        }
        peer.subscribed(&frame, 9, "e");
        peer.message("r", frame["after"].as_u64().unwrap() + 1);
    });
    let client = client.await;
    let after = |seq| Start::After(Position { epoch: "e".into(), seq });
    let mut older = follow(&client, after(1));
    assert_eq!(take(&mut older, 2).await, "ready 2");
    drop(older);
    let mut next = follow(&client, after(5));
    assert_eq!(take(&mut next, 2).await, "ready 6");
}

#[tokio::test]
async fn a_handshake_refused_for_its_token_is_final() {
    for (status, expected) in [(401, "unauthorized"), (403, "forbidden")] {
        let (client, requests) = answering(quick(), vec![Some((503, "", "")), Some((status, "", ""))]).await;
        let error: Error = within(client.room("r").send("text")).await.unwrap_err();
        assert_eq!((error.code.as_str(), requests.lock().len()), (expected, 2));
    }
}

#[tokio::test]
async fn a_refused_handshake_is_repeated_no_sooner_than_it_says() {
    let busy = Some((503, "Retry-After: 0.2\r\n", ""));
    let (client, requests) = answering(quick(), vec![busy, Some((401, "", ""))]).await;
    let begun = Instant::now();
    within(client.room("r").send("text")).await.unwrap_err();
    assert_eq!((begun.elapsed() >= Duration::from_millis(200), requests.lock().len()), (true, 2));
}

#[tokio::test]
async fn a_user_who_is_no_header_is_told_at_once() {
    let options = Options { user: Some("ada\r\nAuthorization: x".into()), ..quick() };
    assert_eq!(Client::new("http://127.0.0.1:1", options.clone()).unwrap_err().code, "invalid");
    let client = Client::of("http://127.0.0.1:1".parse().unwrap(), options);
    let error = within(client.room("r").send("text")).await.unwrap_err();
    assert!(error.detail.contains("hubbub-user: must be printable ASCII"), "{error}");
    assert_eq!((error.code.as_str(), error.retryable), ("invalid", false));
    assert_eq!(within(client.queue("q").state()).await.unwrap_err().code, "invalid");
}

#[tokio::test]
async fn a_token_for_somebody_else_ends_what_is_open() {
    let client = serving(quick(), |came, peer| match came {
        Came::Frame(frame) if frame["type"] == "send" && peer.number == 1 => peer.close(4403, "not you"),
        Came::Frame(frame) if frame["type"] == "send" => peer.ack(&frame, 1),
        _ => {}
    });
    let client = client.await;
    let mut subscription = follow(&client, Start::Now);
    assert_eq!(send_all(&client.room("r"), &["text"]).await, [Err("forbidden".to_owned())]);
    assert_eq!(code(&mut subscription).await, "forbidden");
    // With another token it goes on.
    client.set_token("another");
    assert_eq!(send_all(&client.room("r"), &["text"]).await, [Ok(1)]);
}
