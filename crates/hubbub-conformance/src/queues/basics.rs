//! Queues, clients, and who gets what.

use hubbub_core::queue::{Audience, MessageState, QueueSend, QueueSettings, Settle, TakeFilter};
use hubbub_core::{QueueOp, QueueOutcome, Refusal};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// A queue is made, changed, listed, and deleted; with messages in it only by force.
pub async fn a_queue_is_made_and_deleted(fixture: &mut impl Fixture) {
    let settings = QueueSettings { ttl_ms: Some(5_000), messages_max: Some(7), ..QueueSettings::default() };
    for (queue, created) in [("b", true), ("a", true), ("b", false)] {
        let outcome = done(fixture, QueueOp::Put { queue, settings: &settings }).await;
        assert_eq!(outcome, QueueOutcome::Queue { queue: queue.into(), created });
    }
    let changed = QueueSettings { ttl_ms: Some(0), ..QueueSettings::default() };
    make(fixture, "b", changed).await;
    send(fixture, message("b", "hello")).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let told = info(fixture, "b").await;
        assert_eq!((told.settings.ttl_ms, told.settings.messages_max), (0, 7), "{stage:?}");
        assert_eq!((told.ready, told.messages(), told.bytes, told.sent), (1, 1, 5, 1), "{stage:?}");
        let listed = fixture.store().queues(None, 10).await.unwrap();
        assert_eq!(listed.iter().map(|info| &*info.queue).collect::<Vec<_>>(), ["a", "b"], "{stage:?}");
        assert_eq!(listed[1], told, "{stage:?}");
        let behind = fixture.store().queues(Some(queue_id("a")), 10).await.unwrap();
        assert_eq!(behind, listed[1..], "{stage:?}");
        assert_eq!(fixture.store().queues(None, 1).await.unwrap(), listed[..1], "{stage:?}");
    }
    let delete = |force| QueueOp::Delete { queue: "b", force };
    assert_eq!(refused(fixture, delete(false)).await, Refusal::QueueNotEmpty { messages: 1 });
    let held = lease_one(fixture, wanted("b", "x"), 60_000).await;
    assert_eq!(refused(fixture, delete(false)).await, Refusal::QueueNotEmpty { messages: 1 });
    assert_eq!(done(fixture, delete(true)).await, deleted(1));
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(fixture.store().queue(queue_id("b")).await.unwrap(), None, "{stage:?}");
        assert_eq!(refused(fixture, delete(true)).await, Refusal::UnknownQueue, "{stage:?}");
        let late = refused(fixture, settle(&held, Settle::Ack)).await;
        assert_eq!(late, Refusal::UnknownQueue, "{stage:?}");
    }
    make_plain(fixture, "b").await;
    assert_eq!(waiting(fixture, "b").await, [], "nothing comes back with the name");
    assert_eq!(info(fixture, "b").await.settings.messages_max, 0, "settings do not come back either");
    assert_eq!(done(fixture, QueueOp::Delete { queue: "a", force: false }).await, deleted(0));
}

/// Numbers for queues without a name of their own are never used twice.
pub async fn numbered_queues_never_share_a_number(fixture: &mut impl Fixture) {
    let number = |outcome| match outcome {
        QueueOutcome::Queue { queue, created: true } => queue.parse::<u64>().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(number(done(fixture, QueueOp::PutNumbered).await), 1);
    make_plain(fixture, "7").await;
    make_plain(fixture, "name").await;
    assert_eq!(number(done(fixture, QueueOp::PutNumbered).await), 8);
    done(fixture, QueueOp::Delete { queue: "8", force: false }).await;
    for (stage, expected) in Stage::ALL.into_iter().zip(9..) {
        stage.reach(fixture).await;
        assert_eq!(number(done(fixture, QueueOp::PutNumbered).await), expected, "{stage:?}");
        done(fixture, QueueOp::Delete { queue: &expected.to_string(), force: false }).await;
    }
}

/// Queues do not spring into being, and one that is not there is told from one that is empty.
pub async fn an_unknown_queue_is_told_from_an_empty_one(fixture: &mut impl Fixture) {
    make_plain(fixture, "empty").await;
    assert_eq!(texts(&get(fixture, wanted("empty", "bob"), 9).await), [""; 0]);
    assert_eq!(peek(fixture, wanted("empty", "bob"), 9).await, []);
    for op in [
        QueueOp::Send(message("none", "x")),
        QueueOp::Delete { queue: "none", force: true },
        QueueOp::Remove { queue: "none", id: 1 },
        QueueOp::Redrive { queue: "none", id: None },
        QueueOp::Take(hubbub_core::queue::Take {
            wanted: wanted("none", "bob"),
            max: 1,
            how: hubbub_core::queue::TakeMode::Away,
            registers: true,
        }),
    ] {
        assert_eq!(refused(fixture, op).await, Refusal::UnknownQueue, "{op:?}");
    }
    assert_eq!(fixture.store().peek(wanted("none", "bob"), 1).await.unwrap(), None);
    assert_eq!(fixture.store().waiting(queue_id("none"), 0, 1).await.unwrap(), None);
    assert_eq!(fixture.store().queue(queue_id("none")).await.unwrap(), None);
    assert_eq!(refused(fixture, QueueOp::Remove { queue: "empty", id: 1 }).await, Refusal::UnknownMessage);
}

/// Clients are registered, listed, and forgotten; by use only where that is asked for.
pub async fn clients_are_known_by_name(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    let changed = |changed| QueueOutcome::Client { changed };
    assert_eq!(done(fixture, QueueOp::Register { client: "b" }).await, changed(true));
    assert_eq!(done(fixture, QueueOp::Register { client: "b" }).await, changed(false));
    assert_eq!(done(fixture, QueueOp::Register { client: "a" }).await, changed(true));
    let strange = |sender| QueueSend { sender, registers: false, ..message("q", "x") };
    assert_eq!(refused(fixture, QueueOp::Send(strange("eve"))).await, Refusal::UnknownClient);
    send(fixture, strange("a")).await;
    send(fixture, QueueSend { sender: "new", ..message("q", "x") }).await;
    get(fixture, wanted("q", "taker"), 1).await;
    let unknown = QueueOp::Send(message_for("q", "nobody", "x"));
    assert_eq!(refused(fixture, unknown).await, Refusal::UnknownReceiver);
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let listed = fixture.store().clients(None, 10).await.unwrap();
        let names: Vec<_> = listed.iter().map(|client| client.as_str()).collect();
        assert_eq!(names, ["a", "b", "new", "taker"], "{stage:?}");
        assert_eq!(
            fixture.store().clients(Some(client_id("a")), 1).await.unwrap(),
            listed[1..2],
            "{stage:?}"
        );
        assert!(fixture.store().is_client("taker") && !fixture.store().is_client("eve"), "{stage:?}");
    }
    assert_eq!(done(fixture, QueueOp::Unregister { client: "a" }).await, changed(true));
    assert_eq!(done(fixture, QueueOp::Unregister { client: "a" }).await, changed(false));
    fixture.restart(true).await;
    assert!(!fixture.store().is_client("a"));
    let gone = QueueOp::Send(message_for("q", "a", "x"));
    assert_eq!(refused(fixture, gone).await, Refusal::UnknownReceiver);
}

/// What waits for one is nobody else's; what waits for anybody goes to whoever comes first.
pub async fn everybody_gets_what_is_theirs(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &["bob", "eve"]).await;
    for stage in Stage::ALL {
        for (receiver, text) in
            [(Some("bob"), "1"), (None, "2"), (Some("eve"), "3"), (Some("bob"), "4"), (None, "5")]
        {
            let audience = receiver.map_or(Audience::Anyone, Audience::One);
            send(fixture, QueueSend { audience, ..message("q", text) }).await;
        }
        stage.reach(fixture).await;
        assert_eq!(texts(&peek(fixture, wanted("q", "bob"), 9).await), ["1", "2", "4", "5"], "{stage:?}");
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 2).await), ["2", "3"], "{stage:?}");
        let newest = TakeFilter { newest_first: true, ..wanted("q", "bob") };
        assert_eq!(texts(&peek(fixture, newest, 3).await), ["5", "4", "2"], "{stage:?}");
        let nobody = TakeFilter { receiver: None, ..wanted("q", "bob") };
        assert_eq!(texts(&peek(fixture, nobody, 9).await), ["2", "5"], "{stage:?}");
        let taken = get(fixture, newest, 1).await;
        assert_eq!((texts(&taken), taken[0].receiver.as_deref()), (vec!["5"], None), "{stage:?}");
        let taken = get(fixture, wanted("q", "eve"), 9).await;
        assert_eq!(texts(&taken), ["2", "3"], "{stage:?}");
        assert_eq!(taken[1].receiver.as_deref(), Some("eve"), "{stage:?}");
        assert_eq!(taken[0].sender.as_ref(), "ada", "{stage:?}");
        let stranger = TakeFilter { receiver: Some("stranger"), ..wanted("q", "bob") };
        assert_eq!(peek(fixture, stranger, 9).await, [], "{stage:?}");
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["1", "4"], "{stage:?}");
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
    }
    let told = info(fixture, "q").await;
    assert_eq!((told.sent, told.done), (20, 20));
}

/// By sender, over all queues or in one.
pub async fn messages_are_found_by_their_sender(fixture: &mut impl Fixture) {
    make_plain(fixture, "p").await;
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    let from = |queue, sender, text| QueueSend { sender, ..message_for(queue, "bob", text) };
    for sent in [
        from("p", "ada", "1"),
        from("q", "eve", "2"),
        from("q", "ada", "3"),
        QueueSend { sender: "ada", ..message("p", "4") },
        from("q", "eve", "5"),
    ] {
        send(fixture, sent).await;
    }
    let by =
        |sender| TakeFilter { queue: None, receiver: Some("bob"), sender: Some(sender), newest_first: false };
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(texts(&peek(fixture, by("ada"), 9).await), ["1", "3", "4"], "{stage:?}");
        assert_eq!(peek(fixture, by("nobody"), 9).await, [], "{stage:?}");
        let in_one = TakeFilter { queue: Some("q"), ..by("ada") };
        assert_eq!(texts(&peek(fixture, in_one, 9).await), ["3"], "{stage:?}");
        let newest = TakeFilter { newest_first: true, ..by("eve") };
        assert_eq!(texts(&peek(fixture, newest, 9).await), ["5", "2"], "{stage:?}");
    }
    assert_eq!(texts(&get(fixture, by("ada"), 2).await), ["1", "3"]);
    assert_eq!(texts(&get(fixture, by("ada"), 2).await), ["4"]);
    assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["2", "5"]);
}

/// Which queues hold something for somebody.
pub async fn queues_say_whom_they_hold_something_for(fixture: &mut impl Fixture) {
    for queue in ["a", "b", "c", "d"] {
        make_plain(fixture, queue).await;
    }
    register(fixture, &["bob", "eve"]).await;
    send(fixture, message_for("b", "bob", "x")).await;
    send(fixture, message("c", "x")).await;
    send(fixture, QueueSend { due: hubbub_core::queue::Due::In(1_000), ..message_for("d", "bob", "x") })
        .await;
    let holding = async |fixture: &dyn Fixture2, client: &str| {
        let names = fixture.the_store().queues_holding(client_id(client), None, 10).await.unwrap();
        names.iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(holding(&*fixture, "bob").await, ["b", "c"], "{stage:?}");
        assert_eq!(holding(&*fixture, "eve").await, ["c"], "{stage:?}");
        let page = fixture.store().queues_holding(client_id("bob"), Some(queue_id("b")), 10).await.unwrap();
        assert_eq!(page.len(), 1, "{stage:?}");
    }
    lease_one(fixture, wanted("c", "eve"), 60_000).await;
    assert_eq!(holding(&*fixture, "eve").await, [""; 0]);
    advance_ms(fixture, 1_000);
    assert_eq!(holding(&*fixture, "bob").await, ["b", "d"]);
    // One that is held back by others of its group, until they have outlived their time.
    for (text, ttl_ms) in [("first", Some(1_000)), ("second", Some(2_000)), ("third", None)] {
        send(fixture, QueueSend { group: Some("g"), ttl_ms, ..message_for("a", "eve", text) }).await;
    }
    lease_one(fixture, wanted("a", "eve"), 3_000).await;
    for (ms, held) in [(1_500, &[][..]), (1_000, &[]), (1_000, &["a"])] {
        advance_ms(fixture, ms);
        assert_eq!(holding(&*fixture, "eve").await, held, "after {ms} ms more");
    }
    assert_eq!(texts(&get(fixture, wanted("a", "eve"), 9).await), ["third"]);
    for (text, ttl_ms) in [("fourth", Some(1_000)), ("fifth", None)] {
        send(fixture, QueueSend { group: Some("g"), ttl_ms, ..message_for("a", "eve", text) }).await;
    }
    advance_ms(fixture, 1_500);
    assert_eq!(holding(&*fixture, "eve").await, ["a"]);
    assert_eq!(texts(&get(fixture, wanted("a", "eve"), 9).await), ["fifth"]);
}

/// A fixture without its generic methods.
trait Fixture2: Send + Sync {
    fn the_store(&self) -> std::sync::Arc<dyn hubbub_core::Store>;
}

impl<F: Fixture> Fixture2 for F {
    fn the_store(&self) -> std::sync::Arc<dyn hubbub_core::Store> {
        self.store()
    }
}

/// One message goes by its id, whoever it waits for and however it stands.
pub async fn a_message_is_removed_by_its_id(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    for stage in Stage::ALL {
        let kept = send(fixture, message("q", "kept")).await;
        let addressed = send(fixture, message_for("q", "bob", "addressed")).await;
        let leased = send(fixture, message("q", "leased")).await;
        let newest = TakeFilter { newest_first: true, ..wanted("q", "eve") };
        let held = lease_one(fixture, newest, 60_000).await;
        assert_eq!(held.id, leased);
        stage.reach(fixture).await;
        for id in [addressed, leased] {
            let gone = done(fixture, QueueOp::Remove { queue: "q", id }).await;
            assert_eq!(gone, deleted(1), "{stage:?}");
            assert_eq!(refused(fixture, QueueOp::Remove { queue: "q", id }).await, Refusal::UnknownMessage);
        }
        let late = refused(fixture, settle(&held, Settle::Ack)).await;
        assert_eq!(late, Refusal::StaleReceipt, "{stage:?}");
        let rest = waiting(fixture, "q").await;
        assert_eq!(rest.iter().map(|one| one.delivery.id).collect::<Vec<_>>(), [kept], "{stage:?}");
        get(fixture, wanted("q", "bob"), 1).await;
    }
}

/// Everything of a queue is listed in the order of ids, in any state, in pages.
pub async fn everything_that_waits_is_listed(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    make_plain(fixture, "other").await;
    register(fixture, &["bob"]).await;
    let start = now(fixture);
    send(fixture, message("other", "x")).await;
    send(fixture, QueueSend { group: Some("g"), ttl_ms: Some(9_000), ..message("q", "1") }).await;
    send(fixture, QueueSend { due: hubbub_core::queue::Due::In(5_000), ..message_for("q", "bob", "2") })
        .await;
    send(fixture, message("q", "3")).await;
    lease_one(fixture, TakeFilter { newest_first: true, ..wanted("q", "eve") }, 7_000).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let all = waiting(fixture, "q").await;
        let states: Vec<_> = all.iter().map(|one| (one.delivery.text.as_str(), one.state)).collect();
        let expected = [
            ("1", MessageState::Ready),
            ("2", MessageState::Delayed(later(start, 5_000))),
            ("3", MessageState::Leased(later(start, 7_000))),
        ];
        assert_eq!(states, expected, "{stage:?}");
        assert_eq!(all[0].expires_at, Some(later(start, 9_000)), "{stage:?}");
        assert_eq!(all[0].delivery.group.as_deref(), Some("g"), "{stage:?}");
        assert_eq!(all[0].delivery.sent_at, start, "{stage:?}");
        assert_eq!(all[1].delivery.receiver.as_deref(), Some("bob"), "{stage:?}");
        let store = fixture.store();
        let page = store.waiting(queue_id("q"), all[0].delivery.id, 1).await.unwrap().unwrap();
        assert_eq!(page, all[1..2], "{stage:?}");
        let told = info(fixture, "q").await;
        assert_eq!((told.ready, told.delayed, told.leased, told.bytes), (1, 1, 1, 3), "{stage:?}");
        assert_eq!(told.oldest_sent_at, Some(start), "{stage:?}");
    }
}

/// Operations of a batch are done one after another.
pub async fn a_batch_is_done_in_its_order(fixture: &mut impl Fixture) {
    let settings = QueueSettings::default();
    let take = QueueOp::Take(hubbub_core::queue::Take {
        wanted: wanted("q", "bob"),
        max: 2,
        how: hubbub_core::queue::TakeMode::Away,
        registers: false,
    });
    let outcomes = batch(
        fixture,
        &[
            QueueOp::Send(message("q", "too early")),
            QueueOp::Put { queue: "q", settings: &settings },
            QueueOp::Send(message("q", "1")),
            QueueOp::Send(message("q", "2")),
            take,
            take,
            QueueOp::Send(message("q", "3")),
            QueueOp::Delete { queue: "q", force: false },
            take,
            QueueOp::Delete { queue: "q", force: false },
            QueueOp::Send(message("q", "too late")),
        ],
    )
    .await;
    let taken: Vec<Vec<&str>> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            hubbub_core::Outcome::Queue(QueueOutcome::Taken { messages, .. }) => Some(texts(messages)),
            _ => None,
        })
        .collect();
    assert_eq!(taken, [vec!["1", "2"], vec![], vec!["3"]], "{outcomes:?}");
    let refusals: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            hubbub_core::Outcome::Refused(refusal) => Some(*refusal),
            _ => None,
        })
        .collect();
    let expected = [Refusal::UnknownQueue, Refusal::QueueNotEmpty { messages: 1 }, Refusal::UnknownQueue];
    assert_eq!(refusals, expected, "{outcomes:?}");
    fixture.restart(true).await;
    assert_eq!(fixture.store().queue(queue_id("q")).await.unwrap(), None);
}
