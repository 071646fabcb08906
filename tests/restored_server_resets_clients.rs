//! Clients that saw what came after a backup are told so by a restored server, and go on from what it has.

use serde_json::json;

use crate::harness::{Server, Setup, hubbub_aside, seqs, texts};

#[tokio::test]
async fn restored_server_resets_clients() {
    let mut server = Server::start();
    for text in ["1", "2", "3"] {
        server.send("r", text).await;
    }
    let dir = server.setup().beside("backups").display().to_string();
    server.run(&["backup", &dir], "").await.success();
    // Seen by clients, and lost with the machine.
    let epoch = server.send("r", "4, which is lost").await["epoch"].clone();
    server.send("r", "5, which is lost").await;
    server.kill();

    let setup = Setup::new();
    let data = setup.beside("restored").display().to_string();
    let restore = ["restore", &dir, "--to", &data].map(String::from).to_vec();
    let printed = hubbub_aside(restore, String::new()).await.success();
    assert!(printed.contains("restored 3 messages"), "{printed}");
    let restored = setup.on(&data).start();

    // A message takes the number of one that is lost: a seq alone would hide it.
    let receipt = restored.send("r", "4, another one").await;
    assert_eq!(receipt["seq"], 4);
    let new = &receipt["epoch"];
    assert_ne!(*new, epoch);
    for after in [2, 4, 5] {
        let path = format!("/v1/rooms/r/messages?after={after}&epoch={}", epoch.as_str().unwrap());
        let reset = restored.get(&path).await.problem(410, "reset");
        assert_eq!((&reset["epoch"], &reset["oldest"], &reset["head"]), (new, &json!(1), &json!(4)));
        let mut socket = restored.subscriber("r", json!({"after": after, "epoch": epoch})).await;
        let reset = socket.receive_type("reset").await;
        assert_eq!(reset, json!({"type": "reset", "roomId": "r", "epoch": new, "oldest": 1, "head": 4}));
        let mut heard = Vec::new();
        for _ in 1..=4 {
            heard.push(socket.receive_type("message").await);
        }
        assert_eq!((seqs(&heard), texts(&heard)), (vec![1, 2, 3, 4], vec!["1", "2", "3", "4, another one"]));
    }
    let mut socket = restored.subscriber("r", json!({"after": 4, "epoch": new})).await;
    restored.send("r", "5, live").await;
    assert_eq!(socket.receive_type("message").await["message"], "5, live");
}
