//! Memory of live messages, and evictions when the bound is exceeded.

use proptest::prelude::*;

use super::*;

fn held(hub: &Hub) -> usize {
    hub.memory().held()
}

/// Publishes messages of 8 bytes that take at least `kib` KiB.
fn publish_kib(hub: &Hub, room: &str, kib: u64, head: &mut u64) {
    publish(hub, room, *head + 1..=*head + kib * 128);
    *head += kib * 128;
}

#[test]
fn what_is_charged_is_released_whichever_way_it_goes() {
    let (hub, room) = (hub(), RoomId::new("r").unwrap());
    let [quick, slow, late] = [10_000, 50, 10_000].map(|messages| outbox_of(&hub, messages));
    let attachments = [live(&hub, "r", Some("ada"), &quick), live(&hub, "r", Some("bob"), &slow)];
    let joining = hub.attach(room, None, &late);
    publish(&hub, "r", 1..=1);
    assert_eq!(hub.join(&joining, &late, 0), Joined::ReadOn);
    for seq in 2..=200 {
        publish(&hub, "r", seq..=seq);
    }
    assert!(slow.is_cut() && !quick.is_cut() && !late.is_cut());
    assert!(held(&hub) > 200 * 8);
    drain(&late);
    shown(&quick);
    assert!(held(&hub) > 199 * 8, "what is held for the one who comes is still there");
    hub.detach(joining);
    assert_eq!(held(&hub), 0);
    let frames = hub.memory().frames(vec![0; 1_000]);
    let part = frames.slice(1..2);
    drop(frames);
    assert!(held(&hub) >= 1_000, "a part keeps all of it");
    drop(part);
    publish(&hub, "r", 201..=300);
    for attachment in attachments {
        hub.detach(attachment);
    }
    assert!(held(&hub) > 0);
    drop(quick);
    assert_eq!(held(&hub), 0);
}

#[test]
fn rooms_that_nobody_catches_up_with_keep_nothing() {
    let hub = hub();
    let quick = outbox_of(&hub, 10_000);
    let rooms: Vec<_> = (0..100).map(|number| format!("room-{number}")).collect();
    let attachments: Vec<_> = rooms.iter().map(|room| live(&hub, room, None, &quick)).collect();
    for room in &rooms {
        publish(&hub, room, 1..=100);
        assert_eq!(drain(&quick).len(), 100);
    }
    assert_eq!(held(&hub), 0);
    attachments.into_iter().for_each(|attachment| hub.detach(attachment));
}

#[test]
fn whoever_lags_most_is_cut_off_first_and_nobody_who_keeps_pace() {
    const BUDGET: usize = 1 << 20;
    let hub = hub_of(BUDGET);
    let outboxes: Vec<_> = (0..20).map(|_| outbox_of(&hub, usize::MAX)).collect();
    let rooms: Vec<_> = (0..20).map(|number| format!("room-{number}")).collect();
    let rooms = rooms.iter().map(String::as_str);
    let attachments: Vec<_> =
        rooms.clone().zip(&outboxes).map(|(room, outbox)| live(&hub, room, None, outbox)).collect();
    let mut heads = [0; 20];
    // The first is slowest, the last two read at once.
    for round in 0..200_u64 {
        for (place, (room, head)) in rooms.clone().zip(&mut heads).enumerate() {
            publish_kib(&hub, room, if place == 0 { 4 } else { 1 }, head);
            if place >= 18 {
                assert_eq!(drain(&outboxes[place]).len(), 128, "{place} in round {round}");
            }
        }
        assert!(held(&hub) <= BUDGET + 64 * 1024, "{} in round {round}", held(&hub));
        let cut = outboxes.iter().filter(|outbox| outbox.is_cut()).count();
        assert!(cut == 0 || outboxes[0].is_cut(), "the slowest goes first");
    }
    assert!(hub.metrics.live_evictions.get() >= 10);
    assert!(!outboxes[18].is_cut() && !outboxes[19].is_cut());
    for attachment in attachments {
        hub.detach(attachment);
    }
}

#[test]
fn what_is_held_is_given_up_before_anybody_is_cut_off() {
    let hub = hub_of(256 * 1024);
    let outbox = outbox_of(&hub, usize::MAX);
    let attachment = hub.attach(RoomId::new("r").unwrap(), None, &outbox);
    publish(&hub, "r", 1..=1);
    assert_eq!(hub.join(&attachment, &outbox, 0), Joined::ReadOn);
    let mut head = 1;
    for _ in 0..100 {
        publish_kib(&hub, "r", 16, &mut head);
    }
    assert!(!outbox.is_cut() && held(&hub) <= 256 * 1024 && hub.metrics.live_evictions.get() > 0);
    assert_eq!(hub.join(&attachment, &outbox, 1), Joined::ReadOn);
    assert_eq!(hub.join(&attachment, &outbox, head), Joined::Live);
    publish(&hub, "r", head + 1..=head + 1);
    assert_eq!(drain(&outbox), [head + 1]);
    hub.detach(attachment);
    assert_eq!(held(&hub), 0);
}

#[derive(Debug, Clone)]
enum Act {
    Publish(u64),
    Read(u64),
    Join,
    Drain,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (1..300_u64).prop_map(Act::Publish),
        (1..400_u64).prop_map(Act::Read),
        Just(Act::Join),
        Just(Act::Drain),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    /// Publishing, reading and going live interleave in any way, with any bound; what a subscriber has seen is always
    /// 1, 2, 3 … to the head, or it was cut off.
    #[test]
    fn catching_up_has_no_gap(
        acts in acts(),
        bytes_max in prop_oneof![Just(1), 1..20_000_usize, Just(usize::MAX)],
        messages in prop_oneof![Just(1), 1..2_000_usize, Just(usize::MAX)],
    ) {
        let hub = hub_of(bytes_max);
        let outbox = outbox_of(&hub, messages);
        let attachment = hub.attach(RoomId::new("r").unwrap(), None, &outbox);
        let (mut head, mut seen, mut is_at_end, mut is_live) = (0_u64, Vec::new(), false, false);
        for act in acts {
            match act {
                Act::Publish(count) => {
                    publish(&hub, "r", head + 1..=head + count);
                    head += count;
                }
                Act::Read(count) if !is_live => {
                    let cursor = seen.len() as u64;
                    let end = head.min(cursor + count);
                    seen.extend(cursor + 1..=end);
                    is_at_end = end == head;
                }
                Act::Join if is_at_end && !is_live => {
                    is_live = hub.join(&attachment, &outbox, seen.len() as u64) == Joined::Live;
                    is_at_end = false;
                }
                _ => seen.extend(drain(&outbox)),
            }
        }
        // Nothing more comes: it goes live at the second try at the latest.
        if !is_live {
            for _ in 0..2 {
                seen.extend(seen.len() as u64 + 1..=head);
                is_live = is_live || hub.join(&attachment, &outbox, head) == Joined::Live;
            }
        }
        prop_assert!(is_live);
        seen.extend(drain(&outbox));
        let expected = if outbox.is_cut() { seen.len() as u64 } else { head };
        prop_assert_eq!(seen, (1..=expected).collect::<Vec<_>>());
        hub.detach(attachment);
        prop_assert_eq!(held(&hub), 0);
    }
}
