//! One seeded run: open, act, crash at any operation, open again, compare with the model.

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
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    next_id: u64,
    epoch: Option<Arc<str>>,
    ended: Ended,
}

impl Run {
    pub(crate) fn new(seed: u64, disk: SimDisk) -> Self {
        let random = Arc::new(SeededRandom::new(seed));
        let mut run = Self {
            disk,
            model: Model::default(),
            options: EngineOptions::default(),
            snapshots: false,
            clock: Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000))),
            random,
            next_id: 0,
            epoch: None,
            ended: Ended::Clean,
        };
        run.options = EngineOptions {
            durability: if run.one_in(5) { Durability::Os } else { Durability::Fsync },
            slot_bytes: (8 * 1024) << run.below(4),
            retention: run.one_in(3).then(|| Duration::from_micros(20_000 + run.below(200_000))),
            block_cache_bytes: 1 << 20,
            reserve_bytes: 0,
            merge: MergeOptions { segments_max: 2, fan_in: 2 + run.below(2) as usize, bytes_max: 1 << 30 },
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

    fn life(&mut self) {
        if self.one_in(3) {
            self.disk.crash_in(1 + self.below(12));
        }
        self.disk.set_phase("open");
        let engine = match self.open() {
            Ok(engine) => engine,
            Err(error) => {
                assert!(self.disk.is_dead(), "opening failed: {error}");
                self.ended = Ended::Between;
                return self.end();
            }
        };
        if !self.disk.is_dead() {
            self.disk.crash_in(1 + self.below(300));
        }
        self.compare(&engine);
        for _ in 0..self.below(120) {
            self.step(&engine);
            if self.disk.is_dead() {
                break;
            }
        }
        if !self.disk.is_dead() && self.one_in(4) {
            self.disk.set_phase("close");
            self.ended = if engine.close().is_ok() { Ended::Clean } else { Ended::Between };
        }
        drop(engine);
        self.end();
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
        if renewed {
            self.take_over_what_is_left(&engine);
        }
        self.epoch = Some(epoch);
        self.ended = Ended::Crashed;
        Ok(engine)
    }

    fn step(&mut self, engine: &Engine) {
        match self.below(10) {
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
                    assert!(self.disk.is_dead(), "{error}");
                }
            }
            8 => {
                self.disk.set_phase("merge");
                if let Err(error) = engine.merge_step() {
                    assert!(self.disk.is_dead(), "{error}");
                }
            }
            _ => {
                let micros = self.below(20_000).cast_signed() - 2_000;
                self.clock.advance_micros(micros);
            }
        }
        if self.one_in(25) && !self.disk.is_dead() {
            self.compare(engine);
        }
    }

    /// Disturbs nothing, wherever the power fails.
    fn snapshot(&mut self, engine: &Engine) {
        match engine.begin_snapshot("one") {
            Ok(info) => assert!(engine.end_snapshot(&info.id)),
            Err(BackupError::Overloaded) => {}
            Err(error) => assert!(self.disk.is_dead(), "{error}"),
        }
    }

    fn send(&mut self, engine: &Engine) {
        let sent = self.some_messages();
        match engine.apply(&batch(&sent)) {
            Ok(outcomes) => self.model.acknowledged(&sent, &outcomes, self.cutoff()),
            Err(ApplyError::Overloaded) => {}
            Err(ApplyError::Unconfirmed { .. }) => {
                assert!(self.disk.is_dead());
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
                assert!(too_large || self.disk.is_dead(), "{error}");
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
