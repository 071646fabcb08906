//! A server whose store is not open yet: it takes no connections, which would wait for it unanswered, and SIGTERM ends it.

use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::free_ports;
use crate::harness::program::command;

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
