//! A backup is one moment of the whole server, taken while everybody writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::{Dialect, Server, Setup, Writer, hubbub_aside, seqs, until};

const ROOMS: [&str; 2] = ["busy", "calm"];
/// Rooms that one sender writes to by turns.
const TURNS: [&str; 3] = ["turn-0", "turn-1", "turn-2"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_under_load_restores_exactly() {
    // With smaller slots, a store whose seals are late on a busy disk refuses messages.
    let server = Arc::new(Setup::new().set("store.embedded.journal_slot=4MiB").start());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (name, room, window) in [("a", ROOMS[0], 200), ("b", ROOMS[0], 1), ("c", ROOMS[1], 50)] {
        let (address, is_over) = (server.address(), is_over.clone());
        writers.push(tokio::spawn(async move {
            let mut writer = Writer::new(name, room, Dialect::Api, window);
            writer.run(address, |_| is_over.load(Ordering::Relaxed)).await.unwrap();
            writer
        }));
    }
    let turns = tokio::spawn(take_turns(server.clone(), is_over.clone()));

    let turned = format!("/v1/rooms/{}", TURNS[2]);
    until("all rooms are there", async || server.get(&turned).await.status == 200).await;
    let dir = server.setup().beside("backups").display().to_string();
    let mut cuts: Vec<(Value, BTreeMap<&str, u64>)> = Vec::new();
    for stored in [15_000, 30_000] {
        until("enough messages", async || server.metric("messages_stored_total").await > stored).await;
        let heads = heads(&server).await;
        let printed = server.run(&["backup", &dir, "--json"], "").await.success();
        cuts.push((serde_json::from_str(&printed).unwrap(), heads));
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        let writer = writer.await.unwrap();
        writer.check(&server.history(&writer.room).await);
    }
    turns.await.unwrap();

    let (first, second) = (&cuts[0].0, &cuts[1].0);
    assert_eq!((&first["filesLinked"], &first["epoch"]), (&json!(0), &second["epoch"]));
    assert!(second["filesLinked"].as_u64() >= Some(1), "nothing was taken from the first backup: {second}");
    assert!(first["messages"].as_u64().unwrap() < second["messages"].as_u64().unwrap());
    for (number, (backup, heads_before)) in cuts.iter().enumerate() {
        let path = backup["backup"].as_str().unwrap().to_owned();
        hubbub_aside(vec!["verify".into(), path.clone()], String::new()).await.success();
        let setup = Setup::new();
        let data = setup.beside(format!("restored-{number}")).display().to_string();
        let restore = ["restore", &path, "--to", &data].map(String::from).to_vec();
        hubbub_aside(restore, String::new()).await.success();
        let restored = setup.on(&data).start();
        check(&server, &restored, backup, heads_before).await;
    }
}

/// Sends one message at a time, each to the next room.
async fn take_turns(server: Arc<Server>, is_over: Arc<AtomicBool>) {
    let mut http = server.http().await;
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let message = json!({"userId": "turner", "message": number.to_string()});
        let path = format!("/v1/rooms/{}/messages", TURNS[number % TURNS.len()]);
        assert_eq!(http.post(&path, message.to_string()).await.status, 201);
        number += 1;
    }
}

async fn heads(server: &Server) -> BTreeMap<&'static str, u64> {
    let mut heads = BTreeMap::new();
    for room in ROOMS.into_iter().chain(TURNS) {
        heads.insert(room, server.get(&format!("/v1/rooms/{room}")).await.json()["head"].as_u64().unwrap());
    }
    heads
}

/// What was restored is a beginning of every room, all ending at one moment behind `heads_before`.
async fn check(server: &Server, restored: &Server, backup: &Value, heads_before: &BTreeMap<&str, u64>) {
    let (mut turned, mut total) = (Vec::new(), 0);
    for (room, before) in heads_before {
        let (original, copy) = (server.history(room).await, restored.history(room).await);
        assert_eq!(copy, original[..copy.len()], "{room}");
        assert_eq!(seqs(&copy), (1..=copy.len() as u64).collect::<Vec<_>>(), "{room}");
        assert!(copy.len() as u64 >= *before, "{room}: acknowledged before the backup, but not in it");
        total += copy.len() as u64;
        if TURNS.contains(room) {
            turned.extend(copy.iter().map(|m| m["message"].as_str().unwrap().parse::<u64>().unwrap()));
        }
    }
    assert_eq!(backup["messages"], total);
    turned.sort_unstable();
    assert_eq!(turned, (0..turned.len() as u64).collect::<Vec<_>>(), "the rooms end at different moments");

    let receipt = restored.send("calm", "behind the backup").await;
    assert_eq!(receipt["seq"].as_u64().unwrap(), restored.history("calm").await.len() as u64);
    assert_ne!(receipt["epoch"], backup["epoch"]);
    // Ids are known too: what a sender repeats is not stored again.
    let again = restored.send_as("calm", "c-0", "c-0").await.json();
    assert_eq!(again["code"], "id_reused", "another user's id: {again}");
}
