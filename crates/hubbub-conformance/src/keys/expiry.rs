//! What runs out with time.

use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, KvOutcome, Outcome};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// A key is there until its time is over and not a moment longer, swept away or not.
pub async fn a_key_runs_out_to_the_moment(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        put_for(fixture, "k", "x", Some(5_000)).await;
        put_for(fixture, "longer", "x", Some(9_000)).await;
        put(fixture, "stays", "x").await;
        stage.reach(fixture).await;
        advance_ms(fixture, 4_999);
        assert!(value(fixture, "k").await.is_some(), "{stage:?}");
        assert_eq!(keys(fixture, "", None, 9).await.len(), 3, "{stage:?}");
        let due = fixture.store().kv_due_in().unwrap();
        assert!(due.as_micros() <= 1_000, "{stage:?}: {due:?}");
        advance_ms(fixture, 1);
        assert_eq!(value(fixture, "k").await, None, "{stage:?}");
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["longer", "stays"], "{stage:?}");
        let anew = KvOp::Put { key: b"k", value: b"y", ttl_ms: Some(1_000), condition: Condition::Absent };
        assert!(matches!(done(fixture, anew).await, KvOutcome::Put { created: true, .. }), "{stage:?}");
        advance_ms(fixture, 1_000);
        assert_eq!(delete(fixture, "k").await, None, "{stage:?}: gone by itself");
        stage.reach(fixture).await;
        sweep(fixture).await;
        stage.reach(fixture).await;
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["longer", "stays"], "{stage:?}");
        advance_ms(fixture, 3_000);
        sweep(fixture).await;
        assert_eq!(fixture.store().kv_due_in(), None, "{stage:?}");
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["stays"], "{stage:?}");
    }
}

/// A new value has its own time, or none.
pub async fn a_new_value_has_its_own_time(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        put_for(fixture, "a", "1", Some(2_000)).await;
        put_for(fixture, "b", "1", Some(2_000)).await;
        put_for(fixture, "c", "1", None).await;
        stage.reach(fixture).await;
        put_for(fixture, "a", "2", None).await;
        put_for(fixture, "b", "2", Some(4_000)).await;
        put_for(fixture, "c", "2", Some(1_000)).await;
        stage.reach(fixture).await;
        advance_ms(fixture, 3_000);
        sweep(fixture).await;
        stage.reach(fixture).await;
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["a", "b"], "{stage:?}");
        advance_ms(fixture, 1_000);
        sweep(fixture).await;
        assert_eq!(value(fixture, "a").await.as_deref(), Some("2"), "{stage:?}");
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["a"], "{stage:?}");
    }
}

/// A sweep deletes what has expired but for what its batch put again, and only what it deletes takes a revision.
pub async fn a_sweep_leaves_what_its_batch_put(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        for key in ["a", "b", "c"] {
            put_for(fixture, key, "1", Some(1_000)).await;
        }
        stage.reach(fixture).await;
        advance_ms(fixture, 1_000);
        let (last, _) = put(fixture, "stays", "x").await;
        let again = KvOp::Put { key: b"a", value: b"2", ttl_ms: None, condition: Condition::Absent };
        let ops = [again, delete_op("b"), KvOp::Sweep, KvOp::Sweep, put_op("c", "3")];
        let put = |revision| KvOutcome::Put { revision, expires_at: None, created: true };
        let swept = |revision| KvOutcome::Swept { revision, more: false };
        let expected = [
            put(last + 1),
            KvOutcome::Deleted { revision: None },
            swept(Some(last + 3)),
            swept(None),
            put(last + 4),
        ];
        assert_eq!(batch(fixture, &ops).await, expected.map(Outcome::Kv), "{stage:?}");
        stage.reach(fixture).await;
        sweep(fixture).await;
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["a", "c", "stays"], "{stage:?}");
        assert_eq!(value(fixture, "a").await.as_deref(), Some("2"), "{stage:?}");
        assert_eq!(fixture.store().revision(), last + 4, "{stage:?}");
        assert_eq!(fixture.store().kv_due_in(), None, "{stage:?}");
    }
}
