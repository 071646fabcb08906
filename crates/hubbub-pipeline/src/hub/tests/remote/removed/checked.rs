//! The bus says that somebody was removed, who may have been added again since.

use std::collections::HashMap;

use super::*;
use crate::hub::channel::Channel;

const REMOVAL: Change<'_> = Change { by: None, what: RoomChange::RemoveMember { room: "r", user: "ada" } };

async fn remove_ada(hub: &Hub) {
    let unasked = |_: RoomId, _: UserId| -> Read<'static, Access> { panic!("one after the other") };
    hub.publish_remote_change(&REMOVAL, &Outcome::Changed { changed: true }, false, &unasked).await;
}

/// Ada was removed, then added again, and subscribed here, before this server hears of the removal.
#[tokio::test]
async fn a_removal_that_is_heard_of_late_ends_nothing_new() {
    let (hub, store, [ada, late]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    hub.with_channel("r", |channel| channel.add_member("ada"));
    store.change(|_| {});
    remove_ada(&hub).await;
    publish(&hub, "r", store.store(1));
    assert_eq!(shown(&ada), [""; 0], "the store is asked first");
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert_eq!(shown(&ada), ["1"], "ada is a member");
    store.change(|room| room.is_mute = true);
    remove_ada(&hub).await;
    publish(&hub, "r", store.store(1));
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap_err();
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    hub.poll_heads(&*store).await.unwrap_err();
    assert_eq!(shown(&ada), [""; 0], "nobody knows");
    store.room.lock().is_mute = false;
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    assert_eq!(shown(&ada), ["2"]);
    // Removed once more, and added while the store is asked.
    store.change(ada_is_removed);
    let attached = Mutex::new(None);
    let access = |room: RoomId, user: UserId| {
        let closed = store.access(room.clone(), user.clone());
        *attached.lock() = Some(hub.attach(room, Some(user), &late));
        closed
    };
    let (room, users) =
        (RoomId::new("r").unwrap(), std::collections::HashSet::from([UserId::new("ada").unwrap()]));
    let is_over = |access: &Result<Access, _>| matches!(access, Ok(Access::Closed));
    hub.end_removed(&room, users, &access, is_over).await.unwrap();
    assert_eq!((shown(&ada), shown(&late)), (vec!["ended r".to_owned()], vec![]));
    hub.detach(attachment);
    hub.detach(attached.into_inner().unwrap());
}

#[tokio::test]
async fn whoever_may_be_removed_gets_and_sends_no_signs_of_presence() {
    let (hub, store, [ada, bob, eve]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99), outbox(99)]);
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    let of_bob = joined(&hub, Some("bob"), &bob, 0);
    hub.poll_heads(&*store).await.unwrap();
    drop((shown(&ada), shown(&bob), std::mem::take(&mut store.room.lock().asked)));
    store.change(ada_is_removed);
    remove_ada(&hub).await;
    let of_eve = joined(&hub, Some("eve"), &eve, 0);
    assert!(!hub.typing(&of_ada));
    assert!(hub.typing(&of_bob));
    assert_eq!(hub.present("r").iter().map(UserId::as_str).collect::<Vec<_>>(), ["bob", "eve"]);
    let texts = shown(&bob);
    assert!(texts.len() == 1 && texts[0].contains("eve"), "{texts:?}");
    // One after the other, and nobody else is asked about.
    publish(&hub, "r", store.store(1));
    publish(&hub, "r", store.store(2));
    assert_eq!(shown(&bob), [""; 0]);
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert_eq!(store.room.lock().asked, [UserId::new("ada").unwrap()]);
    assert_eq!(shown(&ada), ["ended r"]);
    let texts = shown(&bob);
    assert!(texts[0].contains("ada") && texts[1..] == ["1", "2", "3"], "{texts:?}");
    assert!(hub.enable_remote().take().is_empty(), "nothing is read from the store");
    publish(&hub, "r", store.store(1));
    assert_eq!(shown(&bob), ["4"]);
    hub.detach(of_ada);
    hub.detach(of_bob);
    hub.detach(of_eve);
}

#[tokio::test]
async fn whoever_stays_and_has_missed_who_came_reconnects() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    remove_ada(&hub).await;
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert!(!ada.is_cut(), "ada is a member, and lacks nothing");
    remove_ada(&hub).await;
    let of_bob = joined(&hub, Some("bob"), &bob, 0);
    hub.typing(&of_bob);
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert!(ada.is_cut() && !bob.is_cut());
    hub.detach(of_ada);
    hub.detach(of_bob);
}

#[tokio::test]
async fn what_waits_is_bounded_and_may_be_erased() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(9_999), outbox(9_999)]);
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    let of_bob = joined(&hub, None, &bob, 0);
    hub.with_channel("r", |channel| channel.add_member("ada"));
    hub.poll_heads(&*store).await.unwrap();
    drop((shown(&ada), shown(&bob)));
    remove_ada(&hub).await;
    publish(&hub, "r", store.store(2));
    store.change(|room| room.erased.push(1));
    hub.with_channel("r", |channel| channel.drop_held("r"));
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert_eq!(shown(&bob), [""; 0]);
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    assert_eq!((shown(&ada), shown(&bob)), (vec!["2".to_owned()], vec!["2".to_owned()]));
    // More than can wait: the rest is read from the store, by those who are still members.
    remove_ada(&hub).await;
    for _ in 0..1_100 {
        publish(&hub, "r", store.store(1));
    }
    store.change(ada_is_removed);
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    let got = shown(&bob).iter().filter(|text| text.parse::<u64>().is_ok()).count();
    assert_eq!((shown(&ada), got), (vec!["ended r".to_owned()], 1_100));
    // More users than are asked about: everybody is.
    let users: Vec<String> = (0..1_001).map(|number| format!("user-{number}")).collect();
    let attached = users.iter().map(|user| (joined(&hub, Some(user), &ada, 1_102), user));
    let attached: Vec<_> = attached.collect();
    drop((shown(&ada), shown(&bob)));
    for (_, user) in &attached {
        hub.require_check("r", user);
    }
    assert_eq!(hub.with_channel("r", |channel| channel.is_compared), Some(false));
    attached.into_iter().for_each(|(attachment, _)| hub.detach(attachment));
    hub.detach(of_ada);
    hub.detach(of_bob);
}

fn settled(of: Option<(HashMap<UserId, u64>, u64)>, hub: &Hub) -> Vec<u64> {
    let (asked, last) = of.unwrap();
    let released = hub.with_channel("r", |channel| channel.complete_checks(&asked, last)).unwrap();
    released.waiting.iter().map(|held| held.batch.last_seq()).collect()
}

/// Removals may follow one another faster than the store is asked.
#[tokio::test]
async fn messages_do_not_wait_for_removals_that_came_behind_them() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    let of_bob = joined(&hub, Some("bob"), &bob, 0);
    hub.poll_heads(&*store).await.unwrap();
    hub.require_check("r", "ada");
    publish(&hub, "r", store.store(1));
    let first = hub.with_channel("r", Channel::users_to_check);
    hub.require_check("r", "bob");
    publish(&hub, "r", store.store(1));
    let second = hub.with_channel("r", Channel::users_to_check);
    hub.require_check("r", "ada");
    publish(&hub, "r", store.store(1));
    assert_eq!(settled(first, &hub), [1]);
    assert_eq!(settled(second, &hub), [2]);
    assert_eq!(settled(hub.with_channel("r", Channel::users_to_check), &hub), [3]);
    hub.detach(of_ada);
    hub.detach(of_bob);
}

/// The store was asked before that, and its answer comes later.
#[tokio::test]
async fn who_was_added_again_is_not_removed_by_an_old_answer() {
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    remove_ada(&hub).await;
    let told = HashMap::from([(UserId::new("ada").unwrap(), Access::Closed)]);
    let taken = |hub: &Hub| hub.with_channel("r", |channel| channel.take_removed(&told, 9)).unwrap();
    let add = Change { by: None, what: RoomChange::AddMember { room: "r", user: "ada" } };
    let unasked = |_: RoomId, _: UserId| -> Read<'static, Access> { panic!("she follows no rooms") };
    hub.publish_remote_change(&add, &Outcome::Changed { changed: true }, false, &unasked).await;
    publish(&hub, "r", store.store(1));
    assert!(taken(&hub).is_empty());
    store.room.lock().is_mute = true;
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert_eq!(shown(&ada), ["1"], "nobody is left to ask about");
    // Removed once more, by a change that came while the store was asked.
    remove_ada(&hub).await;
    assert_eq!(taken(&hub).len(), 1);
    hub.detach(of_ada);
}

#[tokio::test]
async fn who_is_gone_holds_up_nobody_and_guests_stay() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(0), [outbox(99), outbox(99)]);
    let of_ada = joined(&hub, Some("ada"), &ada, 0);
    let of_bob = joined(&hub, None, &bob, 0);
    hub.poll_heads(&*store).await.unwrap();
    remove_ada(&hub).await;
    let told = HashMap::from([(UserId::new("ada").unwrap(), Access::Open)]);
    let taken = hub.with_channel("r", |channel| {
        channel.subscribers.iter_mut().for_each(|subscriber| subscriber.is_member = false);
        channel.take_removed(&told, 9)
    });
    assert!(taken.unwrap().is_empty(), "a guest");
    store.change(|room| room.is_mute = true);
    publish(&hub, "r", store.store(1));
    hub.detach(of_ada);
    hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert!(shown(&bob).contains(&"1".to_owned()));
    hub.detach(of_bob);
}
