//! A message to everybody reaches each client that was registered when it was sent, but the sender, exactly once.

use serde_json::json;

use crate::harness::{Http, Server, in_time, texts, until};

#[tokio::test]
async fn broadcast_reaches_each_once() {
    let mut server = Server::start();
    server.put_queue("news", json!({})).await;
    let clients = ["ann", "bob", "cyd"];
    server.register(&["boss"]).await;
    server.register(&clients).await;
    // Two of them wait already; bob twice.
    let address = server.address();
    let waits = |client: &'static str| {
        tokio::spawn(async move {
            let mut http = Http::connect(address).await;
            http.take("get", "news", json!({"receiver": client, "waitMs": 20_000})).await
        })
    };
    let waiting = [waits("ann"), waits("bob")];
    until("two wait", async || server.metric("queue_waiting_consumers").await == 2).await;
    let sent = json!({"sender": "boss", "message": "a party", "audience": "all", "messageId": "n-1"});
    let answer = server.post("/v1/queues/news/messages", &sent).await;
    assert_eq!((answer.status, &answer.json()["copies"]), (201, &json!(3)));
    assert_eq!(server.post("/v1/queues/news/messages", &sent).await.status, 200);
    for one in waiting {
        assert_eq!(texts(&in_time("a copy", one).await.unwrap()), ["a party"]);
    }
    // Who comes later has no copy; nor has the sender.
    server.register(&["dan"]).await;
    server.kill();
    server.restart();
    for (client, copies) in [("ann", 0), ("bob", 0), ("cyd", 1), ("dan", 0), ("boss", 0)] {
        let got = server.take("get", "news", json!({"receiver": client, "max": 10})).await;
        assert_eq!(got.len(), copies, "{client}: {got:?}");
    }
    // Who is unregistered loses the copies.
    server.enqueue_with("news", json!({"message": "another", "audience": "all"})).await;
    assert_eq!(server.waiting("news").await.len(), 4);
    server.call("", hyper::Method::DELETE, "/v1/clients/cyd", json!(null)).await;
    assert_eq!(server.waiting("news").await.len(), 3);
}
