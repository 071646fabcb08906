//! When the store refuses a batch, what the same connection had sent behind it is refused too: a retry keeps the order.

use std::time::Duration;

use serde_json::{Value, json};

#[cfg(feature = "amqp")]
use crate::harness::{Broker, until};
use crate::harness::{Server, Setup, Ws, chat_message, texts};

/// Large texts into small slots of the journal, and slow syncs, of which a seal needs more than a batch: the store falls
/// behind with its background work and refuses batches, on any machine.
const TEXT_BYTES: usize = 60_000;
const MESSAGES: usize = 100;
const WINDOW: usize = 100;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// A client's pause before it sends again.
const PAUSE: Duration = Duration::from_millis(50);

fn text(name: &str, number: usize) -> String {
    let mut text = format!("{name} {number} ");
    text.extend(std::iter::repeat_n('x', TEXT_BYTES));
    text
}

fn frame(room: &str, name: &str, number: usize) -> Value {
    let mut frame = chat_message(&format!("{name}-{number}"), &text(name, number));
    frame["type"] = json!("send");
    frame["roomId"] = json!(room);
    frame
}

/// Sends all messages, as many at once as `WINDOW`, and again from the first that was refused; how often that was.
async fn send_all(mut socket: Ws, room: &str, name: &str) -> usize {
    let (mut stored, mut refusals) = (0, 0);
    while stored < MESSAGES {
        let burst: Vec<Value> =
            (stored..MESSAGES.min(stored + WINDOW)).map(|number| frame(room, name, number)).collect();
        socket.say_all(&burst).await;
        let answers = socket.hear_all(burst.len()).await;
        let accepted = answers.iter().take_while(|answer| answer["type"] == "ack").count();
        for answer in &answers[accepted..] {
            assert_eq!((&answer["type"], &answer["retryable"]), (&json!("error"), &json!(true)), "{answer}");
        }
        stored += accepted;
        if accepted < burst.len() {
            refusals += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    refusals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_frames_keep_their_order() {
    let server = Setup::new().set("store.embedded.sync_delay=15ms").start();
    let names = NAMES;
    let mut refusals = 0;
    // Until the store has refused something.
    for round in 0..40 {
        let mut sending = tokio::task::JoinSet::new();
        for name in names {
            let (socket, room) = (server.ws("/v1/ws").await, format!("r{round}"));
            sending.spawn(async move { send_all(socket, &room, name).await });
        }
        refusals += sending.join_all().await.into_iter().sum::<usize>();
        if refusals > 0 {
            return check(&server, &format!("r{round}")).await;
        }
    }
    panic!("the store has refused nothing");
}

async fn check(server: &Server, room: &str) {
    let history = server.history(room).await;
    for name in NAMES {
        let prefix = format!("{name} ");
        let stored: Vec<usize> = texts(&history)
            .into_iter()
            .filter_map(|text| Some(text.strip_prefix(&prefix)?.split(' ').next()?.parse().ok()?))
            .collect();
        assert_eq!(stored, Vec::from_iter(0..MESSAGES), "{room}: {name}");
    }
}

/// What the broker did not confirm is sent again, and nothing that was sent behind it may come before it: also when the
/// broker takes messages again before the client has read that.
#[cfg(feature = "amqp")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_behind_one_that_a_broker_did_not_take_are_refused() {
    let broker = Broker::start();
    let server = Setup::new().set(&broker.setting()).start();
    let send = |name: &str, room: &str| {
        let mut frame = json!({"type": "send", "roomId": room, "userId": "eve"});
        ["ref", "message", "messageId"].iter().for_each(|field| frame[field] = json!(name));
        frame
    };
    let status = async || server.get("/health").await.json()["components"]["log"]["status"].clone();
    let mut socket = server.ws("/v1/ws").await;
    broker.control(&["set_vm_memory_high_watermark", "0"]);
    // Until one is not confirmed any more. Its refusal is not read yet: the client knows nothing.
    let mut confirmed = Vec::new();
    loop {
        let name = format!("zero-{}", confirmed.len());
        socket.say(&send(&name, "r")).await;
        match tokio::time::timeout(Duration::from_secs(1), socket.hear()).await {
            Ok(answer) => assert_eq!(answer["type"], "ack", "{answer}"),
            Err(_) => break,
        }
        confirmed.push(name);
    }
    let one = format!("zero-{}", confirmed.len());
    until("it is noticed", async || status().await == "DOWN").await;
    broker.control(&["set_vm_memory_high_watermark", "0.9"]);
    until("it takes messages again", async || status().await == "UP").await;
    socket.say_all(&[send("two", "r"), send("other", "s"), send("three", "r")]).await;
    let answers = socket.hear_all(4).await;
    let text = |answer: &'_ Value, field: &str| answer[field].as_str().unwrap().to_owned();
    let kinds: Vec<_> = answers.iter().map(|answer| [text(answer, "ref"), text(answer, "type")]).collect();
    assert_eq!(kinds, [[&*one, "error"], ["two", "error"], ["other", "ack"], ["three", "error"]]);
    assert_eq!((&answers[0]["retryable"], &answers[1]["code"]), (&json!(true), &json!("overloaded")));
    // The pong went out while the answers were read.
    for name in [&*one, "two", "three"] {
        assert_eq!(socket.ask(&send(name, "r")).await["type"], "ack");
    }
    confirmed.extend([one, "two".to_owned(), "three".to_owned()]);
    until("all are stored", async || server.history("r").await.len() == confirmed.len()).await;
    assert_eq!(texts(&server.history("r").await), confirmed);
}
