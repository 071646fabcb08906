//! A server that many came to and left needs little more memory than one that was just started on the same data.
//!
//! `CONNECTIONS=500000 cargo test -p hubbub --features full --test process memory_comes_back` runs it long.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::harness::{Setup, number, until};

const ROOMS: u64 = 2_000;
const CLIENTS: u64 = 32;
/// What is not compared: it is as much on a server without data.
const SLACK_KIB: u64 = 8 * 1024;

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_comes_back() {
    let connections = number("CONNECTIONS").unwrap_or(12_000);
    // Caches are filled as far as they may be, and the index of the slot in use grows until it is sealed (a start seals it):
    // both are needed, and with small ones they are not what is compared.
    let small = ["store.embedded.block_cache=1MiB", "store.embedded.journal_slot=4MiB"];
    let setup = small.iter().fold(Setup::new(), |setup, setting| setup.set(setting));
    let server = Arc::new(setup.start());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let server = server.clone();
            tokio::spawn(async move {
                for visit in (client..connections).step_by(CLIENTS as usize) {
                    let room = format!("room-{}", visit % ROOMS);
                    let mut socket = server.ws("/v1/ws").await;
                    let subscribe = json!({"type": "subscribe", "roomId": room, "after": 0});
                    let text = "x".repeat(200);
                    let send = json!({"type": "send", "roomId": room, "userId": "ada", "message": text});
                    socket.send_all(&[subscribe, send]).await;
                    while socket.receive().await["type"] != "ack" {}
                    socket.close().await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    until("everybody has left", async || server.metric("websocket_connections").await == 0).await;
    let before = server.memory_kib();
    let copy = server.setup().on("copy");
    copy_all(server.data(), copy.data());
    let fresh = copy.start();
    assert_eq!(fresh.metric("store_messages").await, connections);
    // Both work on what is stored for a while, and remember some of it.
    until("memory comes back", async || {
        let (now, needed) = (server.memory_kib(), fresh.memory_kib());
        println!("{now} KiB, and {needed} after a fresh start");
        now <= needed * 3 / 2 + SLACK_KIB
    })
    .await;
    println!(
        "{before} KiB when all had left, then {}; {} after a fresh start",
        server.memory_kib(),
        fresh.memory_kib()
    );
}
