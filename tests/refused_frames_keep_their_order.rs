//! When the store refuses a batch, what the same connection had sent behind it is refused too: a retry keeps the order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_pipeline::batcher::BatchTuning;
use hubbub_store::embedded::disk::{Disk, DiskFile};
use hubbub_store::embedded::sim::SimDisk;
use serde_json::{Value, json};

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
        socket.say_all(&burst).await;
        let answers = socket.hear_all(burst.len()).await;
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
    let tuning = BatchTuning { ops_max: BATCH, ..BatchTuning::default() };
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
