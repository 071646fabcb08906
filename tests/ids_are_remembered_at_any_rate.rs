//! A repeat is known for its ten minutes, however much goes through other queues meanwhile, and after a `kill -9`.

use serde_json::{Value, json};

use crate::harness::{Server, Setup, until};

/// Messages of one request.
const ITEMS: usize = 1_000;

/// More than stay in memory when a slot of the journal is sealed.
const REQUESTS: usize = 120;

/// Fills slots, so that they are sealed.
const TEXT_BYTES: usize = 300;

async fn send(server: &Server) -> Value {
    let message = json!({"sender": "boss", "message": "pay the rent", "messageId": "rent-11"});
    let answer = server.post("/v1/queues/payments/messages", &message).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn ids_are_remembered_at_any_rate() {
    let mut server = Setup::new().set("store.embedded.journal_slot=4MiB").start();
    server.put_queue("payments", json!({})).await;
    // What is too many goes, and so nobody needs to take it.
    server.put_queue("other", json!({"maxMessages": ITEMS, "onFull": "dropOldest"})).await;
    let first = send(&server).await;
    assert_eq!(server.take("get", "payments", json!({"receiver": "bank"})).await.len(), 1);

    let text = "x".repeat(TEXT_BYTES);
    let mut http = server.http().await;
    for request in 0..REQUESTS {
        let item = |at| json!({"sender": "boss", "message": text, "messageId": format!("{request}-{at}")});
        let items: Vec<Value> = (0..ITEMS).map(item).collect();
        let items = Value::from(items).to_string();
        let mut answer = http.post("/v1/queues/other/messages", items.clone()).await;
        // A slow disk may be behind: what it refuses for that reason is not stored.
        while answer.status == 503 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            answer = http.post("/v1/queues/other/messages", items.clone()).await;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        let results = answer.json()["results"].take();
        let is_new = |result: &Value| result["duplicate"] == false;
        assert!(results.as_array().unwrap().iter().all(is_new), "{results}");
    }
    let files = server.setup().data().join("queues");
    let has_ids = || {
        let mut names = std::fs::read_dir(&files).unwrap().map(|file| file.unwrap().path());
        names.any(|path| path.extension().is_some_and(|kind| kind == "ids"))
    };
    until("ids stand in a file", async || has_ids()).await;
    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server.restart();
        }
        let again = send(&server).await;
        assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)), "{is_restarted}");
        assert_eq!(server.take("get", "payments", json!({"receiver": "bank"})).await, [Value::Null; 0]);
    }
}
