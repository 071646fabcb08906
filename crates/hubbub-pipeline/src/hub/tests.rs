use std::sync::Arc;

use hubbub_core::{Message, MessageType, Op, OpBatch, Outcome, Receipt, RoomId, Send, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::batcher::Waiter;

fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&message.seq.to_be_bytes());
}

fn hub() -> Hub {
    Hub::new(encode, Arc::new(Metrics::default()))
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
    let attachment = hub.attach(room);
    publish(&hub, "r", 4..=6);
    publish(&hub, "other", 1..=9);
    assert!(hub.join(&attachment, &outbox, 5));
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
    let attachment = hub.attach(room);
    for start in (1..=3_000).step_by(100) {
        publish(&hub, "r", start..=start + 99);
    }
    assert!(!hub.join(&attachment, &outbox, 1_000));
    assert!(hub.join(&attachment, &outbox, 2_950));
    assert_eq!(drain(&outbox), (2_951..=3_000).collect::<Vec<_>>());
    hub.detach(attachment, &outbox);
}

#[test]
fn a_full_outbox_is_cut_and_the_others_go_on() {
    let (hub, room) = (hub(), RoomId::new("r").unwrap());
    let (slow, quick) = (outbox(5), outbox(5));
    let attachments = [hub.attach(room.clone()), hub.attach(room)];
    assert!(hub.join(&attachments[0], &slow, 0) && hub.join(&attachments[1], &quick, 0));
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

proptest! {
    /// Publishing and catching up interleave in any way; what a subscriber has seen is always 1, 2, 3 … to the head.
    #[test]
    fn catching_up_has_no_gap(steps in proptest::collection::vec((0..3_u8, 1..40_u64), 1..60)) {
        let (hub, outbox) = (hub(), outbox(usize::MAX));
        let attachment = hub.attach(RoomId::new("r").unwrap());
        let (mut head, mut seen, mut is_live) = (0_u64, Vec::new(), false);
        for (what, size) in steps {
            match what {
                0 => { publish(&hub, "r", head + 1..=head + size * 30); head += size * 30; }
                // A page of the store, then an attempt to join.
                _ if !is_live => {
                    let cursor = seen.len() as u64;
                    let end = head.min(cursor + size * 10);
                    seen.extend(cursor + 1..=end);
                    is_live = end == head && hub.join(&attachment, &outbox, end);
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
