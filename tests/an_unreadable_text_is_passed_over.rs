//! The text of a message in a queue cannot be read any more: takers get those behind it, `/health` says where the damage
//! is, and the store goes on taking messages.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, receipt, until};

/// Fills slots, so that they are sealed.
const TEXT_BYTES: usize = 8_000;
const ITEMS: usize = 100;

/// Where the first text of a file begins.
const FIRST_TEXT: u64 = 4;

async fn fill(server: &Server) -> u16 {
    let text = "x".repeat(TEXT_BYTES);
    let items: Vec<Value> = (0..ITEMS).map(|_| json!({"sender": "boss", "message": text})).collect();
    let items = Value::from(items);
    loop {
        let status = server.post("/v1/queues/other/messages", &items).await.status;
        // On a busy machine slots are filled faster than they are sealed.
        if status != 503 {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_unreadable_text_is_passed_over() {
    let server = Setup::new().set("store.embedded.journal_slot=4MiB").start();
    server.put_queue("q", json!({})).await;
    server.put_queue("other", json!({"maxMessages": ITEMS, "onFull": "dropOldest"})).await;
    for text in ["first", "second", "third", "fourth"] {
        server.enqueue("q", text).await;
    }
    let files = server.setup().data().join("queues");
    let files_of = |kind: &str| -> Vec<PathBuf> {
        let paths = fs::read_dir(&files).unwrap().map(|file| file.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|found| found == kind)).collect()
    };
    until("texts stand in a file", async || {
        assert_eq!(fill(&server).await, 200);
        // It is written when texts have moved.
        !files_of("snap").is_empty()
    })
    .await;
    let first = files_of("text").into_iter().min().unwrap();
    File::options().write(true).open(&first).unwrap().write_all_at(b"F", FIRST_TEXT).unwrap();

    let texts = |taken: &[Value]| -> Vec<String> {
        taken.iter().map(|one| one["message"].as_str().unwrap().to_owned()).collect()
    };
    let bob = json!({"receiver": "bob", "max": 1});
    assert_eq!(texts(&server.take("read", "q", bob.clone()).await), ["second"]);
    assert_eq!(texts(&server.take("get", "q", bob.clone()).await), ["second"]);
    let leased = server.take("lease", "q", bob.clone()).await;
    assert_eq!(texts(&leased), ["third"]);
    let acked = server.settle("ack", "q", receipt(&leased[0]), json!({})).await;
    assert!(matches!(acked.status, 200 | 204), "{}", acked.text());
    assert_eq!(texts(&server.waiting("q").await), ["fourth"]);
    let health = server.get("/health").await.json();
    let reason = health["components"]["store"]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains(".text is damaged at byte 0"), "{health}");
    assert_eq!(health["status"], "UP", "{health}");
    assert_eq!(health["components"]["store"]["status"], "DEGRADED", "{health}");

    // Little of the file is waited for any more, so seals would like to write it anew.
    for _ in 0..60 {
        assert_eq!(fill(&server).await, 200, "{}", server.log());
    }
    assert!(!fs::read(&first).unwrap().is_empty(), "it stays");
    assert_eq!(texts(&server.take("get", "q", bob.clone()).await), ["fourth"]);
    assert_eq!(server.take("get", "q", bob).await, [Value::Null; 0]);
    // It can be removed without being read.
    let deleted = server.call("", Method::DELETE, "/v1/queues/q/messages/1", Value::Null).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
}
