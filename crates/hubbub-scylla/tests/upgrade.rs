//! A keyspace of the first version of the schema goes on under the newest one.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use std::sync::Arc;

use hubbub_core::clock::ManualClock;
use hubbub_core::stats::{HoursQuery, UserHistoryQuery};
use hubbub_core::store::{ApplyError, StoreHealth};
use hubbub_core::{
    LogIdentity, LogPosition, LogStore, MessageType, Op, OpBatch, Outcome, Refusal, RoomId, RoomStore, Send,
    StatsStore, Store, Timestamp, UserId,
};
use hubbub_scylla::migrate;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use support::{Keyspace, START, host};

const STATE: &str = "{applied: 1, part: 0, present: true, members_only: false, head: 1, last_received: $AT, floor: 0, \
     removed: 0, kept: 1, members: 0, senders: 1, first_at: $AT, last_at: $AT, changes: 0, bucket: 1, \
     bucket_messages: 1, bucket_bytes: 9, hour: $HOUR}";

/// A room with one message, as the first version wrote it.
async fn write_first_version(keyspace: &Keyspace) {
    let versions = migrate(&keyspace.options(), false).await.unwrap();
    let session: Session = SessionBuilder::new().known_node(host()).build().await.unwrap();
    let execute = async |statement: &str| {
        session.query_unpaged(statement, &[]).await.unwrap();
    };
    let name = &keyspace.0;
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
    execute(&format!("create keyspace {name} with replication = {replication}")).await;
    session.use_keyspace(name, false).await.unwrap();
    execute("create table schema_versions (part text, version int, name text, primary key (part, version))")
        .await;
    for statement in versions.first().unwrap().statements {
        execute(statement).await;
    }
    execute("insert into schema_versions (part, version, name) values ('hubbub', 1, 'rooms')").await;
    let (hour, slot) = (START.div_euclid(3_600_000_000) * 3_600_000_000, START.div_euclid(600_000_000));
    let counts = format!("1, 0, 0, {START}, {START}");
    let state = STATE.replace("$AT", &START.to_string()).replace("$HOUR", &hour.to_string());
    execute(&format!("update rooms using timestamp 1 set state = {state} where room = 'r'")).await;
    for statement in [
        format!("rooms (room, kind, number, name, kept, first_at) values ('r', 0, 1, '', 1, {START})"),
        format!(
            "rooms (room, kind, number, name, texts, joins, leaves, first_at, last_at) values ('r', 2, 0, 'ada', {counts})"
        ),
        format!("rooms (room, kind, number, name) values ('r', 3, {hour}, '')"),
        format!(
            "messages (room, bucket, seq, id, user, body, kind, sent_at, received_at) values ('r', 1, 1, 'm0', 'ada', 'old', 0, {START}, {START})"
        ),
        format!(
            "user_messages (user, slot, received_at, room, seq, bucket, id) values ('ada', {slot}, {START}, 'r', 1, 1, 'm0')"
        ),
        format!("user_slots (user, slot, part) values ('ada', {slot}, 0)"),
        "user_rooms (user, room, part) values ('ada', 'r', 0)".to_owned(),
        format!(
            "hour_users (hour, part, room, user, texts, joins, leaves, first_at, last_at, seq) values ({hour}, 0, 'r', 'ada', {counts}, 1)"
        ),
        format!("hours (part, hour) values (0, {hour})"),
        "room_names (part, room) values (0, 'r')".to_owned(),
        "positions (part, next_offset) values (0, 1)".to_owned(),
    ] {
        execute(&format!("insert into {statement} using timestamp 1")).await;
    }
    // One of these is the shard of the id; the test need not know which.
    for shard in 0..64 {
        execute(&format!(
            "insert into message_ids (room, shard, id, seq, received_at, digest) values ('r', {shard}, 'm0', 1, {START}, 0x00) \
             using timestamp 1"
        ))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_of_the_first_version_go_on() {
    let keyspace = Keyspace::fresh();
    write_first_version(&keyspace).await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START + 1)));
    // Two servers start at the same time.
    let options = keyspace.options();
    let (one, other) = tokio::join!(migrate(&options, true), migrate(&options, true));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    let store = keyspace.open(true, &clock).await;
    assert!(migrate(&options, true).await.unwrap().is_empty());
    let select = "select gc_grace_seconds from system_schema.tables where table_name = 'deleted_rooms' and keyspace_name =";
    assert_eq!(keyspace.numbers(&format!("{select} '{}'", keyspace.0)).await, [Some(3_600)]);
    store.attach(LogIdentity { id: "cluster/topic".into(), partitions: 1 }).await.unwrap();
    let send = async |id: &str, offset: u64| {
        let mut batch = OpBatch::default();
        let appended_at = Timestamp::from_micros(START + 1);
        let (room, user, text, kind) = ("r", "ada", "new", MessageType::Text);
        let send = Send { room, user, id, username: None, text, kind, timestamp: appended_at };
        batch.push_at(&Op::Send(send), LogPosition { partition: 0, offset, appended_at });
        store.apply(&batch).unwrap().remove(0)
    };
    let participation = async || {
        let user = UserId::new("ada").unwrap();
        let page = store.participation(user, None, 10).await.unwrap().value;
        page.rooms.iter().map(|room| room.messages).collect::<Vec<_>>()
    };
    let hours = async || {
        let query = HoursQuery { from: None, to: None, limit: 10 };
        let page = store.hours(query).await.unwrap().value;
        page.hours.iter().map(|hour| (hour.messages.text, hour.users)).collect::<Vec<_>>()
    };
    // Older rows have their counts in columns.
    assert_eq!((participation().await, hours().await), (vec![1], vec![(1, 1)]));
    assert!(matches!(send("m0", 1).await, Outcome::Refused(Refusal::IdReused { .. })));
    for offset in 2..22 {
        let outcome = send(&format!("m{offset}"), offset).await;
        assert!(matches!(outcome, Outcome::Stored(receipt) if receipt.seq == offset + 1), "{outcome:?}");
    }
    assert!(matches!(send("m2", 22).await, Outcome::Duplicate(receipt) if receipt.seq == 3));
    let (user, room) = (UserId::new("ada").unwrap(), RoomId::new("r").unwrap());
    let query = UserHistoryQuery { before: None, from: None, to: None, limit: 50, bytes_max: 1 << 20 };
    let page = store.user_history(user, query).await.unwrap();
    assert_eq!(page.messages.iter().map(|message| message.seq).collect::<Vec<_>>(), {
        let all: Vec<u64> = std::iter::once(1).chain(3..23).collect();
        all
    });
    assert_eq!(store.room(room).await.unwrap().unwrap().messages, 21);
    assert_eq!((participation().await, hours().await), (vec![21], vec![(21, 1)]));
    let audit = store.audit().await.unwrap().value;
    assert!(audit.differences.is_empty(), "{:?}", audit.differences);
}

/// A newer program has moved a partition: an older one changes nothing any more, there or elsewhere, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_newer_program_goes_on_with_is_left_to_it() {
    let (keyspace, clock) = (Keyspace::fresh(), Arc::new(ManualClock::at(Timestamp::from_micros(START))));
    let open = async || {
        let store = keyspace.open(true, &clock).await;
        store.attach(LogIdentity { id: "cluster/topic".into(), partitions: 2 }).await.unwrap();
        store
    };
    let (store, idle) = (open().await, open().await);
    let send = |partition: u32, offset: u64| {
        let mut batch = OpBatch::default();
        let appended_at = Timestamp::from_micros(START);
        let (room, id) = (format!("r{partition}"), format!("m{offset}"));
        let (user, text, kind) = ("ada", "text", MessageType::Text);
        let send = Send { room: &room, user, id: &id, username: None, text, kind, timestamp: appended_at };
        batch.push_at(&Op::Send(send), LogPosition { partition, offset, appended_at });
        store.apply(&batch)
    };
    assert!(send(0, 0).is_ok() && send(1, 0).is_ok());
    assert_eq!(keyspace.numbers("select version from positions").await, [Some(6); 2]);
    let newer = "insert into positions (part, next_offset, version) values (0, 5, 99) using timestamp 5";
    keyspace.execute(newer).await;
    assert_eq!(store.health(), StoreHealth::Up);
    for (partition, offset) in [(0, 5), (1, 1)] {
        let refused = send(partition, offset);
        let tells = |reason: &str| reason.contains("version 99") && reason.contains("newer program");
        assert!(matches!(&refused, Err(ApplyError::Unavailable { reason }) if tells(reason)), "{refused:?}");
    }
    assert!(matches!(store.health(), StoreHealth::Failed(_)), "{:?}", store.health());
    // A server without records learns of it where it watches the log.
    assert!(idle.next_offsets().await.unwrap()[0].is_err());
    assert!(matches!(idle.health(), StoreHealth::Failed(_)), "{:?}", idle.health());
    keyspace.execute("insert into schema_versions (part, version, name) values ('hubbub', 99, 'x')").await;
    let refused = migrate(&keyspace.options(), true).await.unwrap_err();
    assert!(refused.to_string().contains("version 99"), "{refused}");
}

/// A plan of a keyspace whose versions cannot be read would name all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_not_taken_for_an_empty_schema() {
    let keyspace = Keyspace::fresh();
    let session: Session = SessionBuilder::new().known_node(host()).build().await.unwrap();
    let name = &keyspace.0;
    let execute = async |statement: &str| {
        session.query_unpaged(statement, &[]).await.unwrap();
    };
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
    execute(&format!("create keyspace {name} with replication = {replication}")).await;
    let all = migrate(&keyspace.options(), false).await.unwrap();
    assert_eq!(all.first().map(|version| version.number), Some(1));
    let columns = "(part text, version text, name text, primary key (part, version))";
    execute(&format!("create table {name}.schema_versions {columns}")).await;
    let refused = migrate(&keyspace.options(), false).await.unwrap_err().to_string();
    assert!(refused.contains("the schema's version"), "{refused}");
}
