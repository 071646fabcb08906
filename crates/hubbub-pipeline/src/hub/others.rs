//! What other servers did to the rooms that are followed here.
//!
//! One task ([`follow`]) compares the heads of these rooms with the store, several times a second and with one question
//! for many rooms, reads what is missing, and publishes it. A batch of this server that does not go on from what was
//! published ([`super::run::Fit`]) wakes it at once: whatever is missing is durable already, and the batch is read
//! from the store with it.
//!
//! Whom another server took out of a room, or who followed a room that it deleted, is sent away at the next look; until
//! then they get what this server commits. In a room that everybody may read these are the users who were members when
//! their subscription began, or became so here; guests stay. That somebody became a member elsewhere is seen when the
//! user connects again.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use hubbub_core::RoomId;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Cursor, HistoryQuery, ReadError, RoomHead, RoomStore};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use super::run::{Published, Run, RunBuilder};

/// Time between two looks at the heads, and how much longer than a look it is at least.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_SHARE: u32 = 10;
/// Longest time between two looks while the store does not answer.
const LOOK_LAST: Duration = Duration::from_secs(5);
/// Rooms of one question.
const HEADS_MAX: usize = 1_000;
/// Rooms of which changes are taken in at the same time: the store makes one question of many.
const CHANGES_MAX: usize = 256;
/// Rooms that are read at the same time.
const READS_MAX: usize = 4;
/// A page of what is missing.
const PAGE_MESSAGES: usize = 500;
const PAGE_BYTES: usize = 256 * 1024;

/// Rooms of which messages are missing, as far as somebody noticed.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    rooms: Mutex<HashSet<RoomId>>,
    noted: Notify,
}

impl Behind {
    pub(super) fn note(&self, room: &str) {
        if let Ok(room) = RoomId::new(room) {
            self.rooms.lock().insert(room);
            self.noted.notify_one();
        }
    }

    pub(super) fn take(&self) -> Vec<RoomId> {
        self.rooms.lock().drain().collect()
    }
}

/// Publishes what others commit, until it is aborted.
pub(crate) async fn follow(hub: Arc<Hub>, store: Arc<dyn RoomStore>, clock: Arc<dyn Clock>) {
    let behind = hub.expect_others();
    let mut pause = LOOK_EVERY;
    let mut next = tokio::time::interval(pause);
    loop {
        tokio::select! {
            biased;
            _ = next.tick() => {
                let began = clock.monotonic();
                let looked = hub.look(&*store).await;
                let took = clock.monotonic().saturating_sub(began);
                pause = match looked {
                    Ok(()) => LOOK_EVERY.max(took * LOOK_SHARE).min(LOOK_LAST),
                    Err(_) => (pause * 2).min(LOOK_LAST),
                };
                next.reset_after(pause);
            }
            // What cannot be read now is found missing by the next look.
            () = behind.noted.notified() => drop(hub.catch_up(&*store, behind.take()).await),
        }
    }
}

impl Hub {
    /// Compares all rooms that are followed with the store. A room that cannot be read does not hold up the others; the
    /// first failure is returned.
    pub(super) async fn look(&self, store: &dyn RoomStore) -> Result<(), ReadError> {
        let mut done = Ok(());
        for rooms in self.followed().chunks(HEADS_MAX) {
            let heads = store.heads(rooms.iter().map(|(room, _)| room.clone()).collect()).await?;
            let heads: HashMap<&RoomId, &RoomHead> = heads.iter().map(|head| (&head.room, head)).collect();
            // Before new messages: whoever was sent away gets none of them.
            let changed = rooms.iter().filter_map(|(room, was_there)| {
                let head = heads.get(room).copied();
                (self.has_changed(room, head) || *was_there && head.is_none()).then_some((room, head))
            });
            let taking = changed.map(|(room, head)| self.take_change(room, head, store)).collect::<Vec<_>>();
            let taken = stream::iter(taking).buffer_unordered(CHANGES_MAX);
            done = done.and(taken.fold(Ok(()), |done, taken| ready(done.and(taken))).await);
            let is_behind = |room: &RoomId| {
                let (head, through) = (heads.get(room)?, self.through(room)?);
                Some(through < head.head)
            };
            let behind = rooms.iter().map(|(room, _)| room).filter(|room| is_behind(room) == Some(true));
            done = done.and(self.catch_up(store, behind.cloned().collect()).await);
        }
        done
    }

    /// The rooms that are followed, and whether they are known to have had messages.
    fn followed(&self) -> Vec<(RoomId, bool)> {
        let mut rooms = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            rooms.extend(
                shard.iter().map(|(room, channel)| (room.clone(), channel.published.through > Some(0))),
            );
        }
        rooms
    }

    fn through(&self, room: &RoomId) -> Option<u64> {
        self.with_channel(room.as_str(), |channel| channel.published.through)?
    }

    /// Whether something but new messages changed since the last change that was taken in.
    fn has_changed(&self, room: &RoomId, head: Option<&RoomHead>) -> bool {
        let changes = head.map(|head| head.changes);
        self.with_channel(room.as_str(), |channel| channel.changes != changes).unwrap_or(false)
    }

    /// Takes in what changed. After an error the next look does so.
    async fn take_change(
        &self,
        room: &RoomId,
        head: Option<&RoomHead>,
        store: &dyn RoomStore,
    ) -> Result<(), ReadError> {
        let Some(head) = head else {
            self.with_channel(room.as_str(), |channel| {
                (channel.published, channel.changes) = (Published::default(), None)
            });
            self.end(room.as_str(), |_| true);
            return Ok(());
        };
        let users = self.with_channel(room.as_str(), |channel| {
            // Some of its messages may have been erased.
            channel.drop_held(room.as_str());
            if head.members_only { channel.users() } else { channel.members() }
        });
        let access = |room, user| store.access(room, user);
        self.end_removed(room, users.unwrap_or_default(), &access).await?;
        self.with_channel(room.as_str(), |channel| channel.changes = Some(head.changes));
        Ok(())
    }

    /// Reads what is missing of these rooms, as far as they can be read, and publishes it.
    pub(super) async fn catch_up(&self, store: &dyn RoomStore, rooms: Vec<RoomId>) -> Result<(), ReadError> {
        let reading = stream::iter(rooms).map(|room| self.read_on(store, room));
        reading.buffer_unordered(READS_MAX).fold(Ok(()), |done, read| ready(done.and(read))).await
    }

    async fn read_on(&self, store: &dyn RoomStore, room: RoomId) -> Result<(), ReadError> {
        while let Some(after) = self.through(&room) {
            let cursor = Cursor::After(after);
            let query =
                HistoryQuery { cursor, from: None, to: None, limit: PAGE_MESSAGES, bytes_max: PAGE_BYTES };
            let page = match store.history(room.clone(), query).await {
                // Deleted, which the next look sees.
                Err(ReadError::UnknownRoom) => return Ok(()),
                page => page?,
            };
            let mut run = RunBuilder::default();
            let mut last = after;
            for message in page.messages.iter() {
                last = message.seq;
                run.push(message.seq, |out| (self.encode.message)(&message, out));
            }
            // Beyond the last message there may be numbers of erased ones.
            let through = if page.more { last } else { last.max(page.head) };
            self.deliver_read(&room, (after, page.oldest), run.finish(&self.memory), through);
            if !page.more {
                break;
            }
        }
        Ok(())
    }

    /// Delivers all there is behind `after` and up to `through`, as far as that was not published meanwhile. What is older
    /// than `oldest` is not there any more.
    fn deliver_read(&self, room: &RoomId, (after, oldest): (u64, u64), run: Option<Run>, through: u64) {
        self.with_channel(room.as_str(), |channel| {
            // Less than `after`: it is followed anew, and read from there.
            let Some(published) = channel.published.through.filter(|published| *published >= after) else {
                return;
            };
            if published.saturating_add(1) < oldest {
                channel.pass_over(room.as_str(), oldest);
            }
            if let Some(run) = run.and_then(|run| run.beyond(published)) {
                self.push(channel, room.as_str(), run);
            }
            channel.published.through = Some(published.max(through));
        });
        self.memory.relieve();
    }
}
