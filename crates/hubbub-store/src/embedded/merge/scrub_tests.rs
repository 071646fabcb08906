//! Segments are written anew for what is hidden, but not over and over.

use std::time::Duration;

use hubbub_core::{Change, MessageType, Op, OpBatch, RoomChange, Send, Timestamp};

use super::expire_tests::{SECOND, TestStore};
use crate::embedded::merge::segments::MergeState;
use crate::embedded::segment::Segment;
use crate::embedded::{Engine, EngineOptions, MergeOptions};

const INTERVAL: i64 = 60;

fn store(merge: MergeOptions) -> TestStore {
    let scrub_interval = Duration::from_secs(INTERVAL.unsigned_abs());
    TestStore::with(EngineOptions { scrub_interval, merge, ..EngineOptions::default() })
}

fn segments(engine: &Engine) -> Vec<u64> {
    engine.shared.view().segments.iter().map(Segment::number).collect()
}

/// Seals what is there, and merges it into one segment.
fn seal_into_one(store: &TestStore) {
    store.engine.begin_backup("seal").unwrap();
    store.engine.end_backup("seal");
    while store.engine.seal_step().unwrap() {}
    while store.engine.shared.view().segments.len() > 1 {
        let (sources, mut merging) = (store.engine.shared.view().segments.clone(), MergeState::default());
        assert!(store.engine.shared.rewrite(&sources, &mut merging).unwrap());
    }
}

/// A room forgets a message every few seconds, in a segment with many others.
#[test]
fn a_segment_is_not_rewritten_for_each_message_that_expires() {
    let store = store(MergeOptions::default());
    store.keep_for("short", 1_000);
    store.fill(0..100);
    for id in 0..100 {
        store.send("short", "ada", id);
        store.clock.advance_micros(10 * SECOND);
    }
    seal_into_one(&store);
    let (mut before, mut rewrites) = (segments(&store.engine), 0);
    let mut hidden = 0;
    for left in (0..100).rev() {
        store.clock.advance_micros(10 * SECOND);
        store.work();
        let in_segments = store.in_segments("short");
        if segments(&store.engine) != before {
            before = segments(&store.engine);
            rewrites += 1;
            assert_eq!(in_segments, store.count("short"), "all that is hidden is left out");
            assert!(hidden * 8 + 32 >= store.in_segments("elsewhere") + in_segments, "{hidden} at {left}");
        }
        hidden = in_segments - store.count("short");
    }
    assert!((3..10).contains(&rewrites), "{rewrites}");
    assert!(store.count("short") < 3, "{}", store.count("short"));
    assert_eq!(store.count("elsewhere"), 100);
}

/// What somebody deleted is not kept because it is little.
#[test]
fn what_is_deleted_goes_however_little_it_is() {
    let store = store(MergeOptions::default());
    store.keep_for("short", 150);
    store.send("short", "eve", 0);
    store.send("short", "ada", 1);
    store.send("gone", "ada", 0);
    store.fill(0..100);
    seal_into_one(&store);
    store.clock.advance_micros(INTERVAL * SECOND);
    store.change(RoomChange::EraseUser { user: "eve" });
    assert_eq!((store.count("short"), store.in_segments("short")), (1, 1));
    store.change(RoomChange::DeleteRoom { room: "gone" });
    assert_eq!(store.in_segments("gone"), 1, "it is not looked for it all the time");
    store.clock.advance_micros(INTERVAL * SECOND);
    store.work();
    assert_eq!((store.in_segments("gone"), store.in_segments("short")), (0, 1));
    store.clock.advance_micros(2 * INTERVAL * SECOND);
    store.work();
    assert_eq!((store.count("short"), store.in_segments("short")), (0, 1), "this one has only expired");
}

/// Erased, then expired together with what stands around it.
#[test]
fn what_is_erased_goes_though_it_has_expired_meanwhile() {
    let store = store(MergeOptions::default());
    store.keep_for("short", 10);
    for id in 0..6 {
        store.send("short", if id == 2 { "eve" } else { "ada" }, id);
    }
    store.fill(0..100);
    seal_into_one(&store);
    store.clock.advance_micros(5 * SECOND);
    store.change(RoomChange::EraseUser { user: "eve" });
    store.clock.advance_micros(INTERVAL * SECOND);
    store.work();
    store.clock.advance_micros(INTERVAL * SECOND);
    store.work();
    assert_eq!((store.count("short"), store.in_segments("short")), (0, 0));
}

/// However much is hidden.
#[test]
fn merges_go_before_rewrites() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    let store = store(merge);
    let engine = &store.engine;
    let mut sealed = 0;
    while engine.shared.view().segments.len() < 6 {
        let mut batch = OpBatch::default();
        for (room, id) in [("gone", sealed), ("kept", sealed)] {
            let (id, kind) = (format!("{id}"), MessageType::Text);
            let timestamp = Timestamp::from_micros(7);
            let text = "text";
            let send = Send { room, user: "ada", id: &id, username: None, text, kind, timestamp };
            batch.push(&Op::Send(send));
        }
        engine.apply(&batch).unwrap();
        sealed += 1;
        engine.begin_backup("seal").unwrap();
        engine.end_backup("seal");
    }
    let mut batch = OpBatch::default();
    let what = RoomChange::DeleteRoom { room: "gone" };
    batch.push(&Op::Change(Change { by: None, what }));
    engine.apply(&batch).unwrap();
    let mut counts = Vec::new();
    while engine.merge_step().unwrap() {
        counts.push(engine.shared.view().segments.len());
    }
    assert!(counts.starts_with(&[5, 4, 3, 2]), "{counts:?}");
    assert_eq!((store.in_segments("gone"), store.in_segments("kept")), (0, sealed));
}
