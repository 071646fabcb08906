//! Who is counted as having got a message.

use hubbub_core::clock::ManualClock;

use super::*;
use crate::timeline::Publication;

fn recording() -> Hub {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1)));
    hub().with_timeline(Timeline::new(1 << 20, clock))
}

fn publications(hub: &Hub, room: &str, seq: u64) -> Vec<(Source, u64, u64)> {
    let receipt = Receipt { seq, received_at: Timestamp::default(), gap: 0 };
    let trace = hub.timeline().trace(room, &receipt).unwrap();
    let figures = |of: &Publication| (of.source, of.subscribers, of.delivered_at.map_or(0, |_| of.delivered));
    trace.publications.iter().map(figures).collect()
}

fn deliver(hub: &Hub, outbox: &Outbox) {
    while let Some(chunk) = next_chunk(outbox) {
        hub.timeline().delivered(&chunk);
    }
}

#[test]
fn those_are_counted_who_got_all_of_it_live() {
    let (hub, room, first, second) = (recording(), RoomId::new("r").unwrap(), outbox(100), outbox(100));
    publish(&hub, "r", 1..=3);
    assert_eq!(publications(&hub, "r", 2), [], "nobody follows the room");
    let attached = [live(&hub, "r", None, &first), hub.attach(room, None, &second)];
    publish(&hub, "r", 4..=6);
    assert_eq!(publications(&hub, "r", 5), [(Source::Commit, 1, 0)], "one is live, nobody has it");
    deliver(&hub, &first);
    assert_eq!(publications(&hub, "r", 5), [(Source::Commit, 1, 1)]);
    // The other one holds what comes now, and reads up to the middle of it.
    assert_eq!(hub.join(&attached[1], &second, 3), Joined::ReadOn);
    publish(&hub, "r", 7..=9);
    publish(&hub, "r", 10..=12);
    assert_eq!(hub.join(&attached[1], &second, 8), Joined::Live);
    deliver(&hub, &second);
    assert_eq!(publications(&hub, "r", 8), [(Source::Commit, 1, 0)], "it read the first part of it");
    assert_eq!(publications(&hub, "r", 11), [(Source::Commit, 2, 1)]);
    deliver(&hub, &first);
    assert_eq!(publications(&hub, "r", 11), [(Source::Commit, 2, 2)]);
    assert_eq!(publications(&hub, "other", 11), []);
    attached.into_iter().for_each(|attached| hub.detach(attached));
}

#[test]
fn a_subscriber_that_was_cut_is_not_counted() {
    let (hub, slow) = (recording(), outbox(2));
    let attached = live(&hub, "r", None, &slow);
    publish(&hub, "r", 1..=2);
    publish(&hub, "r", 3..=4);
    assert_eq!(publications(&hub, "r", 1), [(Source::Commit, 1, 0)]);
    assert_eq!(publications(&hub, "r", 3), [(Source::Commit, 0, 0)]);
    hub.detach(attached);
}
