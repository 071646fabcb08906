//! Messages of a run that are followed, so that their time can be divided without a rest: this program knows when it sent one,
//! read its answer, and when its subscribers read it, and the server's timeline when it took, stored, answered and delivered it.
//!
//! At first all are, and each time too many wait to be asked about, half as many; which, a hash of room and `seq` decides: it has
//! nothing to do with their place in a batch, and subscribers know it without a search. While the run goes on, a task asks about the newest, because a busy
//! server keeps its records for a second or two. What is left is asked about at the end.

mod seconds;
mod timeline;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

pub(crate) use seconds::Means;
use seconds::Seconds;
use timeline::{Asker, Events};

use crate::run::Run;
use crate::statistics::Moments;

/// Messages that wait to be asked about.
const WAITING_MAX: usize = 256;
/// Messages whose arrivals are remembered.
const ARRIVALS_MAX: usize = 4_096;
/// Between two questions while the run goes on.
const PAUSE: Duration = Duration::from_millis(50);
/// By then subscribers have a message, as a rule, and the server has its delivery on record.
const DELIVERY: Duration = Duration::from_millis(100);
/// Subscribers that have a message later than this after its answer do not count.
const ARRIVAL_MAX: Duration = Duration::from_secs(2);
/// Messages that were asked about and wait for subscribers: more than [`PAUSE`] lets through in that time, and all of the rest.
const ASKED_MAX: usize = 512;
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
    /// One was noted.
    is_noting: AtomicBool,
    questions: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest last.
    waiting: Vec<Noted>,
    /// The one that was asked about last is the last.
    asked: VecDeque<Asked>,
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

/// A message that a server told of, until all of its subscribers should have it.
#[derive(Debug)]
struct Asked {
    noted: Noted,
    events: Events,
    /// When its time until subscribers begins.
    delivery_begun_us: u64,
    /// The server has the clock of this machine.
    is_one_clock: bool,
}

impl State {
    /// Takes what a server told of a message. Of too many, the first does not wait for subscribers any longer.
    fn keep(&mut self, asked: Asked) {
        let Asked { noted, events, is_one_clock, .. } = &asked;
        let own = [noted.begun_us, noted.sent_us, noted.answered_us];
        self.answered.add(noted, events.until_answered(own, *is_one_clock));
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front().iter().for_each(|first| self.evaluate(first));
        }
        self.asked.push_back(asked);
    }

    /// Counts those that were answered before this time, if subscribers have read them.
    fn judge_before(&mut self, us: u64) {
        let all = std::mem::take(&mut self.asked).into_iter();
        let (due, rest): (VecDeque<_>, _) = all.partition(|asked| asked.noted.answered_us < us);
        self.asked = rest;
        due.iter().for_each(|asked| self.evaluate(asked));
    }

    fn evaluate(&mut self, Asked { noted, events, delivery_begun_us, is_one_clock }: &Asked) {
        let Some(arrivals) = self.arrivals.remove(&noted.index) else { return };
        let own = [*delivery_begun_us, noted.sent_us, arrivals.mean as u64];
        if let Some(steps) = events.until_read(own, *is_one_clock) {
            self.delivered.add(noted, steps);
        }
    }
}

impl Followed {
    /// Whether a message is followed. One that was accepted, but not yet stored, has no `seq` that tells.
    pub(crate) fn takes(&self, room: u16, seq: u64) -> bool {
        seq > 0 && is_taken((room, seq), self.halvings.load(Ordering::Relaxed))
    }

    /// Whether a message that a subscriber read is followed: none before one was noted, so that nothing is kept where nothing can be
    /// followed, as behind a broker.
    pub(crate) fn awaits(&self, room: u16, seq: u64) -> bool {
        self.is_noting.load(Ordering::Relaxed) && self.takes(room, seq)
    }

    /// Notes a message that was answered at its first attempt.
    pub(crate) fn note(&self, noted: Noted) {
        let mut state = self.state.lock();
        self.is_noting.store(true, Ordering::Relaxed);
        let mut halvings = self.halvings.load(Ordering::Relaxed);
        if state.waiting.len() >= WAITING_MAX {
            halvings = halvings.saturating_add(1);
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

    /// Requests that were asked about messages, which servers count with those of the run.
    pub(crate) fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// Follows no further message.
    fn stop(&self) {
        let mut state = self.state.lock();
        self.halvings.store(u32::MAX, Ordering::Relaxed);
        state.waiting.clear();
    }

    /// Does `work`, and asks about messages meanwhile.
    pub(crate) async fn ask_during<T>(&self, run: &Run, work: impl Future<Output = T>) -> T {
        let asking = async {
            let mut asker = Asker::new(run);
            while !asker.is_hopeless() {
                tokio::time::sleep(PAUSE).await;
                self.ask_newest(&mut asker, DELIVERY).await;
                let before_us = run.now_us().saturating_sub(saturate(ARRIVAL_MAX.as_micros()));
                self.state.lock().judge_before(before_us);
            }
            self.stop();
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
        self.questions.fetch_add(1, Ordering::Relaxed);
        if let Some(events) = asker.events(&noted).await {
            let run = asker.run;
            // Where nobody keeps when messages were to be sent, their time until subscribers begins when they are.
            let delivery_begun_us = if run.times.is_some() { noted.begun_us } else { noted.sent_us };
            let is_one_clock = run.targets.of(noted.who).is_loopback();
            self.state.lock().keep(Asked { noted, events, delivery_begun_us, is_one_clock });
        } else {
            // What is older is on record even less.
            self.state.lock().waiting.retain(|other| other.answered_us > noted.answered_us);
        }
        true
    }

    /// Until the answer was read, and until subscribers had read the message, once they have what they are to have; see
    /// [`Seconds::means`].
    pub(crate) fn means(&self, answered: impl Fn(u64) -> u64) -> [Option<Means>; 2] {
        let mut state = self.state.lock();
        state.judge_before(u64::MAX);
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
    use super::seconds::LEAST;
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
    fn nothing_is_kept_where_nothing_can_be_followed() {
        let followed = Followed::default();
        assert!(!followed.takes(1, 0), "accepted, not yet stored");
        assert!(followed.takes(1, 7) && !followed.awaits(1, 7), "a broker's answers are not noted");
        followed.note(noted(7));
        assert!(followed.awaits(1, 8));
        followed.stop();
        (1..10_000).for_each(|seq| followed.note(noted(seq)));
        assert!((1..10_000).all(|seq| !followed.takes(1, seq) && !followed.awaits(1, seq)));
        assert!(followed.state.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn what_is_older_than_a_failure_is_not_asked_about() {
        let target = crate::client::Target::parse("127.0.0.1:1").unwrap();
        let rules = crate::options::arguments("rules", &[]).unwrap();
        let run = Run::new(target, crate::job::Shape::new(1, 10, None, ""), rules);
        (1..=100).for_each(|seq| run.followed.note(noted(seq)));
        run.followed.ask_rest(&run).await;
        assert_eq!(run.followed.questions(), 1, "and not so many that following would end for good");
        assert!(run.followed.state.lock().waiting.is_empty());
    }

    #[test]
    fn what_subscribers_have_late_counts() {
        let followed = Followed::default();
        let all = 0..LEAST;
        for index in all.clone() {
            let noted = Noted { index, answered_us: 5_000, ..noted(index) };
            let events = Events { taken: 1_000, stored: 2_000, answered: 4_000, delivered: Some(3_000) };
            let asked = Asked { noted, events, delivery_begun_us: 0, is_one_clock: true };
            followed.state.lock().keep(asked);
        }
        followed.state.lock().judge_before(5_000);
        all.for_each(|index| followed.arrived(index, 505_000));
        let [answered, delivered] = followed.means(|_| 1).map(Option::unwrap);
        assert_eq!((answered.steps, answered.count), ([0.0, 1.0, 1.0, 2.0, 1.0], LEAST));
        assert_eq!((delivered.steps, delivered.count), ([0.0, 1.0, 1.0, 1.0, 502.0], LEAST));
    }

    #[test]
    fn who_waits_for_subscribers_is_bounded() {
        let followed = Followed::default();
        for index in 0..2 * ASKED_MAX as u64 {
            let events = Events { taken: 1, stored: 2, answered: 3, delivered: None };
            let asked = Asked { noted: noted(index), events, delivery_begun_us: 0, is_one_clock: true };
            followed.state.lock().keep(asked);
        }
        assert_eq!(followed.state.lock().asked.len(), ASKED_MAX);
        followed.state.lock().judge_before(1);
        assert!(followed.state.lock().asked.is_empty());
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
