//! Queues that several servers share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::queues::{
    START, Servers, apply, done, info, make, send, servers, settle, take, taken, texts,
};
use crate::support::{connect, eventually};
use hubbub_conformance::queues::message;
use hubbub_core::queue::{
    Audience, Delivery, Due, QueueOutcome, QueueSend, QueueSettings, Settle, Take, TakeFilter, TakeMode,
    WaitFilter,
};
use hubbub_core::{ClientId, Outcome, QueueId, QueueOp, QueueStore, Refusal, Timestamp};
use hubbub_postgres::Postgres;

/// Several servers send, get, lease, nack and ack at the same time. Each message reaches exactly one consumer, groups keep
/// their order, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_taken_once() {
    const BATCHES: usize = 25;
    const BATCH: usize = 20;
    let servers = servers(2).await;
    make(&servers.stores[0], "a");
    make(&servers.stores[0], "b");
    let (left, runtime) =
        (Arc::new(AtomicUsize::new(4 * BATCHES * BATCH)), tokio::runtime::Handle::current());
    let mut threads = Vec::new();
    for (number, store) in servers.stores.iter().cycle().take(4).cloned().enumerate() {
        let runtime = runtime.clone();
        threads.push(thread::spawn(move || {
            let _entered = runtime.enter();
            for batch in 0..BATCHES {
                // The order of queues differs, so servers that locked them in this order would deadlock.
                let queues = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                let texts: Vec<String> =
                    (0..BATCH).map(|n| format!("{number}/{}", batch * BATCH + n)).collect();
                let group = format!("g{number}");
                let sends = texts.iter().zip(queues.iter().cycle()).map(|(text, queue)| {
                    QueueOp::Send(QueueSend { group: (number < 2).then_some(&group), ..message(queue, text) })
                });
                apply(&store, &sends.collect::<Vec<_>>());
            }
            Vec::new()
        }));
    }
    for (number, store) in servers.stores.iter().cycle().take(4).cloned().enumerate() {
        let (left, runtime) = (left.clone(), runtime.clone());
        threads.push(thread::spawn(move || {
            let _entered = runtime.enter();
            let mut all: Vec<(u64, String)> = Vec::new();
            while left.load(Ordering::SeqCst) > 0 {
                let lease = (number % 2 == 0).then_some(1_000_000);
                let mut got = Vec::new();
                for outcome in apply(&store, &[take("a", "bob", 7, lease), take("b", "bob", 3, lease)]) {
                    let Outcome::Queue(outcome) = outcome else { panic!("{outcome:?}") };
                    got.extend(taken(outcome));
                }
                if got.is_empty() {
                    thread::sleep(Duration::from_millis(1));
                }
                if lease.is_some() {
                    // Every third is nacked, and delivered again.
                    let how = |delivery: &Delivery| match delivery.id.is_multiple_of(3)
                        && delivery.deliveries < 2
                    {
                        true => Settle::Nack { delay_ms: None },
                        false => Settle::Ack,
                    };
                    let settles: Vec<_> = got.iter().map(|one| settle(one, how(one))).collect();
                    for outcome in apply(&store, &settles) {
                        assert!(matches!(outcome, Outcome::Queue(_)), "{outcome:?}");
                    }
                    got.retain(|one| how(one) == Settle::Ack);
                }
                left.fetch_sub(got.len(), Ordering::SeqCst);
                all.extend(got.into_iter().map(|one| (one.id, one.text)));
            }
            all
        }));
    }
    let mut all: Vec<(u64, String)> = Vec::new();
    for thread in threads {
        all.extend(tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap());
    }
    assert_eq!(all.len(), 4 * BATCHES * BATCH);
    let ids: BTreeSet<u64> = all.iter().map(|(id, _)| *id).collect();
    let texts: BTreeSet<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!((ids.len(), texts.len()), (all.len(), all.len()), "each once");
    for queue in ["a", "b"] {
        let told = info(&servers.stores[0], queue).await;
        let expected = (2 * BATCHES * BATCH) as u64;
        assert_eq!((told.sent, told.done, told.messages(), told.bytes), (expected, expected, 0, 0));
    }
    // The ids of one sender follow its order, whatever came in between.
    for number in 0..4 {
        let mut own: Vec<(u64, usize)> = Vec::new();
        for (id, text) in &all {
            if let Some(place) = text.strip_prefix(&format!("{number}/")) {
                own.push((*id, place.parse().unwrap()));
            }
        }
        own.sort_unstable();
        assert!(own.is_sorted_by_key(|(_, place)| *place));
    }
}

/// A server sees changes by another one at its next operation or read; registrations and due times soon after.
#[tokio::test(flavor = "multi_thread")]
async fn servers_know_what_others_did() {
    let Servers { stores, clocks, database: _database } = servers(2).await;
    let (one, other) = (&stores[0], &stores[1]);
    make(one, "q");
    let id = send(other, message("q", "1"));
    assert_eq!(texts(&taken(done(one, take("q", "bob", 9, Some(60_000))))), ["1"]);
    assert_eq!(info(other, "q").await.leased, 1);
    assert_eq!(taken(done(other, take("q", "eve", 9, None))), []);
    let again = QueueSend { message_id: Some("m"), ..message("q", "2") };
    let first = send(one, again);
    assert_eq!(send(other, again), first, "a repeat at another server");
    done(one, QueueOp::Delete { queue: "q", force: true });
    assert_eq!(apply(other, &[QueueOp::Send(message("q", "x"))]), [Outcome::Refused(Refusal::UnknownQueue)]);
    make(other, "q");
    let fresh = send(one, message("q", "3"));
    assert!(fresh > first && first > id);
    done(
        one,
        QueueOp::Put { queue: "q", settings: &QueueSettings { lease_ms: Some(50), ..Default::default() } },
    );
    let default = Take {
        wanted: TakeFilter { queue: Some("q"), receiver: None, sender: None, newest_first: false },
        max: 1,
        how: TakeMode::Lease { lease_ms: None },
        registers: true,
    };
    let held = taken(done(other, QueueOp::Take(default)));
    let until = Some(Timestamp::from_micros(START + 50_000));
    assert_eq!(held[0].leased_until, until, "settings of the other");
    // A lease of one server ends at the other, which never heard of it.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while one.queue_due_in().is_none() || !one.is_client("eve") {
        assert!(tokio::time::Instant::now() < deadline, "it does not hear of the other");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    clocks[0].advance_micros(50_000);
    assert_eq!(texts(&taken(done(one, take("q", "bob", 9, None)))), ["3"]);
    assert_eq!(apply(other, &[settle(&held[0], Settle::Ack)]), [Outcome::Refused(Refusal::StaleReceipt)]);
}

/// Work that is due by a slow clock runs, although a server with a fast clock has polled already. No lease ends early by
/// the fast clock.
#[tokio::test(flavor = "multi_thread")]
async fn clocks_may_differ_a_little() {
    let Servers { stores, clocks, database: _database } = servers(2).await;
    clocks[0].advance_micros(3_000_000);
    make(&stores[0], "q");
    clocks[0].advance_micros(1_000_000);
    send(&stores[0], message("q", "1"));
    for round in 0..3 {
        // One second by a clock that is four seconds slow.
        let held = taken(done(&stores[1], take("q", "bob", 1, Some(1_000))));
        assert_eq!(held.len(), 1, "round {round}");
        done(&stores[0], QueueOp::Sweep);
        assert!(
            taken(done(&stores[0], take("q", "bob", 1, None))).is_empty(),
            "round {round}: it is on lease"
        );
        clocks.iter().for_each(|clock| clock.advance_micros(1_001_000));
        done(&stores[0], QueueOp::Sweep);
        let again = taken(done(&stores[0], take("q", "bob", 1, Some(60_000))));
        assert_eq!((texts(&again), again[0].deliveries), (vec!["1"], 2 + 2 * round), "round {round}");
        let nack = Settle::Nack { delay_ms: None };
        done(&stores[0], settle(&again[0], nack));
    }
}

/// Messages to everybody reach the registered clients, however registrations at other servers interleave. Nothing remains
/// for unregistered clients.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_went_is_sent_to() {
    let Servers { stores, clocks: _, database: _database } = servers(2).await;
    make(&stores[0], "q");
    let runtime = tokio::runtime::Handle::current();
    for name in ["ada", "bob", "carl"] {
        done(&stores[0], QueueOp::Register { client: name });
    }
    let (sending, going) = (stores[0].clone(), stores[1].clone());
    let entered = runtime.clone();
    let sender = thread::spawn(move || {
        let _entered = entered.enter();
        for _ in 0..30 {
            send(&sending, QueueSend { audience: Audience::All, ..message("q", "news") });
        }
    });
    let goer = thread::spawn(move || {
        let _entered = runtime.enter();
        for _ in 0..15 {
            done(&going, QueueOp::Unregister { client: "bob" });
            done(&going, QueueOp::Register { client: "bob" });
        }
        done(&going, QueueOp::Unregister { client: "bob" });
    });
    for thread in [sender, goer] {
        tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    }
    let waiting = stores[0].waiting(QueueId::new("q").unwrap(), 0, 10_000).await.unwrap().unwrap();
    let receivers: Vec<&str> = waiting.iter().filter_map(|one| one.delivery.receiver.as_deref()).collect();
    assert_eq!(receivers.iter().filter(|name| **name == "carl").count(), 30);
    assert_eq!(receivers.iter().filter(|name| **name == "bob").count(), 0, "bob went");
}

/// Takes skip the part of a queue that was taken, and still find what comes back.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_is_found_however_old() {
    let Servers { stores, clocks, database } = servers(1).await;
    let store = &stores[0];
    make(store, "q");
    send(store, message("q", "old"));
    let held = taken(done(store, take("q", "bob", 1, Some(10_000))));
    let delayed = send(store, QueueSend { due: Due::In(20_000), ..message("q", "delayed") });
    for _ in 0..6 {
        apply(store, &vec![QueueOp::Send(message("q", "x")); 1_000]);
        let gone = taken(done(store, take("q", "bob", 1_000, None)));
        assert_eq!(gone.len(), 1_000);
    }
    let client = connect(&database.url).await;
    let low: i64 = client.query_one("select low from queue_lines", &[]).await.unwrap().get(0);
    assert!(low > i64::try_from(delayed).unwrap(), "the line must begin later, or this shows nothing: {low}");
    send(store, message("q", "new"));
    done(store, settle(&held[0], Settle::Nack { delay_ms: None }));
    clocks[0].advance_micros(20_000_000);
    let found = taken(done(store, take("q", "bob", 9, None)));
    assert_eq!(texts(&found), ["old", "delayed", "new"]);
}

/// A consumer that waits at one server gets what another server stored.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_elsewhere_are_found_something() {
    let Servers { stores, clocks: _, database: _database } = servers(2).await;
    for queue in ["p", "q"] {
        make(&stores[0], queue);
    }
    for client in ["bob", "eve"] {
        done(&stores[0], QueueOp::Register { client });
    }
    let wants = |queue: &str, receiver: &str, sender: &str| WaitFilter {
        queue: QueueId::new(queue).ok(),
        receiver: ClientId::new(receiver).ok(),
        sender: ClientId::new(sender).ok(),
    };
    let all = || {
        vec![
            wants("q", "bob", ""),
            wants("q", "eve", ""),
            wants("", "bob", "ada"),
            wants("", "bob", "eve"),
            wants("p", "", ""),
            wants("none", "", ""),
            wants("q", "new", "new"),
        ]
    };
    assert_eq!(stores[1].matching_filters(all()).await.unwrap(), [5], "only the one whose queue is gone");
    let for_bob = send(&stores[0], QueueSend { audience: Audience::One("bob"), ..message("q", "x") });
    assert_eq!(stores[1].matching_filters(all()).await.unwrap(), [0, 2, 5]);
    done(&stores[0], QueueOp::Remove { queue: "q", id: for_bob });
    send(&stores[0], QueueSend { sender: "eve", ..message("p", "x") });
    assert_eq!(stores[1].matching_filters(all()).await.unwrap(), [3, 4, 5]);
    let how = TakeMode::Lease { lease_ms: Some(60_000) };
    let wanted = TakeFilter { queue: Some("p"), receiver: None, sender: None, newest_first: false };
    done(&stores[0], QueueOp::Take(Take { wanted, max: 1, how, registers: true }));
    assert_eq!(stores[1].matching_filters(all()).await.unwrap(), [5], "it is on lease");
}

/// What another server made while a lock was waited for is not used with what was read before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_another_server_makes_meanwhile_is_read_anew() {
    let Servers { stores, database, .. } = servers(2).await;
    make(&stores[0], "a");
    let holder = connect(&database.url).await;
    let hold = "begin; select from queues where id = 'a' for no key update";
    holder.batch_execute(hold).await.unwrap();
    let named = |queue, message_id| QueueSend { message_id, ..message(queue, "text") };
    let waiting = tokio::task::spawn_blocking({
        let store = stores[1].clone();
        move || {
            let settings = QueueSettings::default();
            let put = QueueOp::Put { queue: "q", settings: &settings };
            let sends = [named("a", None), named("q", Some("m"))].map(QueueOp::Send);
            apply(&store, &[sends[0], put, sends[1]])
        }
    });
    eventually("it waits", async || {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let watcher = connect(&database.url).await;
        watcher.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    make(&stores[0], "q");
    let first = send(&stores[0], named("q", Some("m")));
    holder.batch_execute("commit").await.unwrap();
    let outcomes = waiting.await.unwrap();
    let Outcome::Queue(QueueOutcome::Sent { id, duplicate, .. }) = outcomes[2] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((id, duplicate), (first, true));
    assert_eq!(taken(done(&stores[0], take("q", "bob", 10, None))).len(), 1);
}

/// A number is one of two thousand million, and is never given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_registers_again_uses_up_no_number() {
    let servers = servers(1).await;
    let store = &servers.stores[0];
    for _ in 0..10 {
        done(store, QueueOp::Register { client: "ada" });
        done(store, QueueOp::Unregister { client: "ada" });
    }
    done(store, QueueOp::Register { client: "bob" });
    let client = connect(&servers.database.url).await;
    let row = client.query_one("select max(no) from clients", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 2);
}

/// A later version may add columns while servers of this one run, and have statements prepared.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_a_later_version_stop_nothing() {
    let servers = servers(1).await;
    let store = &servers.stores[0];
    let client = connect(&servers.database.url).await;
    let name = |store: &Postgres, queue: &str| {
        make(store, queue);
        send(store, QueueSend { message_id: Some("id"), ..message(queue, "text") });
        send(store, QueueSend { message_id: Some("id"), ..message(queue, "text") });
    };
    // Each statement is prepared on each of the connections.
    for n in 0..10 {
        name(store, &format!("before-{n}"));
        info(store, "before-0").await;
    }
    let add = "alter table queues add later text; alter table queue_known add later text; \
               alter table queue_totals add later text; alter table queue_messages add later text; \
               alter table clients add later text";
    client.batch_execute(add).await.unwrap();
    for n in 0..10 {
        name(store, &format!("after-{n}"));
        info(store, "before-0").await;
    }
}
