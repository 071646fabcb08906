//! The suite itself: a right store passes, and every kind of wrong one is found.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use hubbub_core::clock::ManualClock;
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, HoursPage, HoursQuery, PairStats, ParticipationPage,
    RoomStats, Totals, UserHistoryPage, UserHistoryQuery, UserStats,
};
use hubbub_core::store::{
    Access, ApplyError, BatchCap, Cursor, HistoryPage, HistoryQuery, LastMessages, Member, Read, ReadError,
    RoomInfo, StoreFigures, StoreHealth, UserRooms,
};
use hubbub_core::{
    Change, Clock, LogStore, MessageId, Op, OpBatch, Outcome, Refusal, RoomChange, RoomId, RoomStore,
    StatsStore, Store, Timestamp, UserId,
};

use super::model::{KeptMessage, Model, Post};
use super::recount::Recount;
use super::{Fixture, keys, log, queues};

/// Ways to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    ActiveToTheEnd,
    AnybodyMayChange,
    BatchOutOfOrder,
    ClockMayStepBack,
    CountsLate,
    CutsLongTexts,
    ErasesNothing,
    ExpiresEverything,
    ForgetsIdsWhenRestarted,
    ForgetsMembersWhenRestarted,
    ForgetsTheLastWhenRestarted,
    HeadOfThePage,
    HistoryByRoom,
    IdsAreOfAllRooms,
    IdsLeadToOtherRooms,
    IgnoresAutocreate,
    IgnoresCase,
    IncludesTheEnd,
    KeepsWhatExpired,
    KeyChangesForgetDeletions,
    KeyChangesWithoutEnd,
    KeyConditionsHold,
    KeyExpiresLate,
    KeyListsTheExpired,
    KeyPagesRepeat,
    KeyPrefixIsIgnored,
    KeyRevisionsStartAnew,
    KeyTtlIsForgotten,
    KeyTtlStays,
    KeysAreText,
    KeysComeBackWhenRestarted,
    LogErasesEverywhere,
    LogExecutesRepeats,
    LogExecutesRepeatsOfABatch,
    LogForgetsOffsetsWhenRestarted,
    LogHasOneOffset,
    LogIsBypassed,
    LogIsNotCompared,
    LogLeavesErasuresEarly,
    LogSkipsWholeBatches,
    LogStaysAtRefusals,
    LogUsesTheStoresClock,
    LosesUsernames,
    MarksMoveBack,
    MoreWhenFull,
    NeverRefusesAnId,
    NewestFirst,
    NumbersStartAnewAfterDeletion,
    PageOfNothing,
    QueueCopiesToSender,
    QueueDelaysAreIgnored,
    QueueDropsDeadLetters,
    QueueForgetsLeases,
    QueueGroupsRunAhead,
    QueueLeasesEndLate,
    QueueOrderIsLost,
    QueueReceiptsComeBack,
    QueueStaleReceiptsAck,
    QueueTakenComesBack,
    RepeatsUseNumbers,
    RoomsByAge,
    TopByName,
    UnknownRoomIsEmpty,
    UserPagesOverlap,
}

const FLAWS: [Flaw; 31] = [
    Flaw::ActiveToTheEnd,
    Flaw::CountsLate,
    Flaw::HistoryByRoom,
    Flaw::TopByName,
    Flaw::UserPagesOverlap,
    Flaw::AnybodyMayChange,
    Flaw::BatchOutOfOrder,
    Flaw::ClockMayStepBack,
    Flaw::CutsLongTexts,
    Flaw::ErasesNothing,
    Flaw::ExpiresEverything,
    Flaw::KeepsWhatExpired,
    Flaw::ForgetsIdsWhenRestarted,
    Flaw::ForgetsMembersWhenRestarted,
    Flaw::ForgetsTheLastWhenRestarted,
    Flaw::HeadOfThePage,
    Flaw::IdsAreOfAllRooms,
    Flaw::IdsLeadToOtherRooms,
    Flaw::IgnoresAutocreate,
    Flaw::IgnoresCase,
    Flaw::IncludesTheEnd,
    Flaw::LosesUsernames,
    Flaw::MarksMoveBack,
    Flaw::MoreWhenFull,
    Flaw::NeverRefusesAnId,
    Flaw::NewestFirst,
    Flaw::NumbersStartAnewAfterDeletion,
    Flaw::PageOfNothing,
    Flaw::RepeatsUseNumbers,
    Flaw::RoomsByAge,
    Flaw::UnknownRoomIsEmpty,
];

pub(crate) struct InMemory {
    model: Mutex<Model>,
    pub(crate) queues: Mutex<queues::model::Model>,
    pub(crate) keys: Mutex<keys::model::Model>,
    pub(crate) log: Mutex<Option<log::tests::AttachedLog>>,
    pub(crate) clock: Arc<ManualClock>,
    autocreate: bool,
    pub(crate) flaw: Flaw,
}

impl InMemory {
    /// One message, stored as the flaw will have it.
    fn apply_one(&self, model: &mut Model, now: Timestamp, mut post: Post) -> Outcome {
        match self.flaw {
            Flaw::CutsLongTexts => post.text = post.text.chars().take(1 << 20).collect(),
            Flaw::IgnoresCase => post.id.make_ascii_lowercase(),
            Flaw::LosesUsernames => post.username = None,
            _ => {}
        }
        let id = post.id.clone();
        let elsewhere =
            model.rooms.values().flatten().find(|kept| kept.post.id == id && kept.post.room != post.room);
        if let (Flaw::IdsAreOfAllRooms, Some(first)) = (self.flaw, elsewhere) {
            return Outcome::Duplicate(first.receipt());
        }
        let autocreate = self.autocreate || self.flaw == Flaw::IgnoresAutocreate;
        let outcome = model.apply(&[post.clone()], now, autocreate)[0].clone();
        let room = model.rooms.get_mut(&post.room);
        match (self.flaw, &outcome, room) {
            (Flaw::NeverRefusesAnId, Outcome::Refused(_), Some(room)) => {
                Outcome::Duplicate(room.iter().find(|kept| kept.post.id == id).unwrap().receipt())
            }
            (Flaw::ClockMayStepBack, &Outcome::Stored(mut receipt), Some(room)) => {
                receipt.received_at = self.clock.now();
                room.last_mut().unwrap().received_at = receipt.received_at;
                Outcome::Stored(receipt)
            }
            (Flaw::RepeatsUseNumbers, Outcome::Duplicate(_), Some(room)) => {
                room.last_mut().unwrap().seq += 1;
                outcome
            }
            _ => outcome,
        }
    }

    /// One change, made as the flaw will have it.
    fn change_one(&self, model: &mut Model, change: &Change<'_>) -> Outcome {
        let before = model.clone();
        let outcome = model.change(change);
        match (self.flaw, change.what) {
            (Flaw::AnybodyMayChange, _) if matches!(outcome, Outcome::Refused(Refusal::NotMember)) => {
                model.change(&Change { by: None, ..*change })
            }
            (Flaw::MarksMoveBack, RoomChange::MarkRead { room, user, seq }) => {
                if let Some(mark) = model.states.get_mut(room).and_then(|state| state.members.get_mut(user)) {
                    *mark = seq;
                }
                outcome
            }
            (Flaw::NumbersStartAnewAfterDeletion, RoomChange::DeleteRoom { room }) => {
                model.states.remove(room);
                outcome
            }
            (Flaw::ErasesNothing, RoomChange::EraseUser { .. }) => {
                *model = before;
                outcome
            }
            _ => outcome,
        }
    }

    /// One operation on rooms.
    pub(crate) fn apply_op(&self, model: &mut Model, op: Op<'_>, now: Timestamp) -> Outcome {
        match op {
            Op::Send(sent) => {
                let message = hubbub_core::Message { seq: 0, received_at: Timestamp::default(), sent };
                self.apply_one(model, now, KeptMessage::of(&message).post)
            }
            Op::Change(change) => self.change_one(model, &change),
            Op::Queue(_) | Op::Kv(_) => unreachable!("rooms only"),
        }
    }

    fn page(&self, room: &str, query: &HistoryQuery) -> Result<HistoryPage, ReadError> {
        let model = self.model.lock();
        if !model.rooms.contains_key(room) && self.flaw != Flaw::UnknownRoomIsEmpty {
            return Err(ReadError::UnknownRoom);
        }
        let mut query = *query;
        if let (Flaw::IncludesTheEnd, Some(to)) = (self.flaw, query.to) {
            query.to = Some(Timestamp::from_micros(to.as_micros() + 1));
        }
        let mut window = model.window(room, &query);
        let backward = matches!(query.cursor, Cursor::Before(_));
        if backward {
            window.reverse();
        }
        let mut page = HistoryPage::default();
        let mut texts = 0;
        for kept in &window {
            texts += kept.post.text.len();
            let first = page.messages.is_empty() && self.flaw != Flaw::PageOfNothing;
            if page.messages.len() >= query.limit || (!first && texts > query.bytes_max) {
                break;
            }
            page.messages.push(&kept.as_message());
        }
        page.more = page.messages.len() < window.len();
        if self.flaw == Flaw::MoreWhenFull {
            page.more = page.messages.len() >= query.limit;
        }
        if backward && self.flaw != Flaw::NewestFirst {
            page.messages.reverse();
        }
        page.head = model.head(room);
        page.oldest = model.room(room).first().map_or(page.head + 1, |first| first.seq);
        if let (Flaw::HeadOfThePage, Some(last)) = (self.flaw, page.messages.iter().last()) {
            page.head = last.seq;
        }
        Ok(page)
    }
}

impl Store for InMemory {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let mut model = self.model.lock();
        let mut ops: Vec<Op<'_>> = batch.iter().collect();
        if self.flaw == Flaw::BatchOutOfOrder {
            ops.reverse();
        }
        if batch.is_from_log() {
            return log::tests::apply(self, batch, &mut model);
        }
        log::tests::admit(self, &ops)?;
        let now = self.clock.now();
        let one = |op: Op<'_>| match op {
            Op::Send(_) | Op::Change(_) => self.apply_op(&mut model, op, now),
            Op::Queue(op) => queues::tests::apply(self, op),
            Op::Kv(op) => keys::tests::apply(self, op),
        };
        let mut outcomes: Vec<Outcome> = ops.into_iter().map(one).collect();
        if self.flaw == Flaw::BatchOutOfOrder {
            outcomes.reverse();
        }
        Ok(outcomes)
    }

    fn batch_cap(&self) -> BatchCap {
        BatchCap { ops: 1_000, bytes: 1 << 20 }
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Up
    }

    fn figures(&self) -> StoreFigures {
        let model = self.model.lock();
        let messages = model.rooms.values().map(|kept| kept.len() as u64).sum();
        StoreFigures { messages, rooms: model.rooms.len() as u64, ..StoreFigures::default() }
    }

    fn log(&self) -> Option<&dyn LogStore> {
        Some(self)
    }

    fn close(&self) {}
}

impl RoomStore for InMemory {
    fn epoch(&self) -> Arc<str> {
        Arc::from("memory")
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(ready(self.page(room.as_str(), &query)))
    }

    fn seq_of(&self, room: RoomId, id: MessageId) -> Read<'_, Option<u64>> {
        let model = self.model.lock();
        let is_it = |kept: &&KeptMessage| {
            let is_room = kept.post.room == room.as_str() || self.flaw == Flaw::IdsLeadToOtherRooms;
            is_room && kept.post.id == id.as_str()
        };
        let seq = model.rooms.values().flatten().rev().find(is_it).map(|kept| kept.seq);
        Box::pin(ready(Ok(seq)))
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(ready(Ok(self.model.lock().info(room.as_str()))))
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        let model = self.model.lock();
        let behind = |room: &&String| after.as_ref().is_none_or(|after| room.as_str() > after.as_str());
        let mut names: Vec<&String> = model.rooms.keys().filter(behind).collect();
        if self.flaw == Flaw::RoomsByAge {
            names.sort_by_key(|name| model.room(name).first().map(|first| first.received_at));
            names.reverse();
        }
        let infos = names.into_iter().take(limit).filter_map(|name| model.info(name));
        Box::pin(ready(Ok(infos.collect())))
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(ready(Ok(self.model.lock().access(room.as_str(), user.as_str()))))
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        let all = self.model.lock().members(room.as_str()).into_iter();
        let behind = all.filter(|member| after.as_ref().is_none_or(|after| member.user > *after));
        Box::pin(ready(Ok(behind.take(limit).collect())))
    }

    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        wanted: LastMessages,
    ) -> Read<'_, UserRooms> {
        let (mut rooms, kept) = self.model.lock().user_rooms(user.as_str());
        rooms.retain(|room| after.as_ref().is_none_or(|after| room.info.room > *after));
        rooms.truncate(limit);
        let mut last = hubbub_core::MessageRun::default();
        let is_of = |kept: &&KeptMessage| {
            wanted == LastMessages::Read && rooms.iter().any(|room| room.info.room.as_str() == kept.post.room)
        };
        kept.iter().filter(is_of).for_each(|kept| last.push(&kept.as_message()));
        Box::pin(ready(Ok(UserRooms { rooms, last })))
    }

    fn user_room_count(&self, user: UserId, most: usize) -> Read<'_, usize> {
        let (rooms, _) = self.model.lock().user_rooms(user.as_str());
        Box::pin(ready(Ok(rooms.len().min(most))))
    }
}

impl InMemory {
    fn counted<T: Send + 'static>(&self, count: impl FnOnce(&Recount<'_>) -> T) -> Read<'_, Counted<T>> {
        let value = count(&Recount::of(&self.model.lock()));
        Box::pin(ready(Ok(Counted { value, as_of: self.clock.now() })))
    }

    fn user_page(&self, user: &str, mut query: UserHistoryQuery) -> UserHistoryPage {
        if let (Flaw::UserPagesOverlap, Some(before)) = (self.flaw, &mut query.before) {
            before.seq += 1;
        }
        let model = self.model.lock();
        let mut window = Recount::of(&model).user_window(user, &query);
        if self.flaw == Flaw::HistoryByRoom {
            window.sort_by_key(|kept| (kept.post.room.clone(), kept.seq));
        }
        let mut page = UserHistoryPage::default();
        let mut texts = 0;
        for kept in window.iter().rev() {
            texts += kept.post.text.len();
            let is_full = page.messages.len() >= query.limit || texts > query.bytes_max;
            if is_full && !page.messages.is_empty() {
                break;
            }
            page.messages.push(&kept.as_message());
        }
        page.more = page.messages.len() < window.len();
        page.messages.reverse();
        page
    }
}

impl StatsStore for InMemory {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        let mut model = self.model.lock().clone();
        if self.flaw == Flaw::CountsLate {
            model.rooms.values_mut().for_each(|kept| drop(kept.pop()));
        }
        let value = Recount::of(&model).totals();
        Box::pin(ready(Ok(Counted { value, as_of: self.clock.now() })))
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        self.counted(|recount| recount.rooms().into_iter().find(|stats| stats.room == room))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        self.counted(|recount| recount.rooms().into_iter().take(limit).collect())
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        self.counted(|recount| recount.users().into_iter().find(|stats| stats.user == user))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        let by_name = self.flaw == Flaw::TopByName;
        self.counted(|recount| {
            let mut users = recount.users();
            if by_name {
                users.sort_by(|one, other| one.user.cmp(&other.user));
            }
            users.into_iter().take(limit).collect()
        })
    }

    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>> {
        self.counted(|recount| recount.pairs().into_iter().take(limit).collect())
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        self.counted(|recount| recount.hours(&query))
    }

    fn active_users(&self, mut query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        if let (Flaw::ActiveToTheEnd, Some(to)) = (self.flaw, query.to) {
            query.to = Some(Timestamp::from_micros(to.as_micros() + 1));
        }
        self.counted(|recount| recount.active_users(&query))
    }

    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        self.counted(|recount| {
            recount.participation(user.as_str(), after.as_ref().map(RoomId::as_str), limit)
        })
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        Box::pin(ready(Ok(self.user_page(user.as_str(), query))))
    }

    fn audit(&self) -> Read<'_, Counted<Audit>> {
        self.counted(|recount| Audit { messages: recount.totals().messages.total(), differences: Vec::new() })
    }
}

pub(crate) struct Memory {
    store: Arc<InMemory>,
    clock: Arc<ManualClock>,
}

impl Memory {
    pub(crate) fn fresh(flaw: Flaw) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        let store = InMemory {
            model: Mutex::default(),
            queues: Mutex::default(),
            keys: Mutex::default(),
            log: Mutex::default(),
            clock: Arc::clone(&clock),
            autocreate: true,
            flaw,
        };
        Self { store: Arc::new(store), clock }
    }
}

impl Fixture for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn restart(&mut self, autocreate: bool) -> impl Future<Output = ()> + Send {
        let flaw = self.store.flaw;
        let mut model = self.store.model.lock().clone();
        for (n, kept) in model.rooms.values_mut().flatten().enumerate() {
            if flaw == Flaw::ForgetsIdsWhenRestarted {
                kept.post.id = format!("forgotten-{n}");
            }
        }
        if flaw == Flaw::ForgetsTheLastWhenRestarted {
            model.rooms.values_mut().filter(|kept| kept.len() > 1).for_each(|kept| drop(kept.pop()));
        }
        if flaw == Flaw::ForgetsMembersWhenRestarted {
            model.states.values_mut().for_each(|state| state.members.clear());
        }
        let clock = Arc::clone(&self.clock);
        let queues = Mutex::new(queues::tests::restarted(flaw, self.store.queues.lock().clone()));
        let keys = Mutex::new(keys::tests::restarted(flaw, self.store.keys.lock().clone()));
        let log = Mutex::new(log::tests::restarted(flaw, self.store.log.lock().clone()));
        self.store =
            Arc::new(InMemory { model: Mutex::new(model), queues, keys, log, clock, autocreate, flaw });
        ready(())
    }

    fn seal_all(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn expire(&mut self) -> impl Future<Output = ()> + Send {
        let (flaw, now) = (self.store.flaw, self.clock.now().as_micros());
        let mut model = self.store.model.lock();
        let rooms: Vec<_> = model.rooms.keys().cloned().collect();
        for room in &rooms {
            let Some(kept_s) = model.state(room).retention_s else { continue };
            let before = now - i64::try_from(kept_s).unwrap() * 1_000_000;
            match flaw {
                Flaw::KeepsWhatExpired => false,
                Flaw::ExpiresEverything => model.expire(room, Timestamp::from_micros(now)),
                _ => model.expire(room, Timestamp::from_micros(before)),
            };
        }
        ready(())
    }
}

mod a_right_store {
    use super::{Flaw, Memory};

    crate::conformance_tests!(Memory::fresh(Flaw::None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_found() {
    let missed = missed(&FLAWS, |flaw| crate::conformance_tests!(@list each Memory::fresh(flaw))).await;
    assert!(missed.is_empty(), "no case minds {missed:?}");
}

type Case = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// The flaws that no case finds.
pub(crate) async fn missed(flaws: &[Flaw], cases: impl Fn(Flaw) -> Vec<Case>) -> Vec<Flaw> {
    let mut missed = Vec::new();
    for flaw in flaws {
        let mut found = false;
        for (_, case) in cases(*flaw) {
            found |= tokio::spawn(case).await.is_err();
            if found {
                break;
            }
        }
        if !found {
            missed.push(*flaw);
        }
    }
    missed
}
