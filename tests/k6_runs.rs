//! `deploy/k6/chat.js`, run by a real k6 at a fraction of its rates.

use serde_json::Value;

use crate::harness::{Setup, tool};

#[tokio::test]
async fn k6_runs() {
    let Some(mut k6) = tool("k6") else { return };
    let setup = Setup::new();
    let summary = setup.beside("summary.json");
    let server = setup.start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/k6/chat.js");
    k6.args(["run", "--quiet", "--no-usage-report", "--summary-export"]).arg(&summary);
    for variable in [format!("SERVER={}", server.url()), "SCALE=0.002".into(), "STAGE=1s".into()] {
        k6.args(["--env", &variable]);
    }
    let ran = tokio::task::spawn_blocking(move || k6.arg(script).output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let summary: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let count = |metric: &str| summary["metrics"][metric]["count"].as_u64();
    let stored = server.metric("messages_stored_total").await;
    assert!(stored > 50, "{stored} messages\n{said}");
    assert_eq!(count("messages_delivered"), Some(10 * stored), "each of ten listeners gets each message");
    assert_eq!(count("messages_out_of_order"), Some(0));
}
