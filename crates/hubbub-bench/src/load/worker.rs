//! What the connections of `queue` and `kv` have in common: the time of each operation, thinking between them, and coming
//! back when the connection breaks.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use tokio::task::JoinSet;

use crate::client::caller::Caller;
use crate::client::{Cause, Target};
use crate::load::pace::Due;
use crate::load::phases::Timetable;
use crate::load::room_load;
use crate::load::run::{Counts, Run};
use crate::progress::Live;
use crate::results::record::{Ending, Sample};

/// Samples are handed over in lots of this size.
const SAMPLES_MAX: usize = 256;
/// ...or after this time.
const SAMPLES_AGE_US: u64 = 200_000;
/// Between two looks of one who thinks whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Worker {
    pub(crate) run: Arc<Run>,
    pub(crate) target: Target,
    samples: Vec<Sample>,
    handed_over_us: u64,
    failed_in_a_row: u8,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    us: u64,
    /// Microseconds after that until it was sent; `None` in a closed loop.
    waited_us: Option<u64>,
}

impl Worker {
    pub(crate) fn new(run: &Arc<Run>, target: &Target) -> Self {
        Self {
            run: Arc::clone(run),
            target: target.clone(),
            samples: Vec::new(),
            handed_over_us: 0,
            failed_in_a_row: 0,
        }
    }

    /// Connects; waits when that fails, longer each time. `None` when it failed.
    pub(crate) async fn connect(&mut self) -> Option<Caller> {
        let Ok(caller) = Caller::open(&self.target, self.run.rules.patience.send_timeout).await else {
            self.lost(Cause::Connect).await;
            return None;
        };
        Counts::add(&self.run.counts.opened, 1);
        Some(caller)
    }

    pub(crate) async fn lost(&mut self, cause: Cause) {
        self.run.counts.lost(cause);
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        tokio::time::sleep(self.run.rules.patience.wait_after(self.failed_in_a_row)).await;
    }

    /// An operation begins; `intended_us` is when it should have, in an open loop.
    pub(crate) fn begin(&self, intended_us: Option<u64>) -> Begun {
        Counts::add(&self.run.counts.sent, 1);
        let now_us = self.run.now_us();
        Begun {
            us: intended_us.unwrap_or(now_us),
            waited_us: intended_us.map(|us| now_us.saturating_sub(us)),
        }
    }

    pub(crate) fn end(&mut self, begun: Begun, kind: u8, place: u16, ending: Ending) {
        match ending {
            Ending::Accepted => {
                self.failed_in_a_row = 0;
                Counts::add(&self.run.counts.accepted, 1);
            }
            Ending::Rejected => Counts::add(&self.run.counts.rejected, 1),
            Ending::Unconfirmed => Counts::add(&self.run.counts.unconfirmed, 1),
        }
        let now_us = self.run.now_us();
        let latency_us = saturate(now_us.saturating_sub(begun.us));
        let waited_us = begun.waited_us.map(saturate);
        self.samples.push(Sample {
            done_us: now_us,
            index: 0,
            latency_us,
            waited_us,
            room: place,
            kind,
            ending,
        });
        if self.samples.len() >= SAMPLES_MAX || now_us > self.handed_over_us + SAMPLES_AGE_US {
            self.hand_over();
        }
    }

    pub(crate) fn hand_over(&mut self) {
        self.handed_over_us = self.run.now_us();
        self.run.record(&mut self.samples, self.handed_over_us);
    }

    /// Waits as long as one thinks between an answer and the next operation, or until the run is over.
    pub(crate) async fn think(&self, random: &SeededRandom) {
        let think_time = self.run.think_time;
        if think_time.is_zero() {
            return;
        }
        let begun_us = self.run.now_us();
        let until = self.run.instant(begun_us) + think_time.draw(random);
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || self.is_over() {
                break;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
        self.run.thought(begun_us, self.run.now_us());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.run.is_over() || self.run.is_hopeless()
    }
}

/// Has all clients work until they end: when `timed` says that time is over, or the server was silent for too long.
pub(crate) async fn work(
    run: &Run,
    mut clients: JoinSet<()>,
    live: &Live<'_>,
    timed: impl Future<Output = ()>,
    abandon: impl Fn(),
) {
    let ended = room_load::finish(run, &mut clients, live, || {
        run.end();
        abandon();
    });
    tokio::select! {
        () = ended => {}
        () = async { timed.await; std::future::pending().await } => {}
    }
}

/// The same in an open loop until what is `due` is done, or else until the time of all phases is over. The run has begun.
pub(crate) async fn work_paced(
    run: &Arc<Run>,
    clients: JoinSet<()>,
    live: &Live<'_>,
    timetable: &Timetable,
    due: Option<&Arc<Due>>,
) {
    let Some(due) = due else {
        let timed = async {
            if let Some(time) = timetable.whole() {
                tokio::time::sleep(time).await;
                run.end();
            }
        };
        return work(run, clients, live, timed, || {}).await;
    };
    due.release(run);
    work(run, clients, live, async {}, || due.abandon()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Patience, arguments};
    use crate::results::record::Dist;

    #[test]
    fn what_begins_late_counts_from_when_it_was_due_and_beside_that_from_the_send() {
        let patience: Patience = arguments("patience", &[]).unwrap();
        let target = Target::parse("127.0.0.1:1").unwrap();
        let run = Arc::new(Run::of_operations(&target, &patience, &["get"]));
        let mut worker = Worker::new(&run, &target);
        run.begin();
        let late = Duration::from_millis(5);
        std::thread::sleep(late);
        worker.end(worker.begin(Some(0)), 0, 0, Ending::Accepted);
        worker.end(worker.begin(None), 0, 0, Ending::Accepted);
        worker.hand_over();
        let record = run.record.lock();
        let open = record.open.as_ref().unwrap();
        let [waited, from_send] = [&open.send_delay, &open.from_send].map(Dist::stats);
        assert_eq!((record.all.len(), waited.count, from_send.count), (2, 1, 1));
        assert!(waited.mean_ms >= 1e3 * late.as_secs_f64() - 0.001, "{waited:?}");
        let whole_ms = record.all.stats().max_ms;
        assert!(waited.min_ms <= whole_ms && from_send.max_ms <= whole_ms, "{whole_ms} {from_send:?}");
    }
}
