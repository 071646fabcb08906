//! Records that come again: to the same server, to one that lost its partition, after a restart.

use std::sync::Arc;

use hubbub_core::{Outcome, Store};

use super::super::model::Model;
use super::LogFixture;
use super::script::{Writer, script};
use super::steps::{Record, attach, execute, expected, next_offsets, observe, replay};

/// A batch may come again at any time, whole, in parts, or together with what is new.
pub async fn a_repeat_changes_nothing(fixture: &mut impl LogFixture) {
    let store = fixture.store();
    attach(&store).await;
    let (records, mut model) = (script(), Model::default());
    let mut done = 0;
    while done < records.len() {
        // Some of it is repeated.
        let (from, to) = (done.saturating_sub(4), (done + 7).min(records.len()));
        let outcomes = replay(&store, &records[from..to], 5).await;
        let (again, new) = outcomes.split_at(done - from);
        assert_accepted(again, &records[from..done]);
        assert!(new.iter().all(|outcome| *outcome != Outcome::Accepted), "{done}: {new:?}");
        execute(&mut model, &records[done..to]);
        done = to;
        let before = observe(&store).await;
        assert_eq!(before.0, expected(&model), "after {done} records");
        assert_accepted(&replay(&store, &records[..done], 30).await, &records);
        assert_eq!(observe(&store).await, before, "after {done} records");
    }
}

fn assert_accepted(outcomes: &[Outcome], records: &[Record]) {
    for (outcome, record) in outcomes.iter().zip(records) {
        assert_eq!(*outcome, Outcome::Accepted, "{record:?} was executed before");
    }
}

/// After a restart the log may be read again from any older offset.
pub async fn a_replay_after_a_restart_changes_nothing(fixture: &mut impl LogFixture) {
    attach(&fixture.store()).await;
    let (records, mut model) = (script(), Model::default());
    replay(&fixture.store(), &records, 9).await;
    execute(&mut model, &records);
    let before = observe(&fixture.store()).await;
    assert_eq!(before.0, expected(&model));
    for (from, size) in [(0, 1), (0, 40), (17, 3), (records.len() - 1, 1)] {
        fixture.seal_all().await;
        fixture.restart(true).await;
        fixture.clock().advance_micros(60_000_000);
        attach(&fixture.store()).await;
        assert_accepted(&replay(&fixture.store(), &records[from..], size).await, &records[from..]);
        assert_eq!(observe(&fixture.store()).await, before, "from {from}");
    }
}

/// A server that lost its partitions writes on for a while, between the batches of the one that has them now.
pub async fn a_zombie_changes_nothing(fixture: &mut impl LogFixture) {
    let (owner, zombie) = (fixture.store(), fixture.open_second().await);
    attach(&owner).await;
    attach(&zombie).await;
    let (records, mut model) = (script(), Model::default());
    let part = |from: usize, to: usize| &records[from.min(records.len())..to.min(records.len())];
    for from in (0..records.len()).step_by(15) {
        // The owner begins, the zombie is ahead for a moment, the owner continues where it was.
        replay(&owner, part(from, from + 5), 5).await;
        assert_accepted(&replay(&zombie, part(0, from + 3), 4).await, &records);
        replay(&zombie, part(from, from + 10), 3).await;
        let outcomes = replay(&owner, part(from + 5, from + 15), 10).await;
        assert_accepted(&outcomes[..part(from + 5, from + 10).len()], part(from + 5, from + 10));
        execute(&mut model, part(from, from + 15));
        let seen = observe(&owner).await;
        assert_eq!(seen.0, expected(&model), "after {from}");
        assert_eq!(observe(&zombie).await, seen, "both servers show the same");
        assert_eq!(next_offsets(&zombie).await, next_offsets(&owner).await);
    }
}

/// A server that lost a partition and has it again may submit its records twice, and both may be in one batch.
pub async fn records_twice_in_a_batch_are_executed_once(fixture: &mut impl LogFixture) {
    let store = fixture.store();
    attach(&store).await;
    let mut writer = Writer::at([0; _]);
    writer.send("a0", "ada", "m-1");
    writer.add("a0", "eve");
    writer.send("c0", "bob", "m-2");
    writer.remove("a0", "eve");
    writer.send("a0", "ada", "m-3");
    let (records, mut model) = (writer.into_records(), Model::default());
    let twice = [&records[..], &records[..2], &records[1..]].concat();
    let outcomes = replay(&store, &twice, twice.len()).await;
    let (first, again) = outcomes.split_at(records.len());
    assert!(first.iter().all(|outcome| *outcome != Outcome::Accepted), "{first:?}");
    assert_accepted(again, &twice[records.len()..]);
    execute(&mut model, &records);
    let seen = observe(&store).await;
    assert_eq!(seen.0, expected(&model));
    let end = records.last().map_or(0, |record| record.position.offset + 1);
    assert_eq!(next_offsets(&store).await[0], end);
    assert_accepted(&replay(&store, &records, 9).await, &records);
    assert_eq!(observe(&store).await, seen);
}

/// Two servers that both believe to have all partitions execute the log at the same time.
pub async fn two_owners_at_once_execute_the_log_once(fixture: &mut impl LogFixture) {
    let (first, second) = (fixture.store(), fixture.open_second().await);
    attach(&first).await;
    attach(&second).await;
    let records = Arc::new(script());
    let run = |store: Arc<dyn Store>, size: usize| {
        let records = records.clone();
        tokio::spawn(async move { replay(&store, &records, size).await })
    };
    let (one, other) = (run(first.clone(), 3), run(second, 4));
    one.await.unwrap();
    other.await.unwrap();
    let mut model = Model::default();
    execute(&mut model, &records);
    let seen = observe(&first).await;
    assert_eq!(seen.0, expected(&model));
    fixture.restart(true).await;
    assert_eq!(observe(&fixture.store()).await, seen);
}
