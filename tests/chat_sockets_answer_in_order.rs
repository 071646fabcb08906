//! `/chat/{room}`: one answer for each frame, in order, nothing else, whatever stands before the path.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Server, chat_message, in_time, texts};

#[tokio::test]
async fn chat_sockets_answer_in_order() {
    let server = Server::start();
    let mut socket = server.ws("/chat/r").await;
    let frames: Vec<Value> = (0..3_000).map(|n| chat_message(&n.to_string(), &format!("text {n}"))).collect();
    // Three times as many as may be unanswered: the server must read on as answers go out.
    let (mut out, answers) = (frames.chunks(100), 3_000);
    let mut heard = Vec::new();
    for chunk in out.by_ref().take(25) {
        socket.send_all(chunk).await;
    }
    while heard.len() < answers {
        if let Some(chunk) = out.next() {
            socket.send_all(chunk).await;
        }
        heard.extend(socket.receive_many(100).await);
    }
    for (number, answer) in heard.iter().enumerate() {
        assert_eq!(
            (&answer["status"], &answer["messageId"], &answer["seq"]),
            (&json!("success"), &json!(number.to_string()), &json!(number + 1))
        );
    }
    let answer = &heard[0];
    let members: BTreeSet<_> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        Vec::from_iter(members),
        ["messageId", "seq", "serverReceiveTime", "serverSendTime", "status"]
    );
    for time in ["serverReceiveTime", "serverSendTime"] {
        let time = answer[time].as_str().unwrap();
        assert!(
            time.ends_with('Z')
                && time.as_bytes()[10] == b'T'
                && time.len() >= "2026-01-31T12:00:00.000Z".len()
        );
    }
    assert_eq!(server.history("r").await.len(), 3_000);
}

#[tokio::test]
async fn any_prefix_may_stand_before_the_path() {
    let server = Server::start();
    for path in ["/chat/1", "/chat-server/chat/1", "/a/b/c/chat/1", "/v1/chat/1"] {
        let mut socket = server.ws(path).await;
        let answer = socket.request(&chat_message(&path.replace('/', "-"), path)).await;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
    }
    let stored = server.history("1").await;
    assert_eq!(texts(&stored), ["/chat/1", "/chat-server/chat/1", "/a/b/c/chat/1", "/v1/chat/1"]);
    assert_eq!(server.get("/any/prefix/health").await.status, 200);
}

#[tokio::test]
async fn echo_returns_the_original() {
    let server = Server::start();
    let mut socket = server.ws("/chat/r?echo=1").await;
    let mut frame = chat_message("id", "quoted \"text\" \\ ü 🦀\n");
    frame["more"] = json!({"fields": [1, null]});
    frame["roomId"] = json!("another room than the path's");
    let answer = socket.request(&frame).await;
    assert_eq!((&answer["status"], &answer["originalMessage"]), (&json!("success"), &frame));
    assert_eq!(server.history("r").await.len(), 1, "the room is the path's");
}

#[tokio::test]
async fn integers_and_any_case_are_taken() {
    let server = Server::start();
    let mut socket = server.ws("/chat/r").await;
    for (user, kind, stored) in
        [(json!(1), "text", "TEXT"), (json!(100_000), "Join", "JOIN"), (json!("42"), "LEAVE", "LEAVE")]
    {
        let mut frame = chat_message("", "x");
        frame.as_object_mut().unwrap().remove("messageId");
        frame["userId"] = user.clone();
        frame["messageType"] = json!(kind);
        let answer = socket.request(&frame).await;
        assert_eq!(answer["status"], "success", "{answer}");
        let history = server.history("r").await;
        let last = history.last().unwrap();
        assert_eq!((last["messageType"].as_str(), &last["messageId"]), (Some(stored), &answer["messageId"]));
        assert_eq!(last["userId"], user.as_str().map_or_else(|| user.to_string(), str::to_owned));
        assert_eq!(
            (&last["timestamp"], &last["username"]),
            (&json!("2026-01-31T12:00:00.000Z"), &json!("ada1"))
        );
    }
}

#[tokio::test]
async fn live_sockets_hear_the_room_and_others_do_not() {
    let server = Server::start();
    server.send("r", "before").await;
    let mut live = server.ws("/chat/r?live=1").await;
    let mut still = server.ws("/chat/r").await;
    // The subscription begins with the socket; it is there when the server says so.
    crate::harness::until("the subscription", async || server.metric("subscriptions").await == 1).await;
    server.send("r", "from outside").await;
    let heard = live.receive().await;
    assert_eq!((&heard["type"], &heard["message"]), (&json!("message"), &json!("from outside")));
    live.send(&chat_message("own", "own")).await;
    // One's own message comes as an answer and as a message, in either order.
    let both = live.receive_many(2).await;
    assert_eq!(both.iter().filter(|frame| frame["status"] == "success").count(), 1, "{both:?}");
    assert_eq!(both.iter().filter(|frame| frame["message"] == "own").count(), 1, "{both:?}");
    // The other one hears its answer and nothing else.
    let answer = still.request(&chat_message("last", "last")).await;
    assert_eq!(answer["messageId"], "last");
    in_time("closing", still.close()).await;
}
