//! One seeded run: open, act, crash at any operation, open again, compare with the model. In between a byte of what is
//! known to be durable goes bad, and a start must see it.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::backup::BackupError;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::ApplyError;
use hubbub_core::{Clock, RandomSource, Timestamp};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Durability, Engine, EngineOptions, MergeOptions, OpenError};

use crate::model::{Model, Sent, batch};

pub(crate) const ROOMS: [&str; 4] = ["room-0", "room-1", "room-2", "room-3"];

/// How the life before ended.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Clean,
    Crashed,
    /// While opening or closing: it may have been noted, or not.
    Between,
}

pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) model: Model,
    pub(crate) options: EngineOptions,
    /// Whether some of the background work is a snapshot.
    pub(crate) snapshots: bool,
    /// Whether syncs fail now and then, after which the disk shows what it does not have.
    pub(crate) failing: bool,
    /// How many syncs had failed when this life began.
    failed_before: u64,
    /// File and offset of the last block that is known to be durable, when it can be damaged and that must be seen.
    recorded: Option<(String, u64)>,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    next_id: u64,
    epoch: Option<Arc<str>>,
    ended: Ended,
    /// Whether a seal was interrupted.
    may_be_sealed: bool,
}

impl Run {
    pub(crate) fn new(seed: u64, disk: SimDisk) -> Self {
        let random = Arc::new(SeededRandom::new(seed));
        let mut run = Self {
            disk,
            model: Model::default(),
            options: EngineOptions::default(),
            snapshots: false,
            failing: false,
            failed_before: 0,
            recorded: None,
            clock: Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000))),
            random,
            next_id: 0,
            epoch: None,
            ended: Ended::Clean,
            may_be_sealed: false,
        };
        run.options = EngineOptions {
            durability: if run.one_in(5) { Durability::Os } else { Durability::Fsync },
            slot_bytes: (8 * 1024) << run.below(4),
            retention: run.one_in(3).then(|| Duration::from_micros(20_000 + run.below(200_000))),
            block_cache_bytes: 1 << 20,
            reserve_bytes: 0,
            merge: MergeOptions {
                segments_max: 2,
                fan_in: 2 + run.below(2) as usize,
                // Some segments grow no further then.
                bytes_max: if run.one_in(3) { 64 << 10 } else { 1 << 30 },
            },
            ..EngineOptions::default()
        };
        run
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    pub(crate) fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Several lives of one data directory.
    pub(crate) fn all(mut self) {
        for _ in 0..3 + self.below(3) {
            self.life();
        }
        self.disk.set_phase("open");
        let engine = self.open().expect("nothing stands in the way of the last start");
        self.compare(&engine);
    }

    /// Whether operations may fail by now.
    pub(crate) fn is_excused(&self) -> bool {
        self.disk.is_dead() || self.disk.failed_syncs() > self.failed_before
    }

    fn life(&mut self) {
        self.failed_before = self.disk.failed_syncs();
        if self.failing && self.one_in(2) {
            let soonest = if self.one_in(2) { 1 + self.below(12) } else { 1 + self.below(80) };
            self.disk.fail_sync_in(soonest);
        }
        if self.one_in(3) {
            self.disk.crash_in(1 + self.below(16));
        }
        self.disk.set_phase("open");
        let opened = self.open();
        let engine = match opened {
            Ok(engine) if !self.disk.is_dead() => engine,
            opened => {
                assert!(self.is_excused(), "opening failed: {:?}", opened.err());
                self.ended = Ended::Between;
                return self.end();
            }
        };
        self.disk.crash_in(1 + self.below(300));
        self.compare(&engine);
        for _ in 0..self.below(120) {
            self.step(&engine);
            // A batch in doubt shows only at the next start, so its life ends here.
            if self.disk.is_dead() || self.model.in_doubt.is_some() {
                break;
            }
        }
        if !self.disk.is_dead() && self.one_in(4) {
            self.disk.set_phase("close");
            let closed = engine.close().is_ok() && !self.is_excused();
            self.ended = if closed { Ended::Clean } else { Ended::Between };
        }
        self.recorded = engine.recorded_end().filter(|_| !self.may_be_sealed);
        drop(engine);
        self.end();
        self.damage();
    }

    /// What was recorded as durable is missed when a byte of it goes bad, even if one copy of the record does, too.
    fn damage(&mut self) {
        let Some((path, offset)) = self.recorded.take() else { return };
        if !self.one_in(3) {
            return;
        }
        let mut bad = vec![(path.clone(), offset + self.below(48))];
        if self.one_in(2) {
            bad.push(("journal/end".to_owned(), self.below(2) * 4_096 + self.below(44)));
        }
        bad.iter().for_each(|(path, at)| self.disk.flip(path, *at));
        let clock = Arc::clone(&self.clock);
        self.disk.set_phase("damaged");
        let opened = Engine::open(self.options.clone(), Arc::new(self.disk.clone()), clock, &*self.random);
        match opened {
            Err(OpenError::Damaged { file, offset: at, .. }) => assert_eq!((file, at), (path, offset)),
            other => panic!("{path} is damaged at {offset}, but: {:?}", other.map(|_| "it opened")),
        }
        self.disk.kill();
        bad.iter().for_each(|(path, at)| self.disk.flip(path, *at));
    }

    /// The process ends, usually with the machine.
    fn end(&mut self) {
        if self.one_in(4) {
            self.disk.kill();
        } else {
            let seed = self.random.next_u64();
            self.disk.crash(seed);
        }
    }

    fn open(&mut self) -> Result<Engine, OpenError> {
        let clock = Arc::clone(&self.clock);
        let engine = Engine::open(self.options.clone(), Arc::new(self.disk.clone()), clock, &*self.random)?;
        let epoch = engine.epoch();
        let renewed = self.epoch.as_ref().is_some_and(|before| *before != epoch);
        let os = self.options.durability == Durability::Os;
        match self.ended {
            Ended::Clean => assert!(!renewed, "the epoch changed without a reason"),
            Ended::Crashed => {
                assert_eq!(renewed, os, "a history that may have lost its end needs a new epoch")
            }
            Ended::Between => assert!(os || !renewed),
        }
        if self.disk.is_dead() {
            // Since it said so only in what a start can do without. What is left cannot be read; the next start tells.
            return Ok(engine);
        }
        if renewed {
            self.take_over_what_is_left(&engine);
        }
        self.epoch = Some(epoch);
        self.ended = Ended::Crashed;
        self.may_be_sealed = false;
        Ok(engine)
    }

    fn step(&mut self, engine: &Engine) {
        match self.below(11) {
            0..=5 => {
                self.disk.set_phase("apply");
                self.send(engine);
            }
            6 | 7 => {
                self.disk.set_phase("seal");
                if self.snapshots && self.one_in(4) {
                    return self.snapshot(engine);
                }
                if let Err(error) = engine.seal_step() {
                    assert!(self.is_excused(), "{error}");
                    self.may_be_sealed = true;
                }
            }
            8 => {
                self.disk.set_phase("merge");
                if let Err(error) = engine.merge_step() {
                    assert!(self.is_excused(), "{error}");
                }
            }
            9 => {
                self.disk.set_phase("idle");
                if let Err(error) = engine.record_end() {
                    assert!(self.is_excused(), "{error}");
                }
            }
            _ => {
                let micros = self.below(20_000).cast_signed() - 2_000;
                self.clock.advance_micros(micros);
            }
        }
        if self.one_in(25) && !self.disk.is_dead() && self.model.in_doubt.is_none() {
            self.compare(engine);
        }
    }

    /// Disturbs nothing, wherever the power fails.
    fn snapshot(&mut self, engine: &Engine) {
        match engine.begin_backup("one") {
            Ok(info) => assert!(engine.end_backup(&info.id)),
            Err(BackupError::Overloaded) => {}
            Err(error) => {
                assert!(self.is_excused(), "{error}");
                self.may_be_sealed = true;
            }
        }
    }

    fn send(&mut self, engine: &Engine) {
        let sent = self.some_messages();
        match engine.apply(&batch(&sent)) {
            Ok(outcomes) => self.model.acknowledged(&sent, &outcomes, self.cutoff()),
            Err(ApplyError::Overloaded) => {}
            Err(ApplyError::Unconfirmed { .. }) => {
                assert!(self.is_excused());
                let new = sent.iter().enumerate().filter(|(place, message)| {
                    let earlier = sent.iter().take(*place).any(|other| same_key(other, message));
                    !earlier
                        && self
                            .model
                            .find(&message.room, &message.id)
                            .is_none_or(|old| old.received < self.cutoff())
                });
                self.model.in_doubt = Some(new.map(|(_, message)| message.clone()).collect());
            }
            Err(error) => {
                let too_large = error.to_string().contains("does not fit a journal slot");
                assert!(too_large || self.is_excused(), "{error}");
            }
        }
    }

    fn some_messages(&mut self) -> Vec<Sent> {
        let mut sent: Vec<Sent> = Vec::new();
        for _ in 0..1 + self.below(12) {
            let message = match self.below(10) {
                0 if !sent.is_empty() => sent[self.below(sent.len() as u64) as usize].clone(),
                1 | 2 => match self.some_stored() {
                    Some(mut old) => {
                        if self.one_in(3) {
                            old.text.push('!');
                        }
                        old
                    }
                    None => self.new_message(),
                },
                _ => self.new_message(),
            };
            sent.push(message);
        }
        sent
    }

    fn some_stored(&self) -> Option<Sent> {
        let rooms: Vec<_> = self.model.rooms.values().filter(|room| !room.messages.is_empty()).collect();
        let room = rooms.get(self.below(rooms.len().max(1) as u64) as usize)?;
        Some(room.messages[self.below(room.messages.len() as u64) as usize].sent.clone())
    }

    fn new_message(&mut self) -> Sent {
        self.next_id += 1;
        let long = if self.one_in(20) { 2_000 } else { 120 };
        Sent {
            room: ROOMS[self.below(4) as usize].to_owned(),
            user: format!("u{}", self.below(3)),
            id: format!("id-{}", self.next_id),
            username: self.one_in(2).then(|| "Ada ü".to_owned()),
            text: format!("{} {}", self.next_id, "x".repeat(self.below(long) as usize)),
            timestamp: 1_800_000_000_000_000 + self.below(1_000).cast_signed(),
        }
    }

    /// What was received before this may be gone.
    pub(crate) fn cutoff(&self) -> i64 {
        let retention = self.options.retention.map(|time| time.as_micros() as i64);
        // The clock may have been further already when something was dropped.
        retention.map_or(i64::MIN, |retention| self.clock.now().as_micros() + 2_000 * 120 - retention)
    }
}

fn same_key(a: &Sent, b: &Sent) -> bool {
    (&a.room, &a.id) == (&b.room, &b.id)
}
