//! What server, machine and generator do while the main phase of a load lasts.

use std::time::{Duration, Instant};

use crate::analysis::verdict::{Counted, Figures, Mark, Watch};
use crate::host::background_load::{BackgroundLoadMeter, Taken};
use crate::host::machine::{CpuMark, CpuUse};
use crate::load::phases::{Timetable, beside_main};
use crate::load::punctuality::GeneratorTiming;
use crate::options::Common;
use crate::workloads::engine::Setup;

/// Marks at its beginning and its end, and what lies between them.
pub(crate) struct MainPhase {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    /// The end of the whole load, with its cool-down.
    pub(crate) load_ended: Instant,
    pub(crate) cpu: CpuUse,
    /// What others took of the machine, where that is known.
    pub(crate) taken: Option<Taken>,
    pub(crate) seen: Figures,
    pub(crate) counted: Counted,
    pub(crate) timing: GeneratorTiming,
    /// All of this is of the warm-up, too.
    pub(crate) has_warmup: bool,
    /// What is to be known of its processor time, if anything is.
    pub(crate) note: Option<String>,
}

/// What is to be known where the processes of the servers were given, and not all were there from the beginning to the end.
pub(crate) fn ended_note(common: &Common, cpu: &CpuUse) -> Option<String> {
    let is_missing = !common.server_pid.is_empty() && cpu.server.is_none();
    let said =
        "a process of --server-pid is not there, or ended meanwhile: what the servers used is not known";
    is_missing.then(|| said.to_owned())
}

/// By so much of the main phase may the time that marks lie apart differ from it.
const LENGTH_OFF_MAX: f64 = 0.02;

/// Where a load waited for what never came, its main phase ends when it last moved: this was used until then.
pub(crate) struct EarlyEnd {
    at: Instant,
    cpu: CpuMark,
    mark: Mark,
}

impl EarlyEnd {
    /// Takes the marks, for a load that moved last at this time; `metrics` is what the servers just said.
    pub(crate) fn take(setup: &Setup, metrics: String, at: Instant) -> Self {
        let pids = &setup.common.server_pid;
        Self { at, cpu: CpuMark::now(pids), mark: Mark::with(pids, Some(metrics)) }
    }
}

struct Marks {
    watch: Watch,
    meter: BackgroundLoadMeter,
    begun: Instant,
    cpu: CpuMark,
}

impl MainPhase {
    /// Does the load, and measures this beside it. `empty_ms` is how long a request took before it, `meter` counts what others
    /// take.
    pub(crate) async fn of<T>(
        setup: &Setup,
        timetable: Timetable,
        empty_ms: Option<f64>,
        mut meter: BackgroundLoadMeter,
        load: impl Future<Output = T>,
    ) -> (T, Self) {
        let pids = &setup.common.server_pid;
        // Where nobody answers in time, marks would be late: then they stand before the warm-up.
        let has_warmup = empty_ms.is_none() && !timetable.warmup.is_zero();
        let timetable = if empty_ms.is_some() { timetable } else { timetable.without_warmup() };
        let begin = async || {
            // Servers under load answer late, so that the marks of this moment come first; a load that is yet to begin waits
            // for the answer, and then they come last.
            let is_early = timetable.warmup.is_zero();
            let early = if is_early { Some(Watch::begin(setup, empty_ms).await) } else { None };
            meter.begin();
            let (begun, cpu) = (Instant::now(), CpuMark::now(pids));
            let watch = match early {
                Some(watch) => watch,
                None => Watch::begin(setup, empty_ms).await,
            };
            Marks { watch, meter, begun, cpu }
        };
        let said = || {
            let counted = "processor time, stages and samples are of the warm-up, too";
            format!("nobody answers HTTP: {counted}, so there is no usage and no price")
        };
        let end = async |Marks { watch, meter, begun, cpu }| {
            let early = setup.early_end.get();
            let cpu = cpu.until(&early.map_or_else(|| CpuMark::now(pids), |early| early.cpu.clone()));
            let (taken, now) = (meter.taken(), Instant::now());
            let ended = early.map_or(now, |early| early.at);
            let (seen, counted, timing) = watch.end(setup, early.map(|early| &early.mark)).await;
            let length = timetable.main.filter(|_| timetable.main_end().is_some());
            let waited = early.map(|early| waiting_note(now.saturating_duration_since(early.at)));
            let note = waited.or_else(|| length_note(length, cpu.seconds));
            let note = if has_warmup { Some(said()) } else { note };
            Self { begun, ended, load_ended: now, cpu, taken, seen, counted, timing, has_warmup, note }
        };
        let load = async {
            let done = load.await;
            (done, Instant::now())
        };
        let ((done, load_ended), main) = beside_main(&setup.load_start, timetable, load, begin, end).await;
        (done, Self { load_ended, ..main })
    }
}

/// What is to be known of a load that waited in vain for so long.
fn waiting_note(waited: Duration) -> String {
    let seconds = waited.as_secs_f64();
    format!("nothing was stored in the last {seconds:.1} s before the run gave up: they do not count")
}

/// What is to be known where what is measured beside a main phase of this length took `seconds`.
fn length_note(length: Option<Duration>, seconds: f64) -> Option<String> {
    let length = length?.as_secs_f64();
    let is_off = (seconds - length).abs() > LENGTH_OFF_MAX * length;
    is_off
        .then(|| format!("processor time is of {seconds:.2} s, and the main phase was to last {length:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_not_those_of_the_main_phase_are_told() {
        let length = Some(Duration::from_secs(10));
        assert_eq!(length_note(length, 10.1), None);
        assert_eq!(length_note(None, 99.0), None, "its length is not known");
        let said = length_note(length, 9.5).unwrap();
        assert_eq!(said, "processor time is of 9.50 s, and the main phase was to last 10.00 s");
    }
}
