//! Queues and keys beside rooms, over crashes: what was acknowledged is there, exactly, nothing comes back that was
//! taken, and the batch of a crash is there as a whole or not at all. Under durability `os` a crash of the machine may take the
//! end of everything; what a start has found then is there from then on.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hubbub_conformance::model::Post;
use hubbub_conformance::{keys, queues};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, first_revision};
use hubbub_core::queue::epoch_number;
use hubbub_core::store::ApplyError;
use hubbub_core::{
    Clock, KvOp, KvOutcome, KvStore, Op, OpBatch, Outcome, QueueOp, QueueOutcome, QueueStore, RandomSource,
    RoomStore, Store, Timestamp,
};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{
    BroadcastOptions, Durability, Embedded, Engine, EngineOptions, MergeOptions, OpenError,
};

/// Everybody in the random runs.
const CLIENTS: [&str; 4] = ["ada", "bob", "carl", "dora"];

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> =
        RefCell::new(tokio::runtime::Builder::new_current_thread().build().unwrap());
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with_borrow(|runtime| runtime.block_on(future))
}

/// What must be there.
#[derive(Clone, Default)]
struct Models {
    queues: queues::model::Model,
    keys: keys::model::Model,
    posts: u64,
}

impl Models {
    /// The expected outcome of an operation; `actual` is the store's outcome, if it gave one.
    fn apply(&mut self, op: &Op<'_>, now: i64, actual: Option<&Outcome>) -> Option<Outcome> {
        match op {
            Op::Queue(QueueOp::Sweep) => {
                self.queues.sweep(now);
                None
            }
            Op::Queue(op) => Some(self.queues.apply(op, now, actual)),
            Op::Kv(op) => Some(self.keys.apply(op, now)),
            _ => {
                self.posts += 1;
                None
            }
        }
    }

    fn described(&self, now: i64) -> Vec<String> {
        let rooms = format!("{} posts", self.posts);
        [self.queues.described(now), self.keys.described(now), vec![rooms]].concat()
    }
}

pub(crate) struct SubsystemRun {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    queue_dice: queues::random::Dice,
    key_dice: keys::random::Dice,
    options: EngineOptions,
    models: Models,
    /// What may be there instead, since nobody knows what became of the last batch.
    or: Option<Models>,
    /// Whether syncs fail now and then, after which the disk shows what it does not have.
    pub(crate) failing: bool,
    /// How many syncs had failed when this life began.
    failed_before: u64,
    /// Whether something was written that the disk need not have.
    unsynced: bool,
    /// Whether something of that may be lost.
    torn: bool,
    /// Whether a start has left out revisions that may have been given. How many of them were, the models need not know.
    has_jumped: bool,
}

impl SubsystemRun {
    pub(crate) fn new(seed: u64, disk: SimDisk) -> Self {
        let random = Arc::new(SeededRandom::new(seed));
        // What is lost is mostly in the last slot, and a seal of the one before has to know of it: so small ones. A value of the
        // random runs has up to 9,000 bytes.
        let (durability, slot_bytes) = if random.next_u64().is_multiple_of(3) {
            (Durability::Os, 16 << 10)
        } else {
            (Durability::Fsync, 64 << 10)
        };
        let options = EngineOptions {
            durability,
            slot_bytes: slot_bytes << (random.next_u64() % 3),
            block_cache_bytes: 1 << 20,
            reserve_bytes: 0,
            queue_ids_in_memory: usize::try_from(random.next_u64() % 3).unwrap(),
            merge: MergeOptions { segments_max: 2, fan_in: 2, bytes_max: 1 << 30 },
            scrub_interval: Duration::ZERO,
            // Most messages to everybody have some copies that are not made.
            broadcasts: BroadcastOptions { at_once: 0, per_sweep: 1, ..BroadcastOptions::default() },
            ..EngineOptions::default()
        };
        Self {
            disk,
            clock: Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000))),
            queue_dice: queues::random::Dice(SeededRandom::new(random.next_u64())),
            key_dice: keys::random::Dice(SeededRandom::new(random.next_u64())),
            random,
            options,
            models: Models::default(),
            or: None,
            failing: false,
            failed_before: 0,
            unsynced: false,
            torn: false,
            has_jumped: false,
        }
    }

    fn is_os(&self) -> bool {
        self.options.durability == Durability::Os
    }

    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    /// Several lives of one data directory.
    pub(crate) fn all(mut self) {
        // Who gets the first copy of a message to everybody follows from the order in which all came, which is not lost.
        let store = self.open().expect("nothing stands in the way of the first start");
        self.apply(&store, &introductions());
        store.engine().close().expect("nor of its end");
        drop(store);
        (self.unsynced, self.torn) = (false, false);
        for _ in 0..4 {
            self.life();
        }
        let store = self.open().expect("nothing stands in the way of the last start");
        self.compare(&store);
    }

    fn try_open(&mut self) -> Result<Embedded, OpenError> {
        self.disk.set_phase("open");
        let clock = Arc::clone(&self.clock);
        let engine = Engine::open(self.options.clone(), Arc::new(self.disk.clone()), clock, &*self.random)?;
        let store = Embedded::in_line(engine);
        if self.is_os() && !self.disk.is_dead() {
            // A start has made durable what is there, and leaves out revisions that may have been given.
            self.unsynced = false;
            for models in [Some(&mut self.models), self.or.as_mut()].into_iter().flatten() {
                assert!(store.revision() >= models.keys.revision || self.torn, "a revision may come again");
                self.has_jumped |= store.revision() >= first_revision(models.keys.revision, self.clock.now());
            }
        }
        Ok(store)
    }

    fn open(&mut self) -> Option<Embedded> {
        match self.try_open() {
            Ok(store) if self.torn && !self.disk.is_dead() => Some(self.take_over(store)),
            Ok(store) => Some(store),
            Err(error) => {
                assert!(self.is_excused(), "opening failed: {error}");
                None
            }
        }
    }

    /// Goes on after a loss: what is left is seen again after any further end, and is cleared away then, so that it is known what
    /// there is.
    fn take_over(&mut self, store: Embedded) -> Embedded {
        let left = self.seen(&store);
        if self.below(2) == 0 {
            // The next start takes nothing for lost then.
            assert!(store.engine().close().is_ok() || self.is_excused());
        }
        drop(store);
        self.end();
        let store = self.try_open().expect("nothing stands in the way of another start");
        let is_kept = |line: &&String| !line.starts_with("revision");
        let again = self.seen(&store);
        let difference = first_difference(
            &again.iter().filter(is_kept).cloned().collect::<Vec<_>>(),
            &left.iter().filter(is_kept).cloned().collect::<Vec<_>>(),
        );
        assert_eq!(difference, None, "what a start has shown is there");
        let queues = wait(store.queues(None, 99)).unwrap();
        let keys = wait(store.keys(b"", None, 9_999)).unwrap().keys;
        let delete = |queue| Op::Queue(QueueOp::Delete { queue, force: true });
        let forget = |key| Op::Kv(KvOp::Delete { key, condition: Condition::Always });
        let mut ops: Vec<Op<'_>> = queues.iter().map(|told| delete(&*told.queue)).collect();
        ops.extend(CLIENTS.map(|client| Op::Queue(QueueOp::Unregister { client })));
        ops.extend(keys.iter().map(|info| forget(&info.key)));
        for part in ops.chunks(50) {
            store.engine().apply(&batch(part)).unwrap();
        }
        assert!(sweep(&store));
        (self.models, self.or, self.torn) = (Models::default(), None, false);
        for op in introductions() {
            self.models.apply(&op, self.clock.now().as_micros(), None);
        }
        self.models.keys.revision = store.revision();
        self.models.posts = store.figures().messages;
        self.unsynced = true;
        self.compare(&store);
        store
    }

    /// Whether operations may fail by now.
    fn is_excused(&self) -> bool {
        self.disk.is_dead() || self.disk.failed_syncs() > self.failed_before
    }

    fn life(&mut self) {
        self.failed_before = self.disk.failed_syncs();
        if self.failing && self.below(2) == 0 {
            self.disk.fail_sync_in(1 + self.below(80));
        }
        if self.below(3) == 0 {
            self.disk.crash_in(1 + self.below(12));
        }
        if let Some(store) = self.open() {
            if !self.disk.is_dead() {
                self.disk.crash_in(1 + self.below(250));
            }
            self.compare(&store);
            for _ in 0..self.below(100) {
                // What is in doubt shows only at the next start.
                if self.disk.is_dead() || self.or.is_some() {
                    break;
                }
                self.step(&store);
            }
            if self.below(4) == 0 && store.engine().close().is_ok() && !self.is_excused() {
                self.unsynced = false;
            }
        }
        self.end();
    }

    /// The process ends, usually with the machine.
    fn end(&mut self) {
        if self.below(4) == 0 {
            self.disk.kill();
        } else {
            self.disk.crash(self.random.next_u64());
            self.torn |= self.unsynced;
        }
    }

    fn step(&mut self, store: &Embedded) {
        let engine = store.engine();
        match self.below(12) {
            0 | 1 => {
                self.disk.set_phase("seal");
                assert!(engine.seal_step().is_ok() || self.is_excused());
            }
            2 => {
                self.disk.set_phase("merge");
                assert!(engine.merge_step().is_ok() || self.is_excused());
            }
            3 => {
                self.disk.set_phase("seal");
                assert!(engine.begin_backup("backup").is_ok() || self.is_excused());
                engine.end_backup("backup");
            }
            4 => self.clock.advance_micros(i64::try_from(self.below(3_000_000)).unwrap()),
            5 => self.compare(store),
            _ => {
                let queue_choices: Vec<_> =
                    (0..self.below(8)).map(|_| self.queue_dice.choice(&self.models.queues)).collect();
                let key_choices: Vec<_> =
                    (0..self.below(8)).map(|_| self.key_dice.choice(&self.models.keys)).collect();
                let id = format!("m{}", self.random.next_u64());
                let post = Post::new("r", &id);
                let mut ops: Vec<Op<'_>> =
                    queue_choices.iter().map(|choice| Op::Queue(choice.op())).collect();
                ops.extend(key_choices.iter().map(|choice| Op::Kv(choice.op())));
                if self.below(2) == 0 {
                    ops.push(Op::Send(post.as_send()));
                }
                self.apply(store, &ops);
            }
        }
        if self.below(10) == 0 && !self.disk.is_dead() {
            self.compare(store);
        }
    }

    fn apply(&mut self, store: &Embedded, ops: &[Op<'_>]) {
        self.disk.set_phase("apply");
        self.unsynced |= self.is_os();
        let now = self.clock.now().as_micros();
        match store.engine().apply(&batch(ops)) {
            Ok(outcomes) => {
                for (op, outcome) in ops.iter().zip(&outcomes) {
                    if let Some(expected) = self.models.apply(op, now, Some(outcome)) {
                        assert!(
                            queues::random::same(outcome, &expected),
                            "{op:?}\n{outcome:?} instead of\n{expected:?}"
                        );
                    }
                }
            }
            Err(error) => {
                let is_refused = matches!(error, ApplyError::Overloaded | ApplyError::TooLarge { .. });
                assert!(self.is_excused() || is_refused, "{error}");
                if self.disk.is_dead() || matches!(error, ApplyError::Unconfirmed { .. }) {
                    let mut next = self.models.clone();
                    for op in ops {
                        next.apply(op, now, None);
                    }
                    self.or = Some(next);
                }
            }
        }
    }

    /// Everything that the store tells.
    fn seen(&self, store: &Embedded) -> Vec<String> {
        let now = self.clock.now().as_micros();
        wait(async {
            let rooms = format!("{} posts", store.figures().messages);
            [queues::random::seen(store, now).await, keys::random::seen(store).await, vec![rooms]].concat()
        })
    }

    /// The store holds one of the two, in everything it tells.
    fn compare(&mut self, store: &Embedded) {
        if self.disk.is_dead() {
            return;
        }
        let epoch = epoch_number(&store.epoch());
        for models in [Some(&mut self.models), self.or.as_mut()].into_iter().flatten() {
            models.queues.epoch = epoch;
        }
        let now = self.clock.now().as_micros();
        // How what has run out is shown until it is swept away is nobody's promise.
        self.disk.set_phase("apply");
        self.unsynced |= self.is_os();
        if !sweep(store) {
            return;
        }
        for models in [Some(&mut self.models), self.or.as_mut()].into_iter().flatten() {
            SWEEPS.iter().for_each(|op| drop(models.apply(op, now, None)));
        }
        if std::mem::take(&mut self.has_jumped) {
            for models in [Some(&mut self.models), self.or.as_mut()].into_iter().flatten() {
                models.keys.revision = store.revision();
            }
        }
        let seen = self.seen(store);
        let mut instead = None;
        if let Some(or) = self.or.take() {
            let described = or.described(now);
            if seen == described {
                self.models = or;
                return;
            }
            instead = first_difference(&seen, &described);
        }
        if let Some(difference) = first_difference(&seen, &self.models.described(now)) {
            panic!("{difference}\nand, if the last batch counts,\n{instead:?}");
        }
    }
}

fn batch(ops: &[Op<'_>]) -> OpBatch {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(op));
    batch
}

/// Everybody comes, in this order, and goes again.
fn introductions() -> Vec<Op<'static>> {
    let come = CLIENTS.map(|client| Op::Queue(QueueOp::Register { client }));
    come.into_iter().chain(CLIENTS.map(|client| Op::Queue(QueueOp::Unregister { client }))).collect()
}

const SWEEPS: [Op<'_>; 2] = [Op::Queue(QueueOp::Sweep), Op::Kv(KvOp::Sweep)];

/// Sweeps everything away that has run out. Says whether nothing failed.
fn sweep(store: &Embedded) -> bool {
    loop {
        match store.engine().apply(&batch(&SWEEPS)) {
            Ok(outcomes) if outcomes.iter().any(has_more) => {}
            result => return result.is_ok(),
        }
    }
}

fn has_more(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Queue(QueueOutcome::Swept { more: true, .. })
            | Outcome::Kv(KvOutcome::Swept { more: true, .. })
    )
}

fn first_difference(seen: &[String], expected: &[String]) -> Option<String> {
    let different = |at: &usize| seen.get(*at) != expected.get(*at);
    let at = (0..seen.len().max(expected.len())).find(different)?;
    Some(format!("line {at}:\n{:?}\ninstead of\n{:?}", seen.get(at), expected.get(at)))
}
