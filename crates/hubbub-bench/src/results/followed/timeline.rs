//! Asks servers for the timelines of messages, and divides the time of a message by what they say.
//!
//! One server stores a message, the same or others deliver it, and each tells its part. Without a broker, the server that
//! accepted a message stores it. Behind one it may be any; the one that stored the last message of the room is asked first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use serde_json::Value;

use super::{Noted, STEPS, Steps};
use crate::client::caller::Caller;
use crate::load::run::Run;

const TIMEOUT: Duration = Duration::from_secs(2);
/// So many questions in a row that led to nothing end it: the server has no timeline, or not of that time.
const FAILURES_MAX: u32 = 20;

/// When a message was stored, and delivered by each server.
pub(super) type MessageTimeline = (Events, BTreeMap<usize, Delivered>);

/// What servers say of a message.
#[derive(Debug)]
pub(super) enum TimelineAnswer {
    Whole(MessageTimeline),
    /// Some of it has not happened yet; what did, unless it is not stored yet.
    Early(Option<MessageTimeline>),
    Nothing,
}

/// Asks servers for timelines.
pub(super) struct Asker<'a> {
    pub(super) run: &'a Run,
    /// By the number of the server.
    callers: BTreeMap<usize, Caller>,
    /// Who stored the last message of a room.
    storing: BTreeMap<u16, usize>,
    failures: u32,
}

/// A server's timeline of a message, and when the run started by its clock.
struct Part {
    timeline: Value,
    start: i64,
}

impl<'a> Asker<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        Self { run, callers: BTreeMap::new(), storing: BTreeMap::new(), failures: 0 }
    }

    /// The last question led to something after all.
    pub(super) fn forgive(&mut self) {
        self.failures = 0;
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Asks about a message whose room has subscribers at these servers. Of one that is asked about for the last time, what is
    /// known by now is all.
    pub(super) async fn ask(&mut self, noted: &Noted, subscribed: &[usize], is_last: bool) -> TimelineAnswer {
        let mut parts = BTreeMap::new();
        let told = match self.find(noted, &mut parts).await {
            Some((storing, events)) => {
                self.storing.insert(noted.room, storing);
                let delivered = self.delivered((storing, &events), noted, subscribed, parts).await;
                let is_whole = is_last || delivered.len() == subscribed.len();
                let known = (events, delivered);
                if is_whole { TimelineAnswer::Whole(known) } else { TimelineAnswer::Early(Some(known)) }
            }
            // The server answered when it had stored it: what is not on record is not any more.
            None if is_last || noted.seq > 0 => TimelineAnswer::Nothing,
            None => TimelineAnswer::Early(None),
        };
        self.failures = match told {
            TimelineAnswer::Whole(_) | TimelineAnswer::Early(Some(_)) => 0,
            TimelineAnswer::Early(None) => self.failures,
            TimelineAnswer::Nothing => self.failures + 1,
        };
        told
    }

    /// The server that stored a message, and when. What others said meanwhile is in `parts`, too.
    async fn find(&mut self, noted: &Noted, parts: &mut BTreeMap<usize, Part>) -> Option<(usize, Events)> {
        let (count, accepting) = (self.run.targets.len(), noted.who % self.run.targets.len());
        let likely = self.storing.get(&noted.room).filter(|_| noted.seq == 0).copied().unwrap_or(accepting);
        let others = (0..count).filter(|other| noted.seq == 0 && *other != likely);
        for server in std::iter::once(likely).chain(others) {
            let part = self.timeline(noted, server).await?;
            let events = Events::of(&part.timeline, part.start);
            parts.insert(server, part);
            if let Some(events) = events {
                return Some((server, events));
            }
        }
        None
    }

    /// When servers delivered a message that was stored.
    async fn delivered(
        &mut self,
        (storing, events): (usize, &Events),
        noted: &Noted,
        subscribed: &[usize],
        mut parts: BTreeMap<usize, Part>,
    ) -> BTreeMap<usize, Delivered> {
        let mut delivered = BTreeMap::new();
        for &server in subscribed {
            let part = match parts.remove(&server) {
                Some(part) => Some(part),
                None => self.timeline(noted, server).await,
            };
            // The server that stores a message need not wait for it.
            let published = (server == storing).then_some(events.stored);
            let found = part.and_then(|part| Delivered::of(&part.timeline, part.start, published));
            delivered.extend(found.map(|found| (server, found)));
        }
        delivered
    }

    /// `None` where it cannot be asked, or there is no such message yet.
    async fn timeline(&mut self, noted: &Noted, server: usize) -> Option<Part> {
        let Run { targets, shape, followed, .. } = self.run;
        let mut caller = match self.callers.remove(&server) {
            Some(caller) => caller,
            None => Caller::open(targets.of(server), TIMEOUT).await.ok()?,
        };
        let mut id = Vec::new();
        shape.write_id(noted.index, &mut id);
        let (room, id) = (shape.room_name(noted.room), String::from_utf8(id).ok()?);
        let path = format!("/v1/rooms/{room}/messages/{id}/timeline");
        let asked = Instant::now();
        let answer = caller.request("GET", &path, b"", |response| serde_json::from_slice(response.body));
        let answer = answer.await;
        followed.asked(asked.elapsed(), self.run.main_us().contains(&self.run.now_us()));
        let answer: Result<Value, _> = answer.ok()?;
        self.callers.insert(server, caller);
        let timeline = answer.ok().filter(|answer| answer.get("events").is_some())?;
        Some(Part { timeline, start: start_by(crate::host::machine::now(), self.run) })
    }
}

/// When a run started, in microseconds by the wall clock as it is set `now`: it may have been set since.
fn start_by(now: Timestamp, run: &Run) -> i64 {
    let set_by = now.as_micros().saturating_sub(run.wall_us(run.now_us()));
    run.wall_us(0).saturating_add(set_by)
}

/// What the timeline of the server that stored a message says, in microseconds after the start of the run by its clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Events {
    pub(super) taken: i64,
    pub(super) stored: i64,
    pub(super) answered: i64,
}

/// What that of a server that delivered it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) published: i64,
    /// The middle between the first and the last connection that took it.
    pub(super) taken: i64,
}

/// Microseconds after the start of a run, at `start` of the wall clock, of a stage that is on record.
fn time(timeline: &Value, start: i64, stage: &str, name: &str) -> Option<i64> {
    let events = timeline.get("events")?.as_array()?;
    let event = events.iter().find(|event| event.get("stage").is_some_and(|name| name == stage))?;
    Some(Timestamp::parse(event.get(name)?.as_str()?)?.as_micros().saturating_sub(start))
}

impl Delivered {
    /// `published` is when it had the message, where that is known otherwise. `None` if no connection took it yet.
    fn of(timeline: &Value, start: i64, published: Option<i64>) -> Option<Self> {
        let time = |stage, name| time(timeline, start, stage, name);
        let first = time("delivered", "at")?;
        let taken = i64::midpoint(first, time("delivered", "until").unwrap_or(first));
        Some(Self { published: published.or_else(|| time("published", "at"))?, taken })
    }
}

impl Events {
    /// `None` if the batch of the message is not on record.
    fn of(timeline: &Value, start: i64) -> Option<Self> {
        let at = |stage| time(timeline, start, stage, "at");
        let stored = at("stored")?;
        // With a broker, senders were told before: there is no such stage.
        Some(Self { taken: at("committing")?, stored, answered: at("answered").unwrap_or(stored) })
    }

    /// Of a message that was to be sent, was sent, and whose answer was read at these times by the clock of this machine, which
    /// may be that of the server.
    pub(super) fn until_answered(&self, own: [u64; 3], is_one_clock: bool) -> Steps {
        self.steps(own, self.stored, self.answered, is_one_clock)
    }

    /// The same until subscribers of a server read it.
    pub(super) fn until_read(&self, own: [u64; 3], delivered: &Delivered, is_one_clock: bool) -> Steps {
        self.steps(own, delivered.published, delivered.taken, is_one_clock)
    }

    /// Where a server knew of it at `known`, and had done all at `done`. Another clock is taken to be off by what makes the way to the server as long as
    /// the way back, as NTP does (RFC 5905, section 8): so the server's own steps stay as they are.
    fn steps(&self, own: [u64; 3], known: i64, done: i64, is_one_clock: bool) -> Steps {
        let [begun, sent, read] = own.map(saturate::<_, i64>);
        let middle = i64::midpoint(self.taken, done);
        let off = if is_one_clock { 0 } else { i64::midpoint(sent, read).saturating_sub(middle) };
        let ends = [self.taken, self.stored, known, done].map(|at| at.saturating_add(off));
        let [taken, stored, known, done] = ends;
        steps(begun, [sent, taken, stored, known, done, read])
    }
}

/// Milliseconds of the steps that end at these times of one clock. Each begins where the one before ends, so all together are
/// the whole.
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

    fn start() -> i64 {
        Timestamp::parse(&format!("{AT}000Z")).unwrap().as_micros()
    }

    #[test]
    fn steps_are_the_whole() {
        let events = Events::of(&timeline(), start()).unwrap();
        let until_answered = |own| events.until_answered(own, true);
        assert_eq!(until_answered([0, 500, 5_000]), [0.5, 3.0, 1.0, 0.0, 0.1, 0.4]);
        // The answer was read before the thread went on that wrote it.
        assert_eq!(until_answered([2_300, 2_400, 4_550]), [0.1, 1.1, 1.0, 0.0, 0.05, 0.0]);
        let own = [0, 500, 6_000];
        let until_read = |delivered| events.until_read(own, &delivered, true);
        let here = Delivered::of(&timeline(), start(), Some(events.stored)).unwrap();
        assert_eq!(until_read(here), [0.5, 3.0, 1.0, 0.0, 0.3, 1.2]);
        // Another server had it 800 µs later.
        let there = Delivered::of(&elsewhere(), start(), None).unwrap();
        assert_eq!(until_read(there), [0.5, 3.0, 1.0, 0.8, 0.2, 0.5]);
        assert!(Events::of(&elsewhere(), 0).is_none(), "another server stored it");
        assert!(
            Delivered::of(&json!({"events": []}), 0, Some(7)).is_none(),
            "nobody followed the room there"
        );
        assert!(Events::of(&json!({"error": "there is no such message"}), 0).is_none());
    }

    /// By a server that only delivered it.
    fn elsewhere() -> Value {
        let event = |stage: &str, micros: u32| json!({"stage": stage, "at": format!("{AT}{micros:06}Z")});
        json!({"events": [event("received", 900), event("published", 5_300), event("delivered", 5_500)]})
    }

    #[test]
    fn another_clock_changes_no_step_of_the_server() {
        let (events, delivered) = (
            Events::of(&timeline(), start()).unwrap(),
            Delivered::of(&timeline(), start(), Some(4_500)).unwrap(),
        );
        for off in [-100_000, 0, 100_000] {
            let [taken, stored, answered] = [events.taken, events.stored, events.answered].map(|at| at + off);
            let events = Events { taken, stored, answered };
            let until_answered = events.until_answered([0, 500, 5_500], false);
            assert_eq!(until_answered, [0.5, 1.95, 1.0, 0.0, 0.1, 1.95], "{off}");
            let delivered = Delivered { published: stored, taken: delivered.taken + off };
            let until_read = events.until_read([0, 500, 6_000], &delivered, false);
            assert_eq!(until_read, [0.5, 2.1, 1.0, 0.0, 0.3, 2.1], "{off}");
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_meanwhile_counts_as_it_is() {
        let target = crate::client::Target::parse("127.0.0.1:1").unwrap();
        let rules = crate::options::arguments("rules", &[]).unwrap();
        let run = Run::new(target, crate::load::message_plan::Shape::new(1, 10, None, ""), rules);
        let now = Timestamp::parse("2001-01-01T00:00:00Z").unwrap();
        let before_us = run.now_us();
        let ran_us = u64::try_from(now.as_micros() - start_by(now, &run)).unwrap();
        assert!((before_us..=run.now_us()).contains(&ran_us), "{ran_us}");
    }
}
