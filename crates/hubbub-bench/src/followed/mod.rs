//! Messages of a run that are followed, so that their time can be divided without a rest: this program knows when it sent one,
//! read its answer, and when its subscribers read it, and the server's timeline when it took, stored, answered and delivered it.
//!
//! At first all are, and each time too many wait to be asked about, half as many; which, a hash of room and `seq` decides: it has
//! nothing to do with their place in a batch, and subscribers know it without a search. While the run goes on, a task asks about the newest, because a busy
//! server keeps its records for a second or two. What is left is asked about at the end.

mod seconds;
mod timeline;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

pub(crate) use seconds::Means;
use seconds::Seconds;
use timeline::Asker;

use crate::run::Run;
use crate::statistics::Moments;

/// Messages that wait to be asked about.
const WAITING_MAX: usize = 256;
/// Messages whose arrivals are remembered.
const ARRIVALS_MAX: usize = 4_096;
/// Between two questions while the run goes on.
const PAUSE: Duration = Duration::from_millis(50);
/// By then subscribers have a message, as a rule.
const DELIVERY: Duration = Duration::from_millis(100);
/// What is left is asked about for so long.
const REST: Duration = Duration::from_secs(2);

/// Steps of a message from the intended send until its answer was read, or until subscribers had read it.
pub(crate) const STEPS: usize = 5;

type Steps = [f64; STEPS];

/// Which messages are followed, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// One in so many powers of two is followed.
    halvings: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest last.
    waiting: Vec<Noted>,
    /// When subscribers read messages, by their numbers; in microseconds after the start of the run.
    arrivals: BTreeMap<u64, Moments>,
    answered: Seconds,
    delivered: Seconds,
}

/// A message that was answered. Times are microseconds after the start of its run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) index: u64,
    pub(crate) seq: u64,
    pub(crate) room: u16,
    /// The connection that sent it.
    pub(crate) who: usize,
    /// The intended send.
    pub(crate) begun_us: u64,
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
}

impl Noted {
    fn place(&self) -> (u16, u64) {
        (self.room, self.seq)
    }
}

impl Followed {
    /// Whether a message is followed.
    pub(crate) fn takes(&self, room: u16, seq: u64) -> bool {
        is_taken((room, seq), self.halvings.load(Ordering::Relaxed))
    }

    /// Notes a message that was answered at its first attempt.
    pub(crate) fn note(&self, noted: Noted) {
        let mut state = self.state.lock();
        let mut halvings = self.halvings.load(Ordering::Relaxed);
        if state.waiting.len() >= WAITING_MAX {
            halvings += 1;
            self.halvings.store(halvings, Ordering::Relaxed);
            state.waiting.retain(|noted| is_taken(noted.place(), halvings));
        }
        if is_taken(noted.place(), halvings) && state.waiting.len() < WAITING_MAX {
            state.waiting.push(noted);
        }
    }

    /// Notes that a subscriber read a message.
    pub(crate) fn arrived(&self, index: u64, us: u64) {
        let mut state = self.state.lock();
        if state.arrivals.len() >= ARRIVALS_MAX && !state.arrivals.contains_key(&index) {
            state.arrivals.pop_first();
        }
        state.arrivals.entry(index).or_default().add(us as f64);
    }

    /// Does `work`, and asks about messages meanwhile.
    pub(crate) async fn ask_during<T>(&self, run: &Run, work: impl Future<Output = T>) -> T {
        let asking = async {
            let mut asker = Asker::new(run);
            while !asker.is_hopeless() {
                tokio::time::sleep(PAUSE).await;
                self.ask_newest(&mut asker, DELIVERY).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            done = work => done,
            done = asking => done,
        }
    }

    /// Asks about those that are left.
    pub(crate) async fn ask_rest(&self, run: &Run) {
        let asking = async {
            let mut asker = Asker::new(run);
            while !asker.is_hopeless() && self.ask_newest(&mut asker, Duration::ZERO).await {}
        };
        // A message not asked about is one less.
        let _ = tokio::time::timeout(REST, asking).await;
    }

    /// Asks about the newest that was answered so long ago. Whether there was one.
    async fn ask_newest(&self, asker: &mut Asker<'_>, ago: Duration) -> bool {
        let before_us = asker.run.now_us().saturating_sub(saturate(ago.as_micros()));
        let newest = {
            let waiting = &mut self.state.lock().waiting;
            let place = waiting.iter().rposition(|noted| noted.answered_us <= before_us);
            place.map(|place| waiting.remove(place))
        };
        let Some(noted) = newest else { return false };
        if let Some(events) = asker.events(&noted).await {
            let mut state = self.state.lock();
            let arrived = state.arrivals.remove(&noted.index).map(|arrivals| arrivals.mean as u64);
            let is_one_clock = asker.run.targets.of(noted.who).is_loopback();
            let [begun, sent, answered] =
                [noted.begun_us, noted.sent_us, noted.answered_us].map(|us| asker.run.wall_us(us));
            state.answered.add(&noted, events.until_answered([begun, sent, answered], is_one_clock));
            let arrived = arrived.map(|us| asker.run.wall_us(us));
            // Where nobody keeps when messages were to be sent, their time until subscribers begins when they are.
            let begun = if asker.run.times.is_some() { begun } else { sent };
            let until_read = |arrived| events.until_read([begun, sent, arrived], is_one_clock);
            if let Some(steps) = arrived.and_then(until_read) {
                state.delivered.add(&noted, steps);
            }
        }
        true
    }

    /// Until the answer was read, and until subscribers had read the message; see [`Seconds::means`].
    pub(crate) fn means(&self, answered: impl Fn(u64) -> u64) -> [Option<Means>; 2] {
        let state = self.state.lock();
        [&state.answered, &state.delivered].map(|seconds| seconds.means(&answered))
    }
}

/// Whether it is one of those that remain after so many halvings.
fn is_taken((room, seq): (u16, u64), halvings: u32) -> bool {
    // Multiplicative hashing by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
    let place = u64::from(room) << 40 ^ seq;
    place.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros() >= halvings
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn noted(seq: u64) -> Noted {
        Noted { index: 2 * seq, seq, room: 1, who: 0, begun_us: 0, sent_us: 0, answered_us: 0 }
    }

    #[test]
    fn the_more_there_are_the_fewer_are_followed() {
        let followed = Followed::default();
        let all = 100_000;
        for seq in 1..=all {
            if followed.takes(1, seq) {
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
            if followed.takes(room, seq) {
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
    fn arrivals_are_remembered_of_the_newest() {
        let followed = Followed::default();
        let last = 2 * ARRIVALS_MAX as u64;
        (0..=last).for_each(|index| followed.arrived(index, 7));
        followed.arrived(last, 9);
        let state = followed.state.lock();
        assert_eq!(state.arrivals.len(), ARRIVALS_MAX);
        assert_eq!(state.arrivals.last_key_value().map(|(_, arrivals)| arrivals.mean), Some(8.0));
    }
}
