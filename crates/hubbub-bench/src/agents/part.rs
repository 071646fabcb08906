//! What an agent measured, as it goes over the wire, and how the parts become one record.
//!
//! A histogram is sent as the counts of its steps. The other side has the same steps, so nothing is lost; moments are exact, and
//! are merged as such.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use hubbub_core::invariant::saturate;
use serde::{Deserialize, Serialize};

use crate::client::Cause;
use crate::host::machine::{CpuMark, may_use, thread_times};
use crate::load::run::{Causes, Counts, Run};
use crate::results::minutes::Seconds;
use crate::results::record::{Dist, Record, STEP_US, at};
use crate::results::steps::StepRecord;
use crate::statistics::Moments;
use crate::workloads::engine::Account;
use crate::workloads::kv::KeyLedger;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    counts: CountsPart,
    /// Sent, accepted, rejected, unconfirmed.
    warm_up: Option<[u64; 4]>,
    all: DistPart,
    by_kind: Vec<(String, DistPart)>,
    /// Of an open loop: until the send, and from there.
    open: Option<[DistPart; 2]>,
    last_us: u64,
    last_begun_us: u64,
    steps: Vec<u64>,
    /// From the main phase on, whose beginning is that of a step here.
    ended: Vec<u64>,
    by_room: Vec<Moments>,
    seconds: Seconds,
    /// Refused, and without an answer.
    failed: [u64; 2],
    answered_in_main: u64,
    /// Questions about messages that were followed, and the microseconds that their answers took.
    asked: [u64; 2],
    by_span: Vec<SpanPart>,
    /// When its times begin, in microseconds from the common start: behind a warm-up.
    begun_us: u64,
    window: Option<f64>,
    concurrency: Option<f64>,
    asked_per_second: Option<f64>,
    pub(super) note: Option<String>,
    /// Found, absent, stale, wrong.
    keys: Option<[u64; 4]>,
    pub(super) effort: Effort,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountsPart {
    /// In the order of [`counters`].
    counts: [u64; 8],
    retries: BTreeMap<String, u64>,
    reconnects: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct DistPart {
    moments: Moments,
    /// Microseconds, and how many there were.
    steps: Vec<(u64, u64)>,
}

/// One of the spans of the rate, which the whole has, too.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SpanPart {
    counts: [u64; 3],
    times: [DistPart; 2],
}

/// What a run took of the machine of its agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Effort {
    /// How much later than it was told to it started, by its own clock.
    pub(super) late_us: u64,
    pub(super) threads: usize,
    /// Processors that it used, that its threads waited for, and that it may use.
    pub(super) run: f64,
    pub(super) waited: f64,
    pub(super) may_use: f64,
    /// In what way it was the limit, if it was.
    pub(super) limit: Option<String>,
}

/// Measures an [`Effort`].
pub(super) struct Measuring {
    threads: usize,
    late: Duration,
    mark: CpuMark,
    waited_s: f64,
}

impl Effort {
    pub(super) fn begin(threads: usize, late: Duration) -> Measuring {
        Measuring { threads, late, mark: CpuMark::now(&[]), waited_s: waited_s() }
    }
}

impl Measuring {
    pub(super) fn end(self) -> Effort {
        let used = self.mark.until(&CpuMark::now(&[]));
        Effort {
            late_us: saturate(self.late.as_micros()),
            threads: self.threads,
            run: used.generator,
            // Of threads that ended meanwhile nothing is known.
            waited: (waited_s() - self.waited_s).max(0.0) / used.seconds,
            may_use: may_use(std::process::id()),
            limit: used.verdict(self.threads),
        }
    }
}

fn waited_s() -> f64 {
    thread_times(std::process::id()).values().map(|thread| thread.waited_s).sum()
}

/// All counters of a run, but for those by cause.
fn counters(counts: &Counts) -> [&AtomicU64; 8] {
    let Counts { accepted, duplicate, rejected, unconfirmed, sent, opened, thought_us, order_faults, .. } =
        counts;
    [sent, accepted, rejected, unconfirmed, duplicate, opened, thought_us, order_faults]
}

impl CountsPart {
    fn of(counts: &Counts) -> Self {
        let named =
            |causes: &Causes| causes.all().into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        Self {
            counts: counters(counts).map(|count| count.load(Ordering::Relaxed)),
            retries: named(&counts.retries),
            reconnects: named(&counts.reconnects),
        }
    }

    fn add_to(&self, counts: &Counts) -> anyhow::Result<()> {
        for (count, n) in counters(counts).into_iter().zip(self.counts) {
            Counts::add(count, n);
        }
        for (causes, part) in [(&counts.retries, &self.retries), (&counts.reconnects, &self.reconnects)] {
            for (name, n) in part {
                let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name);
                causes.add(cause.ok_or_else(|| anyhow::anyhow!("an unknown cause: {name}"))?, *n);
            }
        }
        Ok(())
    }
}

impl DistPart {
    fn of(dist: &Dist) -> Self {
        let steps = dist.histogram.iter_recorded();
        let steps = steps.map(|step| (step.value_iterated_to(), step.count_since_last_iteration())).collect();
        Self { moments: dist.moments, steps }
    }

    fn add_to(&self, dist: &mut Dist) -> anyhow::Result<()> {
        for (us, count) in &self.steps {
            dist.histogram.record_n(*us, *count)?;
        }
        dist.moments.merge(&self.moments);
        Ok(())
    }
}

impl Part {
    /// What a run recorded, and what its workload knows besides.
    pub(super) fn of(run: &Run, account: &Account, effort: Effort, begun_us: u64) -> anyhow::Result<Self> {
        let Account { warm_up, delivery, queues, keys, stored, persisted, .. } = account;
        ensure!(
            delivery.is_none() && queues.is_none() && stored.is_none() && persisted.is_none(),
            "what this workload knows of its run cannot be merged"
        );
        // The whole counts from the main phase on.
        let before_main = saturate::<_, usize>((run.main_us().start + STEP_US / 2) / STEP_US);
        let record = run.record.lock();
        let by_kind = record.by_kind.iter().map(|(kind, dist)| ((*kind).to_owned(), DistPart::of(dist)));
        Ok(Self {
            counts: CountsPart::of(&run.counts),
            warm_up: warm_up.as_ref().map(|run| run.counts.totals()),
            all: DistPart::of(&record.all),
            by_kind: by_kind.collect(),
            open: record.open.as_ref().map(|open| [&open.send_delay, &open.from_send].map(DistPart::of)),
            last_us: record.last_us,
            last_begun_us: record.last_begun_us,
            steps: record.steps.clone(),
            ended: record.ended.iter().skip(before_main).copied().collect(),
            by_room: record.by_room.clone(),
            seconds: record.seconds.clone(),
            failed: record.failed,
            answered_in_main: record.answered_in_main,
            asked: run.followed.main_asked_us(),
            by_span: record.by_span.iter().map(SpanPart::of).collect(),
            begun_us,
            window: account.window,
            concurrency: account.concurrency,
            asked_per_second: account.asked_per_second,
            note: account.note.clone(),
            keys: keys
                .as_ref()
                .map(|KeyLedger { found, absent, stale, wrong }| [*found, *absent, *stale, *wrong]),
            effort,
        })
    }

    /// Messages or operations that were accepted, their mean latency in milliseconds, and their rate until the last of them.
    pub(super) fn rate(&self) -> (u64, f64, f64) {
        let Moments { count, mean, .. } = self.all.moments;
        (count, mean / 1e3, count as f64 / (self.last_us.max(1) as f64 / 1e6))
    }

    /// Messages that were accepted in its warm-up, and in all phases of its load.
    pub(super) fn accepted(&self) -> [u64; 2] {
        let ([_, own, ..], warm_up) = (self.counts.counts, self.warm_up.unwrap_or_default());
        let [_, warmed, ..] = warm_up;
        [warmed, own]
    }

    /// Adds this to the record of the whole.
    ///
    /// # Errors
    /// Kinds that the whole does not have, and what no run can have recorded.
    fn add_to(&self, run: &Run) -> anyhow::Result<()> {
        self.counts.add_to(&run.counts)?;
        run.followed.add_main_asked(self.asked);
        let mut record = run.record.lock();
        let Record { all, by_kind, open, last_us, last_begun_us, steps, ended, by_room, .. } = &mut *record;
        self.all.add_to(all)?;
        let is_same =
            self.by_kind.iter().map(|(kind, _)| kind.as_str()).eq(by_kind.iter().map(|(kind, _)| *kind));
        ensure!(is_same, "other kinds of messages than were asked for");
        for ((_, part), (_, dist)) in self.by_kind.iter().zip(by_kind) {
            part.add_to(dist)?;
        }
        if let Some([send_delay, from_send]) = &self.open {
            let open = open.get_or_insert_default();
            send_delay.add_to(&mut open.send_delay)?;
            from_send.add_to(&mut open.from_send)?;
        }
        *last_us = self.last_us.max(*last_us);
        *last_begun_us = self.last_begun_us.max(*last_begun_us);
        for (own, whole) in [(&self.steps, steps), (&self.ended, ended)] {
            for (index, count) in own.iter().enumerate() {
                if let Some(step) = at(whole, index) {
                    *step = step.saturating_add(*count);
                }
            }
        }
        for (index, room) in self.by_room.iter().enumerate() {
            if let Some(whole) = at(by_room, index) {
                whole.merge(room);
            }
        }
        record.seconds.merge(&self.seconds)?;
        record.failed.iter_mut().zip(self.failed).for_each(|(all, n)| *all = all.saturating_add(n));
        record.answered_in_main = record.answered_in_main.saturating_add(self.answered_in_main);
        ensure!(self.by_span.len() == record.by_span.len(), "other steps of the rate than were asked for");
        let mut spans = self.by_span.iter().zip(&mut record.by_span);
        spans.try_for_each(|(part, span)| part.add_to(span))
    }
}

impl SpanPart {
    fn of(step: &StepRecord) -> Self {
        let (counts, times) = step.parts();
        Self { counts, times: times.map(DistPart::of) }
    }

    fn add_to(&self, step: &mut StepRecord) -> anyhow::Result<()> {
        let (counts, times) = step.parts_mut();
        for (all, n) in counts.into_iter().zip(self.counts) {
            *all = all.saturating_add(n);
        }
        times.into_iter().zip(&self.times).try_for_each(|(dist, part)| part.add_to(dist))
    }
}

/// Adds the parts to `whole`, and says what their workloads know of them together.
pub(super) fn merge<'a>(
    whole: &Run,
    parts: impl Iterator<Item = &'a Part> + Clone,
) -> anyhow::Result<Account> {
    // Each agent says what its schedule asked for, which together is what was asked for.
    whole.record.lock().by_span.iter_mut().for_each(StepRecord::forget_asked);
    parts.clone().try_for_each(|part| part.add_to(whole))?;
    whole.begin_after(parts.clone().map(|part| part.begun_us).max().unwrap_or(0));
    let warm_up = parts.clone().filter_map(|part| part.warm_up).reduce(added);
    let warm_up = warm_up.map(|totals| warmed(whole, totals));
    let sum = |of: fn(&Part) -> Option<f64>| parts.clone().map(of).sum::<Option<f64>>();
    let keys = parts.clone().filter_map(|part| part.keys).reduce(added);
    Ok(Account {
        warm_up,
        window: sum(|part| part.window),
        concurrency: sum(|part| part.concurrency),
        asked_per_second: sum(|part| part.asked_per_second),
        keys: keys.map(|[found, absent, stale, wrong]| KeyLedger { found, absent, stale, wrong }),
        ..Account::default()
    })
}

/// A warm-up of which only the totals are known.
fn warmed(whole: &Run, totals: [u64; 4]) -> Arc<Run> {
    let run = Run::new(whole.targets.clone(), whole.shape.clone(), whole.rules.clone());
    let [sent, accepted, rejected, unconfirmed, ..] = counters(&run.counts);
    for (count, n) in [sent, accepted, rejected, unconfirmed].into_iter().zip(totals) {
        Counts::add(count, n);
    }
    Arc::new(run)
}

fn added(mut one: [u64; 4], other: [u64; 4]) -> [u64; 4] {
    one.iter_mut().zip(other).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    one
}
