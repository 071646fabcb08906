//! What only this store does: where texts stand, what a crash or a copy finds, what is cleared away. What queues promise
//! is tested by the conformance suite.

use std::path::Path;
use std::sync::Arc;

use hubbub_core::backup::BackupInfo;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::queue::{
    Audience, Delivery, Due, ID_KEPT_MS, QueueSend, QueueSettings, Take, TakeFilter, TakeMode, Waiting,
};
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, QueueOutcome, Refusal, Timestamp};

use super::{PAYLOADS_MAX, QUEUES_DIR, QueueBatch, ROUNDS_MAX};
use crate::embedded::disk::{Disk, FileDisk};
use crate::embedded::rooms::Position;
use crate::embedded::sim::SimDisk;
use crate::embedded::{Durability, Engine, EngineOptions, restore, verify};

pub(super) struct TestDirectory {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    slot_bytes: u64,
}

impl TestDirectory {
    pub(super) fn new(slot_bytes: u64) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self { dir: tempfile::tempdir().unwrap(), clock, slot_bytes }
    }

    pub(super) fn open(&self) -> Engine {
        self.open_at(self.dir.path())
    }

    pub(super) fn open_at(&self, path: &Path) -> Engine {
        Self::open_in(path, self.options(), &self.clock)
    }

    /// With other options.
    pub(super) fn open_with(&self, options: EngineOptions) -> Engine {
        Self::open_in(self.dir.path(), options, &self.clock)
    }

    fn options(&self) -> EngineOptions {
        EngineOptions { slot_bytes: self.slot_bytes, reserve_bytes: 0, ..EngineOptions::default() }
    }

    fn open_in(path: &Path, options: EngineOptions, clock: &Arc<ManualClock>) -> Engine {
        let disk = Arc::new(FileDisk::new(path));
        Engine::open(options, disk, Arc::clone(clock) as _, &SeededRandom::new(5)).unwrap()
    }

    pub(super) fn pass(&self, ms: u64) {
        self.clock.advance_micros(i64::try_from(ms).unwrap() * 1_000);
    }

    /// Damages a byte of a file of queues.
    pub(super) fn flip(&self, file: &str, at: usize) {
        let path = self.path().join(QUEUES_DIR).join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Files of texts and their sizes.
    pub(super) fn texts(&self) -> Vec<(String, u64)> {
        let files = std::fs::read_dir(self.dir.path().join(QUEUES_DIR)).unwrap().map(Result::unwrap);
        let files =
            files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().len()));
        let mut files: Vec<_> = files.filter(|(name, _)| name.ends_with(".text")).collect();
        files.sort_unstable();
        files
    }
}

pub(super) fn apply(engine: &Engine, ops: &[QueueOp<'_>]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Queue(*op)));
    let outcomes = engine.apply(&batch).unwrap();
    while engine.seal_step().unwrap() {}
    outcomes
}

pub(super) fn one(engine: &Engine, op: QueueOp<'_>) -> Outcome {
    apply(engine, &[op]).remove(0)
}

/// Seals everything.
pub(super) fn seal(engine: &Engine) {
    engine.begin_backup("seal").unwrap();
    assert!(engine.end_backup("seal"));
}

pub(super) fn make(engine: &Engine, queue: &str) {
    let settings = QueueSettings::default();
    assert!(matches!(one(engine, QueueOp::Put { queue, settings: &settings }), Outcome::Queue(_)));
}

pub(super) fn register(engine: &Engine, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("client{number:03}")).collect();
    for client in &names {
        one(engine, QueueOp::Register { client });
    }
    names
}

pub(super) fn message<'a>(queue: &'a str, text: &'a str) -> QueueSend<'a> {
    QueueSend {
        queue,
        sender: "ada",
        audience: Audience::Anyone,
        text,
        message_id: None,
        due: Due::Now,
        group: None,
        ttl_ms: None,
        registers: true,
    }
}

pub(super) fn wanted<'a>(queue: &'a str, receiver: &'a str) -> TakeFilter<'a> {
    TakeFilter { queue: Some(queue), receiver: Some(receiver), sender: None, newest_first: false }
}

pub(super) fn take(engine: &Engine, wanted: TakeFilter<'_>, max: usize, how: TakeMode) -> Vec<Delivery> {
    match one(engine, QueueOp::Take(Take { wanted, max, how, registers: true })) {
        Outcome::Queue(QueueOutcome::Taken { messages, .. }) => messages.into_vec(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn get(engine: &Engine, queue: &str, receiver: &str, max: usize) -> Vec<String> {
    let taken = take(engine, wanted(queue, receiver), max, TakeMode::Away);
    taken.into_iter().map(|one| one.text).collect()
}

fn waiting(engine: &Engine, queue: &str) -> Vec<Waiting> {
    engine.shared.waiting(queue, 0, usize::MAX).unwrap().unwrap()
}

pub(super) fn texts_of_waiting(engine: &Engine, queue: &str) -> Vec<String> {
    waiting(engine, queue).into_iter().map(|one| one.delivery.text).collect()
}

/// A backup, restored in the directory `data`.
pub(super) fn restored(engine: &Engine, id: &str) -> tempfile::TempDir {
    let info = engine.begin_backup(id).unwrap();
    restored_from(engine, &info)
}

fn restored_from(engine: &Engine, info: &BackupInfo) -> tempfile::TempDir {
    let (backup, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in &info.files {
        let path = backup.path().join(&file.name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = engine.read_backup(&info.id, &file.name, 0, usize::MAX).unwrap().unwrap();
        assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc32c), "{file:?}");
        std::fs::write(path, bytes).unwrap();
    }
    assert!(engine.end_backup(&info.id));
    restore(
        backup.path(),
        &to.path().join("data"),
        &info.files,
        (&*engine.shared.clock, &SeededRandom::new(7)),
        &|_| (),
    )
    .unwrap();
    to
}

pub(super) fn entries(engine: &Engine) -> usize {
    engine.shared.queues.with(&*engine.shared.clock, |queues, _| queues.slab.iter().count())
}

/// Whoever waits for the next one of a group is told by the take itself, and nobody else is.
#[test]
fn what_is_taken_away_frees_the_next_of_its_group() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    for text in ["1", "2", "3", "4"] {
        one(&engine, QueueOp::Send(QueueSend { group: Some("g"), ..message("q", text) }));
    }
    let freed = |max, how| {
        let take = Take { wanted: wanted("q", "bob"), max, how, registers: true };
        let Outcome::Queue(QueueOutcome::Taken { messages, ready }) = one(&engine, QueueOp::Take(take))
        else {
            panic!("nothing was taken")
        };
        (messages.len(), ready.iter().map(|freed| freed.id).collect::<Vec<_>>())
    };
    let ids: Vec<u64> = waiting(&engine, "q").iter().map(|one| one.delivery.id).collect();
    assert_eq!(freed(2, TakeMode::Away), (2, vec![ids[2]]));
    assert_eq!(freed(1, TakeMode::Lease { lease_ms: None }), (1, vec![]), "it holds up its group");
    assert_eq!(one(&engine, QueueOp::Sweep), {
        Outcome::Queue(QueueOutcome::Swept { more: false, ready: Box::default() })
    });
}

#[test]
fn copies_share_one_text_and_an_empty_file_goes() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    let clients = register(&engine, 50);
    let text = "t".repeat(1_000);
    one(
        &engine,
        QueueOp::Send(QueueSend { audience: Audience::All, group: Some("g"), ..message("q", &text) }),
    );
    seal(&engine);
    assert_eq!(directory.texts().iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [&1_005]);
    drop(engine);
    let engine = directory.open();
    for client in &clients {
        assert_eq!(get(&engine, "q", client, 9), [text.as_str()], "{client}");
    }
    seal(&engine);
    assert_eq!(directory.texts(), []);
    assert_eq!(entries(&engine), 0);
}

#[test]
fn a_file_of_which_little_is_left_is_written_anew() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    let texts: Vec<String> = (0..100).map(|number| format!("{number:0100}")).collect();
    for text in &texts {
        one(&engine, QueueOp::Send(message("q", text)));
    }
    seal(&engine);
    let full = directory.texts();
    assert_eq!(full.iter().map(|(_, bytes)| *bytes).sum::<u64>(), 100 * 104);
    assert_eq!(get(&engine, "q", "bob", 70).len(), 70);
    seal(&engine);
    assert_eq!(directory.texts(), full, "as long as a quarter is waited for it stays");
    assert_eq!(get(&engine, "q", "bob", 10).len(), 10);
    seal(&engine);
    assert_eq!(directory.texts().iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [20 * 104]);
    drop(engine);
    let engine = directory.open();
    assert_eq!(get(&engine, "q", "bob", 100), texts[80..]);
}

#[test]
fn many_small_files_are_merged() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    let texts: Vec<String> = (0..80).map(|number| number.to_string()).collect();
    let mut most = 0;
    for text in &texts {
        one(&engine, QueueOp::Send(message("q", text)));
        seal(&engine);
        most = most.max(directory.texts().len());
    }
    assert!((20..=34).contains(&most), "{most}");
    drop(engine);
    assert_eq!(get(&directory.open(), "q", "bob", 100), texts);
}

#[test]
fn a_deleted_queue_is_cleared_away_bit_by_bit() {
    let directory = TestDirectory::new(1 << 20);
    let engine = directory.open();
    make(&engine, "q");
    make(&engine, "r");
    one(&engine, QueueOp::Send(message("r", "stays")));
    let ops = vec![QueueOp::Send(message("q", "text")); 500];
    for _ in 0..10 {
        apply(&engine, &ops);
    }
    let gone = one(&engine, QueueOp::Delete { queue: "q", force: true });
    assert_eq!(gone, Outcome::Queue(QueueOutcome::Deleted { messages: 5_000, ready: Box::default() }));
    assert!(entries(&engine) > 1, "not all at once");
    let copied = restored(&engine, "b");
    assert_eq!(entries(&directory.open_at(&copied.path().join("data"))), 1, "a snapshot has nothing of it");
    drop(engine);
    let engine = directory.open();
    make(&engine, "q");
    for _ in 0..10 {
        apply(&engine, &ops);
    }
    one(&engine, QueueOp::Delete { queue: "q", force: true });
    while let Outcome::Queue(QueueOutcome::Swept { more: true, .. }) = one(&engine, QueueOp::Sweep) {}
    assert_eq!(entries(&engine), 1);
    assert_eq!(get(&engine, "r", "bob", 9), ["stays"]);
}

#[test]
fn a_repeat_to_everybody_is_known_while_any_copy_waits() {
    let directory = TestDirectory::new(64 << 10);
    let mut engine = directory.open();
    make(&engine, "q");
    register(&engine, 3);
    let to_all = QueueSend { audience: Audience::All, message_id: Some("m"), ..message("q", "news") };
    let sent = |engine: &Engine| match one(engine, QueueOp::Send(to_all)) {
        Outcome::Queue(QueueOutcome::Sent { id, copies, duplicate, .. }) => (id, copies, duplicate),
        other => panic!("{other:?}"),
    };
    let (id, ..) = sent(&engine);
    for client in ["client001", "client000", "client002"] {
        assert_eq!(get(&engine, "q", client, 9), ["news"], "{client}");
        seal(&engine);
        drop(engine);
        engine = directory.open();
        directory.pass(ID_KEPT_MS - 1);
        assert_eq!(sent(&engine), (id, 3, true), "{client}");
    }
    directory.pass(1);
    let (anew, copies, duplicate) = sent(&engine);
    assert!(anew > id && copies == 3 && !duplicate);
    assert_eq!(entries(&engine), 3);
}

#[test]
fn nobody_to_send_to_is_remembered_too() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    let to_all = QueueSend { audience: Audience::All, message_id: Some("m"), ..message("q", "news") };
    let copies = |engine: &Engine| match one(engine, QueueOp::Send(to_all)) {
        Outcome::Queue(QueueOutcome::Sent { copies, duplicate, .. }) => (copies, duplicate),
        other => panic!("{other:?}"),
    };
    assert_eq!(copies(&engine), (0, false));
    seal(&engine);
    drop(engine);
    let engine = directory.open();
    assert_eq!(copies(&engine), (0, true));
    directory.pass(ID_KEPT_MS);
    assert_eq!(copies(&engine), (0, false));
}

#[test]
fn lists_are_cut_to_the_space_of_a_small_slot() {
    let directory = TestDirectory::new(4 << 10);
    let engine = directory.open();
    make(&engine, "q");
    for _ in 0..500 {
        one(&engine, QueueOp::Send(QueueSend { ttl_ms: Some(60_000), ..message("q", "") }));
    }
    let mut leased = 0;
    while leased < 400 {
        let taken = take(&engine, wanted("q", "bob"), 1_000, TakeMode::Lease { lease_ms: Some(1_000) });
        assert!(!taken.is_empty() && taken.len() < 300, "{}", taken.len());
        leased += taken.len();
    }
    directory.pass(60_000);
    let mut sweeps = 1;
    while let Outcome::Queue(QueueOutcome::Swept { more: true, .. }) = one(&engine, QueueOp::Sweep) {
        sweeps += 1;
    }
    assert!(sweeps > 2, "{sweeps}");
    assert_eq!(waiting(&engine, "q"), []);
    drop(engine);
    let engine = directory.open();
    assert_eq!((waiting(&engine, "q").len(), entries(&engine)), (0, 0));
}

#[test]
fn a_backup_has_queues_as_they_were_at_its_barrier() {
    let directory = TestDirectory::new(16 << 10);
    let engine = directory.open();
    make(&engine, "q");
    register(&engine, 2);
    for number in 0..60 {
        let text = format!("{number:0200}");
        one(&engine, QueueOp::Send(QueueSend { message_id: Some(&text[150..]), ..message("q", &text) }));
    }
    one(&engine, QueueOp::Send(QueueSend { due: Due::In(5_000), group: Some("g"), ..message("q", "later") }));
    one(&engine, QueueOp::Send(QueueSend { audience: Audience::All, ..message("q", "news") }));
    take(&engine, wanted("q", "client000"), 3, TakeMode::Lease { lease_ms: Some(9_000) });
    let before = waiting(&engine, "q");
    let info = engine.begin_backup("b").unwrap();
    // What comes behind the barrier is not in it.
    get(&engine, "q", "client001", 50);
    seal(&engine);
    one(&engine, QueueOp::Delete { queue: "q", force: true });
    seal(&engine);
    let restored = restored_from(&engine, &info);
    let to = restored.path().join("data");
    assert_eq!(directory.texts(), [], "a backup leaves nothing behind");
    let mut faults = Vec::new();
    verify(&to, &mut |fault| faults.push(fault), &|_| ()).unwrap();
    assert_eq!(faults, []);
    let engine = directory.open_at(&to);
    assert_eq!(waiting(&engine, "q"), before);
    assert_eq!(before.len(), 63);
    let repeated = format!("{:0200}", 0);
    let again = QueueSend { message_id: Some(&repeated[150..]), ..message("q", &repeated) };
    let again = one(&engine, QueueOp::Send(again));
    assert!(matches!(again, Outcome::Queue(QueueOutcome::Sent { duplicate: true, .. })), "{again:?}");
}

#[test]
fn a_copy_waits_until_what_was_decided_is_durable() {
    let directory = TestDirectory::new(64 << 10);
    let engine = directory.open();
    make(&engine, "q");
    let (shared, clock) = (&engine.shared, &*engine.shared.clock);
    let damage = crate::embedded::damage::Damage::default();
    let decide = || {
        let tail = Arc::clone(&engine.writer.lock().place.tail);
        let (mut block, mut records, mut outcomes) =
            (Vec::new(), 0, vec![Outcome::Refused(Refusal::Unreadable)]);
        let (block, records) = (&mut block, &mut records);
        let (spare, payloads) = (1_000, PAYLOADS_MAX);
        let mut batch = QueueBatch {
            block,
            records,
            tail: &tail,
            position: 1_000,
            spare,
            missing: 0,
            payloads,
            rounds: ROUNDS_MAX,
            autoregister: true,
            damage: &damage,
        };
        let ops = [Op::Queue(QueueOp::Send(message("q", "text")))];
        shared.queues.decide(clock, &ops, &mut outcomes, &mut batch);
        assert!(matches!(outcomes[0], Outcome::Queue(_)), "{outcomes:?}");
    };
    decide();
    assert_eq!(shared.peek(&wanted("q", "bob"), 9).unwrap(), Some(vec![]), "not durable, not to be seen");
    assert_eq!(waiting(&engine, "q"), []);
    let at = Position { journal: 77, batch: 5 };
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| shared.queues.copied(clock).unwrap());
        while !shared.queues.is_copy_wanted() {
            std::thread::yield_now();
        }
        assert!(!copying.is_finished());
        shared.queues.settle(clock, at);
        let copied = copying.join().unwrap();
        assert_eq!((copied.at, copied.slab.iter().count()), (at, 1));
    });
    decide();
    shared.queues.fail();
    assert!(shared.queues.copied(clock).is_err());
}

/// Nobody waits for what will never be known to be durable.
#[test]
fn a_backup_after_a_failed_sync_is_refused() {
    let (directory, disk) = (TestDirectory::new(16 << 10), SimDisk::new());
    let (files, clock) = (Arc::new(disk.clone()), Arc::clone(&directory.clock));
    let engine = Engine::open(directory.options(), files, clock, &SeededRandom::new(5)).unwrap();
    make(&engine, "q");
    disk.fail_sync_in(1);
    let mut batch = OpBatch::default();
    batch.push(&Op::Queue(QueueOp::Send(message("q", "text"))));
    assert!(engine.apply(&batch).is_err());
    let (done, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(engine.begin_backup("late").is_err()));
    assert_eq!(waiting.recv_timeout(std::time::Duration::from_secs(20)), Ok(true));
}

/// Nothing that the next start would have to remove.
#[test]
fn a_backup_that_fails_leaves_no_files() {
    let mut failed = 0;
    for write in 1..30 {
        let (directory, disk) = (TestDirectory::new(16 << 10), SimDisk::new());
        let open = || {
            let clock = Arc::clone(&directory.clock);
            Engine::open(directory.options(), Arc::new(disk.clone()), clock, &SeededRandom::new(5)).unwrap()
        };
        let files = || {
            let mut names = disk.list(QUEUES_DIR).unwrap();
            names.sort_unstable();
            names
        };
        let engine = open();
        make(&engine, "q");
        (0..3).for_each(|_| drop(one(&engine, QueueOp::Send(message("q", "text")))));
        disk.fail_write_in(write);
        if engine.begin_backup("fails").is_ok() {
            break;
        }
        failed += 1;
        // What a seal has left is of use to the next one.
        one(&engine, QueueOp::Send(message("q", "text")));
        engine.begin_backup("two").unwrap();
        let before = files();
        drop(engine);
        disk.kill();
        drop(open());
        assert_eq!(before, files(), "write {write}");
    }
    assert!(failed > 5, "{failed} backups failed");
}

/// Power took what a checkpoint knew of, as may happen where nobody waits for the disk. What comes then is not taken for that.
#[test]
fn a_checkpoint_that_knows_of_more_than_is_left_is_replaced() {
    let mut lost = 0;
    for (seed, more) in (0..40).flat_map(|seed| [(seed, 0), (seed, 3)]) {
        let (directory, disk) = (TestDirectory::new(16 << 10), SimDisk::new());
        let options = EngineOptions { durability: Durability::Os, ..directory.options() };
        let open = || {
            let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(&directory.clock));
            let engine = Engine::open(options.clone(), disk, clock, &SeededRandom::new(5)).unwrap();
            while engine.seal_step().unwrap() {}
            engine
        };
        let text = "x".repeat(1_000);
        let engine = open();
        make(&engine, "q");
        // The first slot is sealed when the second one has something already.
        let mut sent = 0;
        while engine.shared.catalog.lock().applied == 0 || sent % 10 > 0 {
            one(&engine, QueueOp::Send(message("q", &text)));
            sent += 1;
        }
        drop(engine);
        disk.crash(seed);
        let engine = open();
        let mut waiting = texts_of_waiting(&engine, "q");
        lost += sent - waiting.len();
        for number in 0..more {
            waiting.push(format!("more {number}"));
            one(&engine, QueueOp::Send(message("q", &format!("more {number}"))));
        }
        if seed % 2 == 0 {
            engine.close().unwrap();
        }
        drop(engine);
        disk.kill();
        assert_eq!(texts_of_waiting(&open(), "q"), waiting, "seed {seed}");
    }
    assert!(lost > 20, "{lost} messages");
}
