//! `hubbub tail` goes on where it was when its server is killed under it and starts again.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::harness::{Server, in_time, program};

async fn follow(more: &[&str], first: u64) {
    let mut server = Server::start();
    for n in 1..=5 {
        server.send("r", &n.to_string()).await;
    }
    let mut command = program::command();
    command.args(["tail", "r", "--json", "--server", &server.url()]).args(more);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, mut shown) = mpsc::unbounded_channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut expected = first;
    let mut next = async |until: u64| {
        while expected <= until {
            let line = in_time("the next message", shown.recv()).await.expect("tail ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["seq"], expected, "{message}");
            expected += 1;
        }
    };
    next(5).await;
    for life in 1..=3 {
        server.restart();
        // One before and one after it is back, for all we know.
        server.send("r", "x").await;
        server.send("r", "y").await;
        next(5 + 2 * life).await;
    }
    // It ends by itself when it has shown as many as it should.
    let status = in_time("the end", async { tokio::task::spawn_blocking(move || child.wait()).await }).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn tail_survives_a_restart() {
    follow(&["--after", "0", "--count", "11"], 1).await;
}

#[tokio::test]
async fn tail_of_the_last_few_survives_a_restart() {
    follow(&["--last", "2", "--count", "8"], 4).await;
}
