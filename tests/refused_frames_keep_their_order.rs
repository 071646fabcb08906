//! When the store refuses a batch, what the same connection had sent behind it is refused too: a retry keeps the order.

use std::time::Duration;

use serde_json::{Value, json};

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
            .filter_map(|text| text.strip_prefix(&prefix)?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(stored, Vec::from_iter(0..MESSAGES), "{room}: {name}");
    }
}
