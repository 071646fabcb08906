//! A thread or task panics without which the server cannot go on: the process says which and ends with exit code 1, whoever
//! waits sees the connection close, and what was acknowledged is there at the next start.

use std::collections::BTreeSet;

use serde_json::json;

#[cfg(all(feature = "postgres", feature = "amqp"))]
use crate::harness::{Broker, Postgres};
use crate::harness::{Server, Setup, in_time, until};

const STARTED: &str = "essential thread or task started";

/// Where the server looks for the name of what is to panic.
const VICTIM: &str = "victim";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_essential_task_ends_the_process() {
    let expected = ["commit", "dispatcher", "sweeper", "listeners", "hubbub-seal", "hubbub-merge"];
    each_ends_it(Setup::new(), &expected).await;
}

#[cfg(all(feature = "postgres", feature = "amqp"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_essential_task_ends_the_process_with_a_database_and_a_broker() {
    let (postgres, broker) = (Postgres::start(""), Broker::shared());
    let expected = ["database maintenance", "rooms of other servers", "broker consumer", "broker publisher"];
    let setup = Setup::new().store(&postgres.url("postgres")).set(&broker.setting());
    each_ends_it(setup, &expected).await;
}

/// Kills each essential thread and task that the server names, one in each life. The expected ones must be among them.
async fn each_ends_it(setup: Setup, expected: &[&str]) {
    let victim = setup.beside(VICTIM);
    std::fs::write(&victim, "").unwrap();
    let setup = setup.env("HUBBUB_TEST_PANIC", victim.to_str().unwrap()).set("logging.level=debug");
    let mut server = setup.start();
    let mut names = BTreeSet::new();
    // Some begin when the server is ready already.
    until("all that is essential", async || {
        names = essential_names(&server.log());
        expected.iter().chain(&["listeners"]).all(|name| names.contains(*name))
    })
    .await;
    let mut acknowledged = 0;
    for name in &names {
        acknowledged += send_until_it_ends(&mut server, name, acknowledged).await;
        let status = server.exit().await;
        let log = server.log();
        assert_eq!(status.code(), Some(1), "{name}\n{log}");
        assert!(log.contains(&format!("the server exits because its {name} panicked")), "{name}\n{log}");
        std::fs::write(&victim, "").unwrap();
        server.restart();
        until("what was acknowledged", async || server.history("r").await.len() >= acknowledged).await;
    }
    server.stop().await;
}

fn essential_names(log: &str) -> BTreeSet<String> {
    let quoted = |line: &str| {
        line.split_once("name=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name.to_owned())
    };
    log.lines().filter(|line| line.contains(STARTED)).filter_map(quoted).collect()
}

/// Sends one message, has `name` panic, and sends on until the server is gone. Gives how many were acknowledged.
async fn send_until_it_ends(server: &mut Server, name: &str, before: usize) -> usize {
    let victim = server.setup().beside(VICTIM);
    let mut socket = server.ws("/v1/ws?user=ada").await;
    let mut acknowledged = 0;
    for number in before.. {
        let frame = json!({"type": "send", "roomId": "r", "message": number.to_string(), "ref": number});
        if !socket.try_send_all(&[frame]).await {
            break;
        }
        // An answer or the end of the connection, but no silence.
        match in_time(name, socket.next()).await {
            Ok(answer) if answer["type"] == "ack" => acknowledged += 1,
            Ok(answer) => assert_eq!(answer["type"], "error", "{answer}"),
            Err(_) => break,
        }
        if acknowledged == 1 {
            std::fs::write(&victim, name).unwrap();
        }
    }
    acknowledged
}
