//! More than the server takes on is refused with the advice to retry, and what is accepted is never dropped.

use serde_json::{Value, json};

use crate::harness::{Http, Server, Setup, chat_message, texts};

/// Little may wait, and what waits waits long.
fn narrow() -> Server {
    Setup::new().set("pipeline.queue_operations=8").set("store.embedded.sync_delay=100ms").start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overload_is_answered() {
    let server = narrow();
    let address = server.address();
    let sending = (0..64).map(|number: u32| {
        tokio::spawn(async move {
            let body = json!({"userId": "ada", "message": number.to_string()});
            Http::connect(address).await.post("/v1/rooms/r/messages", body.to_string()).await
        })
    });
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for (number, sent) in sending.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = sent.await.unwrap();
        if answer.status == 201 {
            accepted.push(number.to_string());
            continue;
        }
        let problem = answer.problem(503, "overloaded");
        assert_eq!((&problem["retryable"], answer.header("retry-after")), (&json!(true), Some("1")));
        assert!(problem["messageId"].is_string(), "also one the server made: {problem}");
        refused += 1;
    }
    assert!(refused > 0 && accepted.len() >= 4, "{refused} refused, {} accepted", accepted.len());
    let history = server.history("r").await;
    let mut stored = texts(&history);
    stored.sort_unstable();
    accepted.sort_unstable();
    assert_eq!(stored, accepted);
    let text = server.get("/metrics").await.text();
    assert!(
        text.contains(&format!("hubbub_messages_rejected_total{{reason=\"overloaded\"}} {refused}\n")),
        "{text}"
    );
}

/// A room that takes all it can get leaves half of the queue to the others.
#[tokio::test]
async fn one_room_holds_only_half() {
    let server = narrow();
    let mut hot = server.ws("/v1/ws").await;
    let mut refusals = 0;
    for round in 0.. {
        let frame = |text: u32| json!({"type": "send", "roomId": "hot", "userId": "ada", "message": text.to_string()});
        hot.say(&frame(round)).await;
        // As many unanswered frames as the queue holds, twice: some of them must be refused.
        if round >= 16 {
            let answer = hot.hear().await;
            if answer["type"] == "error" {
                assert_eq!(
                    (&answer["code"], &answer["retryable"]),
                    (&json!("overloaded"), &json!(true)),
                    "{answer}"
                );
                refusals += 1;
                // However full the hot room's half is, there is place for another room.
                server.send(&format!("calm-{refusals}"), "x").await;
            }
        }
        if refusals == 5 {
            break;
        }
    }
}

/// Once a frame of a burst is refused, the rest of it is refused too: a retry keeps the order.
#[tokio::test]
async fn a_refused_burst_is_refused_to_its_end() {
    for path in ["/v1/ws", "/chat/r"] {
        let server = narrow();
        let mut socket = server.ws(path).await;
        // Long enough to be read in several pieces.
        let text = |number: usize| format!("{number} {}", "x".repeat(400));
        let frame = |number: usize| -> Value {
            let mut frame = chat_message(&number.to_string(), &text(number));
            frame["type"] = json!("send");
            frame["roomId"] = json!("r");
            frame
        };
        let mut stored = 0;
        let mut refused_once = false;
        while stored < 300 {
            let burst: Vec<Value> = (stored..300.min(stored + 120)).map(frame).collect();
            socket.say_all(&burst).await;
            let answers = socket.hear_all(burst.len()).await;
            let is_ack = |answer: &Value| answer["type"] == "ack" || answer["status"] == "success";
            let accepted = answers.iter().take_while(|answer| is_ack(answer)).count();
            for refused in &answers[accepted..] {
                assert_eq!(refused["code"], "overloaded", "{path}: {refused}");
                assert!(refused["messageId"].is_string(), "{path}: {refused}");
                refused_once = true;
            }
            stored += accepted;
        }
        assert!(refused_once, "{path}: the test is about refusals");
        let history = server.history("r").await;
        assert_eq!(texts(&history), (0..300).map(text).collect::<Vec<_>>(), "{path}");
    }
}

/// The same for a stream of lines.
#[tokio::test]
async fn a_refused_stream_is_refused_to_its_end() {
    let server = narrow();
    let body: String = (0..500)
        .map(|number| format!("{}\n", json!({"roomId": "r", "userId": "ada", "message": format!("{number} {}", "x".repeat(300)), "messageId": number})))
        .collect();
    let mut first = server.http().await;
    let mut second = server.http().await;
    let (first, second) =
        tokio::join!(first.post("/v1/messages", body.clone()), second.post("/v1/messages", body));
    let mut acked = std::collections::BTreeSet::new();
    for answer in [first, second] {
        let lines = answer.lines();
        assert_eq!(lines.len(), 500);
        let accepted = lines.iter().take_while(|line| line["seq"].is_u64()).count();
        assert!(lines[accepted..].iter().all(|line| line["code"] == "overloaded"), "{lines:?}");
        acked.extend(lines[..accepted].iter().map(|line| line["messageId"].as_str().unwrap().to_owned()));
    }
    let history = server.history("r").await;
    let stored: std::collections::BTreeSet<_> =
        history.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(stored, acked);
}
