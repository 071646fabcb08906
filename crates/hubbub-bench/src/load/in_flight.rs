//! The messages of one connection, from the queue to their end. Outlives the socket: after a reconnection, what had
//! no answer is sent again, in order and with the same ids.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;

use crate::client::{Cause, Target};
use crate::load::feed::{Feed, Supply};
use crate::load::message_plan::Job;
use crate::load::run::{Counts, Run};
use crate::results::followed::Noted;
use crate::results::record::{Ending, Sample};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Accepted {
        id: &'a [u8],
        seq: u64,
        duplicate: bool,
    },
    /// The oldest message is safe; the answer does not say which that is.
    #[cfg(feature = "amqp")]
    Confirmed,
    Refused {
        retryable: bool,
    },
    Unreadable,
}

/// Finished messages are handed to the record in lots of this size.
const SAMPLES_MAX: usize = 1_024;
/// ...or after this time.
const SAMPLES_AGE_US: u64 = 200_000;
/// Between two looks of one who thinks whether the run is over, in microseconds.
const LOOK_US: u64 = 200_000;

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) run: Arc<Run>,
    feed: Arc<Feed>,
    who: usize,
    /// Sends to this room only, so that `seq` must grow.
    room: Option<u16>,
    /// Sends as this user only.
    user: Option<u32>,
    supply: Supply,
    ready: VecDeque<Job>,
    /// Sent, in the order of the answers to come.
    in_flight: VecDeque<Flight>,
    /// To be sent again at a time in microseconds after the start.
    later: Vec<(u64, Job)>,
    samples: Vec<Sample>,
    handed_over_us: u64,
    last_seq: u64,
    read_us: u64,
    /// Places in the window whose last answer is being thought about: since when, and until when.
    thinking: Vec<[u64; 2]>,
    random: SeededRandom,
}

#[derive(Debug)]
struct Flight {
    job: Job,
    sent_us: u64,
}

impl InFlight {
    pub(crate) fn new(run: Arc<Run>, feed: Arc<Feed>, who: usize, room: Option<u16>) -> Self {
        Self {
            user: run.shape.user_of(who),
            run,
            feed,
            who,
            room,
            supply: Supply::Open,
            ready: VecDeque::new(),
            in_flight: VecDeque::new(),
            later: Vec::new(),
            samples: Vec::new(),
            handed_over_us: 0,
            last_seq: 0,
            read_us: 0,
            thinking: Vec::new(),
            random: SeededRandom::new(who as u64),
        }
    }

    /// The same with random choices of its own.
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        Self { random: SeededRandom::new(seed), ..self }
    }

    /// The server of its connections, as its user has it.
    pub(crate) fn target(&self) -> Target {
        let target = self.run.targets.of(self.who);
        self.user.map_or_else(|| target.clone(), |user| target.of_user(&user.to_string()))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.supply == Supply::Ended
            && self.ready.is_empty()
            && self.in_flight.is_empty()
            && self.later.is_empty()
    }

    /// Notes the time of the answers that follow.
    pub(crate) fn begin_read(&mut self) {
        self.read_us = self.run.now_us();
    }

    /// Waits for messages that may be sent, and gives up to `most` of them to `write`; `false` once all have ended.
    pub(crate) async fn filled(&mut self, most: usize, mut write: impl FnMut(&Job)) -> bool {
        poll_fn(|cx| match self.fill(most, cx.waker(), &mut write) {
            false if !self.is_finished() => Poll::Pending,
            is_filled => Poll::Ready(is_filled),
        })
        .await
    }

    /// Gives each message that may be sent now, `most` of them, to `write`; the answer is whether there was any.
    pub(crate) fn fill(&mut self, most: usize, waker: &Waker, mut write: impl FnMut(&Job)) -> bool {
        let places = self.run.rules.in_flight.saturating_sub(self.in_flight.len());
        if places == 0 || most == 0 {
            return false;
        }
        let now_us = self.run.now_us();
        self.stop_thinking(now_us);
        let free = places.saturating_sub(self.thinking.len()).min(most);
        if free == 0 {
            // Nothing is taken, but an end is seen.
            self.supply = self.feed.take(0, &mut self.ready, self.who, waker);
            return false;
        }
        self.take_due(now_us);
        if self.later.is_empty() {
            self.take(free, waker);
        }
        let n = free.min(self.ready.len());
        for mut job in self.ready.drain(..n) {
            job.room = self.room.unwrap_or(job.room);
            job.user = self.user.unwrap_or(job.user);
            if job.first_sent_us == 0 {
                job.first_sent_us = now_us;
                if let Some(times) = &self.run.times {
                    times.set(job.index, job.begun_us());
                }
            }
            write(&job);
            self.in_flight.push_back(Flight { job, sent_us: now_us });
        }
        n > 0
    }

    /// Takes the answer to the oldest message in flight.
    pub(crate) fn on_answer(&mut self, answer: &Answer<'_>) -> Result<(), Cause> {
        let Some(Flight { job, .. }) = self.in_flight.pop_front() else { return Err(Cause::Protocol) };
        match *answer {
            Answer::Accepted { id, seq, duplicate }
                if self.run.shape.index_of(id) == Some(job.index)
                    && self.run.may_have_seq(seq, duplicate || job.failures > 0) =>
            {
                if duplicate {
                    Counts::add(&self.run.counts.duplicate, 1);
                }
                // A broker's answer has no `seq`.
                if self.room.is_some()
                    && seq > 0
                    && job.failures == 0
                    && seq <= std::mem::replace(&mut self.last_seq, seq)
                {
                    Counts::add(&self.run.counts.order_faults, 1);
                }
                let is_measured = self.run.main_us().contains(&job.begun_us());
                if is_measured
                    && job.failures == 0
                    && !duplicate
                    && self.run.followed.takes(job.room, seq, job.index)
                {
                    self.follow(&job, seq);
                }
                self.finish(&job, Ending::Accepted);
            }
            #[cfg(feature = "amqp")]
            Answer::Confirmed => self.finish(&job, Ending::Accepted),
            Answer::Refused { retryable: true } => self.retry_later(job),
            Answer::Refused { retryable: false } => self.finish(&job, Ending::Rejected),
            Answer::Accepted { .. } | Answer::Unreadable => {
                self.in_flight.push_front(Flight { job, sent_us: self.read_us });
                return Err(Cause::Protocol);
            }
        }
        Ok(())
    }

    fn follow(&self, job: &Job, seq: u64) {
        self.run.followed.note(Noted {
            index: job.index,
            seq,
            room: job.room,
            who: self.who,
            begun_us: job.begun_us(),
            sent_us: job.first_sent_us,
            answered_us: self.read_us,
            tries: 0,
        });
    }

    fn finish(&mut self, job: &Job, ending: Ending) {
        let latency_us = saturate(self.read_us.saturating_sub(job.begun_us()));
        self.samples.push(Sample {
            done_us: self.read_us,
            index: job.index,
            latency_us,
            waited_us: job.waited_us().map(saturate),
            room: job.room,
            kind: job.kind as u8,
            ending,
        });
        let count = match ending {
            Ending::Accepted => None,
            Ending::Rejected => Some(&self.run.counts.rejected),
            Ending::Unconfirmed => Some(&self.run.counts.unconfirmed),
        };
        if let Some(count) = count {
            Counts::add(count, 1);
        }
        self.think();
        if self.samples.len() >= SAMPLES_MAX || self.read_us > self.handed_over_us + SAMPLES_AGE_US {
            self.hand_over();
        }
    }

    pub(crate) fn hand_over(&mut self) {
        let accepted = self.samples.iter().filter(|sample| sample.ending == Ending::Accepted).count();
        Counts::add(&self.run.counts.accepted, accepted as u64);
        self.handed_over_us = self.read_us;
        self.run.record(&mut self.samples, self.read_us);
    }

    /// What was answered last is thought about.
    fn think(&mut self) {
        let think_time = self.run.think_time;
        if !think_time.is_zero() {
            let time_us: u64 = saturate(think_time.draw(&self.random).as_micros());
            self.thinking.push([self.read_us, self.read_us.saturating_add(time_us)]);
        }
    }

    /// Gives back the places whose time to think is over.
    fn stop_thinking(&mut self, now_us: u64) {
        for [from_us, _] in self.thinking.extract_if(.., |[_, until_us]| *until_us <= now_us) {
            self.run.thought(from_us, now_us);
        }
    }

    /// Thinks no longer.
    pub(crate) fn end_thinking(&mut self) {
        let now_us = self.run.now_us();
        self.thinking.drain(..).for_each(|[from_us, _]| self.run.thought(from_us, now_us));
    }

    fn retry_later(&mut self, mut job: Job) {
        job.failures = job.failures.saturating_add(1);
        if job.failures > self.run.rules.retries {
            return self.finish(&job, Ending::Unconfirmed);
        }
        self.run.counts.retries.add(Cause::Refused, 1);
        let wait = self.run.rules.patience.wait_after(job.failures);
        self.later.push((self.read_us + saturate::<_, u64>(wait.as_micros()), job));
    }

    fn take_due(&mut self, now_us: u64) {
        if self.later.iter().any(|(due_us, _)| *due_us <= now_us) {
            let due = self.later.extract_if(.., |(due_us, _)| *due_us <= now_us);
            let mut due: VecDeque<Job> = due.map(|(_, job)| job).collect();
            due.append(&mut self.ready);
            self.ready = due;
        }
    }

    /// When to look again even if nothing arrives: a time-out, a retry, or the end of thinking; while there is thinking, that
    /// of the run, too.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timeout_us = saturate(self.run.rules.patience.send_timeout.as_micros());
        let oldest = self.in_flight.front().map(|flight| flight.sent_us.saturating_add(timeout_us));
        let retry = self.later.iter().map(|(due_us, _)| *due_us).min();
        let look_us = self.run.now_us().saturating_add(LOOK_US);
        let thought = self.thinking.iter().map(|[_, until_us]| (*until_us).min(look_us)).min();
        oldest.into_iter().chain(retry).chain(thought).min().map(|us| self.run.instant(us))
    }

    pub(crate) fn is_timed_out(&self) -> bool {
        let waited = |flight: &Flight| {
            self.run.instant(flight.sent_us).elapsed() > self.run.rules.patience.send_timeout
        };
        self.in_flight.front().is_some_and(waited)
    }

    /// Whether something waits for its time, so that the timer must be set anew.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.later.is_empty() || !self.thinking.is_empty()
    }

    /// The connection is gone because of `cause`: everything without an answer counts as failed once more and is sent again
    /// first. Returns how often the message that failed most has failed.
    pub(crate) fn on_lost(&mut self, cause: Cause) -> u8 {
        self.begin_read();
        let mut again: VecDeque<Job> = self.in_flight.drain(..).map(|flight| flight.job).collect();
        again.append(&mut self.ready);
        self.later.sort_by_key(|(due_us, _)| *due_us);
        again.extend(std::mem::take(&mut self.later).into_iter().map(|(_, job)| job));
        let (mut worst, mut retries) = (0, 0);
        for mut job in again {
            job.failures += 1;
            if job.failures > self.run.rules.retries || self.run.is_hopeless() {
                self.finish(&job, Ending::Unconfirmed);
                continue;
            }
            retries += 1;
            worst = worst.max(job.failures);
            self.ready.push_back(job);
        }
        self.run.counts.retries.add(cause, retries);
        worst
    }

    /// Takes one message although there is no connection, so that it is counted as failed and the run comes to an end.
    pub(crate) fn take_one(&mut self) {
        self.take(1, Waker::noop());
    }

    /// Takes messages until so many are ready.
    fn take(&mut self, wanted: usize, waker: &Waker) {
        let before = self.ready.len();
        if self.supply == Supply::Open && before < wanted {
            self.supply = self.feed.take(wanted - before, &mut self.ready, self.who, waker);
            Counts::add(&self.run.counts.sent, (self.ready.len() - before) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hubbub_core::clock::SeededRandom;

    use super::*;
    use crate::load::message_plan::Shape;
    use crate::options::{Rules, arguments};
    use crate::results::record::Dist;

    /// The record of a message that was answered, and was to be sent at this time.
    fn sent(intended_us: u64, late: Duration) -> Arc<Run> {
        let rules: Rules = arguments("rules", &[]).unwrap();
        let target = Target::parse("127.0.0.1:1").unwrap();
        let run = Arc::new(Run::new(target, Shape::new(1, 10, None, ""), rules));
        let feed = Feed::new(10);
        let job = run.shape.draw(&SeededRandom::new(1), 7, 1);
        feed.push(&mut vec![Job { intended_us, ..job }]);
        std::thread::sleep(late);
        let mut in_flight = InFlight::new(Arc::clone(&run), feed, 0, None);
        assert!(in_flight.fill(1, Waker::noop(), |_| ()));
        in_flight.begin_read();
        let mut id = Vec::new();
        run.shape.write_id(7, &mut id);
        in_flight.on_answer(&Answer::Accepted { id: &id, seq: 1, duplicate: false }).unwrap();
        in_flight.hand_over();
        run
    }

    #[test]
    fn what_is_sent_late_counts_from_when_it_was_due_and_beside_that_from_the_send() {
        let late = Duration::from_millis(5);
        let run = sent(1, late);
        let record = run.record.lock();
        let open = record.open.as_ref().unwrap();
        let [whole, waited, from_send] =
            [&record.all, &open.send_delay, &open.from_send].map(Dist::stats).map(|stats| stats.mean_ms);
        assert!(waited >= 1e3 * late.as_secs_f64() - 0.001, "{waited}");
        assert!((whole - waited - from_send).abs() < 1e-9, "{whole} {waited} {from_send}");
        assert!(sent(0, Duration::ZERO).record.lock().open.is_none(), "a closed loop");
    }
}
