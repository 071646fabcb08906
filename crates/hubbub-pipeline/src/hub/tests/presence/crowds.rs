//! Who comes to and leaves large rooms.

use hubbub_core::clock::RandomSource as _;

use super::*;
use crate::hub::presence::AT_ONCE_MAX;

/// The end of the time for which changes are collected.
pub(super) fn tell(hub: &Hub) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(hub.tell_rooms());
}

fn name(number: usize) -> String {
    format!("user-{number}")
}

/// Users of whom an outbox was told that they came, and that they left, each as often as it was told; and in how many deliveries.
fn told(outbox: &Outbox) -> (Vec<String>, Vec<String>, usize) {
    let shown = shown(outbox);
    let of = |is_online: bool| {
        let notices = shown.iter().flat_map(|text| text.split("Presence ").skip(1));
        let wanted = notices.filter(|notice| notice.contains(&format!("is_online: {is_online}")));
        let mut users: Vec<String> =
            wanted.filter_map(|notice| Some(notice.split('"').nth(3)?.to_owned())).collect();
        users.sort();
        users
    };
    (of(true), of(false), shown.len())
}

#[test]
fn a_crowd_costs_each_subscriber_one_delivery() {
    // Less than is collected.
    const CROWD: usize = 500;
    let (hub, ada, crowd) = (hub(), outbox(99_999), outbox(99_999));
    let at_first = live(&hub, "r", Some("ada"), &ada);
    let before: Vec<_> = (0..AT_ONCE_MAX - 1).map(|n| live(&hub, "r", Some(&name(n)), &crowd)).collect();
    assert_eq!(told(&ada).2, AT_ONCE_MAX - 1, "a small room is told at once");
    let later: Vec<_> = (AT_ONCE_MAX..CROWD).map(|n| (live(&hub, "r", Some(&name(n)), &crowd), n)).collect();
    assert_eq!(told(&ada), (vec![], vec![], 0));
    assert_eq!(hub.present("r").len(), CROWD, "whoever asks sees them at once");
    tell(&hub);
    let (came, left, deliveries) = told(&ada);
    let mut expected: Vec<String> = later.iter().map(|(_, n)| name(*n)).collect();
    expected.sort();
    assert_eq!((came, left, deliveries), (expected.clone(), vec![], 1));
    tell(&hub);
    assert_eq!(told(&ada).2, 0);
    later.into_iter().for_each(|(attachment, _)| hub.detach(attachment));
    tell(&hub);
    let (came, left, deliveries) = told(&ada);
    assert_eq!((came, left), (vec![], expected));
    assert!(deliveries <= 2, "{deliveries}: the last one left a small room");
    before.into_iter().for_each(|attachment| hub.detach(attachment));
    hub.detach(at_first);
}

#[test]
fn nobody_of_a_crowd_is_told_of_its_own_coming() {
    let (hub, filling) = (hub(), outbox(99_999));
    let there: Vec<_> = (0..=AT_ONCE_MAX).map(|n| live(&hub, "r", Some(&name(n)), &filling)).collect();
    tell(&hub);
    let outboxes: Vec<_> = (0..5).map(|_| outbox(999)).collect();
    let names = ["v", "w", "x", "y", "z"];
    let came: Vec<_> =
        names.iter().zip(&outboxes).map(|(user, outbox)| live(&hub, "r", Some(user), outbox)).collect();
    tell(&hub);
    for (user, outbox) in names.iter().zip(&outboxes) {
        let others: Vec<&str> = names.into_iter().filter(|other| other != user).collect();
        assert_eq!(told(outbox).0, others);
    }
    // Back before anybody was told: no news. The next one is.
    let mut came = came.into_iter();
    hub.detach(came.next().unwrap());
    let again = live(&hub, "r", Some("v"), &outboxes[0]);
    hub.detach(came.next().unwrap());
    tell(&hub);
    assert_eq!(told(&outboxes[2]), (vec![], vec!["w".to_owned()], 1));
    // Gone before anybody was told.
    let short = live(&hub, "r", Some("short"), &outboxes[1]);
    hub.detach(short);
    tell(&hub);
    assert_eq!(told(&outboxes[2]).2, 0);
    there.into_iter().chain(came).chain([again]).for_each(|attachment| hub.detach(attachment));
}

/// Somebody asked who is present between a change and its end: what was answered is corrected.
#[test]
fn who_asked_meanwhile_is_told_how_it_is() {
    let (hub, ada, filling) = (hub(), outbox(9_999), outbox(99_999));
    let at_first = live(&hub, "r", Some("ada"), &ada);
    let there: Vec<_> = (0..=AT_ONCE_MAX).map(|n| live(&hub, "r", Some(&name(n)), &filling)).collect();
    tell(&hub);
    told(&ada);
    let short = live(&hub, "r", Some("short"), &filling);
    assert!(hub.present("r").iter().any(|user| user.as_str() == "short"));
    hub.detach(short);
    tell(&hub);
    assert_eq!(told(&ada), (vec![], vec!["short".to_owned()], 1));
    there.into_iter().chain([at_first]).for_each(|attachment| hub.detach(attachment));
}

/// What a room was not told of while it was large is told when it is small.
#[test]
fn a_room_that_shrinks_is_told_of_everything() {
    let (hub, ada, crowd) = (hub(), outbox(9_999), outbox(99_999));
    let at_first = live(&hub, "r", Some("ada"), &ada);
    let mut there: Vec<_> = (0..AT_ONCE_MAX + 5).map(|n| live(&hub, "r", Some(&name(n)), &crowd)).collect();
    for attachment in there.drain(..10) {
        hub.detach(attachment);
    }
    let (came, left, _) = told(&ada);
    // The last ones that came, and the first ones that left, were not told while it was large.
    assert_eq!((came.len(), left.len()), (AT_ONCE_MAX + 5, 10), "{came:?} {left:?}");
    tell(&hub);
    assert_eq!(told(&ada).2, 0);
    there.into_iter().chain([at_first]).for_each(|attachment| hub.detach(attachment));
}

/// The same user comes and goes on two servers in every order: what was told last is what is so.
#[test]
fn what_is_told_last_is_so() {
    let mut cluster = Cluster::new(2);
    let hubs = [cluster.nodes[0].hub.clone(), cluster.nodes[1].hub.clone()];
    let (watcher, filling, eve) = (outbox(99_999), outbox(99_999), outbox(99_999));
    let watching = live(&hubs[0], "r", Some("watcher"), &watcher);
    let there: Vec<_> = (0..=AT_ONCE_MAX).map(|n| live(&hubs[0], "r", Some(&name(n)), &filling)).collect();
    cluster.steps(4);
    tell(&hubs[0]);
    told(&watcher);
    let random = SeededRandom::new(7);
    let (mut at, mut known) = ([None, None], false);
    for _ in 0..2_000 {
        match random.next_u64() % 4 {
            0 => tell(&hubs[0]),
            1 => cluster.step(),
            _ => {
                let node = usize::from(random.next_u64().is_multiple_of(2));
                match at[node].take() {
                    Some(attachment) => hubs[node].detach(attachment),
                    None => at[node] = Some(live(&hubs[node], "r", Some("eve"), &eve)),
                }
            }
        }
        for text in shown(&watcher).iter().flat_map(|text| text.split("Presence ").skip(1)) {
            let is_online = text.contains("is_online: true");
            assert_ne!(is_online, known, "each notice is news");
            known = is_online;
        }
    }
    cluster.steps(3);
    tell(&hubs[0]);
    let last = shown(&watcher).last().map_or(known, |text| text.contains("is_online: true"));
    assert_eq!(last, cluster.present(0, "r").contains(&"eve".to_owned()));
    assert_eq!(last, at.iter().any(Option::is_some));
    at.into_iter().enumerate().for_each(|(node, attachment)| {
        attachment.into_iter().for_each(|attachment| hubs[node].detach(attachment));
    });
    there.into_iter().chain([watching]).for_each(|attachment| hubs[0].detach(attachment));
}
