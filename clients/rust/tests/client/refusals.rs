//! Refusals without a body of the server's, what can never succeed, and what a closed client ends.

use std::collections::HashMap;
use std::time::Duration;

use hubbub_client::{
    Client, ConnectionState, Delivery, Error, Options, PutOptions, SendOptions, Start, SubscribeOptions,
    TakeOptions,
};
use parking_lot::Mutex;

use crate::scripted::{Came, Reply, answering, quick, serving, within};

fn impatient() -> Options {
    Options { patience: Duration::ZERO, ..quick() }
}

#[tokio::test]
async fn an_answer_without_a_body_is_what_its_status_says() {
    for status in [408, 429, 503] {
        let busy = Some((status, "Retry-After: 0\r\n", ""));
        let replies = vec![busy, Some((200, "ETag: \"4\"\r\n", "")), Some((204, "ETag: \"5\"\r\n", ""))];
        let (client, requests) = answering(quick(), replies).await;
        let put = client.keys();
        assert_eq!(within(put.put("k", "v", PutOptions::default())).await.unwrap(), 5);
        assert_eq!(requests.lock().len(), 3);
    }
    for (status, code, retryable) in [
        (401, "unauthorized", false),
        (403, "forbidden", false),
        (501, "not_supported", false),
        (429, "too_many_requests", true),
    ] {
        let (client, _) = answering(impatient(), vec![Some((status, "", ""))]).await;
        let error = within(client.keys().delete("k", None)).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.status, error.retryable), (code, status, retryable));
        assert!(status != 403 || error.detail.contains("right to read"), "{error}");
    }
}

#[tokio::test]
async fn a_proxys_words_are_no_problem_of_the_servers() {
    for body in ["no", "null", r#"["no"]"#, r#"{"message":"the quota is used up"}"#] {
        let (client, _) = answering(impatient(), vec![Some((429, "", body))]).await;
        let error = within(client.queue("q").state()).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.detail.as_str()), ("too_many_requests", body));
    }
}

#[tokio::test]
async fn an_acknowledgement_that_fails_is_told_whatever_its_code() {
    let taken = Some((200, "", r#"{"messages":[{"id":"7"}]}"#));
    let busy = Some((503, "Retry-After: 0\r\n", ""));
    let over = Some((403, "", r#"{"code":"forbidden"}"#));
    let (client, _) = answering(impatient(), vec![taken, busy, over]).await;
    let (queue, mut codes) = (client.queue("q"), Vec::new());
    let handler = async |_: &Delivery| Ok::<(), Error>(());
    let polled = queue.poll(Duration::from_secs(30), handler, |error| codes.push(error.code.clone()));
    assert_eq!(within(polled).await.unwrap_err().code, "forbidden");
    assert_eq!(codes, ["unexpected"]);
}

/// How sending ends; following ends with the same.
async fn refused(client: &Client) -> Error {
    let room = client.room("r");
    let mut subscription = room.subscribe(Start::Now, SubscribeOptions::default()).unwrap();
    let error = within(room.send("text")).await.unwrap_err();
    assert_eq!(within(subscription.next()).await.unwrap().unwrap_err().code, error.code);
    error
}

#[tokio::test]
async fn a_handshake_that_no_repetition_makes_better_is_final() {
    for (status, code, body) in [
        (400, "malformed", r#"{"code":"malformed","detail":"why"}"#),
        (404, "not_found", r#"{"code":"not_found","detail":"why"}"#),
        (422, "invalid", r#"{"code":"invalid","detail":"why"}"#),
    ] {
        let (client, requests) = answering(quick(), vec![Some((status, "", body))]).await;
        let error = refused(&client).await;
        assert_eq!((error.code.as_str(), error.status, error.detail.as_str()), (code, status, "why"));
        assert_eq!(requests.lock().len(), 1);
    }
    let there = "https://elsewhere.example/v1/ws";
    for status in [301, 308] {
        let moved = Some((status, "Location: https://elsewhere.example/v1/ws\r\n", "<p>Moved</p>"));
        let (client, requests) = answering(quick(), vec![moved]).await;
        let error = refused(&client).await;
        assert_eq!((error.status, error.retryable, requests.lock().len()), (status, false, 1));
        assert!(error.detail.contains(there), "{error}");
    }
    // A page of maintenance, or a login, is there for a while.
    for status in [408, 302, 303, 307] {
        let of_the_moment = Some((status, "Location: /maintenance\r\n", ""));
        let replies: Vec<Reply> = vec![of_the_moment, Some((404, "", ""))];
        assert_eq!(refused(&answering(quick(), replies).await.0).await.code, "not_found");
    }
}

#[tokio::test]
async fn what_waits_at_the_end_is_told_why_there_is_no_connection() {
    let client = Client::new("http://127.0.0.1:1", quick()).unwrap();
    let waiting = client.room("r").send_later("text", SendOptions::default()).unwrap();
    let mut connection = client.connection();
    let lost = connection.wait_for(|state| matches!(state, ConnectionState::Lost { .. }));
    let ConnectionState::Lost { reason, .. } = within(lost).await.unwrap().clone() else { return };
    assert!(reason.contains("127.0.0.1:1"), "{reason}");
    client.close();
    let error = within(waiting).await.unwrap_err();
    assert!(error.is("closed") && error.detail.contains(&reason), "{error}");
}

#[test]
fn a_token_that_can_never_work_is_refused_at_once() {
    for token in ["a\nb", "ö"] {
        assert_eq!(Client::new("http://h", Options::for_token(token)).unwrap_err().code, "invalid");
    }
}

#[tokio::test]
async fn no_room_waits_for_ever_while_others_are_busy() {
    let rooms: Vec<String> = ('a'..='j').map(String::from).collect();
    let served = std::sync::Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let counted = std::sync::Arc::clone(&served);
    let client = serving(Options { waiting_max: 100_000, ..quick() }, move |came, peer| {
        let Came::Frame(frame) = came else { return };
        *counted.lock().entry(frame["roomId"].as_str().unwrap().to_owned()).or_default() += 1;
        peer.ack(&frame, 1);
    });
    let client = client.await;
    let mut pending: Vec<_> = Vec::new();
    for room in &rooms {
        let later = |_| client.room(room).send_later("text", SendOptions::default()).unwrap();
        pending.extend((0..200).map(later));
    }
    within(async {
        while served.lock().values().sum::<usize>() < 600 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let least = rooms.iter().map(|room| served.lock().get(room).copied().unwrap_or(0)).min().unwrap();
    drop(pending);
    assert!(least >= 20, "{:?}", served.lock());
}

#[tokio::test]
async fn a_closed_client_ends_what_is_under_way_and_takes_nothing_more() {
    let busy = Some((503, "Retry-After: 3600\r\n", r#"{"code":"overloaded","retryable":true}"#));
    let (client, requests) = answering(Options { patience: Duration::MAX, ..quick() }, vec![busy]).await;
    let (queue, keys, mut watch) = (client.queue("q"), client.keys(), client.keys().watch("", Start::Now));
    let handler = async |_: &Delivery| Ok::<(), Error>(());
    let take = TakeOptions::default();
    let closing = async {
        while requests.lock().len() < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        client.close();
    };
    let polled = queue.poll(Duration::from_secs(30), handler, |_| {});
    let (taken, got, polled, watched, ()) =
        within(async { tokio::join!(queue.take(&take), keys.get("k"), polled, watch.next(), closing) }).await;
    assert_eq!([taken.unwrap_err().code.as_str(), got.unwrap_err().code.as_str()], ["closed"; 2]);
    assert_eq!(polled.unwrap_err().code, "closed");
    assert!(watched.is_none());
    assert_eq!(within(keys.get("k")).await.unwrap_err().code, "closed");
    assert!(within(client.keys().watch("", Start::Now).next()).await.is_none());
}
