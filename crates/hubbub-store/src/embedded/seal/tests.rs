//! What happens while a slot is sealed.

use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Change, MessageType, Op, OpBatch, RoomChange, Send, Timestamp};

use crate::embedded::segment::SEGMENTS_DIR;
use crate::embedded::sim::SimDisk;
use crate::embedded::{Engine, EngineOptions};

fn erase_eve() -> OpBatch {
    let mut batch = OpBatch::default();
    batch.push(&Op::Change(Change { by: None, what: RoomChange::EraseUser { user: "eve" } }));
    batch
}

fn send(engine: &Engine, room: &str, user: &str, id: u64) {
    let (id, text) = (format!("{user}-{id}"), "x".repeat(200));
    let (kind, timestamp) = (MessageType::Text, Timestamp::from_micros(7));
    let mut batch = OpBatch::default();
    batch.push(&Op::Send(Send { room, user, id: &id, username: None, text: &text, kind, timestamp }));
    engine.apply(&batch).unwrap();
}

fn in_segments(engine: &Engine) -> u32 {
    let view = engine.shared.view();
    view.segments.iter().filter_map(|segment| segment.room("r")).map(|part| part.count).sum()
}

/// The segment that is being written holds what somebody erases now, and is no segment yet for who looks for such ones.
#[test]
fn what_is_erased_during_a_seal_goes_afterwards() {
    let disk = SimDisk::new();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let options = EngineOptions {
        slot_bytes: 16 * 1024,
        reserve_bytes: 0,
        scrub_interval: std::time::Duration::from_secs(60),
        ..EngineOptions::default()
    };
    let random = SeededRandom::new(5);
    let engine = Arc::new(Engine::open(options, Arc::new(disk.clone()), clock.clone(), &random).unwrap());
    // Prepares the slot that comes next.
    while engine.seal_step().unwrap() {}
    send(&engine, "r", "ada", 0);
    send(&engine, "r", "eve", 0);
    (0..)
        .take_while(|_| engine.shared.waiting_slots() == 0)
        .for_each(|id| send(&engine, "elsewhere", "ada", id));
    let meanwhile = Arc::clone(&engine);
    disk.before_sync_of(SEGMENTS_DIR, move || {
        meanwhile.apply(&erase_eve()).unwrap();
        assert!(!meanwhile.shared.scrub_one().unwrap());
    });
    while engine.seal_step().unwrap() {}
    assert_eq!((in_segments(&engine), engine.room("r").unwrap().messages), (2, 1));
    clock.advance_micros(60_000_000);
    while engine.merge_step().unwrap() {}
    assert_eq!(in_segments(&engine), 1);
}
