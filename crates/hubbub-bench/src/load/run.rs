//! What all connections of a phase share: the target, the rules of sending, the counts, the record.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::client::{Cause, Target, Targets};
use crate::load::message_plan::Shape;
use crate::load::pace::{RateSpan, Schedule};
use crate::load::phases::{Pacing, Phases, ThinkTime, Timetable};
use crate::options::{Common, Patience, Rules};
use crate::results::followed::Followed;
use crate::results::message_rows::{RowNames, RowWriter, RowsWritten};
use crate::results::record::{Ending, Record, STEP_US, Sample};

/// The types of messages, in the order of their numbers.
const MESSAGE_KINDS: [&str; 3] = ["TEXT", "JOIN", "LEAVE"];

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) targets: Targets,
    pub(crate) shape: Shape,
    pub(crate) rules: Rules,
    pub(crate) counts: Counts,
    pub(crate) record: Mutex<Record>,
    /// Where single messages go to, until [`Run::close_rows`].
    rows: Mutex<Option<RowWriter>>,
    start: Instant,
    pub(crate) started: Timestamp,
    /// Microseconds from `start` to the moment that counts as the start.
    begun_us: AtomicU64,
    /// When the main phase begins and ends, in microseconds from then on.
    main_us: [AtomicU64; 2],
    /// How long connections wait between an answer and what they send next, in a closed loop.
    pub(crate) think_time: ThinkTime,
    /// The longest time between two messages of an open loop.
    longest_gap: Duration,
    is_over: AtomicBool,
    /// The server stores before it answers: an answer had a `seq`.
    has_seqs: AtomicBool,
    last_answer_us: AtomicU64,
    /// When each message was sent; kept when somebody listens.
    pub(crate) times: Option<SendTimes>,
    pub(crate) followed: Followed,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) unconfirmed: AtomicU64,
    /// Messages taken from the generator.
    pub(crate) sent: AtomicU64,
    /// Messages sent again, by cause.
    pub(crate) retries: Causes,
    pub(crate) opened: AtomicU64,
    /// Microseconds that connections thought, all together, in the main phase.
    pub(crate) thought_us: AtomicU64,
    /// Answers whose `seq` did not grow on a connection that sends to one room.
    pub(crate) order_faults: AtomicU64,
    /// Connections lost, by cause.
    pub(crate) reconnects: Causes,
}

/// What became necessary how often, by the number of its cause. Every refused message is counted here, so there is no lock.
#[derive(Debug, Default)]
pub(crate) struct Causes([AtomicU64; Cause::ALL.len()]);

impl Causes {
    pub(crate) fn add(&self, cause: Cause, n: u64) {
        if let Some(count) = self.0.get(cause as usize) {
            Counts::add(count, n);
        }
    }

    /// The causes that there were, by name.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let named = Cause::ALL.iter().map(|cause| cause.name()).zip(counts);
        named.filter(|(_, count)| *count > 0).collect()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
    }

    /// Sent, and what came of it: accepted, rejected, unconfirmed.
    pub(crate) fn totals(&self) -> [u64; 4] {
        [&self.sent, &self.accepted, &self.rejected, &self.unconfirmed]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// A connection was lost.
    pub(crate) fn lost(&self, cause: Cause) {
        self.reconnects.add(cause, 1);
    }
}

impl Run {
    /// A phase that starts now and sends messages.
    pub(crate) fn new(targets: impl Into<Targets>, shape: Shape, rules: Rules) -> Self {
        // Together, because each stands for the other.
        let (start, started) = (Instant::now(), crate::host::machine::now());
        let targets = targets.into();
        let shape = if targets.first().has_own_users() { shape.of_own_users() } else { shape };
        Self {
            targets,
            shape,
            rules: Rules { in_flight: rules.in_flight.max(1), ..rules },
            counts: Counts::default(),
            record: Mutex::new(Record::new(&MESSAGE_KINDS)),
            rows: Mutex::new(None),
            start,
            started,
            begun_us: AtomicU64::new(0),
            main_us: [AtomicU64::new(0), AtomicU64::new(u64::MAX)],
            think_time: ThinkTime::default(),
            longest_gap: Duration::ZERO,
            is_over: AtomicBool::new(false),
            has_seqs: AtomicBool::new(false),
            last_answer_us: AtomicU64::new(0),
            times: None,
            followed: Followed::default(),
        }
    }

    /// A phase of operations of these kinds, none of which is repeated.
    pub(crate) fn of_operations(target: &Target, patience: &Patience, kinds: &[&'static str]) -> Self {
        let rules = Rules { in_flight: 1, retries: 0, patience: patience.clone(), echo: false };
        let record = Mutex::new(Record::new(kinds));
        Self { record, ..Self::new(target.clone(), Shape::new(0, 1, None, ""), rules) }
    }

    /// The same with a row in `metrics.csv` for each message, where results go into a directory.
    pub(crate) fn with_rows(self, common: &Common) -> anyhow::Result<Self> {
        let Some(dir) = &common.out else { return Ok(self) };
        let kinds = self.record.lock().by_kind.iter().map(|(kind, _)| *kind).collect();
        let names = RowNames { kinds, room_prefix: self.shape.room_prefix.clone() };
        let rows = RowWriter::create(dir, common.rows_max, names)?;
        Ok(Self { rows: Mutex::new(Some(rows)), ..self })
    }

    /// The same, with the time of each message kept for those who listen.
    pub(crate) fn with_listeners(self) -> Self {
        Self { times: Some(SendTimes::new()), ..self }
    }

    /// The same of a load that is paced like this.
    pub(crate) fn paced(self, pacing: &Pacing, phases: &Phases) -> Self {
        let schedule = pacing.schedule(phases);
        let asked = |span: &RateSpan| schedule.map_or(0, |it| it.due_in_main(span.from_us..span.until_us));
        self.record.lock().tell_apart(&pacing.spans(phases), asked);
        Self { think_time: pacing.think_time(), ..self.scheduled(schedule.as_ref()) }
    }

    /// The same of an open loop that sends by this schedule.
    pub(crate) fn scheduled(self, schedule: Option<&Schedule>) -> Self {
        Self { longest_gap: schedule.map_or(Duration::ZERO, Schedule::longest_gap), ..self }
    }

    /// Counts from now on as the start, for what is got ready before.
    pub(crate) fn begin(&self) {
        self.begun_us.store(micros(self.start.elapsed()), Ordering::Relaxed);
    }

    /// The same for a load that has phases: only what begins in its main phase is measured.
    pub(crate) fn begin_phases(&self, timetable: &Timetable) {
        let Range { start, end } = timetable.main_us();
        for (place, us) in self.main_us.iter().zip([start, end]) {
            place.store(us, Ordering::Relaxed);
        }
        self.begin();
    }

    /// What others will send starts at this time, which is that of the wall clock.
    pub(crate) fn starts(&mut self, at: Instant, started: Timestamp) {
        (self.start, self.started) = (at, started);
    }

    /// Counts so many microseconds after it starts as the start: for what others have sent, of which only what began in the main
    /// phase is known.
    pub(crate) fn begin_after(&self, us: u64) {
        self.begun_us.store(us, Ordering::Relaxed);
    }

    /// The main phase of what others send, which a cool-down follows.
    pub(crate) fn main_lasts(&self, time: Duration) {
        let [_, until] = &self.main_us;
        until.store(micros(time), Ordering::Relaxed);
    }

    /// The main phase, in microseconds after the start.
    pub(crate) fn main_us(&self) -> Range<u64> {
        let [from, until] = &self.main_us;
        from.load(Ordering::Relaxed)..until.load(Ordering::Relaxed)
    }

    /// How long the main phase was, where a cool-down came after it: the load goes on there, and answers to what began before
    /// say nothing of its length. `None` without one, also where the load ended before it.
    pub(crate) fn main_time(&self, record: &Record) -> Option<Duration> {
        let Range { start, end } = self.main_us();
        let has_cooldown = saturate::<_, u64>(record.ended.len()) > end / STEP_US;
        has_cooldown.then(|| Duration::from_micros(end.saturating_sub(start)))
    }

    /// Notes that a connection thought, from one time to another.
    pub(crate) fn thought(&self, from_us: u64, until_us: u64) {
        if self.main_us().contains(&from_us) {
            Counts::add(&self.counts.thought_us, until_us.saturating_sub(from_us));
        }
    }

    /// Whether a message that was accepted with this `seq`, or without one (0), is one that this server may answer so: behind a
    /// broker none has one, otherwise all have. What `is_known` to it already tells nothing of the others.
    pub(crate) fn may_have_seq(&self, seq: u64, is_known: bool) -> bool {
        if seq > 0 {
            // Read first: all connections write here.
            if !is_known && !self.has_seqs.load(Ordering::Relaxed) {
                self.has_seqs.store(true, Ordering::Relaxed);
            }
            return true;
        }
        !self.has_seqs.load(Ordering::Relaxed)
    }

    /// Nothing begins any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.us_at(Instant::now())
    }

    /// That time of the main phase by the wall clock, in microseconds.
    pub(crate) fn main_wall_us(&self, us: u64) -> i64 {
        self.wall_us(us.saturating_add(self.main_us().start))
    }

    /// That time by the wall clock, in microseconds, as it was set when the run was made ready.
    pub(crate) fn wall_us(&self, us: u64) -> i64 {
        let after = us.saturating_add(self.begun_us.load(Ordering::Relaxed));
        self.started.as_micros().saturating_add_unsigned(after)
    }

    /// An instant in microseconds after the start; 0 where it was before.
    pub(crate) fn us_at(&self, at: Instant) -> u64 {
        let after = micros(at.saturating_duration_since(self.start));
        after.saturating_sub(self.begun_us.load(Ordering::Relaxed))
    }

    pub(crate) fn instant(&self, us: u64) -> Instant {
        self.start + Duration::from_micros(us.saturating_add(self.begun_us.load(Ordering::Relaxed)))
    }

    /// Takes what came to an end. Of that, what began in the main phase is measured; its times count from then on.
    pub(crate) fn record(&self, samples: &mut Vec<Sample>, now_us: u64) {
        if samples.iter().any(|sample| sample.ending != Ending::Unconfirmed) {
            self.last_answer_us.fetch_max(now_us, Ordering::Relaxed);
        }
        let main_us = self.main_us();
        let mut record = self.record.lock();
        record.count(samples, &main_us);
        samples.retain(|sample| main_us.contains(&sample.begun_us()));
        samples.iter_mut().for_each(|sample| sample.done_us -= main_us.start);
        record.add(samples);
        drop(record);
        if let Some(rows) = self.rows.lock().as_mut() {
            rows.add(samples, |us| self.main_wall_us(us));
        }
        samples.clear();
    }

    /// Ends `metrics.csv`, once nothing is recorded any more.
    pub(crate) async fn close_rows(&self) -> anyhow::Result<RowsWritten> {
        let rows = self.rows.lock().take();
        let Some(rows) = rows else { return Ok(RowsWritten::default()) };
        Ok(tokio::task::spawn_blocking(|| rows.finish()).await?)
    }

    /// Whether the server has been silent for too long, although it was asked.
    pub(crate) fn is_hopeless(&self) -> bool {
        let silent_us = self.now_us().saturating_sub(self.last_answer_us.load(Ordering::Relaxed));
        let unasked = self.think_time.longest().saturating_add(self.longest_gap);
        Duration::from_micros(silent_us) > self.rules.patience.give_up.saturating_add(unasked)
    }
}

fn micros(duration: Duration) -> u64 {
    saturate(duration.as_micros())
}

/// When each of the last [`TIMES`] messages was (to be) sent, by its index. A slot has the time in its lower bits, and whose it is
/// in those above: both in one number, so that a reader never sees the time of another message.
#[derive(Debug)]
pub(crate) struct SendTimes(Vec<AtomicU64>);

/// Messages whose times are remembered, 26 s at 10,000/s.
pub(crate) const TIMES: u64 = 1 << 18;
/// Bits of a time in microseconds: nine years.
const TIME_BITS: u32 = 48;
const TIME_MAX_US: u64 = (1 << TIME_BITS) - 1;

impl SendTimes {
    fn new() -> Self {
        Self((0..TIMES).map(|_| AtomicU64::new(0)).collect())
    }

    fn slot(&self, index: u64) -> Option<&AtomicU64> {
        self.0.get((index % TIMES) as usize)
    }

    /// Which of the messages of its slot it is; never 0, which stands for none.
    fn owner(index: u64) -> u64 {
        1 + index / TIMES % u64::from(u16::MAX)
    }

    pub(crate) fn set(&self, index: u64, us: u64) {
        if let Some(slot) = self.slot(index) {
            slot.store(Self::owner(index) << TIME_BITS | us.min(TIME_MAX_US), Ordering::Relaxed);
        }
    }

    /// `None` where a later message has taken its place.
    pub(crate) fn get(&self, index: u64) -> Option<u64> {
        let kept = self.slot(index)?.load(Ordering::Relaxed);
        (kept >> TIME_BITS == Self::owner(index)).then_some(kept & TIME_MAX_US)
    }
}

#[cfg(test)]
mod tests;
