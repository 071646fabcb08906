//! Whatever comes in over the line protocol is answered as documented, and the connection stays usable.

use crate::harness::{Setup, hubbub, until};

const LINE_BYTES_MAX: usize = 64 * 1024;

fn garbage() -> Vec<(Vec<u8>, usize)> {
    let mut cases: Vec<(Vec<u8>, usize)> = [
        ("\n", 1),
        ("\r\n", 1),
        ("hello\n", 1),
        ("hello\nto:you\n", 1),
        ("hello\r\nto:you\r\n", 1),
        ("hello\nthere\n", 2),
        ("hello\nto:you\nto:you\n", 2),
        ("REGISTER\nid:1\n", 1),
        (" register\nid:1\n", 1),
        ("register \nid:1\n", 1),
        ("register\n\n", 1),
        ("register\nid\n", 1),
        ("register\nid:\n", 1),
        ("register\nid:0\n", 1),
        ("register\nid:-1\n", 1),
        ("register\nid:1.5\n", 1),
        ("register\nid:99999999999999999999\n", 1),
        ("register\nid:1;id:2\n", 1),
        ("delete queue\nqueue:1\n", 1),
        ("list queues\nid:1\n", 1),
        ("send msg\nsender:1;queue:1\n", 1),
        ("send msg\nqueue:1;content:x\n", 1),
        ("send msg\nsender:1;content:x\n", 1),
        ("send msg\nsender:one;queue:1;content:x\n", 1),
        ("send msg\nsender:1;queue:1;receiver:x;content:x\n", 1),
        ("get msg\nqueue:1\n", 1),
        ("get msg\nreceiver:1\n", 1),
        ("get msg\nqueue:x;receiver:1\n", 1),
        ("get msg\nqueue:1;receiver:1;order:random\n", 1),
        ("read msg\nsender:;receiver:1\n", 1),
        ("ping\n;;;\n", 1),
        ("list users \n", 1),
    ]
    .map(|(text, answers)| (text.as_bytes().to_vec(), answers))
    .into();
    cases.push((b"\xff\xfe\x00\n".to_vec(), 1));
    cases.push((b"register\nid:\xc3\x28\n".to_vec(), 1));
    cases.push((b"\0\0\0\0\n".to_vec(), 1));
    for bytes in [LINE_BYTES_MAX + 1, 10 * LINE_BYTES_MAX] {
        let long = "x".repeat(bytes);
        cases.push((format!("{long}\n").into_bytes(), 1));
        cases.push((format!("{long}\nto:you\n").into_bytes(), 1));
        cases.push((format!("send msg\nsender:1;queue:1;content:{long}\n").into_bytes(), 1));
        cases.push((format!("ping\r\nx:{long}\r\n").into_bytes(), 1));
    }
    cases
}

#[tokio::test]
async fn line_garbage_is_answered() {
    let server = Setup::new().line().start();
    let mut bystander = server.line().await;
    let mut client = server.line().await;
    let cases = garbage();
    for (bytes, answers) in &cases {
        client.send(bytes).await;
        client.expect_lines(&vec!["Bad Request"; *answers]).await;
        client.request("ping\nstill:there\n", &["OK"]).await;
        bystander.request("ping\nnothing:noticed\n", &["OK"]).await;
    }
    // The same byte by byte, as a slow line brings it.
    for (bytes, answers) in cases.iter().filter(|(bytes, _)| bytes.len() < 100) {
        for byte in bytes {
            client.send([*byte]).await;
        }
        client.expect_lines(&vec!["Bad Request"; *answers]).await;
    }
    // And all at once, with commands in between.
    let (mut all, mut count) = (Vec::new(), 0);
    for (bytes, answers) in &cases {
        all.extend_from_slice(bytes);
        all.extend_from_slice(b"ping\nx:y\n");
        count += answers;
    }
    let (mut reader, mut heard) = (server.line().await, Vec::new());
    // Answers are read while the rest is sent: nobody waits for the other.
    reader.send(&all).await;
    for _ in 0..count + cases.len() {
        heard.push(reader.receive().await.unwrap());
    }
    assert_eq!(heard.iter().filter(|line| *line == "Bad Request").count(), count);
    assert_eq!(heard.iter().filter(|line| *line == "OK").count(), cases.len());
    bystander.request("ping\nnothing:noticed\n", &["OK"]).await;
}

/// A page of any site can have a browser send this, with commands in the body, or in a session ticket that its server chose.
#[tokio::test]
async fn other_protocols_end_the_connection() {
    let server = Setup::new().line().start();
    let long = format!("POST /{} HTTP/1.1\r\n", "a".repeat(66_000));
    for first in ["POST / HTTP/1.1\r\n", "GET /x HTTP/1.0\n", &long, "\u{16}\u{3}\u{1}hello\n"] {
        let mut client = server.line().await;
        client.send(format!("{first}Host: x\r\n\r\nregister\nid:7\ncreate queue\n")).await;
        assert_eq!(client.receive().await.as_deref(), Some("Bad Request"));
        assert_eq!(client.receive().await, None);
    }
    server.line().await.request("list users\n", &["OK", "users:[]"]).await;
}

/// Somebody whose address has used up its rate is refused commands, and no less what is none.
#[tokio::test]
async fn other_protocols_end_the_connection_also_beyond_a_rate() {
    let server = Setup::new().line().set("limits.address_requests=2").start();
    let mut busy = server.line().await;
    busy.send("ping\nx:y\n".repeat(50)).await;
    for _ in 0..50 {
        busy.receive().await.unwrap();
    }
    let mut client = server.line().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\n\r\ncreate queue\n").await;
    assert_eq!(client.receive().await.as_deref(), Some("Bad Request"));
    assert_eq!(client.receive().await, None);
}

#[tokio::test]
async fn a_command_without_its_terms_is_refused_in_time() {
    let server = Setup::new().line().set("server.terms_timeout=300ms").start();
    let mut client = server.line().await;
    client.request("register\n", &["Bad Request"]).await;
    until("it is timed", async || server.metric("line_command_seconds_count").await == 1).await;
    // What comes too late is not answered once more.
    client.request("id:7\nping\nx:y\n", &["OK"]).await;
    client.request("register\nid", &["Bad Request"]).await;
    client.request(":7\nping\nx:y\n", &["OK"]).await;
    // A line that was only begun waits for its end.
    client.send("pi").await;
    // The time that it could have taken has passed when the next one had it.
    server.line().await.request("ping\n", &["Bad Request"]).await;
    client.request("ng\nx:y\n", &["OK"]).await;
}

#[tokio::test]
async fn the_address_must_be_this_machines() {
    let setup = Setup::new();
    let data = setup.data().display().to_string();
    let refused = hubbub(&["serve", "--listen", "127.0.0.1:0", "--line", "0.0.0.0:0", "--data", &data], "");
    let said = refused.refusal(2);
    assert!(said.contains("server.line") && said.contains("--insecure"), "{said}");
}
