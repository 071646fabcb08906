//! A room of a shared store: the hub under test publishes what two servers commit.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::FutureExt as _;
use hubbub_core::Clock;
use hubbub_core::MessageId;
use hubbub_core::clock::{ManualClock, RandomSource, SeededRandom};
use hubbub_core::store::{
    Cursor, HistoryPage, HistoryQuery, LastMessages, Member, ReadError, RoomHead, RoomInfo, RoomStore,
    UserRooms,
};
use tokio::sync::mpsc;

use super::*;

/// A store with one room. Its reads yield a random number of times.
struct OneRoom {
    room: Mutex<Room>,
    random: SeededRandom,
}

#[derive(Default)]
struct Room {
    head: u64,
    changes: u64,
    is_deleted: bool,
    /// Whether only ada may read it.
    is_closed: bool,
    /// Whether ada's membership was removed.
    has_lost_ada: bool,
    /// Queries for members fail.
    is_mute: bool,
    erased: Vec<u64>,
    /// Users that were asked about.
    asked: Vec<UserId>,
    /// Retention removed everything up to here.
    removed: u64,
}

/// A room that cannot be read.
const DAMAGED: &str = "damaged";

impl OneRoom {
    fn new(head: u64) -> Arc<Self> {
        let room = Room { head, ..Room::default() };
        Arc::new(Self { room: Mutex::new(room), random: SeededRandom::new(7) })
    }

    /// Stores messages, and returns their numbers.
    fn store(&self, count: u64) -> std::ops::RangeInclusive<u64> {
        let mut room = self.room.lock();
        room.head += count;
        room.head - count + 1..=room.head
    }

    fn change(&self, change: impl FnOnce(&mut Room)) {
        let mut room = self.room.lock();
        room.changes += 1;
        change(&mut room);
    }

    async fn wait(&self) {
        for _ in 0..=self.random.next_u64() % 8 {
            tokio::task::yield_now().await;
        }
    }
}

impl RoomStore for OneRoom {
    fn epoch(&self) -> Arc<str> {
        "e".into()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move {
            self.wait().await;
            let page = {
                let there = self.room.lock();
                let Cursor::After(after) = query.cursor else { panic!("{query:?}") };
                if there.is_deleted {
                    return Err(ReadError::UnknownRoom);
                }
                let mut page =
                    HistoryPage { head: there.head, oldest: there.removed + 1, ..HistoryPage::default() };
                let mut left =
                    (after.max(there.removed) + 1..=there.head).filter(|seq| !there.erased.contains(seq));
                for seq in left.by_ref().take(query.limit.min(20)) {
                    let (op, Outcome::Stored(receipt)) = message(room.as_str(), seq) else { panic!() };
                    let Op::Send(sent) = op else { panic!() };
                    page.messages.push(&Message { seq, received_at: receipt.received_at, sent });
                }
                page.more = left.next().is_some();
                page
            };
            self.wait().await;
            Ok(page)
        })
    }

    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move {
            let heads = {
                let there = self.room.lock();
                if rooms.iter().any(|room| room.as_str() == DAMAGED) {
                    return Err(ReadError::Unavailable { reason: "damaged".into() });
                }
                let (head, changes) = (there.head, there.changes);
                let rooms = rooms.into_iter().filter(|room| room.as_str() == "r" && !there.is_deleted);
                rooms.map(|room| RoomHead { room, head, members_only: there.is_closed, changes }).collect()
            };
            self.wait().await;
            Ok(heads)
        })
    }

    fn access(&self, _: RoomId, user: UserId) -> Read<'_, Access> {
        let mut room = self.room.lock();
        room.asked.push(user.clone());
        let access = match user.as_str() {
            _ if room.is_mute => Err(ReadError::Unavailable { reason: "mute".into() }),
            "ada" if !room.has_lost_ada => Ok(Access::Member { read_seq: 0 }),
            _ if room.is_closed => Ok(Access::Closed),
            _ => Ok(Access::Open),
        };
        Box::pin(std::future::ready(access))
    }

    fn seq_of(&self, _: RoomId, _: MessageId) -> Read<'_, Option<u64>> {
        panic!("the hub does not ask for it")
    }

    fn room(&self, _: RoomId) -> Read<'_, Option<RoomInfo>> {
        panic!("the hub does not ask for it")
    }

    fn rooms(&self, _: Option<RoomId>, _: usize) -> Read<'_, Vec<RoomInfo>> {
        panic!("the hub does not ask for it")
    }

    fn members(&self, _: RoomId, _: Option<UserId>, _: usize) -> Read<'_, Vec<Member>> {
        panic!("the hub does not ask for it")
    }

    fn user_rooms(&self, _: UserId, _: Option<RoomId>, _: usize, _: LastMessages) -> Read<'_, UserRooms> {
        panic!("the hub does not ask for it")
    }

    fn user_room_count(&self, _: UserId, _: usize) -> Read<'_, usize> {
        panic!("the hub does not ask for it")
    }
}

fn shared() -> Hub {
    let hub = hub();
    hub.enable_remote();
    hub
}

fn joined(hub: &Hub, user: Option<&str>, outbox: &Arc<Outbox>, cursor: u64) -> Attachment {
    let user = user.map(|user| UserId::new(user).unwrap());
    let attachment = hub.attach(RoomId::new("r").unwrap(), user, outbox);
    assert_eq!(hub.join(&attachment, outbox, cursor), Joined::Live);
    attachment
}

#[tokio::test]
async fn what_others_commit_is_delivered_in_its_place() {
    let (hub, store, outbox) = (shared(), OneRoom::new(3), outbox(9_999));
    let attachment = joined(&hub, None, &outbox, 3);
    publish(&hub, "r", store.store(2));
    assert_eq!(drain(&outbox), [4, 5]);
    store.store(1);
    publish(&hub, "r", store.store(1));
    assert_eq!(drain(&outbox), [0; 0], "6 is missing before 7");
    let behind = hub.enable_remote().take();
    assert_eq!(behind, [RoomId::new("r").unwrap()]);
    hub.catch_up(&*store, behind).await.unwrap();
    assert_eq!(drain(&outbox), [6, 7]);
    store.store(100);
    hub.poll_heads(&*store).await.unwrap();
    assert_eq!(drain(&outbox), (8..=107).collect::<Vec<_>>());
    // Published late, after the poll has found it.
    let mine = store.store(3);
    hub.poll_heads(&*store).await.unwrap();
    publish(&hub, "r", mine);
    publish(&hub, "r", store.store(1));
    assert_eq!(drain(&outbox), [108, 109, 110, 111]);
    assert!(hub.enable_remote().take().is_empty());
    hub.detach(attachment);
}

#[tokio::test]
async fn numbers_of_erased_messages_are_passed_over() {
    let (hub, store, [first, second]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let attachment = joined(&hub, None, &first, 0);
    publish(&hub, "r", store.store(5));
    store.change(|room| room.erased = vec![4, 5]);
    store.store(1);
    store.change(|room| room.erased.push(6));
    hub.poll_heads(&*store).await.unwrap();
    publish(&hub, "r", store.store(1));
    assert_eq!(drain(&first), [1, 2, 3, 4, 5, 7], "6 was gone before it was seen");
    let late = hub.attach(RoomId::new("r").unwrap(), None, &second);
    assert_eq!(hub.join(&late, &second, 3), Joined::ReadOn);
    publish(&hub, "r", store.store(1));
    assert_eq!(hub.join(&late, &second, 7), Joined::Live);
    assert_eq!(drain(&second), [8]);
    hub.detach(attachment);
    hub.detach(late);
}

#[tokio::test]
async fn whoever_another_server_sends_away_gets_nothing_more() {
    let (hub, store) = (shared(), OneRoom::new(0));
    let [ada, bob, carl] = [outbox(99), outbox(99), outbox(99)];
    let attachments = [
        (joined(&hub, Some("ada"), &ada, 0), &ada),
        (joined(&hub, Some("bob"), &bob, 0), &bob),
        (hub.attach(RoomId::new("r").unwrap(), Some(UserId::new("carl").unwrap()), &carl), &carl),
    ];
    hub.poll_heads(&*store).await.unwrap();
    let ended = |outbox: &Outbox| shown(outbox).contains(&"ended r".to_owned());
    assert!(!ended(&bob));
    store.change(|room| room.is_closed = true);
    store.store(1);
    hub.poll_heads(&*store).await.unwrap();
    assert!(ended(&bob) && ended(&carl), "those who still catch up, too");
    assert!(shown(&ada).contains(&"1".to_owned()));
    store.change(|room| room.is_deleted = true);
    hub.poll_heads(&*store).await.unwrap();
    assert!(ended(&ada));
    for (attachment, _) in attachments {
        hub.detach(attachment);
    }
}

#[tokio::test]
async fn a_member_removed_elsewhere_leaves_a_room_that_all_may_read() {
    let (hub, store) = (shared(), OneRoom::new(0));
    let outboxes = [outbox(99), outbox(99), outbox(99), outbox(99)];
    let [live, guest, behind, asking] = &outboxes;
    let follow = |user: &str, outbox: &Arc<Outbox>| {
        hub.attach(RoomId::new("r").unwrap(), Some(UserId::new(user).unwrap()), outbox)
    };
    let attachments = [("ada", live), ("bob", guest), ("ada", behind), ("ada", asking)];
    let attachments = attachments.map(|(user, outbox)| (follow(user, outbox), outbox));
    for (attachment, outbox) in &attachments[..2] {
        assert!(hub.confirm(attachment, outbox, Arc::ptr_eq(outbox, live)));
        assert_eq!(hub.join(attachment, outbox, 0), Joined::Live);
    }
    hub.poll_heads(&*store).await.unwrap();
    assert!(!hub.confirm(&attachments[2].0, behind, true), "a change was taken in meanwhile");
    assert!(hub.confirm(&attachments[2].0, behind, true));
    let ended = |outbox: &Outbox| shown(outbox).iter().filter(|said| *said == "ended r").count();

    store.change(|room| (room.has_lost_ada, room.is_mute) = (true, true));
    hub.poll_heads(&*store).await.unwrap_err();
    assert!(outboxes.iter().all(|outbox| ended(outbox) == 0), "nobody knows");
    store.room.lock().is_mute = false;
    hub.poll_heads(&*store).await.unwrap();
    assert_eq!(outboxes.each_ref().map(|outbox| ended(outbox)), [1, 0, 1, 1], "all that the user has");
    // An unconfirmed follower queries again; one that finds out by itself gets one notice.
    let outbox = outbox(99);
    let late = follow("eve", &outbox);
    store.change(|_| {});
    hub.poll_heads(&*store).await.unwrap();
    assert!(!hub.confirm(&late, &outbox, true));
    assert!(hub.confirm(&late, &outbox, false));
    hub.end_joining(&late, &outbox);
    hub.end_joining(&late, &outbox);
    assert_eq!((ended(&outbox), ended(guest)), (1, 0));
    assert_eq!(hub.join(&late, &outbox, 0), Joined::Ended);
    hub.detach(late);
    for (attachment, _) in attachments {
        hub.detach(attachment);
    }
}

#[tokio::test]
async fn a_room_deleted_before_it_was_looked_at_is_left() {
    let (hub, store, [late, early]) = (shared(), OneRoom::new(2), [outbox(9), outbox(9)]);
    let attachment = joined(&hub, None, &late, 2);
    store.change(|room| room.is_deleted = true);
    hub.poll_heads(&*store).await.unwrap();
    assert_eq!(shown(&late), ["ended r"]);
    hub.detach(attachment);
    let attachment = joined(&hub, None, &early, 0);
    hub.poll_heads(&*store).await.unwrap();
    assert!(shown(&early).is_empty(), "there is no such room yet");
    hub.detach(attachment);
}

/// Reads the store and goes live, as a connection does. Returns where it began and the seqs it saw.
async fn read_and_follow(hub: &Hub, store: &OneRoom, is_over: &AtomicBool) -> (u64, Vec<u64>) {
    let room = RoomId::new("r").unwrap();
    let outbox = outbox(1_000_000);
    let attachment = hub.attach(room.clone(), None, &outbox);
    let mut cursor = store.room.lock().head;
    let began = cursor;
    let mut seen = Vec::new();
    store.wait().await;
    while hub.join(&attachment, &outbox, cursor) == Joined::ReadOn {
        let cursor_at = Cursor::After(cursor);
        let query = HistoryQuery { cursor: cursor_at, from: None, to: None, limit: 10, bytes_max: 9_999 };
        let page = store.history(room.clone(), query).await.unwrap();
        seen.extend(page.messages.iter().map(|message| message.seq));
        cursor = seen.last().copied().unwrap_or(cursor);
    }
    let most = 20 + store.random.next_u64() % 500;
    loop {
        seen.extend(drain(&outbox));
        let is_enough = seen.len() as u64 > most;
        if is_enough || is_over.load(Ordering::SeqCst) && began + seen.len() as u64 == store.room.lock().head
        {
            break;
        }
        tokio::task::yield_now().await;
    }
    hub.detach(attachment);
    (began, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_everything_once_and_in_order() {
    let (hub, store) = (Arc::new(shared()), OneRoom::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::default()));
    let following = tokio::spawn(follow_remote(hub.clone(), store.clone(), clock));
    let (committed, mut to_publish) = mpsc::channel(4);
    let local = tokio::spawn({
        let store = store.clone();
        async move {
            for _ in 0..3_000 {
                committed.send(store.store(1 + store.random.next_u64() % 3)).await.unwrap();
                store.wait().await;
            }
        }
    });
    let dispatching = tokio::spawn({
        let (hub, store) = (hub.clone(), store.clone());
        async move {
            while let Some(seqs) = to_publish.recv().await {
                store.wait().await;
                publish(&hub, "r", seqs);
            }
        }
    });
    let remote = tokio::spawn({
        let store = store.clone();
        async move {
            for _ in 0..300 {
                store.store(1);
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
    });
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (hub, store, is_over) = (hub.clone(), store.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let following = read_and_follow(&hub, &store, &is_over);
                    let (began, seen) =
                        tokio::time::timeout(Duration::from_secs(60), following).await.unwrap();
                    assert!(
                        seen.iter().copied().eq(began + 1..=began + seen.len() as u64),
                        "{began}: {seen:?}"
                    );
                }
            })
        })
        .collect();
    local.await.unwrap();
    remote.await.unwrap();
    dispatching.await.unwrap();
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    following.abort();
}

mod again;
mod gaps;
mod removed;
mod sparse;

fn removed(outbox: &Outbox) -> bool {
    shown(outbox).contains(&"ended r".to_owned())
}

#[tokio::test]
async fn nobody_is_sent_away_because_the_store_does_not_answer() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let attachments =
        [(joined(&hub, Some("ada"), &ada, 0), &ada), (joined(&hub, Some("bob"), &bob, 0), &bob)];
    hub.poll_heads(&*store).await.unwrap();
    store.change(|room| (room.is_closed, room.is_mute) = (true, true));
    let settings = RoomSettings { members_only: Some(true), ..RoomSettings::default() };
    let change = Change { by: None, what: RoomChange::PutRoom { room: "r", settings } };
    let access = |room, user| store.access(room, user);
    hub.publish_change(&change, &Outcome::Room { created: false }, &access).await;
    publish(&hub, "r", store.store(1));
    let is_told = |said: &String| said.starts_with("ended") || said == "1";
    for outbox in [&ada, &bob] {
        assert!(!shown(outbox).iter().any(is_told), "it is not known who is a member");
    }
    store.room.lock().is_mute = false;
    hub.poll_heads(&*store).await.unwrap();
    assert!(removed(&bob) && shown(&ada).contains(&"1".to_owned()));
    for (attachment, _) in attachments {
        hub.detach(attachment);
    }
}

/// By then the room may be there again, with others in it.
#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_deletion_that_is_heard_late_ends_nobody_in_the_next_room() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    let deletion = Change { by: None, what: RoomChange::DeleteRoom { room: "r" } };
    let access = |room, user| store.access(room, user);
    let hear = async || {
        hub.publish_remote_change(&deletion, &Outcome::Changed { changed: true }, false, &access).await;
        hub.poll_heads(&*store).await.unwrap();
    };
    // Deleted and made again before this is heard.
    store.change(|_| {});
    hear().await;
    assert!(!removed(&ada), "the room is there");
    publish(&hub, "r", store.store(1));
    assert_eq!(drain(&ada), [1]);
    // Whoever comes while the store is asked comes to the room that was made since.
    store.change(|room| room.is_deleted = true);
    hub.publish_remote_change(&deletion, &Outcome::Changed { changed: true }, false, &access).await;
    let mut polling = Box::pin(hub.poll_heads(&*store));
    assert!((&mut polling).now_or_never().is_none(), "the store takes a while");
    store.change(|room| room.is_deleted = false);
    let late = hub.attach(RoomId::new("r").unwrap(), Some(UserId::new("bob").unwrap()), &bob);
    polling.await.unwrap();
    assert!(removed(&ada) && !removed(&bob));
    hub.detach(attachment);
    hub.detach(late);
    // Also a room that nobody has written to or looked at.
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    store.change(|room| room.is_deleted = true);
    let access = |room, user| store.access(room, user);
    hub.publish_remote_change(&deletion, &Outcome::Changed { changed: true }, false, &access).await;
    hub.poll_heads(&*store).await.unwrap();
    assert!(removed(&ada));
    hub.detach(attachment);
}

/// A slow store holds up nothing else that the bus brings.
#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_room_that_another_server_closed_is_compared_before_it_goes_on() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let attachments = [joined(&hub, Some("ada"), &ada, 0), joined(&hub, Some("bob"), &bob, 0)];
    hub.poll_heads(&*store).await.unwrap();
    store.change(|room| room.is_closed = true);
    let settings = RoomSettings { members_only: Some(true), ..RoomSettings::default() };
    let closing = Change { by: None, what: RoomChange::PutRoom { room: "r", settings } };
    let access = |_, _| -> Read<'static, Access> { Box::pin(std::future::pending()) };
    let hearing = hub.publish_remote_change(&closing, &Outcome::Room { created: false }, false, &access);
    assert!(hearing.now_or_never().is_some(), "nobody is asked about here");
    publish(&hub, "r", store.store(1));
    let is_told = |said: &String| said.starts_with("ended") || said == "1";
    for outbox in [&ada, &bob] {
        assert!(!shown(outbox).iter().any(is_told), "it is not known who is a member");
    }
    hub.poll_heads(&*store).await.unwrap();
    assert!(shown(&ada).contains(&"1".to_owned()));
    let said = shown(&bob);
    assert!(said.contains(&"ended r".to_owned()) && !said.contains(&"1".to_owned()), "{said:?}");
    attachments.into_iter().for_each(|attachment| hub.detach(attachment));
}

#[tokio::test]
async fn a_room_that_cannot_be_read_hides_no_other() {
    let (hub, store, outbox) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, None, &outbox, 0);
    let damaged = hub.attach(RoomId::new(DAMAGED).unwrap(), None, &outbox);
    store.store(2);
    hub.poll_heads(&*store).await.unwrap_err();
    assert_eq!(drain(&outbox), [1, 2]);
    hub.detach(attachment);
    hub.detach(damaged);
}

#[tokio::test]
async fn who_subscribes_anew_is_not_the_one_who_leaves() {
    let (hub, outbox) = (shared(), outbox(99));
    let room = RoomId::new("r").unwrap();
    let [first, second] = [(); 2].map(|()| hub.attach(room.clone(), None, &outbox));
    hub.detach(first);
    assert_eq!(hub.join(&second, &outbox, 0), Joined::Live);
    hub.detach(second);
}
