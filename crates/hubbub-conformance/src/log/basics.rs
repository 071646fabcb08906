//! Attaching a log, executing it for the first time, and refusing what bypasses it.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::log_position::Attached;
use hubbub_core::store::ApplyError;
use hubbub_core::{Change, LogIdentity, Op, OpBatch, Outcome, RoomChange, RoomSettings, Store};

use super::super::model::{Model, Post};
use super::LogFixture;
use super::script::script;
use super::steps::{
    Content, PARTITIONS, Record, attach, execute, expected, identity, next_offsets, observe, replay,
    try_apply, without_numbers,
};

/// The first log is attached, and stays so over restarts and on every server. Others are named and change nothing.
pub async fn one_log_is_attached(fixture: &mut impl LogFixture) {
    let second = fixture.open_second().await;
    let attached = async |store: &Arc<dyn Store>| store.log().unwrap().attached().await.unwrap();
    assert_eq!(attached(&fixture.store()).await, None);
    assert_eq!(attach(&fixture.store()).await, Attached::New);
    assert_eq!(next_offsets(&fixture.store()).await, [0; PARTITIONS as usize]);
    replay(&fixture.store(), &script()[..5], 5).await;
    let offsets = next_offsets(&fixture.store()).await;
    for other in [
        LogIdentity { id: "cluster/other".to_owned(), ..identity() },
        LogIdentity { partitions: PARTITIONS + 1, ..identity() },
        LogIdentity { partitions: PARTITIONS - 1, ..identity() },
    ] {
        for store in [&fixture.store(), &second] {
            let answer = store.log().unwrap().attach(other.clone()).await.unwrap();
            assert_eq!(answer, Attached::Other(identity()), "{other:?}");
            assert_eq!(attached(store).await, Some(identity()));
        }
    }
    fixture.restart(true).await;
    assert_eq!(attach(&fixture.store()).await, Attached::Same);
    assert_eq!(attach(&second).await, Attached::Same);
    for store in [&fixture.store(), &second] {
        assert_eq!(next_offsets(store).await, offsets);
    }
}

/// Records are executed in their order, and received when the log took them, whatever the store's clock says. The next
/// offsets are those behind the records, over restarts, in batches of any size.
pub async fn records_are_executed_in_their_order(fixture: &mut impl LogFixture) {
    attach(&fixture.store()).await;
    let (records, mut model) = (script(), Model::default());
    let (mut done, mut heads) = (0, HashMap::new());
    for (size, count) in [(1, 20), (4, 20), (50, usize::MAX)] {
        let some: Vec<Record> = records.iter().skip(done).take(count).cloned().collect();
        done += some.len();
        let outcomes = replay(&fixture.store(), &some, size).await;
        check_predecessors(&some, &outcomes, &mut heads);
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(without_numbers).collect();
        let wanted = execute(&mut model, &some);
        for (record, (outcome, wanted)) in some.iter().zip(outcomes.iter().zip(&wanted)) {
            assert_eq!(outcome, wanted, "{record:?}");
        }
        assert_eq!(observe(&fixture.store()).await.0, expected(&model));
        assert_eq!(next_offsets(&fixture.store()).await, ends(&records[..done]));
        fixture.restart(true).await;
        fixture.clock().advance_micros(10_000_000);
        attach(&fixture.store()).await;
        assert_eq!(next_offsets(&fixture.store()).await, ends(&records[..done]));
    }
    assert_eq!(done, records.len());
    assert_eq!(observe(&fixture.store()).await.0, expected(&model));
}

/// Each receipt says which message of the room is the one before. `heads` has the last one of each room.
fn check_predecessors(records: &[Record], outcomes: &[Outcome], heads: &mut HashMap<String, u64>) {
    for (record, outcome) in records.iter().zip(outcomes) {
        if let (Content::Send(post), Outcome::Stored(receipt)) = (&record.content, outcome) {
            let prev = heads.insert(post.room.clone(), receipt.seq);
            assert_eq!(receipt.prev(), prev.unwrap_or(0), "{record:?}: {receipt:?}");
        }
    }
}

/// The offsets behind records.
fn ends(records: &[Record]) -> [u64; PARTITIONS as usize] {
    let mut ends = [0; PARTITIONS as usize];
    for record in records {
        ends[record.position.partition as usize] = record.position.offset + 1;
    }
    ends
}

/// A refused operation is executed, too: repeated later, when it would succeed, it changes nothing.
pub async fn a_refusal_is_final(fixture: &mut impl LogFixture) {
    let store = fixture.store();
    attach(&store).await;
    let closed = RoomSettings { members_only: Some(true), ..RoomSettings::default() };
    let change = |what| Content::Change(Change { by: None, what });
    let by_eve = |what| Content::Change(Change { by: Some("eve"), what });
    let record = |offset, content| Record::new(0, offset, 1_600_000_000_000_000, content);
    let made = record(0, change(RoomChange::PutRoom { room: "a0", settings: closed }));
    let open = RoomSettings { members_only: Some(false), ..RoomSettings::default() };
    let refused = [
        record(1, Content::Send(Post::new("a0", "m1").user("eve"))),
        record(2, by_eve(RoomChange::AddMember { room: "a0", user: "eve" })),
        record(3, by_eve(RoomChange::PutRoom { room: "a0", settings: open })),
        record(4, change(RoomChange::DeleteRoom { room: "c0" })),
        record(5, by_eve(RoomChange::DeleteRoom { room: "a0" })),
        record(6, change(RoomChange::EraseUser { user: "nobody" })),
        record(7, change(RoomChange::AddMember { room: "c0", user: "bob" })),
    ];
    replay(&store, &[made], 1).await;
    for record in &refused {
        let one = std::slice::from_ref(record);
        let outcome = replay(&store, one, 1).await.remove(0);
        assert!(matches!(outcome, Outcome::Refused(_) | Outcome::Erased { messages: 0, .. }), "{outcome:?}");
        assert_eq!(next_offsets(&store).await[0], record.position.offset + 1, "{record:?}");
        assert_eq!(replay(&store, one, 1).await, [Outcome::Accepted], "{record:?}");
    }
    let later = [
        record(8, change(RoomChange::AddMember { room: "a0", user: "eve" })),
        record(9, Content::Send(Post::new("c0", "m1"))),
    ];
    replay(&store, &later, 9).await;
    let before = observe(&store).await;
    for size in [1, 9] {
        assert!(replay(&store, &refused, size).await.iter().all(|outcome| *outcome == Outcome::Accepted));
        assert_eq!(observe(&store).await, before);
    }
}

/// Once a log is attached, rooms are not changed past it: not after a restart, and not by a server that was open before.
/// Before, they are not changed by a log.
pub async fn rooms_are_not_changed_past_the_log(fixture: &mut impl LogFixture) {
    let second = fixture.open_second().await;
    for store in [&fixture.store(), &second] {
        let mut batch = OpBatch::default();
        let record = Record::new(0, 0, 1_600_000_000_000_000, Content::Send(Post::new("a0", "early")));
        batch.push_at(&record.op(), record.position);
        let answer = try_apply(store, batch).await;
        assert!(matches!(answer, Err(ApplyError::Unattached { .. })), "{answer:?}");
    }
    attach(&fixture.store()).await;
    replay(&fixture.store(), &script(), 20).await;
    let before = observe(&fixture.store()).await;
    check_refusals(&second, &before).await;
    check_refusals(&fixture.store(), &before).await;
    fixture.restart(true).await;
    check_refusals(&fixture.store(), &before).await;
    let offsets = next_offsets(&fixture.store()).await;
    assert_eq!(offsets, ends(&script()));
}

async fn check_refusals(store: &Arc<dyn Store>, before: &(Vec<super::steps::Seen>, super::steps::Numbers)) {
    let (known, new) = (Post::new("a0", "past"), Post::new("p2", "past").user("new"));
    let change = |what| Op::Change(Change { by: None, what });
    for ops in [
        vec![Op::Send(known.as_send())],
        vec![Op::Send(new.as_send()), Op::Send(known.as_send())],
        vec![change(RoomChange::AddMember { room: "a0", user: "eve" })],
        vec![change(RoomChange::RemoveMember { room: "a0", user: "bob" })],
        vec![change(RoomChange::MarkRead { room: "a0", user: "bob", seq: u64::MAX })],
        vec![change(RoomChange::PutRoom { room: "a0", settings: RoomSettings::default() })],
        vec![change(RoomChange::DeleteRoom { room: "a0" })],
        vec![change(RoomChange::EraseUser { user: "ada" })],
    ] {
        let mut batch = OpBatch::default();
        ops.iter().for_each(|op| batch.push(op));
        let answer = try_apply(store, batch).await;
        assert!(matches!(answer, Err(ApplyError::Unavailable { .. })), "{ops:?}: {answer:?}");
    }
    assert_eq!(observe(store).await, *before);
}
