//! Crash consistency on a simulated disk.
//!
//! Every seed is a run of several lives of one data directory, each ended by a crash at any operation, that of
//! recovery included. What was acknowledged must be there once, with its number, in order; what was not acknowledged
//! is there as a whole batch or not at all.
//!
//! `CRASH_SEEDS=100000` runs more, `CRASH_SEED=17` replays one.

mod model;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hubbub_store::embedded::sim::SimDisk;
use run::Run;

const SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost() {
    let seeds = match number("CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CRASH_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| Run::new(seed, SimDisk::new()).all()));
        assert!(
            run.is_ok(),
            "replay with: CRASH_SEED={seed} cargo test -p hubbub-store --test crash nothing_acknowledged_is_lost"
        );
    }
}
