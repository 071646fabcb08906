//! Messages of a run that are followed, so that their time can be divided without a rest: this program knows when it sent one,
//! read its answer, and when its subscribers read it, and the server's timeline when it took, stored, answered and delivered it.
//!
//! At first all are, and each time too many wait to be asked about, half as many; which, a hash of room and `seq` decides: it has
//! nothing to do with their place in a batch, and subscribers know it without a search. Behind a broker an answer has no `seq`:
//! then the number of the message in the run decides, and only where there are subscribers, as its answer comes before its
//! timeline begins. Where there are subscribers, only messages of their rooms are followed: of a thousand rooms of which ten
//! are listened to, one message in a hundred would tell of its delivery. While the run goes on, a task asks about them, because
//! a busy server keeps its records for a second or two; what is left is asked about at the end. Which is next, the same hash
//! decides, and not their age: the newest of those that were held up together waited the least, so asking about the newest would
//! make all messages look faster than they are.
//!
//! Of several servers, one stores a message, and each that has subscribers of its room delivers it. What is not on record yet is
//! asked for again later, for as long as a slow message may take: those given up early would all be slow ones.

mod seconds;
mod timeline;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

pub(crate) use seconds::Means;
use seconds::Seconds;
use timeline::{Asker, Delivered, Events, MessageTimeline, TimelineAnswer};

use crate::client::Target;
use crate::load::run::Run;
use crate::statistics::Moments;

/// Messages that wait to be asked about.
const WAITING_MAX: usize = 256;
/// Messages whose arrivals are remembered.
const ARRIVALS_MAX: usize = 4_096;
/// Between two questions while the run goes on.
const PAUSE: Duration = Duration::from_millis(50);
/// By then subscribers have a message, as a rule, and the server has its delivery on record.
const DELIVERY: Duration = Duration::from_millis(100);
/// From the answer to a message until each further question, where not all of it was on record. After the last it is given up.
const AGAIN: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];
/// Subscribers that have a message later than this after its answer do not count; longer than the last of [`AGAIN`].
const ARRIVAL_MAX: Duration = Duration::from_secs(10);
/// Messages that were asked about and wait for subscribers: more than [`PAUSE`] lets through in that time, and all of the rest.
const ASKED_MAX: usize = 512;
/// What is left is asked about for so long.
const REST: Duration = Duration::from_secs(2);

/// Steps of a message from the intended send until its answer was read, or until subscribers had read it.
pub(crate) const STEPS: usize = 6;

type Steps = [f64; STEPS];

/// What was noted by now, if anything was: messages with a `seq`, or messages without.
const NUMBERED: u8 = 1;
const UNNUMBERED: u8 = 2;

/// Which messages are followed, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// One in so many powers of two is followed.
    halvings: AtomicU32,
    noting: AtomicU8,
    has_subscribers: AtomicBool,
    /// A bit for each room that has subscribers.
    heard: HeardRooms,
    questions: AtomicU64,
    /// Those of the main phase, and the microseconds that their answers took.
    main_asked: [AtomicU64; 2],
    state: Mutex<State>,
}

/// A bit for each room.
#[derive(Debug)]
struct HeardRooms([AtomicU64; 1 << 10]);

impl Default for HeardRooms {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl HeardRooms {
    fn insert(&self, room: u16) {
        if let Some(rooms) = self.0.get(usize::from(room >> 6)) {
            rooms.fetch_or(1 << (room & 63), Ordering::Relaxed);
        }
    }

    fn contains(&self, room: u16) -> bool {
        let rooms = self.0.get(usize::from(room >> 6)).map_or(0, |rooms| rooms.load(Ordering::Relaxed));
        rooms >> (room & 63) & 1 == 1
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Noted>,
    /// What is known of those that are asked about again, by their numbers: a server may have forgotten it until then.
    found: BTreeMap<u64, MessageTimeline>,
    /// The one that was asked about last is the last.
    asked: VecDeque<FollowedMessage>,
    /// The servers that have subscribers of a room.
    subscribed: BTreeMap<u16, BTreeSet<usize>>,
    /// When subscribers of each server read messages, by their numbers; in microseconds after the start of the run.
    arrivals: BTreeMap<u64, BTreeMap<usize, Moments>>,
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
    /// Questions about it that found not all of it on record.
    pub(crate) tries: usize,
}

impl Noted {
    /// What decides whether it is followed.
    fn key(&self) -> u64 {
        if self.seq > 0 { key(self.room, self.seq) } else { self.index }
    }

    /// Whether it was answered so long ago that it is to be asked about.
    fn is_due(&self, now_us: u64) -> bool {
        let wait = self.tries.checked_sub(1).and_then(|again| AGAIN.get(again)).unwrap_or(&DELIVERY);
        self.answered_us <= now_us.saturating_sub(saturate(wait.as_micros()))
    }
}

/// A message that a server told of, until all of its subscribers should have it.
#[derive(Debug)]
struct FollowedMessage {
    noted: Noted,
    events: Events,
    delivered: BTreeMap<usize, Delivered>,
    /// When its time until subscribers begins.
    delivery_begun_us: u64,
    /// The server has the clock of this machine.
    is_one_clock: bool,
}

impl State {
    /// Takes the message to ask about next: of those that are due the one that is followed for the most halvings.
    fn next(&mut self, is_due: impl Fn(&Noted) -> bool) -> Option<Noted> {
        let due = self.waiting.iter().enumerate().filter(|(_, noted)| is_due(noted));
        let (place, _) = due.min_by_key(|(_, noted)| hash(noted.key()))?;
        Some(self.waiting.swap_remove(place))
    }

    /// Has a message asked about again.
    fn put_back(&mut self, noted: Noted, found: Option<MessageTimeline>) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(Noted { tries: noted.tries + 1, ..noted });
            self.found.extend(found.map(|found| (noted.index, found)));
        }
        if self.found.len() > WAITING_MAX {
            self.found.pop_first();
        }
    }

    /// Takes what a server told of a message. Of too many, the first does not wait for subscribers any longer.
    fn keep(&mut self, asked: FollowedMessage) {
        let FollowedMessage { noted, events, is_one_clock, .. } = &asked;
        let own = [noted.begun_us, noted.sent_us, noted.answered_us];
        self.answered.add(noted, 1.0, events.until_answered(own, *is_one_clock));
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

    /// Counts the mean of all who read it, for each of them, if all of their servers told when they delivered it: one that is
    /// far behind would be missing more often.
    fn evaluate(
        &mut self,
        FollowedMessage { noted, events, delivered, delivery_begun_us, is_one_clock }: &FollowedMessage,
    ) {
        let Some(arrivals) = self.arrivals.remove(&noted.index) else { return };
        let (mut sum, mut count) = ([0.0; STEPS], 0.0);
        for (server, read) in &arrivals {
            let Some(delivered) = delivered.get(server) else { return };
            let own = [*delivery_begun_us, noted.sent_us, read.mean as u64];
            let steps = events.until_read(own, delivered, *is_one_clock);
            let readers = read.count as f64;
            sum.iter_mut().zip(steps).for_each(|(sum, step)| *sum += readers * step);
            count += readers;
        }
        if count > 0.0 {
            self.delivered.add(noted, count, sum.map(|sum| sum / count));
        }
    }
}

impl Followed {
    /// Whether a message that was answered is followed; `seq` is 0 where it was accepted, and not yet stored.
    pub(crate) fn takes(&self, room: u16, seq: u64, index: u64) -> bool {
        let halvings = self.halvings.load(Ordering::Relaxed);
        let has_subscribers = self.has_subscribers.load(Ordering::Relaxed);
        let is_heard = || !has_subscribers || self.heard.contains(room);
        match seq {
            0 => has_subscribers && is_taken(index, halvings) && is_heard(),
            seq => is_taken(key(room, seq), halvings) && is_heard(),
        }
    }

    /// The number of a message that a subscriber read, if it is followed: none before one was noted, so that nothing is kept where
    /// nothing can be followed.
    pub(crate) fn awaits(&self, room: u16, seq: u64, index: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let halvings = self.halvings.load(Ordering::Relaxed);
        match self.noting.load(Ordering::Relaxed) {
            NUMBERED if is_taken(key(room, seq), halvings) => index(),
            UNNUMBERED => index().filter(|index| is_taken(*index, halvings)),
            _ => None,
        }
    }

    /// A room has subscribers at a server.
    pub(crate) fn subscribes(&self, room: u16, server: usize) {
        self.state.lock().subscribed.entry(room).or_default().insert(server);
        self.heard.insert(room);
        self.has_subscribers.store(true, Ordering::Relaxed);
    }

    /// Notes a message that was answered at its first attempt.
    pub(crate) fn note(&self, noted: Noted) {
        let mut state = self.state.lock();
        self.noting.store(if noted.seq > 0 { NUMBERED } else { UNNUMBERED }, Ordering::Relaxed);
        let mut halvings = self.halvings.load(Ordering::Relaxed);
        if state.waiting.len() >= WAITING_MAX {
            halvings = halvings.saturating_add(1);
            self.halvings.store(halvings, Ordering::Relaxed);
            state.waiting.retain(|noted| is_taken(noted.key(), halvings));
        }
        if is_taken(noted.key(), halvings) && state.waiting.len() < WAITING_MAX {
            state.waiting.push(noted);
        }
    }

    /// Notes that a subscriber of a server read a message.
    pub(crate) fn arrived(&self, index: u64, server: usize, us: u64) {
        let mut state = self.state.lock();
        if state.arrivals.len() >= ARRIVALS_MAX && !state.arrivals.contains_key(&index) {
            state.arrivals.pop_first();
        }
        state.arrivals.entry(index).or_default().entry(server).or_default().add(us as f64);
    }

    /// Requests that were asked about messages, which servers count with those of the run.
    pub(crate) fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// Those of the main phase by now, with how long their answers took, in milliseconds of all together.
    pub(crate) fn asked_in_main(&self) -> (f64, f64) {
        let [questions, us] = self.main_asked_us();
        (questions as f64, us as f64 / 1e3)
    }

    /// The same in microseconds.
    pub(crate) fn main_asked_us(&self) -> [u64; 2] {
        self.main_asked.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Adds questions of the main phase that others asked, and the microseconds that their answers took.
    pub(crate) fn add_main_asked(&self, asked: [u64; 2]) {
        for (count, n) in self.main_asked.iter().zip(asked) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Counts a question that was answered after this time, in the main phase or not.
    fn asked(&self, after: Duration, is_in_main: bool) {
        self.questions.fetch_add(1, Ordering::Relaxed);
        if is_in_main {
            self.add_main_asked([1, saturate(after.as_micros())]);
        }
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
                let now_us = run.now_us();
                self.ask_next(&mut asker, |noted| noted.is_due(now_us), false).await;
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
            while !asker.is_hopeless() && self.ask_next(&mut asker, |_| true, true).await {}
        };
        // A message not asked about is one less.
        let _ = tokio::time::timeout(REST, asking).await;
    }

    /// Asks about one of those that are due, at the end for the last time. Whether there was one.
    async fn ask_next(&self, asker: &mut Asker<'_>, is_due: impl Fn(&Noted) -> bool, is_end: bool) -> bool {
        let run = asker.run;
        let is_one_clock = run.targets.iter().all(Target::is_loopback);
        let (next, subscribed) = {
            let mut state = self.state.lock();
            let next = state.next(is_due);
            let servers = next.and_then(|noted| state.subscribed.get(&noted.room));
            (next, servers.into_iter().flatten().copied().collect::<Vec<_>>())
        };
        let Some(noted) = next else { return false };
        // Servers with other clocks cannot be compared with each other.
        let is_comparable = run.targets.len() == 1 || is_one_clock;
        let subscribed = if is_comparable { subscribed } else { Vec::new() };
        let is_last = is_end || noted.tries >= AGAIN.len();
        let told = asker.ask(&noted, &subscribed, is_last).await;
        let mut state = self.state.lock();
        let found = state.found.remove(&noted.index);
        if found.is_some() {
            asker.forgive();
        }
        let known = match (told, found) {
            (TimelineAnswer::Whole(known), _) | (TimelineAnswer::Nothing, Some(known)) => known,
            (TimelineAnswer::Early(newer), found) => {
                state.put_back(noted, newer.or(found));
                return true;
            }
            (TimelineAnswer::Nothing, None) => {
                // What is older is on record even less. Behind a broker it may be one that was never stored.
                if noted.seq > 0 {
                    state.waiting.retain(|other| other.answered_us > noted.answered_us);
                }
                return true;
            }
        };
        // Where nobody keeps when messages were to be sent, their time until subscribers begins when they are.
        let delivery_begun_us = if run.times.is_some() { noted.begun_us } else { noted.sent_us };
        let (events, delivered) = known;
        state.keep(FollowedMessage { noted, events, delivered, delivery_begun_us, is_one_clock });
        true
    }

    /// Until the answer was read, and until subscribers had read the message, once they have what they are to have; see
    /// [`Seconds::means`].
    pub(crate) fn means(
        &self,
        answered: impl Fn(u64) -> u64,
        [until_answered, until_read]: [Option<f64>; 2],
    ) -> [Option<Means>; 2] {
        let mut state = self.state.lock();
        state.judge_before(u64::MAX);
        [(&state.answered, until_answered), (&state.delivered, until_read)]
            .map(|(seconds, variance)| seconds.means(&answered, variance))
    }
}

/// What a message with a number in its room is known by.
fn key(room: u16, seq: u64) -> u64 {
    u64::from(room) << 40 ^ seq
}

/// Whether it is one of those that remain after so many halvings.
fn is_taken(key: u64, halvings: u32) -> bool {
    hash(key).leading_zeros() >= halvings
}

/// Multiplicative hashing by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
