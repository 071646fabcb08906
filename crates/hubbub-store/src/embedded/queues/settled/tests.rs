use std::collections::HashMap;

use super::*;
use crate::embedded::queues::QUEUES_DIR;
use crate::embedded::sim::SimDisk;

const KEPT: i64 = 600_000_000;

fn disk() -> Arc<dyn Disk> {
    let disk = SimDisk::new();
    disk.make_dir(QUEUES_DIR).unwrap();
    Arc::new(disk)
}

fn known_as(name: u64) -> [u64; 2] {
    [name.wrapping_mul(0x9E37_79B9_7F4A_7C15), name]
}

fn record(name: u64, id: u64, forget_at: i64) -> SettledId {
    SettledId { known_as: known_as(name), content: 7, copies: 1, id, sent_at: 5, forget_at }
}

/// Ids through memory, files and merges, some used again; each is found as it was used last, until its time.
#[test]
fn every_id_is_found_until_its_time_wherever_it_stands() {
    let (disk, mut ids) = (disk(), SettledIds::default());
    ids.memory_max = 50;
    let mut model: HashMap<u64, SettledId> = HashMap::new();
    let mut files = 0;
    for round in 0..60_u64 {
        let at = i64::try_from(round).unwrap() * 15_000_000;
        let now = Now { at, wall: at + 3_000 };
        for name in round * 40..round * 40 + 100 {
            let record = record(name, round * 1_000 + name, at + KEPT);
            ids.insert(record);
            model.insert(name, record);
        }
        ids.forget(at);
        let copied = ids.copied();
        if let Some(sources) = merge_candidates(&copied.runs, |_| false) {
            files += 1;
            let run = merge(&disk, files, sources, now).unwrap();
            ids.merged(sources, run);
        }
        if !copied.frozen.is_empty() && round % 7 != 3 {
            files += 1;
            let run = spill(&disk, files, &copied.frozen, now).unwrap();
            ids.spilled(&copied.frozen, run);
        }
        ids.forget(at);
        if round % 10 == 9 {
            // As after a start: the same files, opened.
            let runs = ids.runs.iter().map(|run| IdRun::open(&*disk, run.number(), now).unwrap()).collect();
            ids.runs = runs;
        }
        for name in (0..round * 40 + 200).step_by(3) {
            let expected = model.get(&name).filter(|record| record.forget_at > at);
            assert_eq!(ids.find(known_as(name), at).unwrap().as_ref(), expected, "round {round}, {name}");
        }
        assert!(ids.runs.len() <= RUNS_MAX + 2, "{} files", ids.runs.len());
        assert!(ids.runs.iter().all(|run| run.check().is_none()));
    }
    assert!(files > 60, "files were merged");
}

#[test]
fn a_clock_that_was_set_back_prolongs_nothing_beyond_the_promise() {
    let disk = disk();
    let written = Now { at: 1_000_000_000_000, wall: 1_000_000_000_000 };
    let frozen = [Arc::new({
        let mut recent = RecentIds::default();
        recent.insert(record(1, 1, written.at + KEPT));
        recent
    })];
    spill(&disk, 1, &frozen, written).unwrap();
    let earlier = Now { at: 5_000_000, wall: 5_000_000 };
    let run = IdRun::open(&*disk, 1, earlier).unwrap();
    assert_eq!(run.find(known_as(1)).unwrap().unwrap().forget_at, earlier.at + KEPT);
    assert!(!run.is_over(earlier.at) && run.is_over(earlier.at + KEPT));
}

#[test]
fn damage_is_seen() {
    let disk = disk();
    let now = Now { at: 1_000, wall: 1_000 };
    let mut recent = RecentIds::default();
    (0..500).for_each(|name| recent.insert(record(name, name, now.at + KEPT)));
    let run = spill(&disk, 1, &[Arc::new(recent)], now).unwrap().unwrap();
    let file = disk.open(&id_run_path(1)).unwrap();
    assert!(run.check().is_none() && run.bytes() == file.len().unwrap());
    for at in (0..run.bytes()).step_by(97) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let seen = IdRun::open(&*disk, 1, now).is_err() || run.check().is_some();
        assert!(seen, "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
    let found = (0..500).filter(|name| run.find(known_as(*name)).unwrap().is_some()).count();
    assert_eq!(found, 500);
    assert_eq!(spill(&disk, 2, &[], now).unwrap().map(|run| run.number()), None);
    assert!(disk.open(&id_run_path(2)).is_err(), "nothing is left of a file that would be empty");
}

/// Each attempt has a number of its own, so what one leaves would stay until the next start; on a full disk, with each.
#[test]
fn a_file_that_could_not_be_finished_leaves_nothing() {
    let now = Now { at: 1_000, wall: 1_000 };
    let mut recent = RecentIds::default();
    (0..500).for_each(|name| recent.insert(record(name, name, now.at + KEPT)));
    let frozen = [Arc::new(recent)];
    let sim = Arc::new(SimDisk::new());
    sim.make_dir(QUEUES_DIR).unwrap();
    let disk: Arc<dyn Disk> = Arc::clone(&sim) as _;
    let attempts: [(&str, &dyn Fn()); 3] = [
        ("the disk is full", &|| sim.set_bytes_max(Some(sim.bytes() + 1_000))),
        ("the content is not synced", &|| sim.fail_sync_in(1)),
        ("the name is not synced", &|| sim.fail_sync_in(2)),
    ];
    for (number, (what, fail)) in (1..).zip(attempts) {
        fail();
        assert!(spill(&disk, number, &frozen, now).is_err(), "{what}");
        assert_eq!(disk.list(QUEUES_DIR).unwrap(), Vec::<String>::new(), "{what}");
        sim.set_bytes_max(None);
    }
    assert!(spill(&disk, 9, &frozen, now).unwrap().is_some());
}
