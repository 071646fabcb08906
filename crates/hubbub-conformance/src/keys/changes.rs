//! What those who watch are told.

use hubbub_core::kv::{CHANGES_KEPT, KvChanged, KvChangesRead};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// Every change is told once, in order, from any revision on, by prefix.
pub async fn changes_are_told_in_order(fixture: &mut impl Fixture) {
    put(fixture, "a/1", "x").await;
    put(fixture, "b/1", "x").await;
    put(fixture, "a/1", "y").await;
    delete(fixture, "a/1").await;
    delete(fixture, "a/none").await;
    put(fixture, "a/2", "x").await;
    use KvChanged::{Deleted, Put};
    let all = [(1, "a/1", Put), (2, "b/1", Put), (3, "a/1", Put), (4, "a/1", Deleted), (5, "a/2", Put)];
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(told(&changes(fixture, "", 0).await), all, "{stage:?}");
        assert_eq!(told(&changes(fixture, "", 3).await), all[3..], "{stage:?}");
        assert_eq!(told(&changes(fixture, "b/", 0).await), all[1..2], "{stage:?}");
        assert_eq!(told(&changes(fixture, "", 5).await), [], "{stage:?}");
        let some = fixture.store().changes(b"a/", 0, 2).await.unwrap();
        let KvChangesRead::Changes(some) = some else { panic!("{stage:?}: {some:?}") };
        assert_eq!(told(&some.changes), [all[0], all[2]], "{stage:?}");
        assert!(some.more && some.through == 3, "{stage:?}: {some:?}");
        let ahead = fixture.store().changes(b"", 6, 2).await.unwrap();
        assert!(matches!(ahead, KvChangesRead::Compacted { head: 5, .. }), "{stage:?}: {ahead:?}");
    }
}

/// What ran out is told of when it is swept away.
pub async fn what_ran_out_is_told(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        let (first, _) = put_for(fixture, "k", "x", Some(1_000)).await;
        stage.reach(fixture).await;
        advance_ms(fixture, 1_000);
        sweep(fixture).await;
        stage.reach(fixture).await;
        let expected = [(first, "k", KvChanged::Put), (first + 1, "k", KvChanged::Expired)];
        assert_eq!(told(&changes(fixture, "", first - 1).await), expected, "{stage:?}");
    }
}

/// Only so many changes are kept, and whoever is too late is told so.
pub async fn old_changes_are_compacted(fixture: &mut impl Fixture) {
    let names: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
    let ops: Vec<_> = names.iter().map(|name| put_op(name, "x")).collect();
    let rounds = CHANGES_KEPT / ops.len() + 2;
    for _ in 0..rounds {
        batch(fixture, &ops).await;
    }
    let head = (rounds * ops.len()) as u64;
    let kept = CHANGES_KEPT as u64;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let told = changes(fixture, "k", head - kept).await;
        assert!(told.iter().map(|one| one.revision).eq(head - kept + 1..=head), "{stage:?}");
        match fixture.store().changes(b"", 0, 9).await.unwrap() {
            KvChangesRead::Compacted { oldest, head: last } => {
                assert!(oldest > 0 && oldest <= head - kept && last == head, "{stage:?}: {oldest} {last}");
                let from = changes(fixture, "k", oldest).await;
                assert_eq!(from[0].revision, oldest + 1, "{stage:?}");
            }
            other => panic!("{stage:?}: {other:?}"),
        }
    }
}
