//! An id that belongs to another message of the room is refused: another user, text or type.

use serde_json::json;

use crate::harness::{Server, chat_message};

#[tokio::test]
async fn reused_id_is_refused() {
    let mut server = Server::start();
    let first = json!({"userId": "ada", "message": "hello", "messageId": "one"});
    assert_eq!(server.post("/v1/rooms/r/messages", &first).await.status, 201);
    for _ in 0..2 {
        for (field, value) in [("userId", "bob"), ("message", "bye"), ("messageType", "JOIN")] {
            let mut other = first.clone();
            other[field] = json!(value);
            let problem = server.post("/v1/rooms/r/messages", &other).await.problem(422, "id_reused");
            assert_eq!((&problem["messageId"], &problem["retryable"]), (&json!("one"), &json!(false)));
            assert!(problem["detail"].as_str().unwrap().contains("message 1 "), "{problem}");

            other["roomId"] = json!("r");
            other["type"] = json!("send");
            other["ref"] = json!({"any": ["json"]});
            let mut socket = server.ws("/v1/ws").await;
            let error = socket.request(&other).await;
            assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("id_reused")), "{error}");
            assert_eq!((&error["ref"], &error["messageId"]), (&other["ref"], &json!("one")));
        }
        // The sender's clock and name do not make it another message, and other rooms have their own ids.
        let mut same = first.clone();
        same["timestamp"] = json!("2020-01-01T00:00:00Z");
        same["username"] = json!("Ada");
        assert_eq!(server.post("/v1/rooms/r/messages", &same).await.status, 200);
        assert_eq!(server.history("r").await.len(), 1);
        server.restart();
    }
    assert_eq!(server.post("/v1/rooms/other/messages", &first).await.status, 201);
}

/// The culprit is refused, its neighbours in the batch are stored.
#[tokio::test]
async fn a_reused_id_does_not_harm_its_batch() {
    let server = Server::start();
    let mut chat = server.ws("/chat/r").await;
    let frames = [("a", "1"), ("b", "2"), ("a", "other"), ("c", "3")];
    chat.send_all(&frames.map(|(id, text)| chat_message(id, text))).await;
    let answers = chat.receive_many(4).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["success", "success", "error", "success"]);
    assert_eq!((&answers[2]["code"], &answers[2]["messageId"]), (&json!("id_reused"), &json!("a")));
    assert!(!answers[2]["errors"].as_array().unwrap().is_empty());
    assert_eq!((&answers[3]["seq"], server.history("r").await.len()), (&json!(3), 3));
}
