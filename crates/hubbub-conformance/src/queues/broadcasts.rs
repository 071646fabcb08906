//! Messages to everybody, however far a store is with making their copies; and how many clients there may be.

use hubbub_core::queue::{
    Audience, Due, MessageState, QueueSend, QueueSettings, Settle, Take, TakeMode, WhenFull,
};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::super::steps::Stage;
use super::super::{CLIENTS_MAX, Fixture};
use super::steps::*;

const NAMES: [&str; 7] = ["eva", "bob", "dora", "carl", "fred", "gil", "hans"];

fn to_all<'a>(queue: &'a str, text: &'a str) -> QueueSend<'a> {
    QueueSend { audience: Audience::All, ..message(queue, text) }
}

/// Ids of the copies of a message that is sent, in the order in which its receivers first registered.
async fn send_to_all(fixture: &impl Fixture, sent: QueueSend<'_>, copies: u32) -> Vec<u64> {
    match done(fixture, QueueOp::Send(sent)).await {
        QueueOutcome::Sent { id, copies: made, duplicate: false, .. } if made == copies => {
            (id..id + u64::from(copies)).collect()
        }
        other => panic!("{sent:?} was answered {other:?}"),
    }
}

async fn sweep_once(fixture: &impl Fixture) {
    done(fixture, QueueOp::Sweep).await;
}

/// From its acknowledgement on a message to everybody is listed and counted for each receiver, under ids that follow one
/// another, and each of its copies can be taken, leased, removed, or go with its receiver.
pub async fn copies_are_there_at_once(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &NAMES).await;
    let message_ids = [Some("m"), None, Some("n"), None];
    for (stage, message_id) in Stage::ALL.into_iter().zip(message_ids) {
        let named = QueueSend { message_id, ..to_all("q", "news") };
        let ids = send_to_all(fixture, named, 7).await;
        let after = send(fixture, message_for("q", "fred", "after")).await;
        let listed = waiting(fixture, "q").await;
        let listed: Vec<_> =
            listed.iter().map(|one| (one.delivery.id, one.delivery.receiver.as_deref())).collect();
        let mut expected: Vec<_> = ids.iter().copied().zip(NAMES.map(Some)).collect();
        expected.push((after, Some("fred")));
        assert_eq!(listed, expected, "{stage:?}");
        assert_eq!(texts(&peek(fixture, wanted("q", "fred"), 9).await), ["news", "after"], "{stage:?}");
        sweep_once(fixture).await;
        stage.reach(fixture).await;
        assert_eq!((info(fixture, "q").await.ready, info(fixture, "q").await.bytes), (8, 33), "{stage:?}");
        assert_eq!(done(fixture, QueueOp::Remove { queue: "q", id: ids[3] }).await, deleted(1), "{stage:?}");
        let held = lease_one(fixture, wanted("q", "hans"), 60_000).await;
        assert_eq!(held.id, ids[6], "{stage:?}");
        done(fixture, QueueOp::Unregister { client: "gil" }).await;
        done(fixture, QueueOp::Unregister { client: "hans" }).await;
        assert_eq!(texts(&get(fixture, wanted("q", "fred"), 9).await), ["news", "after"], "{stage:?}");
        stage.reach(fixture).await;
        let listed = waiting(fixture, "q").await;
        let listed: Vec<u64> = listed.iter().map(|one| one.delivery.id).collect();
        assert_eq!(listed, [ids[0], ids[1], ids[2], ids[6]], "{stage:?}");
        done(fixture, settle(&held, Settle::Ack)).await;
        register(fixture, &["gil", "hans"]).await;
        for gone in ["carl", "gil", "hans"] {
            assert_eq!(peek(fixture, wanted("q", gone), 9).await, [], "{stage:?}: {gone}");
        }
        if message_id.is_some() {
            let again = done(fixture, QueueOp::Send(named)).await;
            let is_known =
                matches!(again, QueueOutcome::Sent { id, copies: 7, duplicate: true, .. } if id == ids[0]);
            assert!(is_known, "{again:?}");
        }
        sweep(fixture).await;
        stage.reach(fixture).await;
        for left in &NAMES[..3] {
            assert_eq!(texts(&get(fixture, wanted("q", left), 9).await), ["news"], "{stage:?}: {left}");
        }
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
    }
}

/// A receiver that goes takes its copies along, but none that is on lease, however many these are.
pub async fn leases_outlive_a_registration(fixture: &mut impl Fixture) {
    const LEASED: usize = 300;
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    for stage in Stage::ALL {
        for _ in 0..LEASED / 20 + 1 {
            batch(fixture, &[QueueOp::Send(to_all("q", "news")); 20]).await;
        }
        let take = Take {
            wanted: wanted("q", "bob"),
            max: LEASED,
            how: TakeMode::Lease { lease_ms: Some(60_000) },
            registers: false,
        };
        let QueueOutcome::Taken { messages: held, .. } = done(fixture, QueueOp::Take(take)).await else {
            panic!("{stage:?}")
        };
        assert_eq!(held.len(), LEASED, "{stage:?}");
        stage.reach(fixture).await;
        let gone = done(fixture, QueueOp::Unregister { client: "bob" }).await;
        assert_eq!(gone, QueueOutcome::Client { changed: true }, "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(info(fixture, "q").await.leased, LEASED as u64, "{stage:?}");
        assert_eq!(info(fixture, "q").await.messages(), LEASED as u64, "{stage:?}");
        let acks: Vec<QueueOp<'_>> = held.iter().map(|one| settle(one, Settle::Ack)).collect();
        for acks in acks.chunks(20) {
            for outcome in batch(fixture, acks).await {
                let is_acked = matches!(outcome, Outcome::Queue(QueueOutcome::Settled { .. }));
                assert!(is_acked, "{stage:?}: {outcome:?}");
            }
        }
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
        register(fixture, &["bob"]).await;
    }
}

/// Copies keep their position among all messages for their receiver: by id, by sender, in their group.
pub async fn copies_keep_their_place(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &NAMES).await;
    for stage in Stage::ALL {
        let grouped = |sent| QueueSend { group: Some("g"), ..sent };
        send(fixture, grouped(message_for("q", "carl", "1"))).await;
        send_to_all(fixture, grouped(to_all("q", "2")), 7).await;
        send(fixture, grouped(message_for("q", "carl", "3"))).await;
        stage.reach(fixture).await;
        for text in ["1", "2", "3"] {
            let held = lease_one(fixture, wanted("q", "carl"), 60_000).await;
            assert_eq!(held.text, text, "{stage:?}");
            assert_eq!(
                peek(fixture, wanted("q", "carl"), 9).await,
                [],
                "{stage:?}: one of a group at a time"
            );
            sweep_once(fixture).await;
            done(fixture, settle(&held, Settle::Ack)).await;
        }
        send_to_all(fixture, QueueSend { sender: "carl", ..to_all("q", "of carl") }, 7).await;
        send(fixture, message_for("q", "bob", "of ada")).await;
        stage.reach(fixture).await;
        let of_carl = hubbub_core::queue::TakeFilter { sender: Some("carl"), ..wanted("q", "bob") };
        assert_eq!(texts(&peek(fixture, of_carl, 9).await), ["of carl"], "{stage:?}");
        assert_eq!(
            texts(&get(fixture, wanted("q", "bob"), 9).await),
            ["2", "of carl", "of ada"],
            "{stage:?}"
        );
        let messages = info(fixture, "q").await.messages();
        assert_eq!(messages, 11, "{stage:?}");
        let gone = done(fixture, QueueOp::Delete { queue: "q", force: true }).await;
        assert_eq!(gone, deleted(messages), "{stage:?}");
        make_plain(fixture, "q").await;
        sweep(fixture).await;
        stage.reach(fixture).await;
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
        assert_eq!(get(fixture, wanted("q", "dora"), 9).await, [], "{stage:?}");
        done(fixture, QueueOp::Unregister { client: "ada" }).await;
    }
}

/// Delays and times to live end for all copies at once.
pub async fn copies_are_due_and_over_together(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &NAMES).await;
    for stage in Stage::ALL {
        let before = info(fixture, "q").await.dropped;
        send_to_all(
            fixture,
            QueueSend { due: Due::In(1_000), ttl_ms: Some(5_000), ..to_all("q", "later") },
            7,
        )
        .await;
        stage.reach(fixture).await;
        let counts = info(fixture, "q").await;
        assert_eq!((counts.ready, counts.delayed), (0, 7), "{stage:?}");
        assert_eq!(peek(fixture, wanted("q", "dora"), 9).await, [], "{stage:?}");
        let states = waiting(fixture, "q").await;
        assert!(states.iter().all(|one| matches!(one.state, MessageState::Delayed(_))), "{stage:?}");
        advance_ms(fixture, 1_000);
        assert_eq!(texts(&peek(fixture, wanted("q", "dora"), 9).await), ["later"], "{stage:?}");
        let told = sweep(fixture).await;
        assert!(told.iter().any(|queue| &**queue == "q"), "{stage:?}: whoever waits is to be told");
        let counts = info(fixture, "q").await;
        assert_eq!((counts.ready, counts.delayed), (7, 0), "{stage:?}");
        send_to_all(fixture, QueueSend { ttl_ms: Some(4_000), ..to_all("q", "short") }, 7).await;
        advance_ms(fixture, 4_000);
        stage.reach(fixture).await;
        assert_eq!(peek(fixture, wanted("q", "fred"), 9).await, [], "{stage:?}");
        sweep(fixture).await;
        let counts = info(fixture, "q").await;
        assert_eq!((counts.messages(), counts.dropped - before), (0, 14), "{stage:?}");
    }
}

/// A full queue counts every copy, and drops the oldest ones.
pub async fn a_full_queue_counts_copies(fixture: &mut impl Fixture) {
    let full = |when_full, messages_max| QueueSettings {
        messages_max: Some(messages_max),
        when_full: Some(when_full),
        ..QueueSettings::default()
    };
    make(fixture, "q", full(WhenFull::Refuse, 10)).await;
    register(fixture, &NAMES).await;
    let first = send_to_all(fixture, to_all("q", "first"), 7).await;
    assert_eq!(refused(fixture, QueueOp::Send(to_all("q", "second"))).await, Refusal::QueueFull);
    make(fixture, "q", full(WhenFull::DropOldest, 10)).await;
    let second = send_to_all(fixture, to_all("q", "second"), 7).await;
    let listed = waiting(fixture, "q").await;
    let listed: Vec<u64> = listed.iter().map(|one| one.delivery.id).collect();
    assert_eq!(listed, [&first[4..], &second[..]].concat());
    sweep_once(fixture).await;
    send(fixture, message("q", "third")).await;
    Stage::ALL[Stage::ALL.len() - 1].reach(fixture).await;
    assert_eq!(info(fixture, "q").await.messages(), 10);
    assert_eq!(texts(&get(fixture, wanted("q", "fred"), 9).await), ["second", "third"]);
    assert_eq!(texts(&get(fixture, wanted("q", "hans"), 9).await), ["first", "second"]);
}

/// Nobody is registered who would be one too many, in whatever way; whoever is may do everything.
pub async fn clients_are_not_too_many(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    let names: Vec<String> = (0..CLIENTS_MAX).map(|number| format!("client{number}")).collect();
    let ops: Vec<QueueOp<'_>> = names.iter().map(|client| QueueOp::Register { client }).collect();
    batch(fixture, &ops).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let take = |receiver| {
            QueueOp::Take(hubbub_core::queue::Take {
                wanted: wanted("q", receiver),
                max: 1,
                how: hubbub_core::queue::TakeMode::Away,
                registers: true,
            })
        };
        let by = |sender| QueueOp::Send(QueueSend { sender, ..message("q", "x") });
        for op in [QueueOp::Register { client: "new" }, take("new"), by("new")] {
            assert_eq!(refused(fixture, op).await, Refusal::TooManyClients, "{stage:?}: {op:?}");
        }
        for op in [QueueOp::Register { client: "client7" }, by("client7"), take("client7")] {
            done(fixture, op).await;
        }
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
        done(fixture, QueueOp::Unregister { client: "client7" }).await;
        done(fixture, by("new")).await;
        let outcomes = batch(fixture, &[take("client7"), QueueOp::Unregister { client: "new" }]).await;
        assert_eq!(outcomes[0], hubbub_core::Outcome::Refused(Refusal::TooManyClients), "{stage:?}");
        assert_eq!(texts(&get(fixture, wanted("q", "client7"), 1).await), ["x"], "{stage:?}");
    }
}
