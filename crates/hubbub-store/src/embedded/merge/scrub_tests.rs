//! Segments are written anew for what is hidden, but not over and over.

use std::time::Duration;

use hubbub_core::{Change, MessageType, Op, OpBatch, RoomChange, Send, Timestamp};

use super::expire_tests::{Place, SECOND};
use crate::embedded::merge::segments::MergeState;
use crate::embedded::segment::Segment;
use crate::embedded::{Engine, EngineOptions, MergeOptions};

const INTERVAL: i64 = 60;

fn place(merge: MergeOptions) -> Place {
    let scrub_interval = Duration::from_secs(INTERVAL.unsigned_abs());
    Place::with(EngineOptions { scrub_interval, merge, ..EngineOptions::default() })
}

fn segments(engine: &Engine) -> Vec<u64> {
    engine.shared.view().segments.iter().map(Segment::number).collect()
}

/// Seals what is there, and merges it into one segment.
fn seal_into_one(place: &Place) {
    place.engine.begin_backup("seal").unwrap();
    place.engine.end_backup("seal");
    while place.engine.seal_step().unwrap() {}
    while place.engine.shared.view().segments.len() > 1 {
        let (sources, mut merging) = (place.engine.shared.view().segments.clone(), MergeState::default());
        assert!(place.engine.shared.rewrite(&sources, &mut merging).unwrap());
    }
}

/// A room forgets a message every few seconds, in a segment with many others.
#[test]
fn a_segment_is_not_rewritten_for_each_message_that_expires() {
    let place = place(MergeOptions::default());
    place.keep_for("short", 1_000);
    place.fill(0..100);
    for id in 0..100 {
        place.send("short", "ada", id);
        place.clock.advance_micros(10 * SECOND);
    }
    seal_into_one(&place);
    let (mut before, mut rewrites) = (segments(&place.engine), 0);
    let mut hidden = 0;
    for left in (0..100).rev() {
        place.clock.advance_micros(10 * SECOND);
        place.work();
        let in_segments = place.in_segments("short");
        if segments(&place.engine) != before {
            before = segments(&place.engine);
            rewrites += 1;
            assert_eq!(in_segments, place.count("short"), "all that is hidden is left out");
            assert!(hidden * 8 + 32 >= place.in_segments("elsewhere") + in_segments, "{hidden} at {left}");
        }
        hidden = in_segments - place.count("short");
    }
    assert!((3..10).contains(&rewrites), "{rewrites}");
    assert!(place.count("short") < 3, "{}", place.count("short"));
    assert_eq!(place.count("elsewhere"), 100);
}

/// What somebody deleted is not kept because it is little.
#[test]
fn what_is_deleted_goes_however_little_it_is() {
    let place = place(MergeOptions::default());
    place.keep_for("short", 150);
    place.send("short", "eve", 0);
    place.send("short", "ada", 1);
    place.send("gone", "ada", 0);
    place.fill(0..100);
    seal_into_one(&place);
    place.clock.advance_micros(INTERVAL * SECOND);
    place.change(RoomChange::EraseUser { user: "eve" });
    assert_eq!((place.count("short"), place.in_segments("short")), (1, 1));
    place.change(RoomChange::DeleteRoom { room: "gone" });
    assert_eq!(place.in_segments("gone"), 1, "it is not looked for it all the time");
    place.clock.advance_micros(INTERVAL * SECOND);
    place.work();
    assert_eq!((place.in_segments("gone"), place.in_segments("short")), (0, 1));
    place.clock.advance_micros(2 * INTERVAL * SECOND);
    place.work();
    assert_eq!((place.count("short"), place.in_segments("short")), (0, 1), "this one has only expired");
}

/// Erased, then expired together with what stands around it.
#[test]
fn what_is_erased_goes_though_it_has_expired_meanwhile() {
    let place = place(MergeOptions::default());
    place.keep_for("short", 10);
    for id in 0..6 {
        place.send("short", if id == 2 { "eve" } else { "ada" }, id);
    }
    place.fill(0..100);
    seal_into_one(&place);
    place.clock.advance_micros(5 * SECOND);
    place.change(RoomChange::EraseUser { user: "eve" });
    place.clock.advance_micros(INTERVAL * SECOND);
    place.work();
    place.clock.advance_micros(INTERVAL * SECOND);
    place.work();
    assert_eq!((place.count("short"), place.in_segments("short")), (0, 0));
}

/// However much is hidden.
#[test]
fn merges_go_before_rewrites() {
    let merge = MergeOptions { segments_max: 2, fan_in: 2, ..MergeOptions::default() };
    let place = place(merge);
    let engine = &place.engine;
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
    assert_eq!((place.in_segments("gone"), place.in_segments("kept")), (0, sealed));
}
