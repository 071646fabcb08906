//! What was acknowledged is there after the process was killed, with its number and its time.

use serde_json::json;

use crate::harness::{Server, chat_message, seqs, texts};

#[tokio::test]
async fn restart_keeps_acked() {
    let mut server = Server::start();
    let mut socket = server.ws("/v1/ws?user=ada").await;
    let mut chat = server.ws("/chat/r").await;
    let mut expected = Vec::new();
    for round in 0..20 {
        let text = format!("http {round}");
        let receipt = server.send("r", &text).await;
        assert_eq!(receipt["seq"], expected.len() as u64 + 1);
        expected.push(text);

        let text = format!("ws {round}");
        let ack =
            socket.request(&json!({"type": "send", "roomId": "r", "message": text, "ref": round})).await;
        assert_eq!(
            (&ack["type"], &ack["seq"], &ack["ref"]),
            (&json!("ack"), &json!(expected.len() + 1), &json!(round))
        );
        expected.push(text);

        let text = format!("chat {round}");
        let answer = chat.request(&chat_message(&format!("c{round}"), &text)).await;
        assert_eq!((&answer["status"], &answer["seq"]), (&json!("success"), &json!(expected.len() + 1)));
        expected.push(text);
    }
    let before = server.history("r").await;
    assert_eq!(texts(&before), expected);

    server.restart();
    assert_eq!(server.history("r").await, before);
    assert_eq!(server.send("r", "after").await["seq"], expected.len() as u64 + 1);
}

/// So many lives that their journals become segments.
#[tokio::test]
async fn many_restarts_keep_everything() {
    let mut server = Server::start();
    let epoch = server.send("r", "0").await["epoch"].clone();
    for life in 1..=10 {
        let before = server.history("r").await;
        if life % 2 == 0 {
            server.terminate();
            assert_eq!(server.exit().await.code(), Some(0));
        }
        server.restart();
        assert_eq!(server.history("r").await, before, "life {life}");
        assert_eq!(server.send("r", &life.to_string()).await["epoch"], epoch);
        // A first message of a room that the life before did not know.
        server.send(&format!("room-{life}"), "x").await;
    }
    assert!(server.metric("store_segments").await > 0, "the test is about segments too");
    assert_eq!(seqs(&server.history("r").await), (1..=11).collect::<Vec<u64>>());
    for life in 1..=10 {
        assert_eq!(server.history(&format!("room-{life}")).await.len(), 1);
    }
}
