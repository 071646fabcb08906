//! `deploy/k6/chat.js`, run by a real k6 at a fraction of its rates.

use serde_json::Value;

use crate::harness::{Cassandra, Kafka, Setup, tool};

/// Iterations of the script that send nothing: its listeners.
const LISTENERS: u64 = 10;

#[tokio::test]
async fn k6_runs() {
    run(Setup::new()).await;
}

/// Numbers of messages have gaps there, and messages are stored after they were acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k6_runs_with_a_log() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    run(Cassandra::replicated(kafka.setup(&cassandra.url(), 1))).await;
}

async fn run(setup: Setup) {
    let Some(mut k6) = tool("k6") else { return };
    let summary = setup.beside("summary.json");
    let server = setup.start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/k6/chat.js");
    k6.args(["run", "--quiet", "--no-usage-report", "--summary-export"]).arg(&summary);
    let room = "ROOM=load".to_owned();
    for variable in [format!("SERVER={}", server.url()), room, "SCALE=0.002".into(), "STAGE=2s".into()] {
        k6.args(["--env", &variable]);
    }
    let ran = tokio::task::spawn_blocking(move || k6.arg(script).output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let summary: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let count = |metric: &str| summary["metrics"][metric]["count"].as_u64();
    let sent = count("iterations").unwrap() - LISTENERS;
    assert!(sent > 50, "{sent} messages\n{said}");
    assert_eq!(server.get("/v1/rooms/load").await.json()["messages"], sent, "{said}");
    assert_eq!(count("messages_delivered"), Some(LISTENERS * sent), "each listener gets each message");
    assert_eq!(count("messages_out_of_order"), Some(0));
}
