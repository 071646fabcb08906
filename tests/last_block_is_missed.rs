//! Damage in the last block of the journal is named, not taken for a batch cut short: after an orderly stop, and after a
//! `kill -9` of a server that had nothing to write for a moment or had just started.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Server, Setup, hubbub, until};

/// Where the record of the journal's end says that the last durable block begins.
#[derive(Debug, PartialEq)]
struct End {
    slot: String,
    offset: usize,
    batch: u32,
}

/// Reads the newer of the two copies of the record.
fn recorded(setup: &Setup) -> End {
    let bytes = fs::read(setup.data().join("journal/end")).unwrap();
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let newer = [0, 4_096].into_iter().max_by_key(|copy| long(copy + 12)).unwrap();
    End {
        slot: format!("journal/slot-{}", short(newer + 40)),
        offset: usize::try_from(long(newer + 28)).unwrap(),
        batch: short(newer + 36),
    }
}

/// Flips a byte of the last block of a stopped server, and back once it was named.
fn damage_is_named(setup: &Setup) {
    let end = recorded(setup);
    let path: PathBuf = setup.data().join(&end.slot);
    let flip = || {
        let mut bytes = fs::read(&path).unwrap();
        bytes[end.offset + 60] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    flip();
    let named = format!("{} is damaged at byte {}:", end.slot, end.offset);
    let arguments = setup.arguments("127.0.0.1:0");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let line = hubbub(&arguments, "").refusal(3);
    assert!(line.contains(&named), "'{named}' is not in: {line}");
    let ran = hubbub(&["verify", &setup.data().display().to_string()], "");
    assert!(ran.code == Some(3) && ran.stdout.contains(&named), "'{named}': {ran:?}");
    flip();
}

async fn holds(server: &Server, texts: &[&str]) {
    let answer = server.get("/v1/rooms/r/messages?after=0&limit=100").await.json();
    let found = answer["messages"].as_array().unwrap().iter();
    assert_eq!(found.map(|message| message["message"].as_str().unwrap()).collect::<Vec<_>>(), texts);
}

#[tokio::test]
async fn last_block_is_missed() {
    let mut server = Server::start();
    let epoch = server.get("/v1/rooms/r").await.json()["epoch"].clone();
    server.send("r", "one").await;
    server.send("r", "two").await;
    server.stop().await;
    assert_eq!(recorded(&server.setup()).batch, 2);
    damage_is_named(&server.setup());

    // And a moment in which nothing is written.
    server.restart();
    server.send("r", "three").await;
    let setup = server.setup();
    until("the record of the third message", async || recorded(&setup).batch == 1).await;
    server.kill();
    damage_is_named(&setup);

    server.restart();
    holds(&server, &["one", "two", "three"]).await;
    assert_eq!(server.get("/v1/rooms/r").await.json()["epoch"], epoch, "a kill is no reason for a new epoch");
}

/// A start records it, too. What it seals before it is killed is in the journal no longer.
#[tokio::test]
async fn last_block_of_a_start_is_missed() {
    for _ in 0..20 {
        let mut server = Server::start();
        server.send("r", "one").await;
        server.send("r", "two").await;
        server.stop().await;
        server.restart();
        server.kill();
        let setup = server.setup();
        assert_eq!(recorded(&setup).batch, 2);
        if fs::read_dir(setup.data().join("segments")).unwrap().next().is_none() {
            return damage_is_named(&setup);
        }
    }
    panic!("each start had sealed the journal before it was killed");
}
