//! A repeated id stores nothing and answers with the first one's number, on every way in and after a restart.

use serde_json::{Value, json};

use crate::harness::{Server, chat_message};

#[tokio::test]
async fn duplicate_id_is_noop() {
    let mut server = Server::start();
    let first = server.send_as("r", "one", "hello").await;
    assert_eq!((first.status, &first.json()["duplicate"]), (201, &json!(false)));
    server.send("r", "between").await;
    for life in 0..2 {
        let again = server.send_as("r", "one", "hello").await;
        assert_eq!(again.status, 200);
        let expected =
            Value::from_iter(first.json().as_object().unwrap().clone().into_iter().map(|(name, value)| {
                let value = if name == "duplicate" { json!(true) } else { value };
                (name, value)
            }));
        assert_eq!(again.json(), expected, "life {life}");

        let header = [("idempotency-key", "one")];
        let body = r#"{"userId":"ada","message":"hello"}"#;
        let mut http = server.http().await;
        let keyed = http.request(hyper::Method::POST, "/v1/rooms/r/messages", &header, body).await;
        assert_eq!((keyed.status, keyed.json()), (200, expected));

        let mut socket = server.ws("/v1/ws").await;
        let ack = socket.request(&json!({"type": "send", "roomId": "r", "userId": "ada", "message": "hello", "messageId": "one"})).await;
        assert_eq!((&ack["type"], &ack["seq"], &ack["duplicate"]), (&json!("ack"), &json!(1), &json!(true)));

        let line = r#"{"roomId":"r","userId":"ada","message":"hello","messageId":"one"}"#;
        let lines = http.post("/v1/messages", line).await.lines();
        assert_eq!((lines.len(), &lines[0]["seq"], &lines[0]["duplicate"]), (1, &json!(1), &json!(true)));
        assert_eq!(server.history("r").await.len(), 2, "life {life}");
        server.restart();
    }
}

#[tokio::test]
async fn chat_answers_a_repeated_id_with_success() {
    let server = Server::start();
    let mut chat = server.ws("/chat/r").await;
    // In one write, so that both can be in one batch.
    let message = chat_message("one", "hello");
    chat.send_all(&[message.clone(), message.clone(), chat_message("two", "hello"), message]).await;
    let answers = chat.receive_many(4).await;
    assert!(answers.iter().all(|answer| answer["status"] == "success"), "{answers:?}");
    let seqs: Vec<_> = answers.iter().map(|answer| answer["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 1, 2, 1]);
    assert_eq!(server.history("r").await.len(), 2);
}

/// Many connections, one id: one of them stores it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_id_at_once_is_stored_once() {
    let server = Server::start();
    let address = server.address();
    for round in 0..10 {
        let sending = (0..16).map(|_| {
            tokio::spawn(async move {
                let mut http = crate::harness::Http::connect(address).await;
                let body = json!({"userId": "ada", "message": "hello", "messageId": format!("id-{round}")});
                http.post("/v1/rooms/r/messages", body.to_string()).await
            })
        });
        let mut statuses = Vec::new();
        for sent in sending.collect::<Vec<_>>() {
            let answer = sent.await.unwrap();
            assert_eq!(answer.json()["seq"], round + 1, "{answer:?}");
            statuses.push(answer.status);
        }
        statuses.sort_unstable();
        assert_eq!((statuses[14], statuses[15]), (200, 201), "{statuses:?}");
    }
    assert_eq!(server.history("r").await.len(), 10);
}
