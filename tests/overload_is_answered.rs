//! More than the server takes on is refused with the advice to retry, and what is accepted is never dropped.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::{Http, Server, Setup, chat_message, in_time, texts};

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
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_room_holds_only_half() {
    let server = narrow();
    let address = server.address();
    let post = async move |room: &str| {
        let path = format!("/v1/rooms/{room}/messages");
        Http::connect(address)
            .await
            .post(&path, json!({"userId": "ada", "message": "x"}).to_string())
            .await
            .status
    };
    for round in 0..5 {
        let mut sending = tokio::task::JoinSet::new();
        for _ in 0..32 {
            sending.spawn(async move { post("hot").await });
        }
        // Refusals come at once: while the hot room's half is full there is place for another room.
        while let Some(status) = sending.join_next().await {
            if status.unwrap() == 503 {
                assert_eq!(post(&format!("calm-{round}")).await, 201);
                break;
            }
        }
        sending.join_all().await;
    }
    assert_eq!(server.get("/v1/rooms").await.json()["rooms"].as_array().unwrap().len(), 6);
}

/// Once a frame of a burst is refused, the rest of it is refused too: a retry keeps the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_burst_is_refused_to_its_end() {
    for path in ["/v1/ws", "/chat/r"] {
        // Two compete, and the queue empties while a burst is read.
        let server = Setup::new().set("pipeline.queue_operations=8").start();
        let (first, second) = tokio::join!(bursts(&server, path, "a"), bursts(&server, path, "b"));
        assert!(first + second > 0, "{path}: the test is about refusals");
        let history = server.history("r").await;
        for name in ["a", "b"] {
            let stored = texts(&history).into_iter().filter(|text| text.starts_with(name));
            assert!(stored.eq((0..BURST_MESSAGES).map(|number| text(name, number))), "{path}: order");
        }
    }
}

const BURST_MESSAGES: usize = 3_000;

/// Long enough for a burst to be read in several pieces.
fn text(name: &str, number: usize) -> String {
    format!("{name}{number} {}", "x".repeat(350))
}

/// Sends messages in bursts, each again from the first that was refused; how many bursts were refused in part.
async fn bursts(server: &Server, path: &str, name: &str) -> usize {
    let mut socket = server.ws(path).await;
    let frame = |number: usize| -> Value {
        let mut frame = chat_message(&format!("{name}{number}"), &text(name, number));
        frame["type"] = json!("send");
        frame["roomId"] = json!("r");
        frame
    };
    let (mut stored, mut refused) = (0, 0);
    while stored < BURST_MESSAGES {
        // One segment of the loopback interface: it arrives as a whole.
        let burst: Vec<Value> = (stored..BURST_MESSAGES.min(stored + 100)).map(frame).collect();
        socket.send_all(&burst).await;
        let answers = socket.receive_many(burst.len()).await;
        let is_ack = |answer: &Value| answer["type"] == "ack" || answer["status"] == "success";
        let accepted = answers.iter().take_while(|answer| is_ack(answer)).count();
        for answer in &answers[accepted..] {
            assert_eq!(answer["code"], "overloaded", "{path}: {answer}");
            assert!(answer["messageId"].is_string(), "{path}: {answer}");
        }
        refused += usize::from(accepted < burst.len());
        stored += accepted;
    }
    refused
}

const LINES: usize = 2_000;

/// The same for a stream of lines.
#[tokio::test]
async fn a_refused_stream_is_refused_to_its_end() {
    let server = Setup::new().set("pipeline.queue_operations=8").start();
    let line = |stream: usize, number: usize| json!({"roomId": "r", "userId": "ada", "message": text("", number), "messageId": format!("{stream}-{number}")});
    let sending: Vec<_> = (0..6)
        .map(|stream| {
            let body: String = (0..LINES).map(|number| format!("{}\n", line(stream, number))).collect();
            let address = server.address();
            tokio::spawn(async move { Http::connect(address).await.post("/v1/messages", body).await.lines() })
        })
        .collect();
    let (mut acked, mut refused) = (BTreeSet::new(), 0);
    for sent in sending {
        let lines = sent.await.unwrap();
        assert_eq!(lines.len(), LINES);
        let accepted = lines.iter().take_while(|line| line["seq"].is_u64()).count();
        for line in &lines[accepted..] {
            assert_eq!(line["code"], "overloaded", "{line}");
        }
        refused += lines.len() - accepted;
        acked.extend(lines[..accepted].iter().map(|line| line["messageId"].as_str().unwrap().to_owned()));
    }
    assert!(refused > 0, "the test is about refusals");
    let history = server.history("r").await;
    let stored: BTreeSet<_> =
        history.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(stored, acked);
}

/// When all clients come back at once, who is not accepted yet is connected all the same, and waits no longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_in_a_crowd_is_connected() {
    const CROWD: usize = 600;
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    // Of other systems nobody knows what they allow.
    let allowed = allowed.and_then(|text| text.trim().parse().ok()).unwrap_or(CROWD / 6);
    let server = Server::start();
    server.pause();
    let connecting = (0..CROWD.min(allowed)).map(|_| TcpStream::connect(server.address()));
    let crowd = in_time("connecting without being accepted", join_all(connecting)).await;
    assert!(crowd.iter().all(Result::is_ok));
    server.resume();
    assert_eq!(server.get("/health/live").await.status, 200);
}
