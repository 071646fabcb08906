//! Crash consistency on a simulated disk.
//!
//! Every seed is a run of several lives of one data directory, each ended by a crash at any operation, that of
//! recovery included. What was acknowledged must be there once, with its number, in order; what was not acknowledged
//! is there as a whole batch or not at all.
//!
//! `CRASH_SEEDS=100000` runs more, `CRASH_SEED=17` replays one.
//!
//! Every sync of the engine is ignored in turn by `each_sync_is_needed`, and each time a seed must find something
//! lost. Two syncs are there for speed alone and so are not in its list: that of a fresh slot's zeros (without it the
//! first batch's sync would have to write all of them) and those in the middle of a segment (without them the last
//! one would stand in the journal's way).

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod compare;
mod durable;
mod faults;
mod model;
mod people;
mod run;
mod space;
mod starts;
mod subsystems;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_store::embedded::sim::{SimDisk, SyncCall};
use people::People;
use run::Run;
use subsystems::SubsystemRun;

const SEEDS: u64 = 3_000;

const SEEDS_WITH_SNAPSHOTS: u64 = 500;

/// Within so many seeds an ignored sync must be missed.
const SEEDS_TO_MISS_A_SYNC: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed. Says whether everything was as it must be.
fn survives(seed: u64, disk: SimDisk) -> bool {
    catch_unwind(AssertUnwindSafe(|| Run::new(seed, disk).all())).is_ok()
}

#[test]
fn nothing_acknowledged_is_lost() {
    every_seed_survives(SEEDS, "nothing_acknowledged", survives);
}

#[test]
fn members_and_marks_survive() {
    let survives = |seed, disk| catch_unwind(AssertUnwindSafe(|| People::new(seed, disk).all())).is_ok();
    every_seed_survives(SEEDS / 3, "members_and_marks", survives);
}

#[test]
fn queues_and_keys_survive() {
    every_seed_survives(SEEDS / 3, "queues_and_keys", subsystems_survive);
}

fn subsystems_survive(seed: u64, disk: SimDisk) -> bool {
    catch_unwind(AssertUnwindSafe(|| SubsystemRun::new(seed, disk).all())).is_ok()
}

fn every_seed_survives(seeds: u64, test: &str, survives: impl Fn(u64, SimDisk) -> bool + Sync) {
    let seeds = match number("CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CRASH_SEEDS").unwrap_or(seeds),
    };
    let next = AtomicU64::new(seeds.start);
    let work = &|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            assert!(
                survives(seed, SimDisk::new()),
                "replay with: CRASH_SEED={seed} cargo test -p hubbub-store --test crash {test}"
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

#[test]
fn a_snapshot_at_any_moment_disturbs_nothing() {
    for seed in 0..SEEDS_WITH_SNAPSHOTS {
        let mut run = Run::new(seed, SimDisk::new());
        run.snapshots = true;
        run.all();
    }
}

#[test]
fn a_failed_sync_is_never_taken_for_one_that_succeeded() {
    every_seed_survives(SEEDS, "a_failed_sync", |seed, disk| {
        catch_unwind(AssertUnwindSafe(|| {
            let mut run = Run::new(seed, disk);
            (run.failing, run.snapshots) = (true, seed % 4 == 0);
            run.all();
        }))
        .is_ok()
    });
}

#[test]
fn a_failed_sync_of_queues_and_keys_is_never_taken_for_one_that_succeeded() {
    every_seed_survives(SEEDS / 3, "a_failed_sync_of_queues", |seed, disk| {
        catch_unwind(AssertUnwindSafe(|| {
            let mut run = SubsystemRun::new(seed, disk);
            run.failing = true;
            run.all();
        }))
        .is_ok()
    });
}

/// The file with the record of where the journal ends.
const END: &str = "journal/end";

fn is_slot(path: &str) -> bool {
    path.starts_with("journal/slot-")
}

type Rule = fn(SyncCall<'_>) -> bool;

/// Every sync that something depends on.
const SYNCS: &[(&str, Rule)] = &[
    ("FORMAT, content", |sync| sync.path == "FORMAT.tmp"),
    ("manifest at a start, content", |sync| sync.phase == "open" && sync.path == "MANIFEST.tmp"),
    ("manifest at a start, name", |sync| sync.phase == "open" && sync.path.is_empty()),
    ("record of the journal's end, name; slots a killed process left, names", |sync| {
        sync.phase == "open" && sync.path == "journal" && sync.nth == 0
    }),
    ("record of the journal's end, first content", |sync| {
        sync.phase == "open" && sync.path == END && sync.nth == 0
    }),
    ("record of the journal's end at a start", |sync| sync.phase == "open" && sync.path == END),
    ("record of the journal's end, second copy", |sync| {
        sync.phase != "open" && sync.path == END && sync.nth % 2 == 1
    }),
    ("record of the journal's end when nothing is written", |sync| sync.phase == "idle" && sync.path == END),
    ("record of the journal's end at a clean end", |sync| sync.phase == "close" && sync.path == END),
    ("journal when nothing is written", |sync| sync.phase == "idle" && is_slot(sync.path)),
    ("manifest at a seal, content", |sync| sync.phase == "seal" && sync.path == "MANIFEST.tmp"),
    ("manifest at a seal, name", |sync| sync.phase == "seal" && sync.path.is_empty()),
    ("manifest at a merge or removal, content", |sync| sync.phase == "merge" && sync.path == "MANIFEST.tmp"),
    ("manifest at a merge or removal, name", |sync| sync.phase == "merge" && sync.path.is_empty()),
    ("manifest at a clean end, content", |sync| sync.phase == "close" && sync.path == "MANIFEST.tmp"),
    ("manifest at a clean end, name", |sync| sync.phase == "close" && sync.path.is_empty()),
    ("journal slot, name", |sync| sync.path == "journal" && (sync.phase != "open" || sync.nth > 0)),
    ("journal, a batch", |sync| sync.phase == "apply" && is_slot(sync.path)),
    ("journal at a start, before it is shown", |sync| sync.phase == "open" && is_slot(sync.path)),
    ("journal at a clean end", |sync| sync.phase == "close" && is_slot(sync.path)),
    ("sealed segment, content", |sync| sync.phase == "seal" && sync.path.starts_with("segments/")),
    ("sealed segment, name", |sync| sync.phase == "seal" && sync.path == "segments"),
    ("merged segment, content", |sync| sync.phase == "merge" && sync.path.starts_with("segments/")),
    ("merged segment, name", |sync| sync.phase == "merge" && sync.path == "segments"),
];

thread_local! {
    static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// The same for queues and keys.
const SUBSYSTEM_SYNCS: &[(&str, Rule)] = &[
    ("queues at a seal, content", |sync| sync.phase == "seal" && sync.path.starts_with("queues/")),
    ("queues at a seal, names", |sync| sync.phase == "seal" && sync.path == "queues"),
    // Of the files of queues, those of ids alone are written under another name first.
    ("ids of queues at a seal, content", |sync| {
        sync.phase == "seal" && sync.path.starts_with("queues/") && sync.path.ends_with(".tmp")
    }),
    ("queues at a start after a loss, content", |sync| sync.phase == "open" && sync.path.ends_with(".snap")),
    ("queues at a start after a loss, name", |sync| sync.phase == "open" && sync.path == "queues"),
    ("keys at a seal, content", |sync| sync.phase == "seal" && sync.path.starts_with("kv/")),
    ("keys at a seal, names", |sync| sync.phase == "seal" && sync.path == "kv"),
    ("merged keys, content", |sync| sync.phase == "merge" && sync.path.starts_with("kv/")),
    ("merged keys, name", |sync| sync.phase == "merge" && sync.path == "kv"),
];

#[test]
fn each_sync_is_needed() {
    every_sync_is_missed(SYNCS, survives);
}

#[test]
fn each_sync_of_queues_and_keys_is_needed() {
    every_sync_is_missed(SUBSYSTEM_SYNCS, subsystems_survive);
}

fn every_sync_is_missed(syncs: &[(&str, Rule)], survives: impl Fn(u64, SimDisk) -> bool) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !EXPECTS_PANICS.get() {
            print(info);
        }
    }));
    for (name, rule) in syncs {
        let missed = |seed: &u64| {
            let disk = SimDisk::new();
            disk.ignore_syncs(*rule);
            !survives(*seed, disk)
        };
        EXPECTS_PANICS.set(true);
        let seed = (0..SEEDS_TO_MISS_A_SYNC).find(missed);
        EXPECTS_PANICS.set(false);
        match seed {
            Some(seed) => println!("{name}: missed by seed {seed}"),
            None => panic!("nothing was lost without the sync of: {name}"),
        }
    }
}
