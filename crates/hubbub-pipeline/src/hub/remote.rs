//! Publishes what other servers commit to the followed rooms of a shared store.
//!
//! One task ([`follow_remote`]) compares the heads of these rooms with the store, several times a second and with one
//! query for many rooms, then reads and publishes the missing messages. A batch of this server behind a gap wakes it at
//! once: the missing messages are durable already, and the batch is read from the store together with them. So does a hint
//! of the store that other servers changed rooms, if it has any; the poll finds what no hint named.
//!
//! Subscriptions of users whom another server removed, and of rooms that it deleted, end at the next poll, and before any
//! page that was read from the store after that is delivered. In an open room this concerns users who were members when
//! their subscription began, or became members here; guests stay. One whom another server makes a member is still a guest
//! for the subscription that there is. Sockets that follow all rooms of a user are notified of such a room ([`super::joins`]).
//!
//! Without a bus they get until then what this server commits. A bus brings changes among the messages, but only those
//! written since it is read. So nothing that it brings, or that this server commits, is delivered in a room before the room
//! was compared with the store since then (`Channel::is_compared`).

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
#[cfg(feature = "kafka")]
use hubbub_core::Message;
use hubbub_core::RoomId;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, Cursor, HistoryQuery, ReadError, RemoteChanges, RoomHead, RoomStore};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use super::channel::Channel;
use super::encoded::{ChunkEncoder, EncodedChunk};
use crate::timeline::Source;

/// Pause between two polls of the heads. It is at least `POLL_SHARE` times as long as the last poll took.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const POLL_SHARE: u32 = 10;
/// Longest pause while the store does not answer.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// After a hint of the store was followed, the next one waits this many times as long as that took. So at most half of the
/// time is spent on hints. The same holds for what may have been missed.
const HINT_SHARE: u32 = 1;
const HEADS_MAX: usize = 1_000;
/// Rooms whose changes are applied at the same time: the store merges their queries.
const CHANGES_MAX: usize = 256;
const READS_MAX: usize = 4;
/// Where a bus brings what others commit, the store is read once a room has been behind for more polls than this.
const BUS_POLLS: u64 = 3;
/// Pages of missing messages that are read of a room at a time: others wait meanwhile, and heads are not compared.
const PAGES_MAX: usize = 8;
/// Rooms that are asked about one by one at the same time, where asking about many failed; and after how many failures, and
/// nothing else, the store is taken to be away.
const SINGLES_AT_ONCE: usize = 16;
const FAILURES_MAX: usize = 8;
/// Bounds of one page of missing messages.
const PAGE_MESSAGES: usize = 500;
const PAGE_BYTES: usize = 256 * 1024;

/// Rooms in which a gap was noticed.
#[derive(Debug, Default)]
pub(crate) struct RoomsBehind {
    rooms: Mutex<HashSet<RoomId>>,
    signal: Notify,
    /// Whether a bus brings what other servers commit.
    pub(super) has_bus: AtomicBool,
    polls: AtomicU64,
    /// How often changes may have been missed.
    misses: AtomicU64,
    missed: Notify,
}

impl RoomsBehind {
    pub(super) fn insert(&self, room: &str) {
        if let Ok(room) = RoomId::new(room) {
            self.rooms.lock().insert(room);
            self.signal.notify_one();
        }
    }

    pub(super) fn take(&self) -> Vec<RoomId> {
        self.rooms.lock().drain().collect()
    }
}

/// Publishes other servers' commits until the task is aborted.
pub(crate) async fn follow_remote(hub: Arc<Hub>, store: Arc<dyn RoomStore>, clock: Arc<dyn Clock>) {
    let behind = hub.enable_remote();
    let mut pause = POLL_INTERVAL;
    let mut next = tokio::time::interval(pause);
    let next_changes = async |rest: Duration| {
        tokio::time::sleep(rest).await;
        store.remote_changes().await
    };
    let mut changes = Box::pin(next_changes(Duration::ZERO));
    let next_miss = async |rest: Duration| {
        tokio::time::sleep(rest).await;
        behind.missed.notified().await;
    };
    let mut missing = Box::pin(next_miss(Duration::ZERO));
    loop {
        tokio::select! {
            biased;
            _ = next.tick() => {
                // A longer pause was time enough for the bus, too.
                let pauses = u64::try_from(pause.as_millis() / POLL_INTERVAL.as_millis()).unwrap_or(1);
                behind.polls.fetch_add(pauses.saturating_sub(1), Relaxed);
                let began = clock.monotonic();
                let polled = hub.poll_heads(&*store).await;
                let took = clock.monotonic().saturating_sub(began);
                pause = match polled {
                    Ok(()) => POLL_INTERVAL.max(took * POLL_SHARE).min(POLL_INTERVAL_MAX),
                    Err(_) => (pause * 2).min(POLL_INTERVAL_MAX),
                };
                next.reset_after(pause);
            }
            // Many rooms with one query, before their messages are read from the store room by room.
            () = &mut missing => {
                let began = clock.monotonic();
                drop(hub.compare_heads(&*store, hub.followed_where(|channel| !channel.is_compared)).await);
                let took = clock.monotonic().saturating_sub(began);
                missing.set(next_miss((took * HINT_SHARE).min(POLL_INTERVAL_MAX)));
                drop(hub.catch_up(&*store, behind.take()).await);
            }
            // Rooms that cannot be read now are found again by the next poll.
            () = behind.signal.notified() => drop(hub.catch_up(&*store, behind.take()).await),
            changed = &mut changes => {
                let began = clock.monotonic();
                // Rooms that cannot be read now are found again by the next poll.
                let _ = match changed {
                    RemoteChanges::Rooms(rooms) => hub.compare_heads(&*store, hub.followed_of(rooms)).await,
                    RemoteChanges::Any => hub.poll_heads(&*store).await,
                };
                let took = clock.monotonic().saturating_sub(began);
                changes.set(next_changes((took * HINT_SHARE).min(POLL_INTERVAL_MAX)));
            }
        }
    }
}

/// Heads of rooms, those that are there.
struct Heads<'a> {
    /// The rooms that were asked about, each with whether it is known to have had messages.
    known: Vec<&'a (RoomId, bool)>,
    heads: Vec<RoomHead>,
    /// Why others could not be asked about.
    unread: Option<ReadError>,
}

/// Asks for the heads of rooms. One that cannot be read does not hide the others; fails if the store seems to be away.
async fn heads_of<'a>(store: &dyn RoomStore, rooms: &'a [(RoomId, bool)]) -> Result<Heads<'a>, ReadError> {
    let error = match store.heads(rooms.iter().map(|(room, _)| room.clone()).collect()).await {
        Ok(heads) => return Ok(Heads { known: rooms.iter().collect(), heads, unread: None }),
        Err(error) if rooms.len() == 1 => return Err(error),
        Err(error) => error,
    };
    let (mut found, mut failures) = (Heads { known: Vec::new(), heads: Vec::new(), unread: Some(error) }, 0);
    let asking = rooms.iter().map(async |room| (store.heads(vec![room.0.clone()]).await, room));
    let asking = stream::iter(asking.collect::<Vec<_>>());
    let mut asking = std::pin::pin!(asking.buffer_unordered(SINGLES_AT_ONCE));
    while let Some((heads, room)) = asking.next().await {
        match heads {
            Ok(heads) => {
                found.heads.extend(heads);
                found.known.push(room);
            }
            Err(error) => {
                failures += 1;
                if failures >= FAILURES_MAX && found.known.is_empty() {
                    return Err(error);
                }
            }
        }
    }
    Ok(found)
}

impl Hub {
    /// A bus brings what other servers commit: the store is read only behind gaps, and for what the bus has lost.
    #[cfg(feature = "kafka")]
    pub(crate) fn expect_bus(&self) {
        self.enable_remote().has_bus.store(true, Relaxed);
    }

    /// Publishes messages of one room that another server committed, in the order of their seqs. What lies behind a gap is
    /// read from the store. `produce` passes each message to its argument, with the seq of the room's message before it.
    #[cfg(feature = "kafka")]
    pub(crate) fn publish_remote(&self, room: &str, produce: impl FnOnce(&mut dyn FnMut(u64, &Message<'_>))) {
        let mut encoder = ChunkEncoder::default();
        produce(&mut |prev, message| {
            encoder.push_behind(prev, message.seq, |out| (self.encoder.message)(message, out));
        });
        self.deliver(room, Some(encoder), Source::Bus, self.epoch_number());
        self.memory.enforce_bound();
    }

    /// Changes of one room, or of any, may have been missed here.
    pub(super) fn expect_comparison(&self, room: Option<&str>) {
        let (Some(room), Some(behind)) = (room, self.behind.get()) else {
            return self.may_have_missed(|_| true);
        };
        let miss = behind.misses.fetch_add(1, SeqCst) + 1;
        if self.with_channel(room, |channel| channel.expect_comparison(miss)).is_some() {
            behind.missed.notify_one();
        }
    }

    /// Changes of these rooms may have been missed here: until each was compared with the store, its messages come from there.
    /// Call it before what follows those changes is published, and once they are in the store.
    pub(crate) fn may_have_missed(&self, is_concerned: impl Fn(&RoomId) -> bool) {
        let Some(behind) = self.behind.get() else { return };
        let miss = behind.misses.fetch_add(1, SeqCst) + 1;
        let mut is_any_concerned = false;
        for shard in &self.shards {
            for (_, channel) in shard.lock().iter_mut().filter(|(room, _)| is_concerned(room)) {
                channel.expect_comparison(miss);
                is_any_concerned = true;
            }
        }
        if is_any_concerned {
            behind.missed.notify_one();
        }
    }

    pub(super) fn misses(&self) -> u64 {
        self.behind.get().map_or(0, |behind| behind.misses.load(SeqCst))
    }

    /// Passes each followed room, and each user of whom a socket follows all rooms.
    #[cfg(feature = "kafka")]
    pub(crate) fn each_followed(&self, mut each: impl FnMut(&str)) {
        for shard in &self.shards {
            shard.lock().keys().for_each(|room| each(room.as_str()));
        }
        self.sockets.each_following_all(|user| each(user.as_str()));
    }

    /// Compares all followed rooms with the store, and publishes what is missing. A room that cannot be read does not
    /// delay the others; the first error is returned.
    pub(super) async fn poll_heads(&self, store: &dyn RoomStore) -> Result<(), ReadError> {
        if let Some(behind) = self.behind.get() {
            behind.polls.fetch_add(1, Relaxed);
        }
        self.compare_heads(store, self.followed()).await
    }

    /// The same for these rooms, each with whether it is known to have had messages.
    async fn compare_heads(
        &self,
        store: &dyn RoomStore,
        rooms: Vec<(RoomId, bool)>,
    ) -> Result<(), ReadError> {
        let mut done = Ok(());
        for rooms in rooms.chunks(HEADS_MAX) {
            let (misses, attached) = (self.misses(), self.attached.load(SeqCst));
            let Heads { known: rooms, heads, unread } = heads_of(store, rooms).await?;
            done = done.and(unread.map_or(Ok(()), Err));
            let heads: HashMap<&RoomId, &RoomHead> = heads.iter().map(|head| (&head.room, head)).collect();
            // Before new messages: a removed user gets none of them.
            let changed = rooms.iter().filter_map(|(room, was_there)| {
                let head = heads.get(room).copied();
                (self.has_changed(room, head) || *was_there && head.is_none()).then_some((room, head))
            });
            let taking = changed
                .map(|(room, head)| self.apply_change(room, head, store, attached))
                .collect::<Vec<_>>();
            let taken = stream::iter(taking).buffer_unordered(CHANGES_MAX);
            done = done.and(taken.fold(Ok(()), |done, taken| ready(done.and(taken))).await);
            rooms.iter().for_each(|(room, _)| self.set_compared(room, heads.get(room).copied(), misses));
            let is_behind =
                |room: &RoomId| heads.get(room).is_some_and(|head| self.is_behind(room, head.head));
            let behind = rooms.iter().map(|(room, _)| room).filter(|room| is_behind(room));
            done = done.and(self.catch_up(store, behind.cloned().collect()).await);
        }
        done
    }

    /// The followed rooms, and whether each is known to have had messages.
    fn followed(&self) -> Vec<(RoomId, bool)> {
        self.followed_where(|_| true)
    }

    /// Those of which this is true.
    fn followed_where(&self, is_wanted: impl Fn(&Channel) -> bool) -> Vec<(RoomId, bool)> {
        let mut rooms = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let wanted = shard.iter().filter(|(_, channel)| is_wanted(channel));
            rooms.extend(wanted.map(|(room, channel)| (room.clone(), channel.published.through > Some(0))));
        }
        rooms
    }

    /// Those of `rooms` that are followed.
    fn followed_of(&self, rooms: Vec<RoomId>) -> Vec<(RoomId, bool)> {
        let was_there =
            |room: &RoomId| self.with_channel(room.as_str(), |channel| channel.published.through > Some(0));
        rooms.into_iter().filter_map(|room| was_there(&room).map(|was_there| (room, was_there))).collect()
    }

    /// Whether messages up to `head` are to be read from the store, because the bus, if there is one, has had its time.
    fn is_behind(&self, room: &RoomId, head: u64) -> bool {
        let Some(behind) = self.behind.get() else { return false };
        let polls = behind.polls.load(Relaxed);
        let is_subscribed = self.relay.get().is_none_or(|relay| relay.is_subscribed(room.as_str()));
        let grace = if behind.has_bus.load(Relaxed) && is_subscribed { BUS_POLLS } else { 0 };
        let is_behind = |channel: &mut Channel| {
            let through = channel.published.through?;
            if through >= head {
                channel.awaited = None;
                return Some(false);
            }
            let awaited = channel.awaited.filter(|(awaited, _)| through < *awaited).unwrap_or((head, polls));
            channel.awaited = Some(awaited);
            Some(polls.saturating_sub(awaited.1) >= grace)
        };
        self.with_channel(room.as_str(), is_behind).flatten().unwrap_or(false)
    }

    fn through(&self, room: &RoomId) -> Option<u64> {
        self.with_channel(room.as_str(), |channel| channel.published.through)?
    }

    /// Whether the room changed, apart from new messages, since the last change that was applied.
    fn has_changed(&self, room: &RoomId, head: Option<&RoomHead>) -> bool {
        let changes = head.map(|head| head.changes);
        self.with_channel(room.as_str(), |channel| channel.changes != changes).unwrap_or(false)
    }

    /// The room was compared with the store, after this many misses. It counts if all changes were applied, and the bus brings
    /// all further ones.
    pub(super) fn set_compared(&self, room: &RoomId, head: Option<&RoomHead>, misses: u64) {
        let changes = head.map(|head| head.changes);
        self.with_channel(room.as_str(), |channel| {
            if channel.is_compared {
                return;
            }
            // A comparison that began before the room's last miss counts for nothing.
            let is_current = || {
                misses >= channel.missed
                    && self.relay.get().is_none_or(|relay| relay.is_subscribed(room.as_str()))
            };
            channel.is_compared = channel.changes == changes && is_current();
        });
    }

    /// Applies what changed until now in a room that was there just before. Fails if that is not known.
    pub(super) async fn compare(&self, store: &dyn RoomStore, room: &RoomId) -> Result<(), ReadError> {
        let (misses, attached) = (self.misses(), self.attached.load(SeqCst));
        let heads = store.heads(vec![room.clone()]).await?;
        let head = heads.first();
        if head.is_none() || self.has_changed(room, head) {
            self.apply_change(room, head, store, attached).await?;
        }
        self.set_compared(room, head, misses);
        Ok(())
    }

    /// Applies a change of the room or its members. After an error the next poll does so. `attached` had subscribed when the head
    /// was asked for: where the room is gone, later ones are in another of the same name.
    async fn apply_change(
        &self,
        room: &RoomId,
        head: Option<&RoomHead>,
        store: &dyn RoomStore,
        attached: u64,
    ) -> Result<(), ReadError> {
        let Some(head) = head else {
            self.end(room.as_str(), |subscriber| subscriber.number < attached);
            self.with_channel(room.as_str(), Channel::begin_again);
            return Ok(());
        };
        let users = self.with_channel(room.as_str(), |channel| {
            // Some of the held messages may have been erased.
            channel.drop_held(room.as_str());
            if head.members_only { channel.users() } else { channel.members() }
        });
        let access = |room, user| store.access(room, user);
        let is_over = |access: &Result<Access, _>| !matches!(access, Ok(Access::Member { .. }) | Err(_));
        self.end_removed(room, users.unwrap_or_default(), &access, is_over).await?;
        self.with_channel(room.as_str(), |channel| channel.changes = Some(head.changes));
        Ok(())
    }

    /// Reads and publishes the missing messages of these rooms; a room that cannot be read is skipped.
    pub(super) async fn catch_up(&self, store: &dyn RoomStore, rooms: Vec<RoomId>) -> Result<(), ReadError> {
        let reading = stream::iter(rooms).map(|room| self.read_missing(store, room));
        reading.buffer_unordered(READS_MAX).fold(Ok(()), |done, read| ready(done.and(read))).await
    }

    async fn read_missing(&self, store: &dyn RoomStore, room: RoomId) -> Result<(), ReadError> {
        for _ in 0..PAGES_MAX {
            let epoch_number = self.epoch_number();
            let Some(after) = self.through(&room) else { return Ok(()) };
            let cursor = Cursor::After(after);
            let query =
                HistoryQuery { cursor, from: None, to: None, limit: PAGE_MESSAGES, bytes_max: PAGE_BYTES };
            let page = match store.history(room.clone(), query).await {
                // Deleted; the next poll ends its subscriptions.
                Err(ReadError::UnknownRoom) => return Ok(()),
                page => page?,
            };
            // After the page, so that whoever was removed before a message of it gets none of the page.
            self.compare(store, &room).await?;
            self.metrics.live_read_backs.inc();
            let mut encoder = ChunkEncoder::default();
            let mut last = after;
            for message in page.messages.iter() {
                last = message.seq;
                encoder.push(message.seq, |out| (self.encoder.message)(&message, out));
            }
            // Numbers behind the last message may belong to erased ones.
            let through = if page.more { last } else { last.max(page.head) };
            self.deliver_read(&room, (after, page.oldest), self.finish(encoder), through, epoch_number);
            if !page.more {
                return Ok(());
            }
        }
        // It goes on behind the others.
        self.behind.get().iter().for_each(|behind| behind.insert(room.as_str()));
        Ok(())
    }

    /// Delivers the messages behind `after` and up to `through` that were not published meanwhile, if they are still of this
    /// epoch of the store. Messages before `oldest` are not kept any more.
    fn deliver_read(
        &self,
        room: &RoomId,
        (after, oldest): (u64, u64),
        chunk: Option<EncodedChunk>,
        through: u64,
        epoch_number: u64,
    ) {
        self.with_channel(room.as_str(), |channel| {
            if self.epoch_number() != epoch_number {
                return;
            }
            // Less than `after`: the room is followed anew, and read from there.
            let Some(published) = channel.published.through.filter(|published| *published >= after) else {
                return;
            };
            if published.saturating_add(1) < oldest {
                channel.skip_to(room.as_str(), oldest);
            }
            if let Some(chunk) = chunk {
                self.push(channel, room.as_str(), &chunk.after(published), Source::Store);
            }
            channel.published.through = Some(published.max(through));
        });
        self.memory.enforce_bound();
    }
}
