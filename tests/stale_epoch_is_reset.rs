//! A cursor of another history, or beyond the head, is answered with `reset`, never with silence.

use serde_json::{Value, json};

use crate::harness::{Server, Ws, seqs};

const FOREIGN: &str = "0123456789abcdef";

/// Three messages in `r`; their epoch.
async fn three_messages() -> (Server, Value) {
    let server = Server::start();
    let mut epoch = Value::Null;
    for text in ["1", "2", "3"] {
        epoch = server.send("r", text).await["epoch"].clone();
    }
    (server, epoch)
}

async fn hear_reset(socket: &mut Ws, epoch: &Value) {
    let reset = socket.receive_type("reset").await;
    assert_eq!(reset, json!({"type": "reset", "roomId": "r", "epoch": epoch, "oldest": 1, "head": 3}));
}

async fn hear_messages(socket: &mut Ws, from: u64, to: u64) {
    for seq in from..=to {
        assert_eq!(socket.receive_type("message").await["seq"], seq);
    }
}

#[tokio::test]
async fn stale_epoch_is_reset() {
    let (server, epoch) = three_messages().await;
    let stale = [
        json!({"after": 2, "epoch": FOREIGN}),
        json!({"after": 9, "epoch": epoch}),
        json!({"after": 9}),
        json!({"last": 1, "epoch": FOREIGN}),
        json!({"epoch": FOREIGN}),
    ];
    let with = |cursor: &Value, on_reset: &str| {
        let mut how = cursor.clone();
        how["onReset"] = json!(on_reset);
        how
    };
    for cursor in &stale {
        // From the oldest on, which is also what happens when nothing is said.
        for how in [cursor.clone(), with(cursor, "replay")] {
            let mut socket = server.subscriber("r", how).await;
            hear_reset(&mut socket, &epoch).await;
            hear_messages(&mut socket, 1, 3).await;
        }
    }
    let mut live = Vec::new();
    for cursor in &stale {
        let mut socket = server.subscriber("r", with(cursor, "live")).await;
        hear_reset(&mut socket, &epoch).await;
        live.push(socket);
    }
    // What comes next is the next message, not an old one.
    server.send("r", "4").await;
    for mut socket in live {
        hear_messages(&mut socket, 4, 4).await;
    }
}

#[tokio::test]
async fn a_replay_after_a_reset_goes_live() {
    let (server, epoch) = three_messages().await;
    let mut socket = server.subscriber("r", json!({"after": 3, "epoch": FOREIGN})).await;
    hear_reset(&mut socket, &epoch).await;
    hear_messages(&mut socket, 1, 3).await;
    server.send("r", "4").await;
    hear_messages(&mut socket, 4, 4).await;
}

#[tokio::test]
async fn a_cursor_of_this_epoch_is_not_reset() {
    let (server, epoch) = three_messages().await;
    // `after=0` means from the oldest, in whatever history.
    for how in
        [json!({"after": 0, "epoch": FOREIGN}), json!({"after": 0, "epoch": epoch}), json!({"after": 0})]
    {
        let mut socket = server.subscriber("r", how).await;
        hear_messages(&mut socket, 1, 3).await;
    }
    let mut socket = server.subscriber("r", json!({"after": 3, "epoch": epoch})).await;
    server.send("r", "4").await;
    hear_messages(&mut socket, 4, 4).await;
}

#[tokio::test]
async fn history_answers_410() {
    let (server, epoch) = three_messages().await;
    let foreign = format!("epoch={FOREIGN}");
    for query in
        [format!("after=1&{foreign}"), format!("before=3&{foreign}"), "after=4".into(), "after=9".into()]
    {
        let problem = server.get(&format!("/v1/rooms/r/messages?{query}")).await.problem(410, "reset");
        assert_eq!((&problem["epoch"], &problem["oldest"], &problem["head"]), (&epoch, &json!(1), &json!(3)));
    }
    let epoch = epoch.as_str().unwrap();
    for (query, expected) in [
        (format!("after=1&epoch={epoch}"), vec![2, 3]),
        ("after=3".into(), vec![]),
        (format!("after=0&{foreign}"), vec![1, 2, 3]),
    ] {
        let answer = server.get(&format!("/v1/rooms/r/messages?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        assert_eq!(seqs(answer.json()["messages"].as_array().unwrap()), expected, "{query}");
    }
}

/// The same data keeps its epoch over any kind of end; another directory has another one.
#[tokio::test]
async fn the_epoch_belongs_to_the_data() {
    let (mut server, epoch) = three_messages().await;
    server.restart();
    assert_eq!(server.send("r", "4").await["epoch"], epoch);
    let other = Server::start();
    assert_ne!(other.send("r", "1").await["epoch"], epoch);
}

/// With durability `os` an unclean end may lose messages that were seen, so the history is another one afterwards.
#[tokio::test]
async fn an_unclean_end_without_fsync_renews_the_epoch() {
    let mut server = crate::harness::Setup::new().set("store.embedded.durability=os").start();
    let first = server.send("r", "1").await["epoch"].clone();
    server.terminate();
    assert_eq!(server.exit().await.code(), Some(0));
    server.restart();
    let second = server.send("r", "2").await["epoch"].clone();
    assert_eq!(first, second, "a clean end keeps it");
    server.restart();
    assert_ne!(server.send("r", "3").await["epoch"], second, "kill -9 does not");
    assert_eq!(server.history("r").await.len(), 3, "a crash of the process alone loses nothing");
}
