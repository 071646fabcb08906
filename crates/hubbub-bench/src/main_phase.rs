//! What server, machine and generator do while the main phase of a load lasts.

use std::time::Instant;

use crate::engine::Setup;
use crate::machine::{CpuMark, CpuUse};
use crate::others::{OthersMeter, Taken};
use crate::phases::{Timetable, beside_main};
use crate::stages::ServerStages;
use crate::timing::GeneratorTiming;
use crate::verdict::{Seen, Watch};

/// Marks at its beginning and its end, and what lies between them.
pub(crate) struct MainPhase {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) cpu: CpuUse,
    /// What others took of the machine, where that is known.
    pub(crate) taken: Option<Taken>,
    pub(crate) seen: Seen,
    pub(crate) stages: ServerStages,
    pub(crate) timing: GeneratorTiming,
}

struct Marks {
    watch: Watch,
    meter: OthersMeter,
    begun: Instant,
    cpu: CpuMark,
}

impl MainPhase {
    /// Does the load, and measures this beside it. `empty_ms` is how long a request took before it, `meter` begins to count what
    /// others take.
    pub(crate) async fn of<T>(
        setup: &Setup,
        timetable: Timetable,
        empty_ms: Option<f64>,
        meter: impl FnOnce() -> OthersMeter,
        load: impl Future<Output = T>,
    ) -> (T, Self) {
        let pids = &setup.common.server_pid;
        // Where nobody answers in time, marks would be late: then they stand before the warm-up.
        let timetable = if empty_ms.is_some() { timetable } else { timetable.without_warmup() };
        let begin = async || Marks {
            watch: Watch::begin(setup, empty_ms).await,
            meter: meter(),
            begun: Instant::now(),
            cpu: CpuMark::now(pids),
        };
        let end = async |Marks { watch, meter, begun, cpu }| {
            let (cpu, taken, ended) = (cpu.until(&CpuMark::now(pids)), meter.taken(), Instant::now());
            let (seen, stages, timing) = watch.end(setup).await;
            Self { begun, ended, cpu, taken, seen, stages, timing }
        };
        beside_main(&setup.load_start, timetable, load, begin, end).await
    }
}
