//! Sockets that follow all rooms of a user are notified of joins through other servers: each once, and certainly.

#[cfg(feature = "kafka")]
use std::collections::HashSet;

use std::time::Duration;

use hubbub_core::clock::{Clock, SeededRandom};
use hubbub_core::store::{Access, Read, RoomStore};

use super::super::relay::TICK;
use super::presence::Records;
use super::*;

mod lists;
mod marks;
mod rooms;

use rooms::RoomsOfAda;

const SECOND: Duration = Duration::from_secs(1);

fn ada() -> UserId {
    UserId::new("ada").unwrap()
}

/// A server that shares the store with others.
struct Node {
    hub: Hub,
    records: Arc<Records>,
    clock: Arc<ManualClock>,
}

impl Node {
    fn new(number: u64) -> Self {
        let (clock, records) = (Arc::new(ManualClock::default()), Arc::new(Records::default()));
        clock.advance_micros(100_000_000);
        let encoder = FrameEncoder { message: encode, notice: encode_notice };
        let hub = Hub::new(encoder, usize::MAX, clock.clone(), Arc::new(Metrics::default()));
        hub.enable_remote();
        hub.enable_relay(records.clone(), &SeededRandom::new(number));
        Self { hub, records, clock }
    }

    fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    fn pass(&self, time: Duration) {
        self.clock.advance_micros(i64::try_from(time.as_micros()).unwrap());
    }

    /// A socket of ada that follows all rooms, and has read what there is.
    async fn socket(&self, store: &RoomsOfAda) -> Arc<Outbox> {
        let outbox = outbox(20_000);
        self.hub.open_socket(&ada(), &outbox);
        self.hub.follow_all(&ada(), &outbox, true);
        let listed = store.memberships(vec![ada()]).await.unwrap();
        self.hub.expect_joins(&ada(), &outbox, listed.into_iter().next().flatten());
        outbox
    }

    /// Makes a change, and returns what the others are told in a tick.
    fn publish(&mut self, changes: &[RoomChange<'_>]) -> Vec<(u32, String)> {
        publish_all(&self.hub, changes.iter().map(|what| change(*what)));
        self.tick()
    }

    fn tick(&mut self) -> Vec<(u32, String)> {
        self.pass(TICK);
        self.hub.tick_relay(self.now());
        std::mem::take(&mut *self.records.sent.lock()).into()
    }

    async fn hear(&self, store: &RoomsOfAda, records: &[(u32, String)]) {
        records
            .iter()
            .for_each(|(partition, record)| self.hub.apply_record(*partition, record.as_bytes(), self.now()));
        self.hub.look_up_hints(store).await;
    }

    /// Compares those users that are to be compared at once. Returns how many those are.
    async fn compare(&self, store: &RoomsOfAda) -> usize {
        let users = self.hub.take_urgent(99);
        let count = users.len();
        self.hub.compare_rooms(store, users, self.now()).await.unwrap();
        count
    }

    /// Compares ada's rooms, as each of them is at some time.
    async fn compare_ada(&self, store: &RoomsOfAda) {
        self.hub.compare_rooms(store, vec![ada()], self.now()).await.unwrap();
    }

    /// Asks again what is to be asked again, after the time that a hint needs. Returns how many users were compared.
    async fn compare_again(&self, store: &RoomsOfAda) -> usize {
        self.pass(SECOND);
        self.hub.recall_joins(self.now());
        self.hub.look_up_hints(store).await;
        self.compare(store).await
    }
}

fn add(room: &'static str) -> RoomChange<'static> {
    RoomChange::AddMember { room, user: "ada" }
}

fn remove(room: &'static str) -> RoomChange<'static> {
    RoomChange::RemoveMember { room, user: "ada" }
}

#[tokio::test]
async fn a_join_at_one_server_is_told_to_sockets_at_another_once() {
    let (store, mut here, mut there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    store.set("old", true, None);
    let outbox = there.socket(&store).await;
    store.set("r", true, None);
    // Nobody follows anything here.
    let records = here.publish(&[add("r")]);
    assert_eq!(records.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), [1], "that of ada");
    there.hear(&store, &records).await;
    there.hear(&store, &records).await;
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), [""; 0], "neither this one nor the old one again");
    // Through the same server it is told at once, and to the others.
    store.set("s", true, None);
    let records = there.publish(&[add("s")]);
    assert_eq!(shown(&outbox), ["joined s at 7"]);
    there.hear(&store, &here.publish(&[add("s")])).await;
    assert_eq!(shown(&outbox), [""; 0], "it may have unsubscribed since");
    there.pass(SECOND * 5);
    there.hear(&store, &here.publish(&[add("s")])).await;
    assert_eq!(shown(&outbox), ["joined s at 7"], "nobody knows whether the socket still follows it");
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), [""; 0], "it is known");
    let other = here.socket(&store).await;
    here.hear(&store, &records).await;
    assert_eq!(shown(&other), ["joined s at 7"], "a socket may be told of what it has just read");
}

#[tokio::test]
async fn whoever_makes_a_room_is_its_first_member_everywhere() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    store.set("r", true, None);
    let what = RoomChange::PutRoom { room: "r", settings: RoomSettings::default() };
    let put = Op::Change(Change { by: Some("ada"), what });
    publish_all(&here.hub, [(put, Outcome::Room { created: true })]);
    there.hear(&store, &here.tick()).await;
    assert_eq!(shown(&outbox), ["joined r at 0, read to 7"], "whatever the creator has sent since");
    // Executed before, by a server that did not come to tell.
    store.set("s", true, None);
    publish_all(&here.hub, [(change(add("s")).0, Outcome::Accepted)]);
    there.hear(&store, &here.tick()).await;
    assert_eq!(shown(&outbox), ["joined s at 7"]);
}

#[tokio::test]
async fn who_was_removed_again_is_told_nothing() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    there.hear(&store, &here.publish(&[add("r")])).await;
    assert_eq!(shown(&outbox), [""; 0]);
    there.hub.follow_all(&ada(), &outbox, false);
    store.set("r", true, None);
    there.hear(&store, &here.publish(&[add("r")])).await;
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), [""; 0], "it follows the rooms no more");
}

#[tokio::test]
async fn a_join_that_nobody_told_of_is_found() {
    for version in [None, Some(1)] {
        let (store, node) = (RoomsOfAda::default(), Node::new(1));
        store.set("old", true, version);
        store.set("written", false, version);
        let [first, second] = [node.socket(&store).await, node.socket(&store).await];
        store.set("r", true, version);
        for expected in [vec![], vec!["joined r at 7"], vec![]] {
            node.compare_ada(&store).await;
            assert_eq!(shown(&first), expected);
            assert_eq!(shown(&second), expected);
            node.pass(SECOND);
        }
        // Where others than members are listed, a new version says that somebody joined.
        store.set("written", true, version.map(|version| version + 1));
        node.compare_ada(&store).await;
        assert_eq!(node.compare_again(&store).await, 1, "soon, and not only in the next round");
        assert_eq!(shown(&first), ["joined written at 7"]);
    }
}

#[tokio::test]
async fn who_is_added_again_while_the_old_subscription_ends_is_told() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    store.set("r", true, None);
    let outbox = there.socket(&store).await;
    let attachment = live(&there.hub, "r", Some("ada"), &outbox);
    // Removed and added again. The removal is noticed here, and the subscription ends only behind the hint.
    there.hear(&store, &here.publish(&[add("r")])).await;
    there.hub.end("r", |_| true);
    there.hub.detach(attachment);
    assert_eq!(shown(&outbox), ["joined r at 7", "ended r"], "the socket still follows the room at first");
    assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    // The socket found the user to be no member, and was told of the join just before.
    there.hub.forget_rooms(&ada(), &outbox, [&RoomId::new("r").unwrap()]);
    assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    there.hear(&store, &here.publish(&[add("r")])).await;
    there.hub.close_socket(&ada(), &outbox);
    there.hub.forget_rooms(&ada(), &outbox, [&RoomId::new("r").unwrap()]);
    assert_eq!(there.compare(&store).await, 0, "its socket is gone");
}

#[tokio::test]
async fn lost_hints_are_noticed() {
    let (store, mut here, mut there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    store.set("r", true, None);
    there.hear(&store, &here.publish(&[add("other")])).await;
    // One is lost, and the next record has a number that does not follow.
    drop(here.publish(&[add("r")]));
    let others = here.publish(&[RoomChange::AddMember { room: "r", user: "cleo" }]);
    there.hear(&store, &others).await;
    there.tick();
    assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    // More than can be told.
    let names: Vec<String> = (0..1_100).map(|number| format!("user-{number}")).collect();
    let many: Vec<_> = names.iter().map(|user| RoomChange::AddMember { room: "s", user }).collect();
    store.set("s", true, None);
    let records = here.publish(&[&many[..], &[add("s")]].concat());
    there.hear(&store, &records).await;
    assert_eq!(there.compare(&store).await, 1, "ada may be among those that are not told");
    there.compare_again(&store).await;
    assert_eq!(shown(&outbox), ["joined s at 7"]);
    // More than can be looked up.
    let rooms: Vec<RoomId> = (0..10_001).map(|number| RoomId::new(&format!("t-{number}")).unwrap()).collect();
    rooms.iter().for_each(|room| there.hub.hint_join(room, "ada", None));
    assert_eq!(there.compare(&store).await, 1);
    there.hub.look_up_hints(&store).await;
    // A server that is silent may have died before it told.
    there.pass(SECOND * 10);
    there.tick();
    assert_eq!(there.compare(&store).await, 1);
    // One that has told everything is silent.
    for _ in 0..3 {
        there.hear(&store, &here.publish(&[add("s")])).await;
    }
    here.pass(SECOND * 3);
    there.hear(&store, &here.tick()).await;
    there.pass(SECOND * 10);
    there.tick();
    assert_eq!(there.compare(&store).await, 0);
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn what_a_server_that_stops_has_not_told_is_found() {
    for is_written in [true, false] {
        let (store, mut here, mut there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
        let outbox = there.socket(&store).await;
        store.set("r", true, None);
        there.hear(&store, &here.publish(&[add("other")])).await;
        publish_all(&here.hub, [change(add("r"))]);
        if is_written {
            // And lost.
            here.tick();
        }
        here.hub.announce_shutdown();
        let records: Vec<_> = std::mem::take(&mut *here.records.sent.lock()).into();
        there.hear(&store, &records).await;
        there.tick();
        assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
        assert_eq!(shown(&outbox), ["joined r at 7"]);
    }
}

#[tokio::test]
async fn a_user_whose_rooms_cannot_be_read_is_in_the_way_of_no_other() {
    let (store, there) = (RoomsOfAda::default(), Node::new(2));
    let (outbox, unreadable) = (there.socket(&store).await, UserId::new("unreadable").unwrap());
    store.set("r", true, None);
    let urgent = [unreadable.clone()];
    there.hub.compare_users(&store, &urgent, vec![ada()], there.now()).await.unwrap();
    assert_eq!(there.hub.take_urgent(9), urgent, "it waits again");
    assert_eq!((there.compare_again(&store).await, shown(&outbox)), (1, vec!["joined r at 7".to_owned()]));
    there.hub.compare_users(&store, &urgent, Vec::new(), there.now()).await.unwrap_err();
}

/// The socket has unsubscribed from what it was told of.
#[tokio::test]
async fn a_late_hint_tells_nothing_again() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    store.set("page", true, None);
    let outbox = there.socket(&store).await;
    let page = RoomId::new("page").unwrap();
    there.hub.expect_no_joins(&ada(), &outbox, [&page]);
    store.set("listed", true, None);
    there.compare_ada(&store).await;
    there.compare_again(&store).await;
    assert_eq!(shown(&outbox), ["joined listed at 7"]);
    for room in ["page", "listed"] {
        there.hear(&store, &here.publish(&[add(room)])).await;
        assert_eq!(shown(&outbox), [""; 0]);
    }
    there.hub.forget_unread(&ada(), &outbox, [&page]);
    there.hear(&store, &here.publish(&[add("page")])).await;
    assert_eq!(shown(&outbox), ["joined page at 7"], "it was seen not to be one of ada's");
}

/// A socket that unsubscribed from a room has no subscription of it that ends with the removal.
#[tokio::test]
async fn who_unsubscribed_is_told_of_the_next_join() {
    let (store, mut here, mut there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    store.set("page", true, None);
    let outbox = there.socket(&store).await;
    there.hub.expect_no_joins(&ada(), &outbox, [&RoomId::new("page").unwrap()]);
    // In one tick, in two, and removed at the server of the socket.
    there.hear(&store, &here.publish(&[remove("page"), add("page")])).await;
    assert_eq!(shown(&outbox), ["joined page at 7"]);
    let removal = here.publish(&[remove("page")]);
    there.hear(&store, &removal).await;
    assert_eq!(shown(&outbox), [""; 0]);
    there.hear(&store, &here.publish(&[add("page")])).await;
    assert_eq!(shown(&outbox), ["joined page at 7"]);
    there.publish(&[remove("page")]);
    there.hear(&store, &here.publish(&[add("page")])).await;
    assert_eq!(shown(&outbox), ["joined page at 7"]);
    // The removal alone is known: the store lists the room, and no hint comes.
    there.hear(&store, &here.publish(&[remove("page")])).await;
    there.compare_ada(&store).await;
    there.compare_again(&store).await;
    assert_eq!(shown(&outbox), ["joined page at 7"]);
    // What was told before is no news.
    there.hear(&store, &here.publish(&[add("page")])).await;
    assert_eq!(shown(&outbox), [""; 0]);
}

/// A partition of the bus is read from now on: what was told in it before is missing.
#[cfg(feature = "kafka")]
#[tokio::test]
async fn what_was_told_before_the_bus_is_read_is_found() {
    let (store, there) = (RoomsOfAda::default(), Node::new(2));
    let outbox = there.socket(&store).await;
    let mut followed = Vec::new();
    there.hub.each_followed(|id| followed.push(id.to_owned()));
    assert_eq!(followed, ["ada"]);
    store.set("r", true, None);
    there.hub.begin_partitions(&HashSet::from([0]));
    assert_eq!(there.compare(&store).await, 0, "ada's is another one");
    there.hub.begin_partitions(&HashSet::from([1]));
    assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
    assert_eq!(shown(&outbox), ["joined r at 7"]);
}

/// A hint tells of it, if one can arrive, with the mark that may have moved. What this server waits for is told before its
/// client is answered, who may speak at once.
#[cfg(feature = "kafka")]
#[tokio::test]
async fn joins_that_other_servers_commit_are_told_before_they_are_answered() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    ["r", "s", "t"].into_iter().for_each(|room| store.set(room, true, None));
    let access = |room, user| store.access(room, user);
    let added = |room| match change(add(room)) {
        (Op::Change(change), outcome) => (change, outcome),
        _ => panic!(),
    };
    let publish = async |room, is_awaited| {
        let (change, outcome) = added(room);
        there.hub.publish_remote_change(&change, &outcome, is_awaited, &access).await;
    };
    publish("r", true).await;
    let (_outbox, outbox) = (there.socket(&RoomsOfAda::default()).await, outbox(99));
    there.hub.follows_more().now_or_never().expect("its partition is read at once");
    there.hub.open_socket(&ada(), &outbox);
    there.hub.follow_all(&ada(), &outbox, true);
    publish("r", false).await;
    assert_eq!(shown(&outbox), [""; 0], "a hint comes");
    publish("r", true).await;
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    let what = RoomChange::PutRoom { room: "s", settings: RoomSettings::default() };
    let put = Change { by: Some("ada"), what };
    for is_created in [false, true] {
        let outcome = Outcome::Room { created: is_created };
        there.hub.publish_remote_change(&put, &outcome, true, &access).await;
    }
    assert_eq!(shown(&outbox), ["joined s at 7"]);
    // The partition is not read yet.
    there.records.hears_nothing.store(true, Ordering::SeqCst);
    publish("t", false).await;
    assert_eq!(shown(&outbox), ["joined t at 7"]);
    there.hub.expect_joins(&ada(), &outbox, Some(Vec::new()));
    publish("t", true).await;
    assert_eq!(shown(&outbox), ["joined t at 7"]);
    there.hear(&store, &here.publish(&[add("t")])).await;
    assert_eq!(shown(&outbox), [""; 0], "it is told once");
}

/// The thread that reads the bus asks, so everything else on the bus would wait.
#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_store_that_does_not_answer_holds_up_nothing_else_on_the_bus() {
    let (store, there) = (RoomsOfAda::default(), Node::new(2));
    let outbox = there.socket(&store).await;
    store.set("r", true, None);
    let never = |_: RoomId, _: UserId| -> Read<'_, Access> { Box::pin(std::future::pending()) };
    let join = Change { by: None, what: RoomChange::AddMember { room: "r", user: "ada" } };
    there.hub.publish_remote_change(&join, &Outcome::Changed { changed: true }, true, &never).await;
    // Not even asked for a while.
    let unasked = |_: RoomId, _: UserId| -> Read<'_, Access> { panic!("it was slow just before") };
    there.hub.publish_remote_change(&join, &Outcome::Changed { changed: true }, true, &unasked).await;
    assert_eq!(shown(&outbox), [""; 0]);
    there.hub.look_up_hints(&store).await;
    assert_eq!(shown(&outbox), ["joined r at 7"]);
}
