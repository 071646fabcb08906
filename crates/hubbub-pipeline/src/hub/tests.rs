use futures_util::FutureExt;
use hubbub_core::clock::ManualClock;
use hubbub_core::{Change, ReadMark, Receipt, RoomChange, RoomSettings, Timestamp};

use super::*;
use crate::batcher::Waiter;

mod joins;
mod memory;
mod presence;
mod remote;
mod timeline;
mod traces;

fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&message.seq.to_be_bytes());
}

fn encode_notice(notice: &Notice<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{notice:?}").as_bytes());
}

fn hub() -> Hub {
    hub_of(usize::MAX)
}

/// A hub with a bound of live messages in bytes.
fn hub_of(bytes_max: usize) -> Hub {
    let encoder = FrameEncoder { message: encode, notice: encode_notice };
    Hub::new(encoder, bytes_max, Arc::new(ManualClock::default()), Arc::new(Metrics::default()))
}

/// An outbox that is not charged to a hub.
fn outbox(messages: usize) -> Arc<Outbox> {
    outbox_of(&hub(), messages)
}

fn outbox_of(hub: &Hub, messages: usize) -> Arc<Outbox> {
    hub.outbox(OutboxLimits { messages, bytes: usize::MAX }, Arc::new(Waiter::default()))
}

fn message(room: &str, seq: u64) -> (Op<'_>, Outcome) {
    let receipt = Receipt { seq, received_at: Timestamp::default(), gap: 0 };
    (crate::test_message::message(room, "i", "t"), Outcome::Stored(receipt))
}

fn change(what: RoomChange<'_>) -> (Op<'_>, Outcome) {
    let mark = |seq| ReadMark { seq, unread: 0, head: seq, moved: true };
    let outcome = match what {
        RoomChange::PutRoom { .. } => Outcome::Room { created: false },
        RoomChange::MarkRead { seq, .. } => Outcome::Read(mark(seq)),
        RoomChange::EraseUser { .. } => Outcome::Erased { messages: 1, more: false },
        _ => Outcome::Changed { changed: true },
    };
    (Op::Change(Change { by: None, what }), outcome)
}

/// The test's store: ada is a member of every room, with the mark at 7; other users are members of none.
fn publish_all<'a>(hub: &Hub, all: impl IntoIterator<Item = (Op<'a>, Outcome)>) {
    let mut ops = OpBatch::default();
    let mut outcomes = Vec::new();
    for (op, outcome) in all {
        ops.push(&op);
        outcomes.push(outcome);
    }
    let access = |_: RoomId, user: UserId| -> Read<'static, Access> {
        let access = if user.as_str() == "ada" { Access::Member { read_seq: 7 } } else { Access::Closed };
        Box::pin(std::future::ready(Ok(access)))
    };
    hub.publish(&ops, &outcomes, &access, hub.epoch_number())
        .now_or_never()
        .expect("the store answers at once");
}

fn publish(hub: &Hub, room: &str, seqs: std::ops::RangeInclusive<u64>) {
    publish_all(hub, seqs.map(|seq| message(room, seq)));
}

fn next_chunk(outbox: &Outbox) -> Option<EncodedChunk> {
    outbox.pop().map(|delivery| match delivery {
        Delivery::EncodedChunk(chunk) => chunk,
        other => panic!("no messages: {other:?}"),
    })
}

fn drain(outbox: &Outbox) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(chunk) = next_chunk(outbox) {
        assert_eq!(chunk.frames().len(), chunk.messages() * 8);
        for (seq, frame) in chunk.iter() {
            assert_eq!(frame, seq.to_be_bytes());
            seqs.push(seq);
        }
    }
    seqs
}

/// All deliveries in order, as texts.
fn shown(outbox: &Outbox) -> Vec<String> {
    let text = |chunk: &EncodedChunk| String::from_utf8(chunk.frames().to_vec()).unwrap();
    std::iter::from_fn(|| outbox.pop())
        .flat_map(|delivery| match delivery {
            Delivery::EncodedChunk(chunk) if chunk.messages() > 0 => {
                chunk.iter().map(|(seq, _)| seq.to_string()).collect()
            }
            Delivery::EncodedChunk(chunk) => vec![text(&chunk)],
            Delivery::Marked { notice, .. } => vec![text(&notice)],
            Delivery::Ended { room, .. } => vec![format!("ended {room}")],
            Delivery::Joined { room, start, read_seq } if start == read_seq => {
                vec![format!("joined {room} at {start}")]
            }
            Delivery::Joined { room, start, read_seq } => {
                vec![format!("joined {room} at {start}, read to {read_seq}")]
            }
        })
        .collect()
}

fn live(hub: &Hub, room: &str, user: Option<&str>, outbox: &Arc<Outbox>) -> Attachment {
    let user = user.map(|user| UserId::new(user).unwrap());
    let attachment = hub.attach(RoomId::new(room).unwrap(), user, outbox);
    assert_eq!(hub.join(&attachment, outbox, 0), Joined::Live);
    attachment
}

#[test]
fn a_joined_subscriber_gets_what_was_held_then_what_follows() {
    let (hub, room, outbox) = (hub(), RoomId::new("r").unwrap(), outbox(100));
    publish(&hub, "r", 1..=3);
    let attachment = hub.attach(room, None, &outbox);
    publish(&hub, "r", 4..=6);
    publish(&hub, "other", 1..=9);
    assert_eq!(hub.join(&attachment, &outbox, 5), Joined::ReadOn, "6 was published, and not held");
    publish(&hub, "r", 7..=9);
    assert_eq!(drain(&outbox), [0; 0], "it is not live yet");
    assert_eq!(hub.join(&attachment, &outbox, 5), Joined::ReadOn, "6 is still missing");
    assert_eq!(hub.join(&attachment, &outbox, 7), Joined::Live);
    publish(&hub, "r", 10..=10);
    assert_eq!(drain(&outbox), [8, 9, 10]);
    hub.detach(attachment);
    publish(&hub, "r", 11..=11);
    assert_eq!(drain(&outbox), [0; 0]);
    assert_eq!(hub.followed.load(Ordering::SeqCst), 0);
}

#[test]
fn what_is_held_is_bounded_and_read_again() {
    let (hub, room, outbox) = (hub(), RoomId::new("r").unwrap(), outbox(100));
    let attachment = hub.attach(room, None, &outbox);
    publish(&hub, "r", 1..=10);
    assert_eq!(hub.join(&attachment, &outbox, 5), Joined::ReadOn);
    for start in (11..=1_010).step_by(50) {
        publish(&hub, "r", start..=start + 49);
    }
    assert_eq!(hub.join(&attachment, &outbox, 500), Joined::ReadOn, "it gave up what it held");
    publish(&hub, "r", 1_011..=1_012);
    assert_eq!(hub.join(&attachment, &outbox, 1_010), Joined::Live);
    assert_eq!(drain(&outbox), [1_011, 1_012]);
    assert!(!outbox.is_cut());
    hub.detach(attachment);
}

/// Held messages belong to one room; the subscriber of another one does not get them.
#[test]
fn one_outbox_holds_for_one_room_at_a_time() {
    let (hub, outbox) = (hub(), outbox(100));
    let [a, b] = ["a", "b"].map(|room| hub.attach(RoomId::new(room).unwrap(), None, &outbox));
    publish(&hub, "a", 1..=2);
    publish(&hub, "b", 1..=2);
    assert_eq!(hub.join(&a, &outbox, 1), Joined::ReadOn);
    assert_eq!(hub.join(&b, &outbox, 1), Joined::ReadOn);
    publish(&hub, "a", 3..=3);
    publish(&hub, "b", 3..=4);
    assert_eq!(hub.join(&a, &outbox, 2), Joined::ReadOn, "what a held was given up for b");
    assert_eq!(hub.join(&a, &outbox, 3), Joined::Live);
    assert_eq!(drain(&outbox), [0; 0]);
    assert_eq!(hub.join(&b, &outbox, 2), Joined::ReadOn, "and the other way round");
    assert_eq!(hub.join(&b, &outbox, 4), Joined::Live);
    publish(&hub, "b", 5..=5);
    assert_eq!(drain(&outbox), [5]);
    hub.detach(a);
    hub.detach(b);
}

#[test]
fn a_full_outbox_is_cut_and_the_others_go_on() {
    let hub = hub();
    let (slow, quick) = (outbox(5), outbox(5));
    let attachments = [live(&hub, "r", Some("bob"), &slow), live(&hub, "r", None, &quick)];
    for seq in 1..=20 {
        publish(&hub, "r", seq..=seq);
        assert_eq!(shown(&quick)[0], seq.to_string());
    }
    assert!(slow.is_cut() && !quick.is_cut());
    assert!(hub.present("r").is_empty(), "whoever is cut off is no longer there");
    assert_eq!(drain(&slow), [0; 0]);
    for attachment in attachments {
        hub.detach(attachment);
    }
}

#[test]
fn presence_counts_users_not_sockets() {
    let hub = hub();
    let users = ["ada", "bob", "bob"];
    let outboxes = [outbox(9), outbox(9), outbox(9)];
    let mut attachments: Vec<_> =
        users.iter().zip(&outboxes).map(|(user, outbox)| Some(live(&hub, "r", Some(user), outbox))).collect();
    let present = || hub.present("r").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(present(), users[..2]);
    assert_eq!(shown(&outboxes[0]).len(), 1, "bob came once, with two sockets");
    assert!(hub.typing(attachments[1].as_ref().unwrap()));
    assert!(shown(&outboxes[0])[0].starts_with("Typing") && shown(&outboxes[1]).is_empty());
    hub.detach(attachments[1].take().unwrap());
    assert!(shown(&outboxes[0]).is_empty() && present().len() == 2);
    hub.detach(attachments[2].take().unwrap());
    assert!(shown(&outboxes[0])[0].contains("is_online: false"));
    assert_eq!(present(), users[..1]);
    hub.detach(attachments[0].take().unwrap());
    assert!(present().is_empty());
}

/// Whoever is not live yet may be a stranger, and whoever was removed is one.
#[test]
fn only_who_is_live_types() {
    let hub = hub();
    let [watch, ada, eve] = [(); 3].map(|()| outbox(99));
    let watching = live(&hub, "r", None, &watch);
    let of_ada = live(&hub, "r", Some("ada"), &ada);
    let of_eve = hub.attach(RoomId::new("r").unwrap(), Some(UserId::new("eve").unwrap()), &eve);
    assert!(hub.typing(&of_ada) && !hub.typing(&of_eve) && !hub.typing(&watching));
    publish_all(&hub, [change(RoomChange::RemoveMember { room: "r", user: "ada" })]);
    shown(&watch);
    assert!(!hub.typing(&of_ada), "it has not heard of its end");
    // Another subscription of the same outbox is not the one that types.
    let again = live(&hub, "r", Some("ada"), &ada);
    shown(&watch);
    assert!(!hub.typing(&of_ada) && shown(&watch).is_empty());
    assert!(hub.typing(&again) && shown(&watch).len() == 1);
    [watching, of_ada, of_eve, again].into_iter().for_each(|attachment| hub.detach(attachment));
}

#[test]
fn a_removed_user_gets_what_came_before_and_nothing_after() {
    let hub = hub();
    let [live_one, behind, bob, nobody] = [(); 4].map(|()| outbox(99));
    let [room, ada] = ["r", "ada"];
    let attachments = [
        (live(&hub, room, Some(ada), &live_one), &live_one),
        (hub.attach(RoomId::new(room).unwrap(), Some(UserId::new(ada).unwrap()), &behind), &behind),
        (live(&hub, room, Some("bob"), &bob), &bob),
        (live(&hub, room, None, &nobody), &nobody),
    ];
    shown(&live_one);
    publish_all(
        &hub,
        [
            message(room, 1),
            change(RoomChange::RemoveMember { room, user: ada }),
            message(room, 2),
            message(room, 3),
        ],
    );
    assert_eq!(shown(&live_one), ["1", "ended r"]);
    assert_eq!(shown(&behind), ["ended r"], "whoever still catches up, too");
    assert_eq!(hub.join(&attachments[1].0, &behind, 3), Joined::Ended);
    let offline = r#"Presence { room: "r", user: "ada", is_online: false }"#;
    assert_eq!(shown(&bob), ["1", offline, "2", "3"]);
    assert_eq!(
        shown(&nobody),
        [r#"Presence { room: "r", user: "bob", is_online: true }"#, "1", offline, "2", "3"][1..]
    );
    for (attachment, _) in attachments {
        hub.detach(attachment);
    }
    assert_eq!(hub.followed.load(Ordering::SeqCst), 0);
}

#[test]
fn a_deleted_room_ends_for_all_and_its_messages_are_gone() {
    let (hub, old, new) = (hub(), outbox(99), outbox(99));
    let held = live(&hub, "r", None, &old);
    publish_all(
        &hub,
        [message("r", 1), message("r", 2), change(RoomChange::DeleteRoom { room: "r" }), message("r", 3)],
    );
    assert_eq!(shown(&old), ["1", "2", "ended r"]);
    // The hub keeps the room while it is attached; a later subscriber reads an empty room, up to 0.
    let attachment = hub.attach(RoomId::new("r").unwrap(), None, &new);
    assert_eq!(hub.join(&attachment, &new, 0), Joined::ReadOn);
    publish(&hub, "r", 4..=4);
    assert_eq!(hub.join(&attachment, &new, 3), Joined::Live);
    assert_eq!(shown(&new), ["4"]);
    hub.detach(held);
    hub.detach(attachment);
}

#[test]
fn who_is_no_member_leaves_when_a_room_closes() {
    let hub = hub();
    let [ada, bob, admin] = [(); 3].map(|()| outbox(99));
    let attachments = [
        (live(&hub, "r", Some("ada"), &ada), &ada),
        (live(&hub, "r", Some("bob"), &bob), &bob),
        (live(&hub, "r", None, &admin), &admin),
    ];
    for outbox in [&ada, &bob, &admin] {
        shown(outbox);
    }
    let settings = RoomSettings { members_only: Some(true), ..RoomSettings::default() };
    publish_all(&hub, [change(RoomChange::PutRoom { room: "r", settings })]);
    publish(&hub, "r", 1..=1);
    assert_eq!(shown(&bob), ["ended r"]);
    assert!(shown(&ada).ends_with(&["1".to_owned()]) && shown(&admin).ends_with(&["1".to_owned()]));
    for (attachment, _) in attachments {
        hub.detach(attachment);
    }
}

#[test]
fn erased_messages_are_read_from_the_store_again() {
    let (hub, outbox) = (hub(), outbox(99));
    let attachment = hub.attach(RoomId::new("r").unwrap(), None, &outbox);
    publish(&hub, "r", 1..=5);
    assert_eq!(hub.join(&attachment, &outbox, 4), Joined::ReadOn);
    publish(&hub, "r", 6..=6);
    publish_all(&hub, [change(RoomChange::EraseUser { user: "u" })]);
    assert_eq!(hub.join(&attachment, &outbox, 5), Joined::ReadOn, "6 may be gone");
    assert_eq!(hub.join(&attachment, &outbox, 6), Joined::Live);
    publish(&hub, "r", 7..=7);
    assert_eq!(shown(&outbox), ["7"]);
    hub.detach(attachment);
}

#[test]
fn sockets_of_a_user_hear_of_marks_in_order_and_of_new_rooms_if_they_want_all() {
    let (hub, user) = (hub(), UserId::new("ada").unwrap());
    let [all, some, bob] = [(); 3].map(|()| outbox(99));
    hub.open_socket(&user, &all);
    hub.open_socket(&user, &some);
    hub.open_socket(&UserId::new("bob").unwrap(), &bob);
    hub.follow_all(&user, &all, true);
    let attachment = live(&hub, "r", None, &some);
    publish_all(
        &hub,
        [
            message("r", 1),
            change(RoomChange::MarkRead { room: "r", user: "ada", seq: 1 }),
            message("r", 2),
            change(RoomChange::AddMember { room: "new", user: "ada" }),
            change(RoomChange::AddMember { room: "new", user: "bob" }),
        ],
    );
    let mark =
        r#"Read { room: "r", user: "ada", mark: ReadMark { seq: 1, unread: 0, head: 1, moved: true } }"#;
    assert_eq!(shown(&some), ["1", mark, "2"]);
    assert_eq!(shown(&all), [mark, "joined new at 7"]);
    assert!(shown(&bob).is_empty());
    hub.detach(attachment);
    hub.close_socket(&user, &all);
    publish_all(&hub, [change(RoomChange::MarkRead { room: "r", user: "ada", seq: 2 })]);
    assert!(shown(&all).is_empty() && shown(&some).len() == 1);
    hub.close_socket(&user, &some);
    hub.close_socket(&UserId::new("bob").unwrap(), &bob);
    assert!(hub.sockets.is_empty());
}
