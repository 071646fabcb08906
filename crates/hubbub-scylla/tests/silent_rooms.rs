//! A room whose messages have all expired can be read, however many had written there.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use hubbub_conformance::Fixture as _;
use hubbub_core::{
    Change, MessageType, Op, OpBatch, Outcome, RoomChange, RoomId, RoomStore, Send, StatsStore, Store,
    Timestamp,
};
use support::{Opened, START};

const SENDERS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_that_expired_leave_one_mark() {
    let opened = Opened::alone_behind(1).await;
    let apply = |ops: &[Op<'_>]| {
        let mut batch = OpBatch::default();
        for op in ops {
            opened.push(&mut batch, op);
        }
        opened.store.apply(&batch).unwrap()
    };
    let (room, timestamp) = ("r0", Timestamp::from_micros(START));
    let send = |users: &[String], round: usize| {
        let ids: Vec<String> = users.iter().map(|user| format!("{user}-{round}")).collect();
        let sends = users.iter().zip(&ids).map(|(user, id)| {
            let (text, kind) = ("text", MessageType::Text);
            Op::Send(Send { room, user, id, username: None, text, kind, timestamp })
        });
        apply(&sends.collect::<Vec<_>>());
    };
    let users: Vec<String> = (0..SENDERS).map(|number| format!("u{number}")).collect();
    send(&users, 0);
    let before = Timestamp::from_micros(START + 1_000_000);
    let what = RoomChange::ExpireMessages { room, before, retention_s: 1, is_own: false };
    opened.clock.advance_micros(10_000_000);
    let expired = apply(&[Op::Change(Change { by: None, what })]);
    assert_eq!(expired, [Outcome::Changed { changed: true }]);
    assert_eq!(opened.keyspace.count("rooms where room = 'r0' and kind = 2").await, 0);
    let marks = opened.keyspace.tombstones("select distinct state from rooms where room = 'r0'").await;
    assert!(marks < 10, "{marks}");
    // Whoever writes again is counted from here.
    send(&users[..2], 1);
    let found = opened.store.room(RoomId::new(room).unwrap()).await.unwrap().unwrap();
    assert_eq!(found.messages, 2);
    let audit = opened.store.audit().await.unwrap().value;
    assert!(audit.differences.is_empty(), "{:?}", audit.differences);
}
