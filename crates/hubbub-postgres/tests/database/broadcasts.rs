//! Messages to everybody whose copies several servers create in slices.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use crate::support::queues::{apply, done, info, make, send, servers_with, settle, take, taken, texts};
use hubbub_conformance::queues::message;
use hubbub_core::queue::{Audience, QueueSend, Settle, Take, TakeFilter, TakeMode, WaitFilter};
use hubbub_core::{ClientId, Outcome, QueueId, QueueOp, QueueStore};
use hubbub_postgres::BroadcastOptions;

fn slices(per_slice: usize, pause: Duration) -> BroadcastOptions {
    BroadcastOptions { at_once: 0, per_slice, pause, ..BroadcastOptions::default() }
}

fn to_all<'a>(text: &'a str) -> QueueSend<'a> {
    QueueSend { audience: Audience::All, ..message("q", text) }
}

/// Every receiver gets every message once and in order, by any kind of take and with any number of copies created, while
/// clients come and go.
#[tokio::test(flavor = "multi_thread")]
async fn each_receiver_gets_each_message_once() {
    const RECEIVERS: usize = 40;
    const MESSAGES: usize = 15;
    let servers = servers_with(3, slices(3, Duration::ZERO)).await;
    make(&servers.stores[0], "q");
    let names: Vec<String> = (0..RECEIVERS).map(|number| format!("r{number}")).collect();
    let registering: Vec<QueueOp<'_>> = names.iter().map(|client| QueueOp::Register { client }).collect();
    apply(&servers.stores[0], &registering);
    let mut threads = Vec::new();
    for (number, store) in servers.stores.iter().cycle().take(4).cloned().enumerate() {
        let (names, runtime) = (names.clone(), tokio::runtime::Handle::current());
        threads.push(thread::spawn(move || {
            let _entered = runtime.enter();
            if number == 3 {
                for text in 0..MESSAGES {
                    done(&store, QueueOp::Send(to_all(&format!("{text:03}"))));
                    let client = format!("passing{text}");
                    done(&store, QueueOp::Register { client: &client });
                    if text % 2 == 1 {
                        done(&store, QueueOp::Unregister { client: &format!("passing{}", text - 1) });
                    }
                }
                return;
            }
            for name in names.iter().skip(number).step_by(3) {
                let mut got: Vec<String> = Vec::new();
                while got.len() < MESSAGES {
                    let lease = got.len().is_multiple_of(2).then_some(1_000_000);
                    let outcome = apply(&store, &[take("q", name, 2, lease)]).remove(0);
                    let Outcome::Queue(outcome) = outcome else { panic!("{outcome:?}") };
                    let deliveries = taken(outcome);
                    got.extend(deliveries.iter().map(|one| one.text.clone()));
                    if lease.is_some() {
                        let acks: Vec<_> = deliveries.iter().map(|one| settle(one, Settle::Ack)).collect();
                        acks.iter().for_each(|ack| drop(done(&store, *ack)));
                    }
                }
                let expected: Vec<String> = (0..MESSAGES).map(|text| format!("{text:03}")).collect();
                assert_eq!(got, expected, "{name}");
            }
        }));
    }
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    }
    for name in &names {
        assert_eq!(taken(done(&servers.stores[1], take("q", name, 9, None))), [], "{name}");
    }
    // The rest belongs to clients who came later and stayed.
    let left: u64 = (0..MESSAGES)
        .filter(|one| one % 2 == 1 || *one == MESSAGES - 1)
        .map(|one| (MESSAGES - 1 - one) as u64)
        .sum();
    assert_eq!(info(&servers.stores[2], "q").await.messages(), left);
    let listed = servers.stores[2].waiting(QueueId::new("q").unwrap(), 0, 1_000).await.unwrap().unwrap();
    let ids: BTreeSet<u64> = listed.iter().map(|one| one.delivery.id).collect();
    assert_eq!((listed.len() as u64, ids.len() as u64), (left, left));
    assert!(listed.is_sorted_by_key(|one| one.delivery.id));
}

/// A copy that does not exist yet is found for a waiting consumer, by every kind of peek.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_not_made_is_found() {
    let servers = servers_with(2, slices(1, Duration::from_secs(3_600))).await;
    let [left, right] = [&servers.stores[0], &servers.stores[1]];
    make(left, "q");
    make(left, "empty");
    for client in ["ann", "bob", "carl", "dora"] {
        done(left, QueueOp::Register { client });
    }
    done(left, QueueOp::Send(QueueSend { sender: "bob", ..to_all("one") }));
    done(left, QueueOp::Send(QueueSend { sender: "bob", ..to_all("two") }));
    let wants = |queue: Option<&str>, receiver: &str, sender: Option<&str>| WaitFilter {
        queue: queue.map(|queue| QueueId::new(queue).unwrap()),
        receiver: Some(ClientId::new(receiver).unwrap()),
        sender: sender.map(|sender| ClientId::new(sender).unwrap()),
    };
    let all = vec![
        wants(Some("q"), "dora", None),
        wants(None, "dora", Some("bob")),
        wants(Some("q"), "dora", Some("carl")),
        wants(Some("empty"), "dora", None),
        wants(Some("q"), "bob", None),
        wants(Some("q"), "nobody", None),
        wants(None, "carl", None),
    ];
    assert_eq!(right.matching_filters(all).await.unwrap(), [0, 1, 6]);
    let holding = async |client| right.queues_holding(ClientId::new(client).unwrap(), None, 9).await.unwrap();
    assert_eq!(holding("dora").await, ["q".into()]);
    assert_eq!(holding("bob").await, []);
    let wanted = TakeFilter { queue: None, receiver: Some("dora"), sender: Some("bob"), newest_first: true };
    let peeked = right.peek(wanted, 9).await.unwrap().unwrap();
    assert_eq!(texts(&peeked), ["two", "one"]);
    let page = async |after| {
        let page = right.waiting(QueueId::new("q").unwrap(), after, 2).await.unwrap().unwrap();
        page.into_iter().map(|one| (one.delivery.id, one.delivery.text)).collect::<Vec<_>>()
    };
    let (mut listed, mut after) = (Vec::new(), 0);
    loop {
        let some = page(after).await;
        let Some((last, _)) = some.last() else { break };
        after = *last;
        listed.extend(some.into_iter().map(|(_, text)| text));
    }
    assert_eq!(listed, ["one", "one", "one", "two", "two", "two"]);
    let away = Take { wanted, max: 9, how: TakeMode::Away, registers: false };
    assert_eq!(texts(&taken(done(right, QueueOp::Take(away)))), ["two", "one"]);
    assert_eq!(holding("dora").await, []);
    done(right, QueueOp::Delete { queue: "q", force: true });
    make(right, "q");
    assert_eq!(taken(done(right, take("q", "carl", 9, None))), []);
    let id = send(right, message("q", "later"));
    assert_eq!(
        taken(done(left, take("q", "carl", 9, None))).iter().map(|one| one.id).collect::<Vec<_>>(),
        [id]
    );
}
