//! What queues make of a wall clock that nothing proves.

use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom, SteadyClock, TRUST_AFTER};
use hubbub_core::queue::{Audience, Due, QueueSend, QueueSettings, Settle, Take, TakeFilter, TakeMode};
use hubbub_core::{Clock, Op, OpBatch, Outcome, QueueOp, QueueOutcome, Timestamp};

use crate::embedded::disk::FileDisk;
use crate::embedded::{Engine, EngineOptions};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

struct TestDirectory {
    dir: tempfile::TempDir,
    machine: Arc<ManualClock>,
}

impl TestDirectory {
    fn new() -> Self {
        let machine = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self { dir: tempfile::tempdir().unwrap(), machine }
    }

    fn open(&self) -> Engine {
        let options = EngineOptions { slot_bytes: 64 * 1024, reserve_bytes: 0, ..EngineOptions::default() };
        let machine: Arc<dyn Clock> = self.machine.clone();
        let clock = Arc::new(SteadyClock::new(machine, TRUST_AFTER));
        Engine::open(options, Arc::new(FileDisk::new(self.dir.path())), clock, &SeededRandom::new(5)).unwrap()
    }
}

fn one(engine: &Engine, op: QueueOp<'_>) -> QueueOutcome {
    let mut batch = OpBatch::default();
    batch.push(&Op::Queue(op));
    let outcome = engine.apply(&batch).unwrap().remove(0);
    while engine.seal_step().unwrap() {}
    match outcome {
        Outcome::Queue(outcome) => outcome,
        other => panic!("{op:?} was answered {other:?}"),
    }
}

fn send(engine: &Engine, text: &str, due: Due, ttl_ms: Option<u64>) {
    one(
        engine,
        QueueOp::Send(QueueSend {
            queue: "q",
            sender: "ada",
            audience: Audience::Anyone,
            text,
            message_id: None,
            due,
            group: None,
            ttl_ms,
            registers: true,
        }),
    );
}

/// Takes everything that may be taken.
fn take(engine: &Engine) -> Vec<String> {
    one(engine, QueueOp::Sweep);
    let wanted = TakeFilter { queue: Some("q"), receiver: Some("bob"), sender: None, newest_first: false };
    match one(engine, QueueOp::Take(Take { wanted, max: 10, how: TakeMode::Away, registers: true })) {
        QueueOutcome::Taken { messages, .. } => {
            messages.iter().map(|delivery| delivery.text.to_string()).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn filled(directory: &TestDirectory) -> Engine {
    let engine = directory.open();
    one(&engine, QueueOp::Put { queue: "q", settings: &QueueSettings::default() });
    send(&engine, "lives for a day", Due::Now, Some(DAY_MS));
    send(&engine, "comes tomorrow", Due::In(DAY_MS), None);
    engine
}

#[test]
fn a_wrong_clock_at_the_start_ends_nothing() {
    let directory = TestDirectory::new();
    drop(filled(&directory));
    directory.machine.step_micros(365 * 24 * HOUR);
    let engine = directory.open();
    assert_eq!(take(&engine), ["lives for a day"], "nothing comes early, nothing is lost");
    drop(engine);
    directory.machine.step_micros(-365 * 24 * HOUR);
    let engine = directory.open();
    assert!(take(&engine).is_empty());
    directory.machine.advance_micros(25 * HOUR);
    assert_eq!(take(&engine), ["comes tomorrow"]);
}

#[test]
fn a_long_time_out_of_service_counts_once_it_is_proven() {
    let directory = TestDirectory::new();
    drop(filled(&directory));
    directory.machine.advance_micros(48 * HOUR);
    let engine = directory.open();
    send(&engine, "new", Due::In(100_000), Some(DAY_MS));
    directory.machine.advance_micros(61 * SECOND);
    assert_eq!(take(&engine), ["comes tomorrow"], "what lived for a day is gone, what is new is as it was");
    directory.machine.advance_micros(40 * SECOND);
    assert_eq!(take(&engine), ["new"]);
}

/// The start writes a checkpoint before it is proven that the time has passed.
#[test]
fn a_time_out_of_service_that_was_counted_is_not_forgotten_by_the_next_start() {
    let directory = TestDirectory::new();
    drop(filled(&directory));
    directory.machine.advance_micros(48 * HOUR);
    let engine = directory.open();
    while engine.seal_step().unwrap() {}
    directory.machine.advance_micros(61 * SECOND);
    // Though nobody asks for anything.
    while engine.seal_step().unwrap() {}
    assert_eq!(engine.shared.queue("q").unwrap().delayed, 0);
    send(&engine, "new", Due::In(DAY_MS), None);
    drop(engine);
    let engine = directory.open();
    assert_eq!(take(&engine), ["comes tomorrow"], "what lived for a day is gone, what is new is delayed");
    assert!(!engine.seal_step().unwrap(), "nothing more is to be written for it");
}

/// What was given back after the start was not out of service.
#[test]
fn a_delay_that_began_after_the_start_is_not_shortened() {
    let directory = TestDirectory::new();
    let engine = directory.open();
    one(&engine, QueueOp::Put { queue: "q", settings: &QueueSettings::default() });
    send(&engine, "given back", Due::Now, None);
    // More than one step of counting, in front of and behind it.
    (0..1_200).for_each(|_| send(&engine, "lives for two days", Due::Now, Some(2 * DAY_MS)));
    drop(engine);
    directory.machine.advance_micros(49 * HOUR);
    let engine = directory.open();
    let wanted = TakeFilter { queue: Some("q"), receiver: Some("bob"), sender: None, newest_first: false };
    let lease = Take { wanted, max: 1, how: TakeMode::Lease { lease_ms: None }, registers: true };
    let QueueOutcome::Taken { messages: leased, .. } = one(&engine, QueueOp::Take(lease)) else {
        panic!("nothing was taken")
    };
    let receipt = leased[0].receipt.unwrap();
    let nack = Settle::Nack { delay_ms: Some(DAY_MS) };
    one(&engine, QueueOp::Settle { queue: "q", receipt, how: nack });
    directory.machine.advance_micros(61 * SECOND);
    while let QueueOutcome::Swept { more: true, .. } = one(&engine, QueueOp::Sweep) {}
    assert_eq!(take(&engine), [""; 0], "the others are over, its delay is not");
    let left = engine.shared.queue("q").unwrap();
    assert_eq!((left.ready, left.delayed), (0, 1));
    directory.machine.advance_micros(24 * HOUR);
    assert_eq!(take(&engine), ["given back"]);
}

/// Nothing was written for hours; the server itself was away for a moment.
#[test]
fn a_short_restart_after_idle_hours_is_no_long_time_out_of_service() {
    for is_closed in [true, false] {
        let directory = TestDirectory::new();
        let engine = filled(&directory);
        if is_closed {
            directory.machine.advance_micros(3 * HOUR);
            engine.close().unwrap();
        } else {
            for _ in 0..12 {
                directory.machine.advance_micros(15 * 60 * SECOND);
                engine.record_end_step().unwrap();
            }
        }
        drop(engine);
        directory.machine.advance_micros(40 * 60 * SECOND);
        let engine = directory.open();
        assert_eq!(engine.shared.clock.anomaly(), None, "closed: {is_closed}");
        assert_eq!(engine.shared.clock.proven(), directory.machine.now());
    }
}

/// What the manifest says was proven once, by a clock that was set back behind it.
#[test]
fn a_start_goes_by_the_last_time_that_was_written_not_by_the_latest() {
    let directory = TestDirectory::new();
    let engine = filled(&directory);
    directory.machine.step_micros(24 * HOUR);
    engine.shared.clock.proven();
    directory.machine.advance_micros(61 * SECOND);
    engine.shared.clock.proven();
    engine.shared.change_manifest(|_| {}).unwrap();
    assert_eq!(engine.shared.clock.anomaly(), None, "a wrong time is trusted");
    directory.machine.step_micros(-24 * HOUR);
    engine.shared.clock.proven();
    directory.machine.advance_micros(61 * SECOND);
    send(&engine, "new", Due::Now, None);
    drop(engine);
    let engine = directory.open();
    assert_eq!((engine.shared.clock.anomaly(), engine.shared.clock.now()), (None, directory.machine.now()));
}
