//! The name of the history and the attached log are set once, without lightweight transactions, and a server that took a
//! value which another one replaced at that moment learns of it.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::log_position::Attached;
use hubbub_core::store::{ApplyError, StoreHealth};
use hubbub_core::{
    LogIdentity, LogPosition, LogStore, MessageType, Op, OpBatch, RoomStore, Send, Store, Timestamp,
};
use hubbub_scylla::Scylla;
use support::{Keyspace, START};

async fn open(keyspace: &Keyspace, seed: u64) -> Scylla {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
    Scylla::open(keyspace.options(), clock, &SeededRandom::new(seed)).await.unwrap()
}

fn log(topic: &str) -> LogIdentity {
    LogIdentity { id: format!("cluster/{topic}"), partitions: 2 }
}

/// ScyllaDB cannot execute them where it keeps a keyspace in tablets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lightweight_transaction_is_used() {
    let keyspace = Keyspace::fresh();
    let store = open(&keyspace, 1).await;
    assert_eq!(store.attach(log("topic")).await, Ok(Attached::New));
    let tables = keyspace
        .texts(&format!(
            "select cast(id as text) from system_schema.tables where keyspace_name = '{}'",
            keyspace.0
        ))
        .await;
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        // Each leaves the state of its agreement there.
        let states = keyspace.count(&format!("system.paxos where cf_id = {table} allow filtering")).await;
        assert_eq!(states, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_the_same_time_agree() {
    let keyspace = Keyspace::fresh();
    let (one, other) = tokio::join!(open(&keyspace, 1), open(&keyspace, 2));
    let (first, second) = tokio::join!(one.attach(log("topic")), other.attach(log("topic")));
    assert!(![first, second].contains(&Ok(Attached::Other(log("topic")))));
    for store in [&one, &other] {
        store.finish_round().await.unwrap();
        assert_eq!(store.health(), StoreHealth::Up);
    }
    assert_eq!(one.epoch(), other.epoch());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_is_kept_and_a_deleted_epoch_is_renewed() {
    let keyspace = Keyspace::fresh();
    let first = open(&keyspace, 1).await;
    assert_eq!(first.attach(log("topic")).await, Ok(Attached::New));
    let written = "select cast(writetime(value) as text) from properties";
    let before = keyspace.texts(written).await;
    let second = open(&keyspace, 2).await;
    assert_eq!(second.epoch(), first.epoch());
    assert_eq!(second.attach(log("topic")).await, Ok(Attached::Same));
    assert_eq!(second.attach(log("another")).await, Ok(Attached::Other(log("topic"))));
    assert_eq!((keyspace.texts(written).await, before.len()), (before, 2));
    // As after a snapshot was restored.
    keyspace.execute("delete from properties where name = 'epoch'").await;
    let third = open(&keyspace, 3).await;
    assert_ne!(third.epoch(), first.epoch());
    assert_eq!(open(&keyspace, 4).await.epoch(), third.epoch());
}

/// A server that was slow to write wins after another one took its own value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_took_a_value_that_was_replaced_learns_of_it() {
    let keyspace = Keyspace::fresh();
    let store = open(&keyspace, 1).await;
    assert_eq!(store.attach(log("topic")).await, Ok(Attached::New));
    let send = || {
        let mut batch = OpBatch::default();
        let appended_at = Timestamp::from_micros(START);
        let (room, user, id, text, kind) = ("r", "ada", "m", "text", MessageType::Text);
        let send = Send { room, user, id, username: None, text, kind, timestamp: appended_at };
        batch.push_at(&Op::Send(send), LogPosition { partition: 0, offset: 0, appended_at });
        store.apply(&batch)
    };
    let set = async |name: &str, value: &str| {
        keyspace.execute(&format!("insert into properties (name, value) values ('{name}', '{value}')")).await;
        store.finish_round().await.unwrap();
    };
    set("epoch", "0123456789ab").await;
    assert_eq!(&*store.epoch(), "0123456789ab");
    assert!(send().is_ok() && store.health() == StoreHealth::Up);
    set("log", "0 2 cluster/another").await;
    let refused = send();
    let tells = |reason: &str| reason.contains("another log now (cluster/another, 2 partitions)");
    assert!(matches!(&refused, Err(ApplyError::Unavailable { reason }) if tells(reason)), "{refused:?}");
    assert!(matches!(store.health(), StoreHealth::Failed(_)), "{:?}", store.health());
}
