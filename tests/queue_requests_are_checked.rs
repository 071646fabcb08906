//! What is wrong with a request to queues is named, field by field, and nobody acts as somebody else.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Server, texts};

#[tokio::test]
async fn queue_requests_are_checked() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    let put = Method::PUT;
    for (method, path, body, fields) in [
        (
            Method::POST,
            "/v1/queues/jobs/messages",
            json!({"delayMs": -1}),
            &["sender", "message", "delayMs"][..],
        ),
        (Method::POST, "/v1/queues/jobs/messages", json!({"sender": "a", "message": "m\u{0}"}), &["message"]),
        (Method::POST, "/v1/queues/jobs/get", json!({"max": 1_001, "waitMs": 20_001}), &["max", "waitMs"]),
        (Method::POST, "/v1/queues/jobs/lease", json!({"leaseMs": 0, "order": "any"}), &["order", "leaseMs"]),
        (Method::POST, "/v1/queues/jobs/messages/1/ack", json!({}), &["receipt"]),
        (
            Method::POST,
            "/v1/queues/jobs/messages/1/nack",
            json!({"receipt": "x", "delayMs": "1s"}),
            &["receipt", "delayMs"],
        ),
        (Method::POST, "/v1/queues/jobs/messages/x/ack", json!({}), &["id"]),
        (Method::POST, "/v1/queues/a%20b/get", json!({}), &["queue"]),
        (Method::POST, "/v1/clients/ann/get", json!({}), &["sender"]),
        (put.clone(), "/v1/queues/jobs", json!({"leaseMs": 0, "onFull": "wait"}), &["leaseMs", "onFull"]),
        (put.clone(), "/v1/clients/a%2Fb", json!(null), &["client"]),
        (
            Method::GET,
            "/v1/queues?limit=0&after=%20&receiver=%20",
            json!(null),
            &["limit", "after", "receiver"],
        ),
        (Method::GET, "/v1/queues/jobs/messages?after=x", json!(null), &["after"]),
    ] {
        server.call("", method, path, body).await.faults(fields);
    }
    server.post("/v1/queues/jobs/get", &json!([])).await.problem(400, "malformed");
    let many = json!(vec![json!({"sender": "a", "message": "m"}); 1_001]);
    server.post("/v1/queues/jobs/messages", &many).await.problem(413, "too_large");
    // A dead-letter queue whose name would be too long.
    let long = "q".repeat(60);
    let answer =
        server.call("", put.clone(), &format!("/v1/queues/{long}"), json!({"maxDeliveries": 2})).await;
    answer.faults(&["deadLetter"]);
    let named = json!({"maxDeliveries": 2, "deadLetter": "bad"});
    assert_eq!(server.call("", put.clone(), &format!("/v1/queues/{long}"), named).await.status, 201);
    let later = server.call("", put.clone(), &format!("/v1/queues/{long}"), json!({"deadLetter": ""})).await;
    later.faults(&["deadLetter"]);
    // A misspelt setting would change nothing, and nobody would know.
    let misspelt =
        server.call("", put.clone(), "/v1/queues/jobs9", json!({"leasems": 1_000, "xyz": 1})).await;
    let problem = misspelt.problem(422, "invalid");
    let said = "body has no member 'leasems'; did you mean leaseMs?; body has no member 'xyz'";
    assert_eq!(problem["detail"], said);
    assert_eq!(server.get("/v1/queues/jobs9").await.status, 404, "it was not made");
    // What an answer shows may be sent back.
    let mut shown = server.get(&format!("/v1/queues/{long}")).await.json();
    shown["leaseMs"] = json!(5_000);
    let changed = server.call("", put, &format!("/v1/queues/{long}"), shown).await;
    assert_eq!((changed.status, &changed.json()["leaseMs"]), (200, &json!(5_000)));
}

#[tokio::test]
async fn nobody_acts_as_somebody_else() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    server.register(&["ann", "bob"]).await;
    let to_bob = json!({"message": "secret", "receiver": "bob"});
    let path = "/v1/queues/jobs";
    // The sender is the caller unless said, and must be.
    assert_eq!(server.call("ann", Method::POST, &format!("{path}/messages"), to_bob).await.status, 201);
    for (what, body) in [
        ("messages", json!({"sender": "bob", "message": "forged"})),
        ("get", json!({"receiver": "bob"})),
        ("lease", json!({"receiver": "bob"})),
        ("read", json!({"receiver": "bob"})),
        ("redrive", json!({})),
    ] {
        let answer = server.call("ann", Method::POST, &format!("{path}/{what}"), body).await;
        answer.problem(403, "forbidden");
    }
    for (method, path) in [
        (Method::GET, "/v1/queues/jobs/messages"),
        (Method::DELETE, "/v1/queues/jobs/messages/1"),
        (Method::PUT, "/v1/queues/jobs"),
        (Method::DELETE, "/v1/clients/bob"),
        (Method::GET, "/v1/queues?receiver=bob"),
    ] {
        server.call("ann", method, path, Value::Null).await.problem(403, "forbidden");
    }
    let nothing = server.call("ann", Method::POST, &format!("{path}/get"), json!({})).await.json();
    assert_eq!(nothing["messages"], json!([]));
    let got = server.call("bob", Method::POST, &format!("{path}/get"), json!({})).await.json();
    assert_eq!(texts(got["messages"].as_array().unwrap()), ["secret"]);
}

#[tokio::test]
async fn clients_register_by_use_unless_told_otherwise() {
    let server = crate::harness::Setup::new().set("queues.autoregister=false").start();
    server.put_queue("jobs", json!({})).await;
    let message = json!({"sender": "ann", "message": "m"});
    let refused = server.post("/v1/queues/jobs/messages", &message).await;
    refused.problem(422, "unknown_client");
    server.register(&["ann"]).await;
    assert_eq!(server.post("/v1/queues/jobs/messages", &message).await.status, 201);
    let clients = server.get("/v1/clients").await.json();
    assert_eq!(clients["clients"], json!([{"client": "ann"}]));
}
