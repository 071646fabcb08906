//! Messages of a run that are followed, so that their time can be divided without a rest: this program knows when it sent one,
//! read its answer, and when its subscribers read it, and the server's timeline when it took, stored, answered and delivered it.
//!
//! At first all are, and each time too many wait to be asked about, half as many; which, a hash of room and `seq` decides: it has
//! nothing to do with their place in a batch, and subscribers know it without a search. While the run goes on, a task asks about the newest, because a busy
//! server keeps its records for a second or two. What is left is asked about at the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use serde_json::Value;

use crate::caller::Caller;
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
const TIMEOUT: Duration = Duration::from_secs(2);
/// What is left is asked about for so long.
const REST: Duration = Duration::from_secs(2);
/// So many questions in a row that led to nothing end it: the server has no timeline, or not of that time.
const FAILURES_MAX: u32 = 20;
/// Fewer messages say nothing.
const LEAST: u64 = 30;
/// Later ones count as one.
const SECONDS_MAX: u64 = 3_600;

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

/// What was found out of messages answered in each second of the run.
#[derive(Debug, Default)]
struct Seconds(BTreeMap<u64, Second>);

/// Milliseconds of each step, and of all of them.
#[derive(Debug, Default)]
struct Second {
    steps: [Moments; STEPS],
    whole: Moments,
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

/// Means in milliseconds of the messages that were followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Means {
    pub(crate) count: u64,
    /// In the client; until the server took it from its queue; in the store; until the connection of the sender was told, or
    /// those of subscribers took it; until it was read there.
    pub(crate) steps: Steps,
    pub(crate) whole: f64,
    /// Standard error of `whole`.
    pub(crate) error: f64,
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
            let [begun, sent, answered] =
                [noted.begun_us, noted.sent_us, noted.answered_us].map(|us| asker.run.wall_us(us));
            state.answered.add(&noted, events.until_answered(begun, sent, answered));
            let arrived = arrived.map(|us| asker.run.wall_us(us));
            // Where nobody keeps when messages were to be sent, their time until subscribers begins when they are.
            let begun = if asker.run.times.is_some() { begun } else { sent };
            if let Some(steps) = arrived.and_then(|arrived| events.until_read(begun, sent, arrived)) {
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

impl Seconds {
    fn add(&mut self, noted: &Noted, steps: Steps) {
        let second = self.0.entry((noted.answered_us / 1_000_000).min(SECONDS_MAX)).or_default();
        second.whole.add(steps.iter().sum());
        second.steps.iter_mut().zip(steps).for_each(|(moments, ms)| moments.add(ms));
    }

    /// `None` where there are too few. They are asked about at one rate, whatever that of the run: so each second has the
    /// weight of all messages that `answered` counts in it.
    fn means(&self, answered: impl Fn(u64) -> u64) -> Option<Means> {
        let count: u64 = self.0.values().map(|second| second.whole.count).sum();
        let answered = |second: u64| {
            let seconds = if second < SECONDS_MAX { second..second + 1 } else { second..86_400 };
            seconds.map(&answered).sum::<u64>() as f64
        };
        let weighed: Vec<_> = self.0.iter().map(|(at, second)| (answered(*at), second)).collect();
        let all: f64 = weighed.iter().map(|(weight, _)| weight).sum();
        if count < LEAST || all <= 0.0 {
            return None;
        }
        let mean = |of: &dyn Fn(&Second) -> f64| {
            weighed.iter().map(|(weight, second)| weight / all * of(second)).sum::<f64>()
        };
        let step = |step: usize| mean(&|second| second.steps.get(step).map_or(0.0, |step| step.mean));
        // One message alone shows no variance; it has that of the others.
        let squares: f64 = weighed.iter().map(|(_, second)| second.whole.squares).sum();
        let variance = squares / count.saturating_sub(weighed.len() as u64).max(1) as f64;
        let error =
            |(weight, second): &(f64, &Second)| (weight / all).powi(2) * variance / second.whole.count as f64;
        Some(Means {
            count,
            steps: std::array::from_fn(step),
            whole: mean(&|second| second.whole.mean),
            error: weighed.iter().map(error).sum::<f64>().sqrt(),
        })
    }
}

/// Asks servers for timelines.
struct Asker<'a> {
    run: &'a Run,
    /// By the number of the server.
    callers: BTreeMap<usize, Caller>,
    failures: u32,
}

impl<'a> Asker<'a> {
    fn new(run: &'a Run) -> Self {
        Self { run, callers: BTreeMap::new(), failures: 0 }
    }

    fn is_hopeless(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    async fn events(&mut self, noted: &Noted) -> Option<Events> {
        let timeline = self.timeline(noted).await;
        let events = timeline.and_then(|timeline| Events::of(&timeline));
        self.failures = if events.is_some() { 0 } else { self.failures + 1 };
        events
    }

    async fn timeline(&mut self, noted: &Noted) -> Option<Value> {
        let Run { targets, shape, .. } = self.run;
        let server = noted.who % targets.len();
        let mut caller = match self.callers.remove(&server) {
            Some(caller) => caller,
            None => Caller::open(targets.of(noted.who), TIMEOUT).await.ok()?,
        };
        let mut id = Vec::new();
        shape.write_id(noted.index, &mut id);
        let (room, id) = (shape.room_name(noted.room), String::from_utf8(id).ok()?);
        let path = format!("/v1/rooms/{room}/messages/{id}/timeline");
        let answer = caller.request("GET", &path, b"", |response| serde_json::from_slice(response.body));
        let answer = answer.await.ok()?;
        self.callers.insert(server, caller);
        answer.ok()
    }
}

/// What a server's timeline says of a message, in microseconds of the wall clock.
#[derive(Debug, Clone, Copy)]
struct Events {
    taken: i64,
    stored: i64,
    answered: i64,
    /// The middle between the first and the last connection that took it.
    delivered: Option<i64>,
}

impl Events {
    /// `None` if its batch is not on record.
    fn of(timeline: &Value) -> Option<Self> {
        let events = timeline.get("events")?.as_array()?;
        let time = |stage: &str, name: &str| {
            let event = events.iter().find(|event| event.get("stage").is_some_and(|name| name == stage))?;
            Some(Timestamp::parse(event.get(name)?.as_str()?)?.as_micros())
        };
        let at = |stage| time(stage, "at");
        let delivered =
            at("delivered").map(|first| i64::midpoint(first, time("delivered", "until").unwrap_or(first)));
        Some(Self { taken: at("committing")?, stored: at("stored")?, answered: at("answered")?, delivered })
    }

    fn until_answered(&self, begun: i64, sent: i64, read: i64) -> Steps {
        steps(begun, [sent, self.taken, self.stored, self.answered, read])
    }

    fn until_read(&self, begun: i64, sent: i64, read: i64) -> Option<Steps> {
        Some(steps(begun, [sent, self.taken, self.stored, self.delivered?, read]))
    }
}

/// Milliseconds of the steps that end at these times. Each begins where the one before ends, whatever the clocks say, so all
/// together are the whole.
fn steps(begun: i64, ends: [i64; STEPS]) -> Steps {
    let [.., last] = ends;
    let mut from = begun;
    ends.map(|end| {
        let end = end.min(last).max(from);
        let step = (end - from) as f64 / 1e3;
        from = end;
        step
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AT: &str = "2026-01-31T12:00:00.";

    fn timeline() -> Value {
        let event = |stage: &str, micros: u32| json!({"stage": stage, "at": format!("{AT}{micros:06}Z")});
        let stages = [
            ("received", 900),
            ("queued", 1_000),
            ("committing", 3_500),
            ("stored", 4_500),
            ("answered", 4_600),
        ];
        let mut delivered = event("delivered", 4_700);
        delivered["until"] = json!(format!("{AT}004900Z"));
        let stages = stages.map(|(stage, micros)| event(stage, micros));
        let events = [&stages[..], &[delivered]].concat();
        json!({ "events": events })
    }

    fn wall(micros: i64) -> i64 {
        Timestamp::parse(&format!("{AT}000Z")).unwrap().as_micros() + micros
    }

    #[test]
    fn steps_are_the_whole() {
        let events = Events::of(&timeline()).unwrap();
        let until_answered = |own: [i64; 3]| {
            let [begun, sent, read] = own.map(wall);
            events.until_answered(begun, sent, read)
        };
        assert_eq!(until_answered([0, 500, 5_000]), [0.5, 3.0, 1.0, 0.1, 0.4]);
        // The answer was read before the thread went on that wrote it.
        assert_eq!(until_answered([2_300, 2_400, 4_550]), [0.1, 1.1, 1.0, 0.05, 0.0]);
        let [begun, sent, read] = [0, 500, 6_000].map(wall);
        assert_eq!(events.until_read(begun, sent, read), Some([0.5, 3.0, 1.0, 0.3, 1.2]));
        let unfollowed = Events { delivered: None, ..events };
        assert_eq!(unfollowed.until_read(begun, sent, read), None, "nobody followed the room there");
        let received = json!({"events": [{"stage": "received", "at": format!("{AT}000Z")}]});
        assert!(Events::of(&received).is_none(), "another server stored it");
        assert!(Events::of(&json!({"error": "there is no such message"})).is_none());
    }

    fn noted(seq: u64) -> Noted {
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
    fn few_say_nothing() {
        let mut seconds = Seconds::default();
        (1..LEAST).for_each(|_| seconds.add(&noted(0), [0.1, 0.2, 0.3, 0.4, 0.5]));
        assert_eq!(seconds.means(|_| 1), None);
        seconds.add(&noted(0), [0.1, 0.2, 0.3, 0.4, 0.5]);
        let means = seconds.means(|_| 1).unwrap();
        assert!((means.whole - 1.5).abs() < 1e-9 && means.error < 1e-9 && means.count == LEAST, "{means:?}");
    }

    #[test]
    fn each_second_weighs_as_much_as_it_had_messages() {
        let mut seconds = Seconds::default();
        let at = |answered_us| Noted { answered_us, ..noted(0) };
        for noise in [-1.0, 1.0].repeat(20) {
            seconds.add(&at(500_000), [0.0, 10.0 + noise, 0.0, 0.0, 0.0]);
            seconds.add(&at(1_500_000), [0.0, 20.0 + noise, 0.0, 0.0, 0.0]);
        }
        let means = seconds.means(|second| [100, 300].get(second as usize).copied().unwrap_or(0)).unwrap();
        assert!((means.whole - 17.5).abs() < 1e-9 && (means.steps[1] - 17.5).abs() < 1e-9, "{means:?}");
        // Not the variance between seconds.
        let wanted = ((0.25_f64.powi(2) + 0.75_f64.powi(2)) * (80.0 / 78.0) / 40.0).sqrt();
        assert!((means.error - wanted).abs() < 1e-9, "{means:?}");
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
