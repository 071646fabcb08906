//! Hubs of several servers, joined by a bus that loses what it is told to.

use std::collections::VecDeque;

use hubbub_core::clock::SeededRandom;

use super::super::relay::{NodeBus, TICK};
use super::*;

mod bounded;
mod crowds;

const PARTITIONS: u32 = 2;

/// Records of one server that wait to be heard by the others.
#[derive(Default)]
pub(super) struct Records {
    pub(super) sent: Mutex<VecDeque<(u32, String)>>,
    is_deaf: std::sync::atomic::AtomicBool,
    pub(super) hears_nothing: std::sync::atomic::AtomicBool,
}

impl NodeBus for Records {
    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn partition_of(&self, room: &str) -> u32 {
        u32::from(room.as_bytes()[0]) % PARTITIONS
    }

    fn is_subscribed(&self, _: u32) -> bool {
        !self.hears_nothing.load(Ordering::SeqCst)
    }

    fn record_bytes(&self) -> usize {
        8_000
    }

    fn records_per_tick(&self) -> usize {
        4
    }

    fn lacks_marks(&self) -> bool {
        true
    }

    fn send(&self, partition: u32, record: String) {
        assert!(record.len() <= self.record_bytes(), "{}", record.len());
        if !self.is_deaf.load(Ordering::SeqCst) {
            self.sent.lock().push_back((partition, record));
        }
    }
}

struct Node {
    hub: Arc<Hub>,
    records: Arc<Records>,
}

struct Cluster {
    nodes: Vec<Node>,
    now: std::time::Duration,
    /// Records in the last step.
    written: usize,
    texts: Vec<String>,
}

impl Cluster {
    fn new(count: u64) -> Self {
        Self::bounded(count, usize::MAX)
    }

    /// Hubs with a bound of live messages in bytes.
    fn bounded(count: u64, bytes_max: usize) -> Self {
        let node = |number| {
            let (hub, records) = (Arc::new(hub_of(bytes_max)), Arc::new(Records::default()));
            hub.enable_relay(records.clone(), &SeededRandom::new(number));
            Node { hub, records }
        };
        let (nodes, now) = ((1..=count).map(node).collect(), std::time::Duration::from_secs(100));
        Self { nodes, now, written: 0, texts: Vec::new() }
    }

    /// One tick of each server, and everybody hears of it.
    fn step(&mut self) {
        self.now += TICK;
        self.nodes.iter().for_each(|node| node.hub.tick_relay(self.now));
        self.written = 0;
        for (from, node) in self.nodes.iter().enumerate() {
            for (partition, record) in std::mem::take(&mut *node.records.sent.lock()) {
                self.written += 1;
                self.texts.push(record.clone());
                for (_, other) in self.nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                    if !other.records.is_subscribed(partition) {
                        continue;
                    }
                    other.hub.apply_record(partition, record.as_bytes(), self.now);
                    other.hub.apply_record(partition, record.as_bytes(), self.now);
                }
            }
        }
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    fn present(&self, node: usize, room: &str) -> Vec<String> {
        self.nodes[node].hub.present(room).iter().map(ToString::to_string).collect()
    }

    fn remote(&self, node: usize) -> i64 {
        self.nodes[node].hub.metrics.presence_remote.get()
    }
}

fn presence(user: &str, is_online: bool) -> String {
    format!(r#"Presence {{ room: "r", user: "{user}", is_online: {is_online} }}"#)
}

#[test]
fn users_are_seen_on_every_node_once() {
    let mut cluster = Cluster::new(3);
    let [ada, bob, second] = [outbox(99), outbox(99), outbox(99)];
    let at_first = live(&cluster.nodes[0].hub, "r", Some("ada"), &ada);
    cluster.steps(2);
    let at_second = live(&cluster.nodes[1].hub, "r", Some("bob"), &bob);
    cluster.steps(4);
    assert_eq!(shown(&ada), [presence("bob", true)]);
    assert_eq!(shown(&bob), [presence("ada", true)], "who was there before is told, too");
    assert_eq!([cluster.present(0, "r"), cluster.present(1, "r")], [["ada", "bob"], ["ada", "bob"]]);
    // Bob is also on the third one: no news, neither when he comes nor when he goes.
    let at_third = live(&cluster.nodes[2].hub, "r", Some("bob"), &second);
    cluster.steps(20);
    cluster.nodes[1].hub.detach(at_second);
    cluster.steps(2);
    assert_eq!((shown(&ada), cluster.present(0, "r").len()), (vec![], 2));
    cluster.nodes[2].hub.typing(&at_third);
    cluster.nodes[2].hub.detach(at_third);
    cluster.steps(2);
    assert_eq!(shown(&ada), [presence("bob", false), r#"Typing { room: "r", user: "bob" }"#.to_owned()]);
    assert_eq!(cluster.present(0, "r"), ["ada"]);
    cluster.nodes[0].hub.detach(at_first);
    assert_eq!([0, 1, 2].map(|node| cluster.remote(node)), [0, 0, 0], "nothing is kept");
}

#[test]
fn what_the_bus_loses_is_asked_for() {
    let mut cluster = Cluster::new(2);
    let outboxes: Vec<_> = (0..40).map(|_| outbox(999)).collect();
    let watching = live(&cluster.nodes[0].hub, "r", None, &outboxes[0]);
    let mut there = Vec::new();
    cluster.steps(2);
    for (number, outbox) in outboxes.iter().enumerate().skip(1) {
        // Every third tick is lost, with who comes and who goes in it.
        cluster.nodes[1].records.is_deaf.store(number % 3 == 0, Ordering::SeqCst);
        let user = format!("user-{number:02}");
        there.push((live(&cluster.nodes[1].hub, "r", Some(&user), outbox), outbox));
        if number % 2 == 0 {
            let (attachment, _) = there.remove(0);
            cluster.nodes[1].hub.detach(attachment);
        }
        cluster.step();
    }
    cluster.nodes[1].records.is_deaf.store(false, Ordering::SeqCst);
    // A sign of life shows that something is missing, if nothing else does.
    cluster.steps(40);
    assert_eq!(cluster.present(0, "r"), cluster.present(1, "r"));
    assert_eq!(cluster.present(0, "r").len(), there.len());
    // The last ones go, and nobody hears of it.
    cluster.nodes[1].records.is_deaf.store(true, Ordering::SeqCst);
    there.into_iter().for_each(|(attachment, _)| cluster.nodes[1].hub.detach(attachment));
    cluster.steps(80);
    assert!(cluster.present(0, "r").is_empty());
    cluster.nodes[0].hub.detach(watching);
}

#[test]
fn users_of_a_node_that_died_are_gone_after_a_while() {
    let mut cluster = Cluster::new(2);
    let [ada, bob] = [outbox(99), outbox(99)];
    let at_first = live(&cluster.nodes[0].hub, "r", Some("ada"), &ada);
    let at_second = live(&cluster.nodes[1].hub, "r", Some("bob"), &bob);
    // Longer than silence may last.
    cluster.steps(100);
    assert_eq!(cluster.present(0, "r"), ["ada", "bob"]);
    cluster.nodes[1].records.is_deaf.store(true, Ordering::SeqCst);
    shown(&ada);
    cluster.steps(30);
    assert_eq!(cluster.present(0, "r"), ["ada", "bob"], "not yet");
    cluster.steps(60);
    assert_eq!(
        (cluster.present(0, "r"), shown(&ada)),
        (vec!["ada".to_owned()], vec![presence("bob", false)])
    );
    // It was only cut off.
    cluster.nodes[1].records.is_deaf.store(false, Ordering::SeqCst);
    cluster.steps(40);
    assert_eq!(cluster.present(0, "r"), ["ada", "bob"]);
    cluster.nodes[0].hub.detach(at_first);
    cluster.nodes[1].hub.detach(at_second);
}

#[test]
fn many_rooms_and_users_are_told_in_few_records() {
    const ROOMS: usize = 2_000;
    let mut cluster = Cluster::new(2);
    let [watcher, crowd] = [outbox(9_999), outbox(9_999)];
    let rooms: Vec<String> = (0..ROOMS).map(|number| format!("{}-{number}", number % 7)).collect();
    let mut attachments = Vec::new();
    for room in &rooms {
        attachments.push((0, live(&cluster.nodes[0].hub, room, Some("ada"), &watcher), watcher.clone()));
        attachments.push((1, live(&cluster.nodes[1].hub, room, Some("bob"), &crowd), crowd.clone()));
    }
    let members: Vec<_> = (0..600).map(|number| (format!("user-{number}"), outbox(9_999))).collect();
    for (user, outbox) in &members {
        attachments.push((1, live(&cluster.nodes[1].hub, &rooms[0], Some(user), outbox), outbox.clone()));
    }
    let mut steps = 0;
    while rooms.iter().any(|room| cluster.present(0, room).len() < 2)
        || cluster.present(0, &rooms[0]).len() < 602
    {
        cluster.step();
        steps += 1;
        let signs_of_life = PARTITIONS as usize;
        assert!(cluster.written <= 2 * (4 + signs_of_life), "a server writes no more than it may");
        assert!(steps < 300, "it comes to an end");
    }
    assert_eq!(cluster.remote(0), 2_000 + 600);
    cluster.steps(100);
    cluster.step();
    assert!(cluster.written <= 4, "silence is a sign of life in each partition");
    for (node, attachment, _) in attachments {
        cluster.nodes[node].hub.detach(attachment);
    }
    cluster.steps(60);
    assert_eq!([0, 1].map(|node| cluster.remote(node)), [0, 0]);
}

#[test]
fn what_is_malformed_or_not_followed_changes_nothing() {
    let cluster = Cluster::new(1);
    let hub = &cluster.nodes[0].hub;
    let ada = outbox(99);
    let attachment = live(hub, "r", Some("ada"), &ada);
    for text in [
        "",
        "[]",
        r#"{"node":7,"n":1,"rooms":[{"room":"","on":["bob"]}]}"#,
        r#"{"node":7,"n":2,"rooms":[{"room":"other","on":["bob"]}]}"#,
        r#"{"node":7,"n":3,"rooms":[{"room":"r","on":["b o b"],"full":[3,2]}]}"#,
        r#"{"node":7,"n":3,"rooms":[{"room":"r","on":["late"],"typing":["bob"]}]}"#,
        r#"{"node":7,"n":4,"rooms":[{"room":"r","typing":["\",\"x\":\""]}]}"#,
        r#"{"node":7,"n":5,"rooms":[{"room":"r","full":[1,2],"on":["bob"]}]}"#,
    ] {
        hub.apply_record(0, text.as_bytes(), cluster.now);
    }
    assert_eq!((cluster.present(0, "r"), shown(&ada)), (vec!["ada".to_owned()], vec![]));
    hub.detach(attachment);
}

/// Whoever reads of a mark on the bus notifies its own sockets, and nobody else.
#[cfg(feature = "kafka")]
#[test]
fn only_the_server_that_moved_a_mark_tells_the_others() {
    use futures_util::FutureExt as _;

    let (mut cluster, ada) = (Cluster::new(2), outbox(99));
    let (hub, user) = (cluster.nodes[0].hub.clone(), UserId::new("ada").unwrap());
    hub.open_socket(&user, &ada);
    hub.follow_all(&user, &ada, true);
    cluster.steps(2);
    cluster.texts.clear();
    let (Op::Change(moved), outcome) = change(RoomChange::MarkRead { room: "r", user: "ada", seq: 1 }) else {
        panic!()
    };
    let access = |_, _| -> Read<'static, Access> { panic!("nobody is asked") };
    hub.publish_remote_change(&moved, &outcome, false, &access).now_or_never().unwrap();
    assert_eq!(shown(&ada).len(), 1);
    cluster.steps(3);
    assert!(!cluster.texts.iter().any(|text| text.contains("ada")), "{:?}", cluster.texts);
    hub.close_socket(&user, &ada);
}

/// Whoever begins to follow a room, and whose question is lost, hears of those who are there nevertheless.
#[test]
fn a_lost_question_is_made_up_for() {
    let mut cluster = Cluster::new(2);
    let [ada, watcher] = [outbox(99), outbox(99)];
    let there = live(&cluster.nodes[0].hub, "r", Some("ada"), &ada);
    cluster.steps(30);
    cluster.nodes[1].records.is_deaf.store(true, Ordering::SeqCst);
    // Nobody is told of this one: later it has nothing to say.
    let watching = live(&cluster.nodes[1].hub, "r", None, &watcher);
    cluster.step();
    cluster.nodes[1].records.is_deaf.store(false, Ordering::SeqCst);
    assert!(cluster.present(1, "r").is_empty(), "the question is lost");
    cluster.steps(40);
    assert_eq!(
        (cluster.present(1, "r"), shown(&watcher)),
        (vec!["ada".to_owned()], vec![presence("ada", true)])
    );
    cluster.nodes[0].hub.detach(there);
    cluster.nodes[1].hub.detach(watching);
}

/// A server on which nobody is for a while misses nothing, and others do not ask for all their rooms when it speaks again.
#[test]
fn a_server_that_was_empty_is_not_asked_about() {
    let mut cluster = Cluster::new(2);
    let [ada, bob] = [outbox(999), outbox(999)];
    let rooms: Vec<String> = (0..200).map(|number| format!("r-{number}")).collect();
    let hub = cluster.nodes[0].hub.clone();
    let there: Vec<_> = rooms.iter().map(|room| live(&hub, room, Some("ada"), &ada)).collect();
    let asked = |cluster: &mut Cluster| {
        let attachment = live(&cluster.nodes[1].hub, "r-0", Some("bob"), &bob);
        cluster.steps(2);
        cluster.nodes[1].hub.detach(attachment);
        cluster.texts.clear();
        // It is as good as gone, but for the number of its last record.
        cluster.steps(120);
        let attachment = live(&cluster.nodes[1].hub, "r-0", Some("bob"), &bob);
        cluster.texts.clear();
        cluster.steps(10);
        cluster.nodes[1].hub.detach(attachment);
        cluster.texts.iter().map(|text| text.matches("ask").count()).sum::<usize>()
    };
    assert_eq!(asked(&mut cluster), 1, "only who comes asks");
    assert_eq!(asked(&mut cluster), 1);
    there.into_iter().for_each(|attachment| cluster.nodes[0].hub.detach(attachment));
}

/// All who come or go at once are one delivery for each subscriber.
#[test]
fn a_crowd_that_comes_and_goes_cuts_nobody() {
    let mut cluster = Cluster::new(2);
    let (ada, crowd) = (outbox(99), outbox(9_999));
    let at_first = live(&cluster.nodes[0].hub, "r", Some("ada"), &ada);
    cluster.steps(20);
    let hub = cluster.nodes[1].hub.clone();
    let name = |number: usize| format!("user-{number}");
    let there: Vec<_> = (0..3_000).map(|number| live(&hub, "r", Some(&name(number)), &crowd)).collect();
    let notices = |cluster: &mut Cluster, expected: usize| {
        let (mut deliveries, mut seen) = (0, 0);
        for _ in 0..100 {
            cluster.step();
            let shown = shown(&ada);
            deliveries += shown.len();
            seen += shown.iter().map(|text| text.matches("Presence").count()).sum::<usize>();
        }
        assert_eq!((seen, deliveries < 10), (expected, true), "{deliveries} deliveries");
    };
    notices(&mut cluster, 3_000);
    assert_eq!(cluster.remote(0), 3_000);
    cluster.nodes[1].records.is_deaf.store(true, Ordering::SeqCst);
    notices(&mut cluster, 3_000);
    assert_eq!((cluster.present(0, "r").len(), cluster.remote(0)), (1, 0));
    there.into_iter().for_each(|attachment| hub.detach(attachment));
    cluster.nodes[0].hub.detach(at_first);
}

/// What would be answered before it is heard is asked once it is.
#[cfg(feature = "kafka")]
#[test]
fn nothing_is_asked_that_would_not_be_heard() {
    let mut cluster = Cluster::new(2);
    let [ada, bob] = [outbox(99), outbox(99)];
    let at_first = live(&cluster.nodes[0].hub, "r", Some("ada"), &ada);
    cluster.nodes[1].records.hears_nothing.store(true, Ordering::SeqCst);
    let at_second = live(&cluster.nodes[1].hub, "r", Some("bob"), &bob);
    cluster.steps(3);
    assert_eq!(
        (cluster.present(0, "r"), cluster.present(1, "r")),
        (vec!["ada".into(), "bob".into()], vec!["bob".into()])
    );
    cluster.nodes[1].records.hears_nothing.store(false, Ordering::SeqCst);
    cluster.nodes[1].hub.begin_partitions(&(0..PARTITIONS).collect());
    cluster.steps(2);
    assert_eq!(
        cluster.present(1, "r"),
        ["ada", "bob"],
        "at once: nobody has told everything a moment before"
    );
    cluster.nodes[0].hub.detach(at_first);
    cluster.nodes[1].hub.detach(at_second);
}
