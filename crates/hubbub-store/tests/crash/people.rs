//! Rooms, members, read marks, deletion and erasure over crashes: what was acknowledged is there, exactly, and the
//! batch of a crash is there as a whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use hubbub_conformance::model::{KeptMessage, Model, Post};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery, LastMessages};
use hubbub_core::{Change, Clock, Op, OpBatch, Outcome, RandomSource, RoomChange, RoomSettings, Timestamp};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Engine, EngineOptions, MergeOptions};

const ROOMS: [&str; 3] = ["r0", "r1", "r2"];
const USERS: [&str; 3] = ["u0", "u1", "u2"];

/// An operation that can be kept.
#[derive(Debug, Clone)]
enum Step {
    Send(Post),
    Change(Change<'static>),
}

pub(crate) struct People {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    random: SeededRandom,
    options: EngineOptions,
    /// What must be there.
    model: Model,
    /// What may be there instead, since nobody knows what became of the last batch.
    or: Option<Model>,
    next_id: u64,
    /// Whether the engine at hand is one of an earlier life.
    is_over: bool,
}

impl People {
    pub(crate) fn new(seed: u64, disk: SimDisk) -> Self {
        let random = SeededRandom::new(seed);
        let options = EngineOptions {
            slot_bytes: (4 * 1024) << (random.next_u64() % 4),
            block_cache_bytes: 1 << 20,
            reserve_bytes: 0,
            merge: MergeOptions { segments_max: 2, fan_in: 2, bytes_max: 1 << 30 },
            scrub_interval: Duration::ZERO,
            ..EngineOptions::default()
        };
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self { disk, clock, random, options, model: Model::default(), or: None, next_id: 0, is_over: false }
    }

    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn pick(&self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len() as u64) as usize]
    }

    /// Several lives of one data directory.
    pub(crate) fn all(mut self) {
        for _ in 0..4 {
            self.life();
        }
        self.disk.set_phase("open");
        let engine = self.open().expect("nothing stands in the way of the last start");
        self.compare(&engine);
    }

    fn open(&self) -> Option<Engine> {
        let clock = Arc::clone(&self.clock);
        let engine = Engine::open(self.options.clone(), Arc::new(self.disk.clone()), clock, &self.random);
        match engine {
            Ok(engine) => Some(engine),
            Err(error) => {
                assert!(self.disk.is_dead(), "opening failed: {error}");
                None
            }
        }
    }

    fn life(&mut self) {
        if self.below(3) == 0 {
            self.disk.crash_in(1 + self.below(12));
        }
        self.disk.set_phase("open");
        if let Some(engine) = self.open() {
            if !self.disk.is_dead() {
                self.disk.crash_in(1 + self.below(250));
            }
            self.compare(&engine);
            for _ in 0..self.below(100) {
                self.step(&engine);
                if self.disk.is_dead() || std::mem::take(&mut self.is_over) {
                    break;
                }
            }
        }
        if self.below(4) == 0 {
            self.disk.kill();
        } else {
            self.disk.crash(self.random.next_u64());
        }
    }

    fn step(&mut self, engine: &Engine) {
        match self.below(10) {
            0 => {
                self.disk.set_phase("seal");
                assert!(engine.seal_step().is_ok() || self.disk.is_dead());
            }
            1 => {
                self.disk.set_phase("merge");
                assert!(engine.merge_step().is_ok() || self.disk.is_dead());
            }
            2 => {
                self.clock.advance_micros(1_000);
            }
            _ => {
                self.disk.set_phase("apply");
                let steps = self.some_steps();
                self.apply(engine, &steps);
            }
        }
        if self.below(10) == 0 && !self.disk.is_dead() && !self.is_over {
            self.compare(engine);
        }
    }

    fn some_steps(&mut self) -> Vec<Step> {
        let by = |run: &Self, user| (run.below(3) > 0).then_some(user);
        if self.below(8) == 0 {
            let (room, user) = (self.pick(&ROOMS), self.pick(&USERS));
            let what = match self.below(4) {
                0 => RoomChange::DeleteRoom { room },
                1 => RoomChange::EraseUser { user },
                _ => {
                    let title = Some(self.pick(&["", "Team", "Ünal"]));
                    let members_only = Some(self.below(4) == 0);
                    RoomChange::PutRoom {
                        room,
                        settings: RoomSettings { title, members_only, retention_s: None },
                    }
                }
            };
            return vec![Step::Change(Change { by: by(self, user), what })];
        }
        let mut steps = Vec::new();
        for _ in 0..1 + self.below(8) {
            let (room, user) = (self.pick(&ROOMS), self.pick(&USERS));
            let what = match self.below(8) {
                0 => RoomChange::AddMember { room, user },
                1 => RoomChange::RemoveMember { room, user },
                2 | 3 => RoomChange::MarkRead { room, user, seq: self.below(self.model.head(room) + 2) },
                _ => {
                    // Ids come again, also those of erased messages.
                    let again = self.below(6) == 0;
                    let id = if again { self.below(self.next_id + 1) } else { self.next_id };
                    self.next_id += u64::from(!again);
                    steps.push(Step::Send(Post::new(room, &format!("m{id}")).user(user)));
                    continue;
                }
            };
            steps.push(Step::Change(Change { by: by(self, user), what }));
        }
        steps
    }

    fn apply(&mut self, engine: &Engine, steps: &[Step]) {
        let mut batch = OpBatch::default();
        for step in steps {
            match step {
                Step::Send(post) => batch.push(&Op::Send(post.as_send())),
                Step::Change(change) => batch.push(&Op::Change(*change)),
            }
        }
        let mut next = self.model.clone();
        let now = self.clock.now();
        let expected: Vec<Outcome> = steps
            .iter()
            .map(|step| match step {
                Step::Send(post) => next.apply(std::slice::from_ref(post), now, true)[0].clone(),
                Step::Change(change) => next.change(change),
            })
            .collect();
        match engine.apply(&batch) {
            Ok(outcomes) => {
                if let ([Outcome::Erased { more: true, .. }], [Outcome::Erased { .. }]) =
                    (&outcomes[..], &expected[..])
                {
                    // The model erases all at once, so what stands in between is not looked at.
                    return self.apply_rest(engine, &batch, next);
                }
                if let ([Outcome::Erased { .. }], [Outcome::Erased { .. }]) = (&outcomes[..], &expected[..]) {
                    assert!(matches!(outcomes[0], Outcome::Erased { more: false, .. }));
                } else {
                    assert_eq!(outcomes, expected, "{steps:?}");
                }
                self.model = next;
            }
            Err(error) => {
                assert!(self.disk.is_dead() || error.to_string().contains("behind"), "{error}");
                if self.disk.is_dead() {
                    self.or = Some(next);
                    if matches!(expected[..], [Outcome::Erased { .. }]) {
                        self.interrupted();
                    }
                }
            }
        }
    }

    /// Goes on erasing until nothing is left. Where that is interrupted, what is left is asked of the next life.
    fn apply_rest(&mut self, engine: &Engine, batch: &OpBatch, next: Model) {
        for _ in 0..1_000 {
            self.disk.set_phase("seal");
            while engine.seal_step().unwrap_or(false) {}
            self.disk.set_phase("apply");
            match engine.apply(batch) {
                Ok(outcomes) if matches!(outcomes[0], Outcome::Erased { more: false, .. }) => {
                    self.model = next;
                    return;
                }
                _ if self.disk.is_dead() => break,
                _ => {}
            }
        }
        assert!(self.disk.is_dead(), "erasing does not come to an end");
        self.or = Some(next);
        self.interrupted();
    }

    /// An erasure that was cut off midway leaves a state that is neither; the rest of it is done at the next start.
    fn interrupted(&mut self) {
        self.is_over = true;
        if self.below(4) == 0 {
            self.disk.kill();
        } else {
            self.disk.crash(self.random.next_u64());
        }
        self.disk.set_phase("open");
        let engine = self.open().expect("nothing stands in the way of this start");
        let Some(next) = self.or.take() else { return };
        let gone = |user: &&&str| {
            self.model.rooms.iter().any(|(room, kept)| {
                let sent = |all: &[KeptMessage]| all.iter().filter(|kept| kept.post.user == **user).count();
                sent(kept) > sent(next.room(room))
            })
        };
        let Some(user) = USERS.iter().find(gone) else {
            // Only memberships end, which one operation does.
            self.or = Some(next);
            return;
        };
        let mut batch = OpBatch::default();
        batch.push(&Op::Change(Change { by: None, what: RoomChange::EraseUser { user } }));
        for _ in 0..1_000 {
            while engine.seal_step().unwrap_or(false) {}
            if let Ok(outcomes) = engine.apply(&batch)
                && matches!(outcomes[0], Outcome::Erased { more: false, .. })
            {
                self.model = next;
                return;
            }
        }
        panic!("erasing does not come to an end");
    }

    /// The engine holds one of the two, in everything it tells.
    fn compare(&mut self, engine: &Engine) {
        if self.disk.is_dead() {
            return;
        }
        let Some(or) = self.or.take() else { return check(engine, &self.model) };
        if seen(engine) == described(&or) {
            self.model = or;
        }
        check(engine, &self.model);
    }
}

/// Everything rooms and users are told, as text.
fn seen(engine: &Engine) -> String {
    let mut all = String::new();
    for room in ROOMS {
        let query = HistoryQuery {
            cursor: Cursor::After(0),
            from: None,
            to: None,
            limit: usize::MAX,
            bytes_max: usize::MAX,
        };
        let kept: Vec<KeptMessage> = engine
            .history(room, &query)
            .map(|page| page.messages.iter().map(|message| KeptMessage::of(&message)).collect())
            .unwrap_or_default();
        all += &format!("{room} {:?} {kept:?} {:?}\n", engine.room(room), engine.members(room, None, 99));
    }
    for user in USERS {
        let rooms = engine.user_rooms(user, None, 99, LastMessages::Read).unwrap();
        let last: Vec<KeptMessage> = rooms.last.iter().map(|message| KeptMessage::of(&message)).collect();
        all += &format!("{user} {:?} {last:?}\n", rooms.rooms);
    }
    all
}

/// The same of the model.
fn described(model: &Model) -> String {
    let mut all = String::new();
    for room in ROOMS {
        let members = if model.rooms.contains_key(room) { model.members(room) } else { Vec::new() };
        all += &format!("{room} {:?} {:?} {members:?}\n", model.info(room), model.room(room));
    }
    for user in USERS {
        let (rooms, last) = model.user_rooms(user);
        all += &format!("{user} {rooms:?} {last:?}\n");
    }
    all
}

fn check(engine: &Engine, model: &Model) {
    let (seen, described) = (seen(engine), described(model));
    for (seen, described) in seen.lines().zip(described.lines()) {
        assert_eq!(seen, described);
    }
}
