use std::sync::Arc;

use hubbub_core::{Message, MessageType, Op, OpBatch, Outcome, Receipt, RoomId, Send, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::batcher::Waiter;

fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&message.seq.to_be_bytes());
}

fn encode_notice(notice: &Notice<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{notice:?}").as_bytes());
}

fn hub() -> Hub {
    Hub::new(Encode { message: encode, notice: encode_notice }, Arc::new(Metrics::default()))
}

fn outbox(messages: usize) -> Arc<Outbox> {
    Arc::new(Outbox::new(OutboxLimits { messages, bytes: usize::MAX }, Arc::new(Waiter::default())))
}

fn publish(hub: &Hub, room: &str, seqs: std::ops::RangeInclusive<u64>) {
    let mut ops = OpBatch::default();
    let mut outcomes = Vec::new();
    for seq in seqs {
        let now = Timestamp::default();
        let send = Send {
            room,
            user: "u",
            id: "i",
            username: None,
            text: "t",
            kind: MessageType::Text,
            timestamp: now,
        };
        ops.push(&Op::Send(send));
        outcomes.push(Outcome::Stored(Receipt { seq, received_at: now }));
    }
    hub.publish(&ops, &outcomes);
}

fn drain(outbox: &Outbox) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(parcel) = outbox.pop() {
        assert_eq!(parcel.frames().len(), parcel.messages() * 8);
        for (seq, frame) in parcel.iter() {
            assert_eq!(frame, seq.to_be_bytes());
            seqs.push(seq);
        }
    }
    seqs
}

#[test]
fn a_joined_subscriber_gets_the_ring_then_what_follows() {
    let (hub, room, outbox) = (hub(), RoomId::new("r").unwrap(), outbox(100));
    publish(&hub, "r", 1..=3);
    let mut attachment = hub.attach(room, None);
    publish(&hub, "r", 4..=6);
    publish(&hub, "other", 1..=9);
    assert!(hub.join(&mut attachment, &outbox, 5));
    publish(&hub, "r", 7..=8);
    assert_eq!(drain(&outbox), [6, 7, 8]);
    hub.detach(attachment, &outbox);
    publish(&hub, "r", 9..=9);
    assert_eq!(drain(&outbox), [0; 0]);
    assert_eq!(hub.channels.load(Ordering::SeqCst), 0);
}

#[test]
fn a_cursor_behind_the_ring_reads_on() {
    let (hub, room, outbox) = (hub(), RoomId::new("r").unwrap(), outbox(10_000));
    let mut attachment = hub.attach(room, None);
    for start in (1..=3_000).step_by(100) {
        publish(&hub, "r", start..=start + 99);
    }
    assert!(!hub.join(&mut attachment, &outbox, 1_000));
    assert!(hub.join(&mut attachment, &outbox, 2_950));
    assert_eq!(drain(&outbox), (2_951..=3_000).collect::<Vec<_>>());
    hub.detach(attachment, &outbox);
}

#[test]
fn a_full_outbox_is_cut_and_the_others_go_on() {
    let (hub, room) = (hub(), RoomId::new("r").unwrap());
    let (slow, quick) = (outbox(5), outbox(5));
    let mut attachments = [hub.attach(room.clone(), None), hub.attach(room, None)];
    assert!(hub.join(&mut attachments[0], &slow, 0) && hub.join(&mut attachments[1], &quick, 0));
    for seq in 1..=20 {
        publish(&hub, "r", seq..=seq);
        assert_eq!(drain(&quick), [seq]);
    }
    assert!(slow.is_cut() && !quick.is_cut());
    assert_eq!(drain(&slow), [0; 0]);
    for (attachment, outbox) in attachments.into_iter().zip([slow, quick]) {
        hub.detach(attachment, &outbox);
    }
}

/// The frames that are no messages.
fn notices(outbox: &Outbox) -> Vec<String> {
    let parcels = std::iter::from_fn(|| outbox.pop());
    parcels.filter(|p| p.messages() == 0).map(|p| String::from_utf8(p.frames().to_vec()).unwrap()).collect()
}

#[test]
fn presence_counts_users_not_sockets() {
    let (hub, room) = (hub(), RoomId::new("r").unwrap());
    let users = ["ada", "bob", "bob"].map(|u| UserId::new(u).unwrap());
    let outboxes = [outbox(9), outbox(9), outbox(9)];
    let mut attachments = users.clone().map(|user| Some(hub.attach(room.clone(), Some(user))));
    for (attachment, outbox) in attachments.iter_mut().flatten().zip(&outboxes) {
        assert!(hub.join(attachment, outbox, 0));
    }
    assert_eq!(hub.present("r"), users[..2]);
    assert_eq!(notices(&outboxes[0]).len(), 1, "bob came once, with two sockets");
    hub.typing(attachments[1].as_ref().unwrap(), &outboxes[1]);
    assert!(notices(&outboxes[0])[0].starts_with("Typing") && notices(&outboxes[1]).is_empty());
    hub.detach(attachments[1].take().unwrap(), &outboxes[1]);
    assert!(notices(&outboxes[0]).is_empty() && hub.present("r").len() == 2);
    hub.detach(attachments[2].take().unwrap(), &outboxes[2]);
    assert!(notices(&outboxes[0])[0].contains("is_online: false"));
    assert_eq!(hub.present("r"), users[..1]);
    hub.detach(attachments[0].take().unwrap(), &outboxes[0]);
    assert!(hub.present("r").is_empty());
}

proptest! {
    /// Publishing and catching up interleave in any way; what a subscriber has seen is always 1, 2, 3 … to the head.
    #[test]
    fn catching_up_has_no_gap(steps in proptest::collection::vec((0..3_u8, 1..40_u64), 1..60)) {
        let (hub, outbox) = (hub(), outbox(usize::MAX));
        let mut attachment = hub.attach(RoomId::new("r").unwrap(), None);
        let (mut head, mut seen, mut is_live) = (0_u64, Vec::new(), false);
        for (what, size) in steps {
            match what {
                0 => { publish(&hub, "r", head + 1..=head + size * 30); head += size * 30; }
                // A page of the store, then an attempt to join.
                _ if !is_live => {
                    let cursor = seen.len() as u64;
                    let end = head.min(cursor + size * 10);
                    seen.extend(cursor + 1..=end);
                    is_live = end == head && hub.join(&mut attachment, &outbox, end);
                }
                _ => seen.extend(drain(&outbox)),
            }
        }
        seen.extend(drain(&outbox));
        let expected = if is_live { head } else { seen.len() as u64 };
        prop_assert_eq!(seen, (1..=expected).collect::<Vec<_>>());
        hub.detach(attachment, &outbox);
    }
}
