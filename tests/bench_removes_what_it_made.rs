//! `hubbub bench` at a server that is given: it says what it makes there, and removes that when it ends, and nothing else.

use std::process::Stdio;

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::program::command;
use crate::harness::{Ran, Server, until};

async fn bench(server: &Server, line: &[&str]) -> Ran {
    let ran = server.run(&[&["bench"], line].concat(), "").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// The names in a list.
async fn names(server: &Server, path: &str, list: &str, name: &str) -> Vec<String> {
    let page = server.get(path).await.json();
    page[list].as_array().unwrap().iter().map(|entry| entry[name].as_str().unwrap().to_owned()).collect()
}

async fn rooms(server: &Server) -> Vec<String> {
    names(server, "/v1/rooms", "rooms", "roomId").await
}

async fn messages(server: &Server, room: &str) -> Value {
    server.get(&format!("/v1/rooms/{room}")).await.json()["messages"].clone()
}

const CHAT: [&str; 5] = ["chat", "-n", "60", "--warmup-connections", "0"];

#[tokio::test]
async fn rooms_are_removed_but_for_those_that_were_there() {
    let server = Server::start();
    for room in ["bench-x", "bench-20", "lobby"] {
        server.send(room, "of somebody").await;
    }
    let said = bench(&server, &[&CHAT[..], &["-c", "2"]].concat()).await.stderr;
    assert!(said.contains("makes rooms bench-1 to bench-2 in ") && said.contains("--keep"), "{said}");
    assert!(said.contains("removed 2 rooms from "), "{said}");
    let others = ["bench-20", "bench-x", "lobby"];
    assert_eq!(rooms(&server).await, others);

    let said = bench(&server, &[&CHAT[..], &["-c", "1", "--keep"]].concat()).await.stderr;
    assert!(said.contains("leaves room bench-1 in "), "{said}");
    assert!(
        said.contains("remove with: hubbub room delete bench-1 --server http://127.")
            && !said.contains("removed"),
        "{said}"
    );
    assert_eq!(messages(&server, "bench-1").await, 60);

    let said = bench(&server, &[&CHAT[..], &["-c", "2"]].concat()).await.stderr;
    assert!(said.contains("sends to 1 room that was there already: all that stays."), "{said}");
    assert!(said.contains("removed 1 room from "), "{said}");
    assert_eq!(rooms(&server).await, [&["bench-1"][..], &others].concat());
    assert!(messages(&server, "bench-1").await.as_u64() > Some(60), "what is sent there stays there");

    let quiet = bench(&server, &["fanout", "-d", "200ms", "--subscribers", "2", "--quiet"]).await;
    assert_eq!(quiet.stderr, "");
    bench(&server, &["http", "--closed", "-d", "200ms", "-c", "2", "--rooms", "3", "--room-prefix", "own-"])
        .await;
    // On a busy machine it may miss its targets.
    let ran = server.run(&["bench", "query", "-d", "200ms", "--rate", "45"], "").await;
    assert!(ran.stderr.contains("removed"), "{ran:?}");
    assert_eq!(rooms(&server).await, [&["bench-1"][..], &others].concat());
}

#[tokio::test]
async fn rooms_are_removed_after_an_interrupt() {
    let server = Server::start();
    let mut command = command();
    command.args(["bench", "http", "--rate", "200", "-d", "10m", "--server", &server.url()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it sends to all rooms", async || rooms(&server).await.len() == 20).await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("removed 20 rooms from ") && said.contains("stopped by SIGINT"), "{said}");
    assert_eq!(rooms(&server).await, [""; 0]);
}

#[tokio::test]
async fn keys_are_removed_but_for_those_that_were_there() {
    let server = Server::start();
    let keys = async || names(&server, "/v1/kv", "keys", "key").await;
    server.call("", Method::PUT, "/kv/bench-config", json!("of somebody")).await;
    let short = ["--keys", "1200", "-c", "2", "-d", "100ms", "--warmup", "0ms"];
    let said = bench(&server, &[&["kv", "put-all"][..], &short].concat()).await.stderr;
    assert!(said.contains("makes keys bench-0 to bench-1199 in "), "{said}");
    assert!(said.contains("removed 1200 keys from "), "{said}");
    assert_eq!(keys().await, ["bench-config"]);
    // What was not put by the run before it measures may be somebody's.
    server.call("", Method::PUT, "/kv/bench-7", json!("of somebody")).await;
    // A read of it finds a value that was never put, so the run may fail.
    let ran = server.run(&[&["bench", "kv", "get-all", "--no-preload"][..], &short].concat(), "").await;
    let said = ran.stderr;
    assert!(said.contains("all stay") && !said.contains("removed"), "{said}");
    assert_eq!(keys().await, ["bench-7", "bench-config"]);
}

#[tokio::test]
async fn queues_and_clients_are_removed_but_for_those_that_were_there() {
    let server = Server::start();
    let queues = async || names(&server, "/v1/queues", "queues", "queue").await;
    let clients = async || names(&server, "/v1/clients", "clients", "client").await;
    server.call("", Method::PUT, "/v1/queues/1", json!({})).await;
    server.call("", Method::PUT, "/v1/clients/2", Value::Null).await;
    let short = ["-d", "300ms", "--clients", "5", "--queues", "3", "--depth", "20"];
    let said = bench(&server, &[&["queue"][..], &short].concat()).await.stderr;
    assert!(said.contains("makes 2 queues and 4 clients in "), "{said}");
    assert!(said.contains("1 queue that was there already"), "{said}");
    assert!(said.contains("removed 2 queues from ") && said.contains("removed 4 clients from "), "{said}");
    assert_eq!((queues().await, clients().await), (vec!["1".to_owned()], vec!["2".to_owned()]));
    // What fills them is for a later run.
    let said = bench(&server, &[&["queue", "populate"][..], &short].concat()).await.stderr;
    assert!(said.contains("leaves 2 queues and 4 clients in "), "{said}");
    assert_eq!((queues().await.len(), clients().await.len()), (3, 5));
}
