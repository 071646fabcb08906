//! When the store refuses a batch, what the same connection had sent behind it is refused too: a retry keeps the order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_pipeline::log::LogOptions;
use hubbub_store::embedded::disk::{Disk, DiskFile};
use hubbub_store::embedded::sim::SimDisk;
use serde_json::{Value, json};

#[cfg(feature = "amqp")]
use crate::harness::{Broker, Setup, until};
use crate::harness::{Simulated, Ws, chat_message, texts};

const MESSAGES: usize = 100;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// So much that what one client sends at once comes by several reads, each of them a batch of its own.
const TEXT_BYTES: usize = 8_000;
const BATCH: usize = 1;
/// Each fifth time it is asked, the disk is full.
const FULL_EVERY: u64 = 5;

/// A disk that is full now and then. The store looks after each batch, and refuses the next one if it is.
struct OftenFull {
    disk: SimDisk,
    asked: AtomicU64,
}

impl Disk for OftenFull {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.make_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn free_bytes(&self) -> io::Result<u64> {
        let is_full = self.asked.fetch_add(1, Ordering::Relaxed) % FULL_EVERY == FULL_EVERY - 1;
        Ok(if is_full { 0 } else { u64::MAX })
    }
}

fn frame(name: &str, number: usize) -> Value {
    let text = format!("{name} {number} {}", "x".repeat(TEXT_BYTES));
    let mut frame = chat_message(&format!("{name}-{number}"), &text);
    frame["type"] = json!("send");
    frame["roomId"] = json!("r");
    frame
}

/// Sends all messages at once, and again from the first that was refused; how often that was.
async fn send_all(mut socket: Ws, name: &str) -> usize {
    let (mut stored, mut refusals) = (0, 0);
    while stored < MESSAGES {
        let burst: Vec<Value> = (stored..MESSAGES).map(|number| frame(name, number)).collect();
        socket.send_all(&burst).await;
        let answers = socket.receive_many(burst.len()).await;
        let accepted = answers.iter().take_while(|answer| answer["type"] == "ack").count();
        for answer in &answers[accepted..] {
            assert_eq!((&answer["type"], &answer["retryable"]), (&json!("error"), &json!(true)), "{answer}");
        }
        stored += accepted;
        refusals += usize::from(accepted < burst.len());
    }
    refusals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_frames_keep_their_order() {
    let disk = OftenFull { disk: SimDisk::new(), asked: AtomicU64::new(0) };
    let tuning = LogOptions { ops_max: BATCH, ..LogOptions::default() };
    let server = Simulated::start_with(Arc::new(disk), 1, tuning).await;
    let mut sending = tokio::task::JoinSet::new();
    for name in NAMES {
        let socket = Ws::open(server.address, "/v1/ws").await;
        sending.spawn(send_all(socket, name));
    }
    let refusals: usize = sending.join_all().await.into_iter().sum();
    assert!(refusals > 0, "the store has refused nothing");
    let history = server.history().await;
    for name in NAMES {
        let prefix = format!("{name} ");
        let stored: Vec<usize> = texts(&history)
            .into_iter()
            .filter_map(|text| text.strip_prefix(&prefix)?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(stored, Vec::from_iter(0..MESSAGES), "{name}");
    }
    server.stop().await;
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
        socket.send(&send(&name, "r")).await;
        match tokio::time::timeout(std::time::Duration::from_secs(1), socket.receive()).await {
            Ok(answer) => assert_eq!(answer["type"], "ack", "{answer}"),
            Err(_) => break,
        }
        confirmed.push(name);
    }
    let one = format!("zero-{}", confirmed.len());
    until("it is noticed", async || status().await == "DOWN").await;
    broker.control(&["set_vm_memory_high_watermark", "0.9"]);
    until("it takes messages again", async || status().await == "UP").await;
    socket.send_all(&[send("two", "r"), send("other", "s"), send("three", "r")]).await;
    let answers = socket.receive_many(4).await;
    let text = |answer: &'_ Value, field: &str| answer[field].as_str().unwrap().to_owned();
    let kinds: Vec<_> = answers.iter().map(|answer| [text(answer, "ref"), text(answer, "type")]).collect();
    assert_eq!(kinds, [[&*one, "error"], ["two", "error"], ["other", "ack"], ["three", "error"]]);
    assert_eq!((&answers[0]["retryable"], &answers[1]["code"]), (&json!(true), &json!("overloaded")));
    // The pong went out while the answers were read.
    for name in [&*one, "two", "three"] {
        assert_eq!(socket.request(&send(name, "r")).await["type"], "ack");
    }
    confirmed.extend([one, "two".to_owned(), "three".to_owned()]);
    until("all are stored", async || server.history("r").await.len() == confirmed.len()).await;
    assert_eq!(texts(&server.history("r").await), confirmed);
}
