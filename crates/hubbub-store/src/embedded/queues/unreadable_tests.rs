//! Texts and ids that cannot be read: they are in nobody's way, neither of who takes messages nor of seals.

use hubbub_core::queue::{Delivery, QueueSend, Take, TakeFilter, TakeMode};
use hubbub_core::store::StoreHealth;
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::tests::{TestDirectory, get, make, message, one, seal, take, texts_of_waiting, wanted};
use crate::embedded::{Engine, EngineOptions, verify};

/// Where the first text begins in a file of texts.
const FIRST_TEXT: usize = 4;

fn texts(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|one| &*one.text).collect()
}

fn alarm(engine: &Engine) -> String {
    match engine.health() {
        StoreHealth::Alarm(alarm) => alarm,
        other => panic!("{other:?}"),
    }
}

/// Messages of a queue, the first of which cannot be read.
fn damaged(directory: &TestDirectory, messages: &[QueueSend<'_>]) -> Engine {
    let engine = directory.open();
    make(&engine, "q");
    messages.iter().for_each(|one_of| drop(one(&engine, QueueOp::Send(*one_of))));
    seal(&engine);
    directory.flip(&directory.texts()[0].0, FIRST_TEXT);
    engine
}

#[test]
fn a_text_that_cannot_be_read_is_passed_over_and_found() {
    let directory = TestDirectory::new(64 << 10);
    let engine = damaged(&directory, &["first", "second", "third"].map(|text| message("q", text)));
    let bobs = wanted("q", "bob");
    let peek = |max| engine.shared.peek(&bobs, max).unwrap().unwrap();
    assert_eq!(texts(&peek(1)), ["second"]);
    assert_eq!(texts_of_waiting(&engine, "q"), ["second", "third"]);
    assert_eq!(engine.shared.waiting("q", 0, 1).unwrap().unwrap().len(), 1, "a page is no end");
    let leased = take(&engine, bobs, 1, TakeMode::Lease { lease_ms: None });
    assert_eq!(texts(&leased), ["second"]);
    assert_eq!(leased[0].receipt.map(|receipt| receipt.id), Some(leased[0].id));
    assert_eq!(get(&engine, "q", "bob", 9), ["third"]);
    assert_eq!(get(&engine, "q", "bob", 9), [""; 0]);
    assert!(alarm(&engine).contains(".text"), "it is said on /health");
    assert_eq!(engine.shared.queue("q").unwrap().ready, 1, "it goes on waiting");
    drop(engine);
    let mut faults = Vec::new();
    verify(directory.path(), &mut |fault| faults.push(fault), &|_| ()).unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].file.ends_with(".text"), "{faults:?}");

    let engine = directory.open();
    let newest = take(&engine, TakeFilter { newest_first: true, ..bobs }, 1, TakeMode::Away);
    assert_eq!(texts(&newest), [""; 0], "still unreadable");
    drop(engine);
    directory.flip(&directory.texts()[0].0, FIRST_TEXT);
    let engine = directory.open();
    assert_eq!(get(&engine, "q", "bob", 9), ["first"], "a restart tries again");
}

#[test]
fn a_text_that_cannot_be_read_holds_up_its_group_until_it_is_removed() {
    let directory = TestDirectory::new(64 << 10);
    let grouped = |text| QueueSend { group: Some("g"), ..message("q", text) };
    let engine = damaged(&directory, &[grouped("first"), grouped("second"), message("q", "third")]);
    for _ in 0..2 {
        let seen = engine.shared.peek(&wanted("q", "bob"), 9).unwrap().unwrap();
        assert_eq!(texts(&seen), ["third"]);
    }
    assert_eq!(get(&engine, "q", "bob", 9), ["third"]);
    assert_eq!(get(&engine, "q", "bob", 9), [""; 0]);
    let removed = one(&engine, QueueOp::Remove { queue: "q", id: 1 });
    assert!(matches!(removed, Outcome::Queue(QueueOutcome::Deleted { messages: 1, .. })), "{removed:?}");
    assert_eq!(get(&engine, "q", "bob", 9), ["second"]);
}

#[test]
fn one_take_meets_a_bounded_number_of_unreadable_texts() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    (0..100).for_each(|_| drop(one(&engine, QueueOp::Send(message("q", "lost")))));
    one(&engine, QueueOp::Send(message("q", "last")));
    seal(&engine);
    let file = directory.texts()[0].0.clone();
    (0..100).for_each(|number| directory.flip(&file, number * 8 + FIRST_TEXT));
    let away = Take { wanted: wanted("q", "bob"), max: 9, how: TakeMode::Away, registers: true };
    assert_eq!(one(&engine, QueueOp::Take(away)), Outcome::Refused(Refusal::Unreadable));
    assert!(!engine.shared.queues.is_client("bob"), "a refused take changes nothing");
    assert_eq!(get(&engine, "q", "bob", 9), ["last"]);
}

/// A file of which little is left is written anew by a seal, which must not fail for ever.
#[test]
fn seals_leave_files_alone_that_cannot_be_read() {
    let directory = TestDirectory::new(64 << 10);
    let texts: Vec<String> = (0..100).map(|number| format!("{number:0100}")).collect();
    let messages: Vec<_> = texts.iter().map(|text| message("q", text)).collect();
    let engine = damaged(&directory, &messages);
    assert_eq!(get(&engine, "q", "bob", 90).len(), 89);
    // The first attempt finds out.
    let _ = engine.begin_backup("attempt");
    engine.end_backup("attempt");
    for round in 0..20 {
        one(&engine, QueueOp::Send(message("q", "behind")));
        let sealed = engine.begin_backup("seal").map(|_| engine.end_backup("seal"));
        assert!(sealed.is_ok(), "round {round}: {sealed:?}");
    }
    drop(engine);
    let engine = directory.open();
    assert_eq!(get(&engine, "q", "bob", 99).len(), 10 + 20);
}

/// So must the merge of files of remembered ids not, which is a part of a seal.
#[test]
fn seals_leave_ids_alone_that_cannot_be_read() {
    let directory = TestDirectory::new(64 << 10);
    let options = EngineOptions {
        slot_bytes: 64 << 10,
        reserve_bytes: 0,
        queue_ids_in_memory: 1,
        ..EngineOptions::default()
    };
    let engine = directory.open_with(options);
    make(&engine, "q");
    let mut failed = 0;
    for round in 0..40 {
        for number in 0..3 {
            let id = format!("{round}-{number}");
            one(&engine, QueueOp::Send(QueueSend { message_id: Some(&id), ..message("q", "text") }));
        }
        assert_eq!(get(&engine, "q", "bob", 9).len(), 3);
        match engine.begin_backup("seal") {
            Ok(_) => assert!(engine.end_backup("seal")),
            Err(_) => failed += 1,
        }
        if round == 2 {
            let files = std::fs::read_dir(directory.path().join(super::QUEUES_DIR)).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let first = names.filter(|name| name.ends_with(".ids")).min().unwrap();
            directory.flip(&first, 4_096 + 10);
        }
    }
    assert!(failed <= 1, "{failed} seals failed");
    let again = QueueSend { message_id: Some("39-0"), ..message("q", "text") };
    let again = one(&engine, QueueOp::Send(again));
    assert!(matches!(again, Outcome::Queue(QueueOutcome::Sent { duplicate: true, .. })), "{again:?}");
    let lost = QueueSend { message_id: Some("0-0"), ..message("q", "text") };
    assert_eq!(one(&engine, QueueOp::Send(lost)), Outcome::Refused(Refusal::Unreadable));
    assert!(alarm(&engine).contains(".ids"));
}
