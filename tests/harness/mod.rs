//! What the tests stand on: the real binary with a data directory of its own, and clients with time limits.
//!
//! A test waits for conditions, never for time. The limits here are only for tests that would otherwise hang.

#[cfg(feature = "amqp")]
mod broker;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod cassandra;
mod certificates;
mod follower;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
pub(crate) mod likeness;
mod line;
mod linearizable;
mod load;
pub(crate) mod nginx;
mod ports;
mod postgres;
pub(crate) mod program;
#[cfg(feature = "amqp")]
pub(crate) mod prometheus;
mod queues;
mod raw_ws;
mod rooms;
pub(crate) mod schema;
mod server;
#[cfg(any(feature = "amqp", feature = "kafka"))]
mod service;
#[cfg(feature = "kafka")]
mod shared_store;
mod simulated;
mod tls;
pub(crate) mod tokens;
mod tools;
mod unread;
mod usage;
mod watch;
mod writer;
mod ws;

use std::time::Duration;

use serde_json::{Value, json};

#[cfg(feature = "amqp")]
pub(crate) use broker::Broker;
#[cfg(all(feature = "kafka", feature = "scylla"))]
pub(crate) use cassandra::Cassandra;
pub(crate) use certificates::MAKE_CERTIFICATES;
pub(crate) use follower::Follower;
pub(crate) use http::{Answer, Http, faulty_fields};
#[cfg(feature = "kafka")]
pub(crate) use kafka::{Kafka, PASSWORD, USER};
pub(crate) use line::Line;
pub(crate) use linearizable::{Action, Event, Told, unexplained};
pub(crate) use load::{Kind, Load, rounds};
pub(crate) use ports::free_ports;
pub(crate) use postgres::{Pooler, Postgres};
pub(crate) use program::{Ran, hubbub, hubbub_aside, hubbub_at_length, hubbub_with};
pub(crate) use queues::receipt;
pub(crate) use raw_ws::{RawFrame, RawWs, handshake, masked};
pub(crate) use server::{Server, Setup};
#[cfg(feature = "kafka")]
pub(crate) use shared_store::{SharedStore, with_each_store};
pub(crate) use simulated::Simulated;
pub(crate) use tls::{Certificates, TlsClient};
pub(crate) use tools::{or_skip, tool};
pub(crate) use unread::UnreadCounter;
pub(crate) use watch::Watch;
pub(crate) use writer::{Dialect, Writer};
pub(crate) use ws::{Closed, Ws};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for `work`, at most [`PATIENCE`].
pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: nothing happened for {PATIENCE:?}"),
    }
}

/// Asks again and again until the answer is yes.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A message as `/chat/{room}` wants it.
pub(crate) fn chat_message(id: &str, text: &str) -> Value {
    json!({
        "userId": 7, "username": "ada1", "message": text, "messageId": id,
        "timestamp": "2026-01-31T12:00:00Z", "messageType": "TEXT",
    })
}

/// The strings of an array's field, for comparing whole histories at once.
pub(crate) fn texts(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["message"].as_str().unwrap()).collect()
}

/// The numbers of messages.
pub(crate) fn seqs(messages: &[Value]) -> Vec<u64> {
    messages.iter().map(|message| message["seq"].as_u64().unwrap()).collect()
}

/// A number from the environment, for tests that run longer or again.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect(name))
}
