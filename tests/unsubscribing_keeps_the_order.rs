//! Ending one subscription changes nothing about what comes of the other rooms, whatever answer is still on its way.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Setup;

const POSTS: u64 = 60;
const LINES: usize = 1_000;
/// How often the reader, which lags behind, follows another room and ends that.
const EVERY: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsubscribing_keeps_the_order() {
    // Answers to messages are on their way for long, and much waits for a reader.
    let setup = Setup::new().set("store.embedded.sync_delay=20ms").set("store.embedded.journal_slot=16MiB");
    let server = setup.set("limits.outbox_messages=100000").set("limits.outbox_bytes=64MiB").start();
    server.send("b", "first").await;
    let mut reader = server.subscriber("a", json!({"after": 0})).await;
    let mut http = server.http().await;
    let line = format!("{}\n", json!({"roomId": "a", "userId": "ada", "message": "x".repeat(150)}));
    let mut post = async move |posts: u64| {
        for _ in 0..posts {
            let answer = http.post("/v1/messages", line.repeat(LINES)).await;
            assert!(answer.lines().iter().all(|receipt| receipt["seq"].is_u64()));
        }
    };
    // It lags behind, and more comes all the time.
    post(POSTS / 2).await;
    let posting = tokio::spawn(async move { post(POSTS / 2).await });
    let end = POSTS * LINES as u64;
    let (mut last, mut asked, mut answers) = (0, 0, Vec::new());
    while last < end || answers.len() < 2 * asked {
        if last == asked as u64 * EVERY {
            // The message is not durable yet when its socket stops following the other room, and follows it again.
            let frame = |kind: &str, room: &str| json!({"type": kind, "ref": asked, "roomId": room});
            let message = json!({"type": "send", "roomId": "c", "userId": "eve", "message": "y"});
            let (begin, stop) = (frame("subscribe", "b"), frame("unsubscribe", "b"));
            let frames = [begin.clone(), message, stop.clone(), begin, stop];
            reader.send_all(&frames).await;
            asked += 1;
        }
        let frame = reader.receive().await;
        match (frame["type"].as_str(), frame["roomId"].as_str()) {
            (Some("message"), Some("a")) => {
                last += 1;
                assert_eq!(frame["seq"], last);
            }
            (Some("unsubscribed"), Some("b")) => answers.push(frame["ref"].clone()),
            (Some("message" | "subscribed"), Some("b")) => {
                // Which of the two it is cannot be said; none comes behind the last answer.
                let ended = answers.iter().filter(|answer| **answer == json!(asked - 1)).count();
                assert!(ended < 2, "behind the answer: {frame}");
            }
            (Some("ack"), _) => {}
            _ => panic!("{frame}"),
        }
    }
    let expected: Vec<Value> = (0..asked).flat_map(|asked| [json!(asked), json!(asked)]).collect();
    assert_eq!(answers, expected);
    posting.await.unwrap();
}

/// The answer to the message takes so long, and with it all that stand behind it.
const SLOW: Duration = Duration::from_secs(3);
/// What a server that waits may take of the processor meanwhile.
const WAITING_MAX: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_answer_that_waits_behind_a_slow_one_takes_no_processor() {
    let server = Setup::new().set(&format!("store.embedded.sync_delay={}ms", SLOW.as_millis())).start();
    let mut reader = server.subscriber("a", json!({})).await;
    let before = server.processor_time();
    let message = json!({"type": "send", "roomId": "b", "userId": "eve", "message": "x"});
    let (stop, begin) =
        (json!({"type": "unsubscribe", "roomId": "a"}), json!({"type": "subscribe", "roomId": "a"}));
    reader.send_all(&[message, stop, begin]).await;
    for kind in ["ack", "unsubscribed", "subscribed"] {
        reader.receive_type(kind).await;
    }
    let taken = server.processor_time() - before;
    assert!(taken < WAITING_MAX, "{taken:?}");
}
