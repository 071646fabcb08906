//! Messages to everybody whose copies are made bit by bit: how much is done at once, and where their texts stand.

use hubbub_core::queue::{Audience, ID_KEPT_MS, QueueSend, QueueSettings, Settle, TakeMode};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::tests::{
    TestDirectory, apply, entries, get, make, message, one, register, restored, seal, take, texts_of_waiting,
    wanted,
};
use crate::embedded::{BroadcastOptions, Engine, EngineOptions};

const CLIENTS: usize = 60;

fn options() -> EngineOptions {
    let broadcasts = BroadcastOptions { at_once: 5, per_sweep: 20, messages_max: 3, copies_max: 150 };
    EngineOptions { slot_bytes: 64 << 10, reserve_bytes: 0, broadcasts, ..EngineOptions::default() }
}

fn to_all(text: &str) -> QueueOp<'_> {
    QueueOp::Send(QueueSend { audience: Audience::All, ..message("q", text) })
}

fn sweep(engine: &Engine) -> bool {
    match one(engine, QueueOp::Sweep) {
        Outcome::Queue(QueueOutcome::Swept { more, .. }) => more,
        other => panic!("{other:?}"),
    }
}

fn begun(directory: &TestDirectory) -> (Engine, Vec<String>) {
    let engine = directory.open_with(options());
    make(&engine, "q");
    let clients = register(&engine, CLIENTS);
    (engine, clients)
}

#[test]
fn no_batch_makes_all_copies() {
    let directory = TestDirectory::new(64 << 10);
    let (engine, _) = begun(&directory);
    one(&engine, to_all("news"));
    assert_eq!(entries(&engine), 0);
    assert_eq!(get(&engine, "q", "client050", 9), ["news"]);
    let mut made = Vec::new();
    while sweep(&engine) {
        made.push(entries(&engine));
    }
    assert_eq!((made.as_slice(), entries(&engine)), (&[20, 40][..], CLIENTS - 1));
    // What is there for few is there at once.
    for client in 4..CLIENTS {
        one(&engine, QueueOp::Unregister { client: &format!("client{client:03}") });
    }
    let before = entries(&engine);
    one(&engine, to_all("few"));
    assert_eq!(entries(&engine), before + 4);
}

#[test]
fn too_many_messages_to_everybody_are_refused_until_copies_are_made() {
    let directory = TestDirectory::new(64 << 10);
    let (engine, _) = begun(&directory);
    let outcomes = apply(&engine, &["a", "b", "c"].map(to_all));
    assert!(matches!(outcomes[..2], [Outcome::Queue(_), Outcome::Queue(_)]));
    assert_eq!(outcomes[2], Outcome::Refused(Refusal::TooManyBroadcasts));
    sweep(&engine);
    sweep(&engine);
    assert!(matches!(one(&engine, to_all("d")), Outcome::Queue(_)));
    // A start takes all that the journal has.
    drop(engine);
    let engine = directory.open_with(options());
    assert_eq!(get(&engine, "q", "client007", 9), ["a", "b", "d"]);
    while sweep(&engine) {}
    assert_eq!(get(&engine, "q", "client008", 9), ["a", "b", "d"]);
}

#[test]
fn texts_of_copies_that_are_not_made_move_with_the_others() {
    let directory = TestDirectory::new(64 << 10);
    let (mut engine, clients) = begun(&directory);
    let text = "t".repeat(1_000);
    one(&engine, to_all(&text));
    sweep(&engine);
    let backup = restored(&engine, "begun");
    for restarts in [false, true] {
        seal(&engine);
        let texts = directory.texts();
        assert_eq!(texts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [1_004], "one text for all");
        if restarts {
            drop(engine);
            engine = directory.open_with(options());
        }
        assert_eq!(texts_of_waiting(&engine, "q"), vec![text.clone(); CLIENTS]);
    }
    let restored = directory.open_at(&backup.path().join("data"));
    for engine in [&engine, &restored] {
        for client in &clients {
            assert_eq!(get(engine, "q", client, 9), [text.as_str()], "{client}");
        }
        seal(engine);
        assert_eq!(entries(engine), 0);
    }
    assert_eq!(directory.texts(), []);
}

/// A journal of small slots lists them all, so that a start keeps them, too.
#[test]
fn a_receiver_that_goes_keeps_its_leases_where_the_journal_is_short() {
    const LEASED: usize = 600;
    let directory = TestDirectory::new(16 << 10);
    let mut engine = directory.open();
    make(&engine, "q");
    one(&engine, QueueOp::Register { client: "bob" });
    for _ in 0..LEASED / 10 {
        apply(&engine, &[to_all("news"); 10]);
    }
    let mut leased = 0;
    while leased < LEASED {
        leased += take(&engine, wanted("q", "bob"), 100, TakeMode::Lease { lease_ms: Some(600_000) }).len();
    }
    let gone = one(&engine, QueueOp::Unregister { client: "bob" });
    assert_eq!(gone, Outcome::Queue(QueueOutcome::Client { changed: true }));
    for _ in 0..2 {
        assert_eq!(entries(&engine), LEASED);
        drop(engine);
        engine = directory.open();
    }
}

/// The list of leases is longer than what any batch is sure to find behind the last one; a retry goes to another slot.
#[test]
fn a_receiver_with_more_leases_than_the_rest_of_a_slot_lists_goes_all_the_same() {
    const LEASED: usize = 6_000;
    let directory = TestDirectory::new(16 << 10);
    let mut engine = directory.open();
    make(&engine, "q");
    one(&engine, QueueOp::Register { client: "bob" });
    for _ in 0..LEASED / 20 {
        apply(&engine, &[to_all("news"); 20]);
    }
    let mut leased = 0;
    while leased < LEASED {
        leased += take(&engine, wanted("q", "bob"), 500, TakeMode::Lease { lease_ms: Some(600_000) }).len();
    }
    let left = |engine: &Engine| (16 << 10) - engine.writer.lock().place.position;
    while !(4_600..5_500).contains(&left(&engine)) {
        one(&engine, QueueOp::Send(message("q", &"t".repeat(300))));
    }
    let queued = entries(&engine);
    let mut gone = one(&engine, QueueOp::Unregister { client: "bob" });
    if gone == Outcome::Refused(Refusal::TooManyBroadcasts) {
        gone = one(&engine, QueueOp::Unregister { client: "bob" });
    }
    assert_eq!(gone, Outcome::Queue(QueueOutcome::Client { changed: true }));
    for _ in 0..2 {
        assert_eq!(entries(&engine), queued);
        drop(engine);
        engine = directory.open();
    }
}

#[test]
fn a_queue_that_goes_takes_its_copies_along() {
    let directory = TestDirectory::new(64 << 10);
    let (engine, clients) = begun(&directory);
    let named = QueueSend { audience: Audience::All, message_id: Some("m"), ..message("q", "news") };
    one(&engine, QueueOp::Send(named));
    assert_eq!(get(&engine, "q", "client000", 9), ["news"], "the first keeps the id for the others");
    sweep(&engine);
    one(&engine, QueueOp::Delete { queue: "q", force: true });
    while sweep(&engine) {}
    assert_eq!(entries(&engine), 0);
    make(&engine, "q");
    assert_eq!(get(&engine, "q", &clients[40], 9), [""; 0]);
    seal(&engine);
    assert_eq!(directory.texts(), []);
}

#[test]
fn what_is_over_is_cleared_away_bit_by_bit() {
    let directory = TestDirectory::new(1 << 20);
    let engine = directory.open_with(EngineOptions { slot_bytes: 1 << 20, ..options() });
    make(&engine, "q");
    let texts: Vec<String> = (0..1_700).map(|number| number.to_string()).collect();
    let sends: Vec<QueueOp<'_>> = texts
        .iter()
        .map(|text| QueueOp::Send(QueueSend { ttl_ms: Some(10), ..message("q", text) }))
        .collect();
    apply(&engine, &sends);
    one(&engine, QueueOp::Send(message("q", "stays")));
    directory.pass(10);
    assert_eq!(get(&engine, "q", "bob", 9), ["stays"], "what is over holds up nobody");
    let mut left = Vec::new();
    while sweep(&engine) {
        left.push(entries(&engine));
    }
    assert_eq!((left.as_slice(), entries(&engine)), (&[1_200, 700, 200][..], 0));
}

/// The copy that remembers the id of a message went to a queue for dead letters, which was deleted; others still wait.
#[test]
fn a_repeat_is_known_when_the_first_copy_is_gone_with_its_queue() {
    let directory = TestDirectory::new(64 << 10);
    let mut engine = directory.open();
    let settings = QueueSettings { deliveries_max: Some(1), ..QueueSettings::default() };
    one(&engine, QueueOp::Put { queue: "q", settings: &settings });
    register(&engine, 3);
    let to_all = QueueSend { audience: Audience::All, message_id: Some("m"), ..message("q", "news") };
    let is_repeat = |engine: &Engine| match one(engine, QueueOp::Send(to_all)) {
        Outcome::Queue(QueueOutcome::Sent { duplicate, .. }) => duplicate,
        other => panic!("{other:?}"),
    };
    assert!(!is_repeat(&engine));
    let leased = take(&engine, wanted("q", "client000"), 1, TakeMode::Lease { lease_ms: None });
    let receipt = leased[0].receipt.unwrap();
    let how = Settle::Nack { delay_ms: None };
    one(&engine, QueueOp::Settle { queue: "q", receipt, how });
    let deleted = one(&engine, QueueOp::Delete { queue: "q.dead", force: true });
    assert!(matches!(deleted, Outcome::Queue(QueueOutcome::Deleted { messages: 1, .. })), "{deleted:?}");
    for client in ["client001", "client002"] {
        seal(&engine);
        drop(engine);
        engine = directory.open();
        assert!(is_repeat(&engine), "{client} has not taken it yet");
        assert_eq!(get(&engine, "q", client, 9), ["news"]);
    }
    seal(&engine);
    drop(engine);
    engine = directory.open();
    directory.pass(ID_KEPT_MS - 1);
    assert!(is_repeat(&engine), "it is remembered");
    directory.pass(1);
    assert!(!is_repeat(&engine), "no longer than was said");
}
