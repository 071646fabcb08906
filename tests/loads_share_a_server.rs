//! Several `hubbub bench` send to one server at the same time: what the server counts for the others is no fault of a run that
//! was told of them.

use serde_json::{Value, json};

use crate::harness::{Server, hubbub_at_length};

async fn send(url: &str, prefix: &str) -> Value {
    let line = ["bench", "http", "--closed", "-d", "2s", "-c", "4", "--json", "--quiet", "--beside-others"];
    let line = [&line[..], &["--room-prefix", prefix, "--server", url]].concat();
    let ran = hubbub_at_length(line.into_iter().map(str::to_owned).collect()).await;
    serde_json::from_str(&ran.success()).unwrap()
}

#[tokio::test]
async fn loads_beside_each_other_balance() {
    let server = Server::start();
    let url = format!("http://{}", server.address());
    let (one, other) = tokio::join!(send(&url, "one-"), send(&url, "other-"));
    let mut accepted = 0;
    for summary in [one, other] {
        assert!(summary["ledger"]["accepted"].as_u64().unwrap() > 0, "{summary}");
        assert_eq!((&summary["faults"], summary["ledger"].get("server")), (&json!([]), None), "{summary}");
        accepted += summary["ledger"]["accepted"].as_u64().unwrap();
    }
    assert_eq!(server.metric("messages_stored_total").await, accepted, "of both");
}
