//! Which messages are followed, and what their servers and subscribers say of them.

use super::seconds::LEAST;
use super::*;

pub(super) fn noted(seq: u64) -> Noted {
    Noted { index: 2 * seq, seq, room: 1, who: 0, begun_us: 0, sent_us: 0, answered_us: 0, tries: 0 }
}

#[test]
fn the_more_there_are_the_fewer_are_followed() {
    let followed = Followed::default();
    let all = 100_000;
    for seq in 1..=all {
        if followed.takes(1, seq, 2 * seq) {
            followed.note(noted(seq));
        }
    }
    let waiting = &followed.state.lock().waiting;
    assert!((WAITING_MAX / 4..=WAITING_MAX).contains(&waiting.len()), "{}", waiting.len());
    // From all places of lots of 64, and from all of the run.
    let places: std::collections::BTreeSet<u64> = waiting.iter().map(|noted| noted.seq % 64).collect();
    assert!(places.len() > 32, "{places:?}");
    let late = waiting.iter().filter(|noted| noted.seq > all / 2).count();
    assert!((waiting.len() / 3..waiting.len() * 2 / 3).contains(&late), "{late} of {}", waiting.len());
}

#[test]
fn they_are_of_all_rooms() {
    let followed = Followed::default();
    for (seq, room) in (1..=20).flat_map(|seq| (1..=2_000).map(move |room| (seq, room))) {
        if followed.takes(room, seq, 0) {
            followed.note(Noted { room, ..noted(seq) });
        }
    }
    let waiting = &followed.state.lock().waiting;
    assert!((WAITING_MAX / 4..=WAITING_MAX).contains(&waiting.len()), "{}", waiting.len());
    let count = |places: std::collections::BTreeSet<u64>| places.len();
    assert!(count(waiting.iter().map(|noted| noted.seq).collect()) > 10);
    assert!(count(waiting.iter().map(|noted| noted.room.into()).collect()) > waiting.len() / 2);
}

#[test]
fn where_there_are_subscribers_they_are_of_their_rooms() {
    let followed = Followed::default();
    assert!(followed.takes(2, 1, 0), "nobody subscribes to anything");
    for room in [0, 63, 64, u16::MAX] {
        followed.subscribes(room, 0);
    }
    for seq in [0, 1] {
        let taken = (0..=u16::MAX).filter(|room| followed.takes(*room, seq, 0));
        assert!(taken.eq([0, 63, 64, u16::MAX]), "{seq}");
    }
}

#[test]
fn nothing_is_kept_where_nothing_can_be_followed() {
    let followed = Followed::default();
    let awaits = |seq| followed.awaits(1, seq, || Some(2 * seq));
    assert!(!followed.takes(1, 0, 7), "accepted, not yet stored, and nobody subscribes");
    assert!(followed.takes(1, 7, 14) && awaits(7).is_none(), "nothing was noted yet");
    followed.note(noted(7));
    assert_eq!(awaits(8), Some(16));
    followed.stop();
    (1..10_000).for_each(|seq| followed.note(noted(seq)));
    assert!((1..10_000).all(|seq| !followed.takes(1, seq, 2 * seq) && awaits(seq).is_none()));
    assert!(followed.state.lock().waiting.is_empty());
}

#[tokio::test]
async fn what_is_older_than_a_failure_is_not_asked_about() {
    let target = crate::client::Target::parse("127.0.0.1:1").unwrap();
    let rules = crate::options::arguments("rules", &[]).unwrap();
    let run = Run::new(target, crate::load::message_plan::Shape::new(1, 10, None, ""), rules);
    (1..=100).for_each(|seq| run.followed.note(noted(seq)));
    run.followed.ask_rest(&run).await;
    assert!(run.followed.state.lock().waiting.is_empty());
}

#[test]
fn what_subscribers_have_late_counts() {
    let followed = Followed::default();
    let all = 0..LEAST;
    for index in all.clone() {
        let noted = Noted { index, answered_us: 5_000, ..noted(index) };
        let events = Events { taken: 1_000, stored: 2_000, answered: 4_000 };
        let delivered = [(0, Delivered { published: 2_000, taken: 3_000 })].into();
        followed.state.lock().keep(asked(noted, events, delivered));
    }
    followed.state.lock().judge_before(5_000);
    all.for_each(|index| followed.arrived(index, 0, 505_000));
    let [answered, delivered] = followed.means(|_| 1, [None, None]).map(Option::unwrap);
    assert_eq!((answered.steps, answered.count), ([0.0, 1.0, 1.0, 0.0, 2.0, 1.0], LEAST));
    assert_eq!((delivered.steps, delivered.count), ([0.0, 1.0, 1.0, 0.0, 1.0, 502.0], LEAST));
}

fn asked(noted: Noted, events: Events, delivered: BTreeMap<usize, Delivered>) -> FollowedMessage {
    FollowedMessage { noted, events, delivered, delivery_begun_us: 0, is_one_clock: true }
}

#[test]
fn subscribers_of_several_servers_are_as_many_as_they_are() {
    let followed = Followed::default();
    let events = Events { taken: 1_000, stored: 2_000, answered: 2_500 };
    let [here, there] =
        [(2_000, 3_000), (5_000, 6_000)].map(|(published, taken)| Delivered { published, taken });
    for index in 0..LEAST {
        // Three read it where it was stored, one elsewhere.
        [(0, 4_000), (0, 4_000), (0, 4_000), (1, 8_000)]
            .into_iter()
            .for_each(|(server, us)| followed.arrived(index, server, us));
        let noted = Noted { index, ..noted(index) };
        followed.state.lock().keep(asked(noted, events, [(0, here), (1, there)].into()));
        // Of one server nothing is known.
        followed.arrived(LEAST + index, 0, 4_000);
        followed.arrived(LEAST + index, 1, 90_000);
        let noted = Noted { index: LEAST + index, ..noted };
        followed.state.lock().keep(asked(noted, events, [(0, here)].into()));
    }
    let [_, delivered] = followed.means(|_| 1, [None, None]).map(Option::unwrap);
    assert_eq!((delivered.steps, delivered.count), ([0.0, 1.0, 1.0, 0.75, 1.0, 1.25], LEAST));
    assert!((delivered.rest - 5.0).abs() < 1e-9, "all of the mean until it was read: {delivered:?}");
}

#[test]
fn messages_without_a_seq_are_known_by_their_number() {
    let followed = Followed::default();
    followed.subscribes(1, 0);
    for index in 0..10_000 {
        if followed.takes(1, 0, index) {
            followed.note(Noted { index, ..noted(0) });
        }
    }
    let waiting: Vec<u64> = followed.state.lock().waiting.iter().map(|noted| noted.index).collect();
    assert!((WAITING_MAX / 4..=WAITING_MAX).contains(&waiting.len()), "{}", waiting.len());
    let awaited: Vec<u64> =
        (0..10_000).filter(|index| followed.awaits(1, index + 1, || Some(*index)).is_some()).collect();
    assert!(waiting.iter().all(|index| awaited.contains(index)), "{waiting:?} {awaited:?}");
    assert!(awaited.len() < 5_000, "not all: {}", awaited.len());
}

#[test]
fn what_was_early_is_asked_about_again_and_later() {
    let mut state = State::default();
    state.put_back(Noted { answered_us: 1_000, ..noted(1) }, None);
    let waits = [DELIVERY].into_iter().chain(AGAIN).map(|wait| 1_000 + wait.as_micros() as u64);
    for (tries, due_us) in waits.enumerate().skip(1) {
        assert!(state.next(|noted| noted.is_due(due_us - 1)).is_none(), "{tries}");
        let noted = state.next(|noted| noted.is_due(due_us)).unwrap();
        assert_eq!(noted.tries, tries);
        state.put_back(noted, None);
    }
    assert!(ARRIVAL_MAX > *AGAIN.last().unwrap(), "who is asked about last still has subscribers");
}

/// Messages that were held up together are answered together, and the newest of them waited the least.
#[test]
fn the_newest_is_not_asked_about_before_others() {
    let mut state = State::default();
    for seq in 1..=WAITING_MAX as u64 {
        state.waiting.push(Noted { answered_us: seq * 1_000, ..noted(seq) });
    }
    let now_us = WAITING_MAX as u64 * 1_000 + DELIVERY.as_micros() as u64;
    let asked = (0..WAITING_MAX / 8).map(|_| state.next(|noted| noted.is_due(now_us)).unwrap().seq);
    let old = asked.filter(|seq| *seq <= WAITING_MAX as u64 / 2).count();
    assert!((WAITING_MAX / 24..=WAITING_MAX / 12).contains(&old), "{old} of {}", WAITING_MAX / 8);
}

#[test]
fn who_waits_for_subscribers_is_bounded() {
    let followed = Followed::default();
    for index in 0..2 * ASKED_MAX as u64 {
        let events = Events { taken: 1, stored: 2, answered: 3 };
        followed.state.lock().keep(asked(noted(index), events, BTreeMap::new()));
    }
    assert_eq!(followed.state.lock().asked.len(), ASKED_MAX);
    followed.state.lock().judge_before(1);
    assert!(followed.state.lock().asked.is_empty());
}

#[test]
fn arrivals_are_remembered_of_the_newest() {
    let followed = Followed::default();
    let last = 2 * ARRIVALS_MAX as u64;
    (0..=last).for_each(|index| followed.arrived(index, 0, 7));
    followed.arrived(last, 0, 9);
    let state = followed.state.lock();
    assert_eq!(state.arrivals.len(), ARRIVALS_MAX);
    assert_eq!(state.arrivals.last_key_value().map(|(_, arrivals)| arrivals[&0].mean), Some(8.0));
}
