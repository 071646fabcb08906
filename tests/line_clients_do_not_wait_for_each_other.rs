//! Thousands of connections that say nothing, one that does not read its answers, one that works beside them, and the
//! end of all of them.

use crate::harness::{Setup, in_time, until};

const IDLE: usize = 2_000;

#[tokio::test]
async fn idle_connections_cost_memory_only() {
    let server = Setup::new().line().start();
    let mut client = server.line().await;
    client.request("ping\nx:y\n", &["OK"]).await;
    let before = server.memory_kib();
    let mut idle = Vec::with_capacity(IDLE);
    for number in 0..IDLE {
        let mut one = server.line().await;
        // Some have worked before they fell silent.
        if number % 2 == 0 {
            one.request("ping\nx:y\nbogus\n", &["OK", "Bad Request"]).await;
        }
        idle.push(one);
    }
    until("all connections", async || server.metric("line_connections").await == IDLE as u64 + 1).await;
    for _ in 0..100 {
        client.request("ping\nx:y\n", &["OK"]).await;
    }
    let each = server.memory_kib().saturating_sub(before) * 1_024 / IDLE as u64;
    println!("{each} bytes each");
    assert!(each <= 8 * 1_024, "{each} bytes each");
    for one in idle.iter_mut().step_by(97) {
        one.request("ping\nstill:here\n", &["OK"]).await;
    }
    drop(idle);
    until("the end of all others", async || server.metric("line_connections").await == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let server = Setup::new().line().set("server.threads=1").start();
    let mut client = server.line().await;
    client.request("ping\nx:y\n", &["OK"]).await;
    let before = server.memory_kib();
    // Each byte is a command whose answer has twelve: these fill every buffer between the two.
    let mut slow = server.line().await;
    let empty_lines = vec![b'\n'; 1 << 16];
    let mut said = 0;
    for _ in 0..200 {
        said += slow.send_some(&empty_lines);
        client.request("ping\nx:y\n", &["OK"]).await;
    }
    let grown = server.memory_kib().saturating_sub(before);
    // All that was said would be answered with several times as much.
    assert!(grown < 24 * 1_024, "{grown} KiB for one that does not read");
    assert!(said < 200 * empty_lines.len(), "it is not read any more either");
    slow.end().await;
    for _ in 0..said {
        slow.expect_lines(&["Bad Request"]).await;
    }
    assert_eq!(slow.receive().await, None);
}

#[tokio::test]
async fn shutdown_answers_then_closes() {
    let mut server = Setup::new().line().set("store.embedded.sync_delay=50ms").start();
    let (mut client, mut idle) = (server.line().await, server.line().await);
    client.request("register\nid:1\ncreate queue\n", &["OK", "id:1", "OK", "id:1"]).await;
    idle.request("ping\n\n", &["OK"]).await;
    client.send("send msg\nsender:1;queue:1;content:accepted\n".repeat(20)).await;
    // The first answer: all of them were read.
    client.expect_lines(&["OK"]).await;
    server.terminate();
    client.expect_lines(&["OK"; 19]).await;
    assert_eq!(client.receive().await, None);
    assert_eq!(idle.receive().await, None);
    drop((client, idle));
    assert_eq!(in_time("the end", server.exit()).await.code(), Some(0));
    server.restart();
    let mut client = server.line().await;
    for _ in 0..20 {
        client.send("get msg\nqueue:1;receiver:1\n").await;
        client.expect_lines(&["OK"]).await;
        assert!(client.receive().await.unwrap().ends_with("content:accepted"));
    }
    client.request("get msg\nqueue:1;receiver:1\n", &["Empty queue"]).await;
}
