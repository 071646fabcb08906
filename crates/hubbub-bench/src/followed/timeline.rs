//! Asks servers for the timelines of messages, and divides the time of a message by what they say.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use serde_json::Value;

use super::{Noted, STEPS, Steps};
use crate::caller::Caller;
use crate::run::Run;

const TIMEOUT: Duration = Duration::from_secs(2);
/// So many questions in a row that led to nothing end it: the server has no timeline, or not of that time.
const FAILURES_MAX: u32 = 20;

/// Asks servers for timelines.
pub(super) struct Asker<'a> {
    pub(super) run: &'a Run,
    /// By the number of the server.
    callers: BTreeMap<usize, Caller>,
    failures: u32,
}

impl<'a> Asker<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        Self { run, callers: BTreeMap::new(), failures: 0 }
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    pub(super) async fn events(&mut self, noted: &Noted) -> Option<Events> {
        let timeline = self.timeline(noted).await;
        let start = start_by(crate::machine::now(), self.run);
        let events = timeline.and_then(|timeline| Events::of(&timeline, start));
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

/// When a run started, in microseconds by the wall clock as it is set `now`: it may have been set since.
fn start_by(now: Timestamp, run: &Run) -> i64 {
    let set_by = now.as_micros().saturating_sub(run.wall_us(run.now_us()));
    run.wall_us(0).saturating_add(set_by)
}

/// What a server's timeline says of a message, in microseconds after the start of the run by the server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Events {
    pub(super) taken: i64,
    pub(super) stored: i64,
    pub(super) answered: i64,
    /// The middle between the first and the last connection that took it.
    pub(super) delivered: Option<i64>,
}

impl Events {
    /// Of a run that started at `start` of the wall clock. `None` if the batch of the message is not on record.
    fn of(timeline: &Value, start: i64) -> Option<Self> {
        let events = timeline.get("events")?.as_array()?;
        let time = |stage: &str, name: &str| {
            let event = events.iter().find(|event| event.get("stage").is_some_and(|name| name == stage))?;
            Some(Timestamp::parse(event.get(name)?.as_str()?)?.as_micros().saturating_sub(start))
        };
        let at = |stage| time(stage, "at");
        let delivered =
            at("delivered").map(|first| i64::midpoint(first, time("delivered", "until").unwrap_or(first)));
        Some(Self { taken: at("committing")?, stored: at("stored")?, answered: at("answered")?, delivered })
    }

    /// Of a message that was to be sent, was sent, and whose answer was read at these times by the clock of this machine, which
    /// may be that of the server.
    pub(super) fn until_answered(&self, own: [u64; 3], is_one_clock: bool) -> Steps {
        self.steps(own, self.answered, is_one_clock)
    }

    /// The same until subscribers read it; `None` where none of their connections took it.
    pub(super) fn until_read(&self, own: [u64; 3], is_one_clock: bool) -> Option<Steps> {
        Some(self.steps(own, self.delivered?, is_one_clock))
    }

    /// Where the server had done all at `done`. Another clock is taken to be off by what makes the way to the server as long as
    /// the way back, as NTP does (RFC 5905, section 8): so the server's own steps stay as they are.
    fn steps(&self, own: [u64; 3], done: i64, is_one_clock: bool) -> Steps {
        let [begun, sent, read] = own.map(saturate::<_, i64>);
        let middle = i64::midpoint(self.taken, done);
        let off = if is_one_clock { 0 } else { i64::midpoint(sent, read).saturating_sub(middle) };
        let [taken, stored, done] = [self.taken, self.stored, done].map(|at| at.saturating_add(off));
        steps(begun, [sent, taken, stored, done, read])
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
        assert_eq!(until_answered([0, 500, 5_000]), [0.5, 3.0, 1.0, 0.1, 0.4]);
        // The answer was read before the thread went on that wrote it.
        assert_eq!(until_answered([2_300, 2_400, 4_550]), [0.1, 1.1, 1.0, 0.05, 0.0]);
        let own = [0, 500, 6_000];
        assert_eq!(events.until_read(own, true), Some([0.5, 3.0, 1.0, 0.3, 1.2]));
        let unfollowed = Events { delivered: None, ..events };
        assert_eq!(unfollowed.until_read(own, true), None, "nobody followed the room there");
        let received = json!({"events": [{"stage": "received", "at": format!("{AT}000Z")}]});
        assert!(Events::of(&received, 0).is_none(), "another server stored it");
        assert!(Events::of(&json!({"error": "there is no such message"}), 0).is_none());
    }

    #[test]
    fn another_clock_changes_no_step_of_the_server() {
        let events = Events::of(&timeline(), start()).unwrap();
        for off in [-100_000, 0, 100_000] {
            let [taken, stored, answered] = [events.taken, events.stored, events.answered].map(|at| at + off);
            let delivered = events.delivered.map(|at| at + off);
            let events = Events { taken, stored, answered, delivered };
            let until_answered = events.until_answered([0, 500, 5_500], false);
            assert_eq!(until_answered, [0.5, 1.95, 1.0, 0.1, 1.95], "{off}");
            let until_read = events.until_read([0, 500, 6_000], false);
            assert_eq!(until_read, Some([0.5, 2.1, 1.0, 0.3, 2.1]), "{off}");
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_meanwhile_counts_as_it_is() {
        let target = crate::client::Target::parse("127.0.0.1:1").unwrap();
        let rules = crate::options::arguments("rules", &[]).unwrap();
        let run = Run::new(target, crate::job::Shape::new(1, 10, None, ""), rules);
        let now = Timestamp::parse("2001-01-01T00:00:00Z").unwrap();
        let before_us = run.now_us();
        let ran_us = u64::try_from(now.as_micros() - start_by(now, &run)).unwrap();
        assert!((before_us..=run.now_us()).contains(&ran_us), "{ran_us}");
    }
}
