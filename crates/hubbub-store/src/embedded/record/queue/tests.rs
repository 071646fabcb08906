//! Records of queues come back as they were written.

use super::*;
use crate::embedded::record::{self, Record};
use proptest::prelude::*;

fn settings(numbers: [u64; 6], name: &str) -> QueueRules {
    let [lease_ms, deliveries_max, ttl_ms, messages_max, backoff_ms, backoff_max_ms] = numbers;
    QueueRules {
        lease_ms,
        deliveries_max: u32::try_from(deliveries_max >> 32).unwrap(),
        dead_letter: name.into(),
        ttl_ms,
        messages_max,
        bytes_max: lease_ms,
        when_full: if ttl_ms.is_multiple_of(2) { WhenFull::Refuse } else { WhenFull::DropOldest },
        backoff_ms,
        backoff_max_ms,
    }
}

proptest! {
    #[test]
    fn operations_come_back(
        name in "[a-z]{1,64}",
        group in proptest::option::of("[a-z]{1,64}"),
        text in "\\PC{0,200}",
        number: u32,
        at in -4_000_000_000_000_000_i64..4_000_000_000_000_000,
        ids in proptest::collection::vec(any::<u64>(), 0..9),
        numbers: [u64; 6],
        known_as: Option<([u64; 2], u32)>,
        ttl in proptest::option::of(0..u64::MAX),
    ) {
        let id = numbers[0];
        let lease = |id: &u64| NewLease { id: *id, delivery: number, lease: numbers[1] };
        let leases = ids.iter().map(lease).collect();
        let sent = |to| Effect::Send(NewMessage {
            id, copies: number, queue: number, sender: number, to, known_as, at, delay: numbers[2], ttl,
            group: group.as_deref(), text: &text,
        });
        for queued in [
            Effect::Put { number, name: name.as_str().into(), is_dead_letter: true, settings: settings(numbers, &name) },
            Effect::Delete { number },
            Effect::Client { number, name: &name, registered: false, kept: ids.clone() },
            sent(Recipient::Anyone),
            sent(Recipient::One(number)),
            sent(Recipient::All),
            Effect::Taken { at, ids: ids.clone() },
            Effect::Leased { at, leases },
            Effect::Returned { at, id, delay: numbers[3] },
            Effect::Extended { at, id, lease: numbers[3] },
            Effect::Gone { at, why: Removal::Acknowledged, ids: ids.clone() },
            Effect::Gone { at, why: Removal::Removed, ids: ids.clone() },
            Effect::Gone { at, why: Removal::Expired, ids: ids.clone() },
            Effect::Gone { at, why: Removal::Dropped, ids: ids.clone() },
            Effect::Dead { id, to: number, reason: DeadReason::Rejected },
            Effect::Dead { id, to: number, reason: DeadReason::LeaseExpired },
            Effect::Redriven { to: number, ids: ids.clone() },
        ] {
            let mut bytes = Vec::new();
            let checked = write_queue(&queued, &mut bytes);
            if let Effect::Send(sent) = &queued {
                let (crc, rest) = bytes[bytes.len() - checked..].split_first_chunk::<4>().unwrap();
                prop_assert_eq!(crc32c::crc32c(rest), u32::from_le_bytes(*crc));
                prop_assert!(rest.ends_with(sent.text.as_bytes()));
            } else {
                prop_assert_eq!(checked, 0);
            }
            bytes.push(9);
            let mut input = bytes.as_slice();
            prop_assert_eq!(record::read(&mut input), Some(Record::Queue(queued)));
            prop_assert_eq!(input, &[9]);
            prop_assert_eq!(read_queue(&mut &bytes[..bytes.len() - 2]), None);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(what in 0_u8..13, bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
        let mut queued = vec![KIND_QUEUE, what];
        queued.extend_from_slice(&bytes);
        let _ = record::read(&mut queued.as_slice());
    }
}
