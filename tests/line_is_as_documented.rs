//! Each example of docs/line-protocol.md, one connection for each block, all on one server in the order of the page.

use hyper::Method;
use serde_json::json;

use crate::harness::{Line, Setup};

fn examples() -> Vec<Vec<(bool, &'static str)>> {
    let page = include_str!("../docs/line-protocol.md");
    let blocks = page.split("```line\n").skip(1).map(|block| block.split("```").next().unwrap());
    let line = |line: &'static str| {
        let sent = line.strip_prefix("→ ").map(|text| (true, text));
        sent.or_else(|| line.strip_prefix("← ").map(|text| (false, text))).unwrap_or_else(|| panic!("{line}"))
    };
    blocks.map(|block| block.lines().map(line).collect()).collect()
}

#[tokio::test]
async fn the_examples_are_true() {
    let server = Setup::new().line().start();
    let examples = examples();
    assert!(examples.len() > 5 && examples.iter().all(|example| example.len() > 5));
    for example in examples {
        let mut client = server.line().await;
        for (is_sent, text) in &example {
            if *is_sent {
                client.send(format!("{text}\n")).await;
            } else {
                client.expect_lines(&[text]).await;
            }
        }
        if example.contains(&(true, "un_register")) {
            assert_eq!(client.receive().await, None, "un_register closes");
        }
    }
}

async fn register(client: &mut Line, id: u64) {
    client.request(format!("register\nid:{id}\n"), &["OK", &format!("id:{id}")]).await;
}

/// Whatever the connection says about receivers, once it registered it is the one it registered as.
#[tokio::test]
async fn the_registered_client_is_the_receiver() {
    let server = Setup::new().line().start();
    let (mut first, mut second) = (server.line().await, server.line().await);
    register(&mut first, 1).await;
    register(&mut second, 2).await;
    first.request("create queue\n", &["OK", "id:1"]).await;
    for receiver in [1, 2] {
        let send = format!("send msg\nsender:1;receiver:{receiver};queue:1;content:for {receiver}\n");
        first.request(send, &["OK"]).await;
    }
    second
        .request("read msg\nqueue:1;receiver:1\n", &["OK", "id:2;sender:1;receiver:2;queue:1;content:for 2"])
        .await;
    second
        .request("get msg\nqueue:1;receiver:1\n", &["OK", "id:2;sender:1;receiver:2;queue:1;content:for 2"])
        .await;
    second.request("get msg\nqueue:1\n", &["Empty queue"]).await;
    // Another registration on the same connection makes it another client.
    register(&mut second, 1).await;
    second.request("get msg\nqueue:1\n", &["OK", "id:1;sender:1;receiver:1;queue:1;content:for 1"]).await;
}

/// All in one write, and all at once at the end of the stream: each command sees what those before it did.
#[tokio::test]
async fn what_is_sent_at_once_is_done_in_order() {
    let server = Setup::new().line().start();
    let mut client = server.line().await;
    client
        .send(
            "register\nid:1\ncreate queue\nlist all queues\nsend msg\nsender:1;queue:1;content:a\nread msg\nqueue:1\n\
            bogus\nget msg\nqueue:1\nget msg\nqueue:1\nlist queues\nreceiver:1\nping\n\nlist users\ndelete queue\nid:1\n",
        )
        .await;
    client.end().await;
    let message = "id:1;sender:1;receiver:0;queue:1;content:a";
    client.expect_lines(&["OK", "id:1", "OK", "id:1", "OK", "queues:[1]", "OK", "OK", message]).await;
    client.expect_lines(&["Bad Request", "OK", message, "Empty queue", "OK", "queues:[]", "OK"]).await;
    client.expect_lines(&["OK", "users:[1]", "OK"]).await;
    assert_eq!(client.receive().await, None);
    assert_eq!(server.metric("line_commands_total").await, 12);
    assert_eq!(server.metric("line_bad_requests_total").await, 1);
}

#[tokio::test]
async fn long_contents_are_refused() {
    let server = Setup::new().line().start();
    let mut client = server.line().await;
    register(&mut client, 1).await;
    client.request("create queue\n", &["OK", "id:1"]).await;
    let send = |content: &str| format!("send msg\nsender:1;receiver:1;queue:1;content:{content}\n");
    client.request(send(&"ä".repeat(3_001)), &["Error"]).await;
    client.request(send("a\0b"), &["Error"]).await;
    client.request("get msg\nqueue:1\n", &["Empty queue"]).await;
    let longest = "ä".repeat(3_000);
    client.request(send(&longest), &["OK"]).await;
    let message = format!("id:1;sender:1;receiver:1;queue:1;content:{longest}");
    client.request("get msg\nqueue:1\n", &["OK", &message]).await;
}

/// Messages from the other interface: names that are no numbers, and line breaks.
#[tokio::test]
async fn messages_sent_over_http_are_shown() {
    let server = Setup::new().line().start();
    let mut client = server.line().await;
    register(&mut client, 1).await;
    client.request("create queue\n", &["OK", "id:1"]).await;
    assert_eq!(server.call("", Method::PUT, "/v1/queues/orders", json!({})).await.status, 201);
    assert_eq!(server.call("", Method::PUT, "/v1/clients/ada", json!(null)).await.status, 204);
    client.request("list users\nlist all queues\n", &["OK", "users:[1]", "OK", "queues:[1]"]).await;
    for queue in ["1", "orders"] {
        let message = json!({"sender": "ada", "receiver": "1", "message": format!("to {queue}\nand\r\n;on")});
        assert_eq!(server.post(&format!("/v1/queues/{queue}/messages"), &message).await.status, 201);
    }
    client
        .request("get msg\nqueue:1\n", &["OK", "id:1;sender:0;receiver:1;queue:1;content:to 1\\nand\\n;on"])
        .await;
    client.request("list queues\nreceiver:1\n", &["OK", "queues:[]"]).await;
    client.request("get msg\nsender:1\n", &["Empty queue"]).await;
}

/// What was answered is there after `kill -9`, and what was taken is not.
#[tokio::test]
async fn answered_is_durable() {
    let mut server = Setup::new().line().start();
    let mut client = server.line().await;
    register(&mut client, 1).await;
    client.request("create queue\n", &["OK", "id:1"]).await;
    for number in 1..=3 {
        client.request(format!("send msg\nsender:1;queue:1;content:{number}\n"), &["OK"]).await;
    }
    client.request("get msg\nqueue:1\n", &["OK", "id:3;sender:1;receiver:0;queue:1;content:3"]).await;
    server.restart();
    let mut client = server.line().await;
    client.request("list users\nlist all queues\n", &["OK", "users:[1]", "OK", "queues:[1]"]).await;
    for number in [2, 1] {
        let message = format!("id:{number};sender:1;receiver:0;queue:1;content:{number}");
        client.request("get msg\nqueue:1;receiver:1\n", &["OK", &message]).await;
    }
    client.request("get msg\nqueue:1;receiver:1\n", &["Empty queue"]).await;
}
