//! A server whose store is not open yet: it takes no connections, which would wait for it unanswered, and SIGTERM ends it.

use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::command;
use crate::harness::{Setup, free_ports, hubbub_at_length, seqs};

#[test]
fn a_server_that_opens_its_store_can_be_stopped() {
    // Connects, and never says a word.
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("postgres://hubbub@{}/hubbub", database.local_addr().unwrap());
    let listen = format!("127.0.0.1:{}", free_ports(1));
    let mut child = command()
        .args(["serve", "--listen", &listen, "--store", &store])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let connection = database.accept().unwrap();
    let refused = TcpStream::connect(&listen).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{refused}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "it waits for the database to the end");
    drop(connection);
}

/// A start that fails behind the store, here for a broker that is away, closes the store: else it would have to take it that what the
/// system had not written is lost, and every client would read everything anew.
#[tokio::test]
async fn a_start_that_fails_closes_its_store() {
    let mut server = Setup::new().set("store.embedded.durability=os").start();
    let sent = server.send("r", "kept").await;
    server.stop().await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut arguments = server.setup().arguments(&server.address().to_string());
    arguments.extend(["--log".to_owned(), format!("amqp://guest:guest@{closed}")]);
    let ran = hubbub_at_length(arguments).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    server.restart();
    let page = server.get("/v1/rooms/r/messages").await.json();
    assert_eq!((&page["epoch"], seqs(page["messages"].as_array().unwrap())), (&sent["epoch"], vec![1]));
}
