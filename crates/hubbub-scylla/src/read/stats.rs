//! Statistics, from the counts that every message moves: of each sender in each room, and of those in each hour.
//!
//! What concerns one room or one user reads their rows. What concerns all reads the senders of all rooms, once for as long
//! as no partition of the log moves on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, FirstLast, HoursPage, HoursQuery, PairStats,
    Participation, ParticipationPage, RoomStats, StatsStore, Totals, TypeCounts, UserHistoryPage,
    UserHistoryQuery, UserStats,
};
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{LogStore, RoomId, Timestamp, UserId};
use tokio::sync::Mutex;

use super::rooms::{room_id, user_id};
use super::user_history::user_history;
use super::{audit, hours};
use crate::counts::{self, SenderRow};
use crate::db::{DbError, PAGE_ROWS, Result};
use crate::state::{self, Counts};
use crate::store::Scylla;

/// Rooms of a user that are read at the same time.
const ROOMS_AT_ONCE: usize = 32;
/// More pairs are not kept in memory between two questions: 80 MB.
const PAIRS_KEPT_MAX: usize = 1_000_000;
/// Senders are rows of this kind.
const SENDER: i8 = 2;

/// A sender in a room.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) room: RoomId,
    pub(super) user: UserId,
    pub(super) counts: Counts,
}

type Known = Option<(Vec<u64>, Arc<Vec<Pair>>)>;

/// All senders of all rooms, and the positions of the log they are as new as.
#[derive(Debug, Default)]
pub(crate) struct Pairs(Mutex<Known>);

pub(super) fn first_last(counts: &Counts) -> FirstLast {
    FirstLast { first: Timestamp::from_micros(counts.first_at), last: Timestamp::from_micros(counts.last_at) }
}

pub(super) fn types(counts: &Counts) -> TypeCounts {
    TypeCounts {
        text: counts.texts.unsigned_abs(),
        join: counts.joins.unsigned_abs(),
        leave: counts.leaves.unsigned_abs(),
    }
}

/// Merges counts that have the same key.
fn merged<'a, K: Ord>(pairs: &'a [Pair], key: impl Fn(&'a Pair) -> K) -> BTreeMap<K, (Counts, u64)> {
    let mut all: BTreeMap<K, (Counts, u64)> = BTreeMap::new();
    for pair in pairs {
        let of_key = all.entry(key(pair));
        let of_key = of_key.and_modify(|(counts, others)| {
            counts.merge(&pair.counts);
            *others += 1;
        });
        of_key.or_insert((pair.counts, 1));
    }
    all
}

impl Scylla {
    fn counted<T>(
        &self,
        value: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = std::result::Result<Counted<T>, ReadError>> + Send {
        let as_of = self.context.clock.now();
        async move { Ok(Counted { value: value.await?, as_of }) }
    }

    /// All senders of all rooms: everything acknowledged before the call is in their counts.
    pub(super) async fn all_pairs(&self) -> Result<Arc<Vec<Pair>>> {
        let mut known = self.pairs.0.lock().await;
        let positions =
            self.next_offsets().await.map_err(|error| DbError::new("reading positions", error))?;
        // While one cannot be read, nobody knows whether what was kept is still all.
        let positions: Option<Vec<u64>> = positions.into_iter().collect::<std::result::Result<_, _>>().ok();
        if let (Some(positions), Some((of, pairs))) = (&positions, &*known)
            && of == positions
        {
            return Ok(pairs.clone());
        }
        let pairs = Arc::new(self.scan_pairs().await?);
        let kept = positions.filter(|_| pairs.len() <= PAIRS_KEPT_MAX);
        *known = kept.map(|positions| (positions, pairs.clone()));
        Ok(pairs)
    }

    async fn scan_pairs(&self) -> Result<Vec<Pair>> {
        type Row = (
            String,
            Option<i8>,
            Option<String>,
            Option<Vec<u8>>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
        );
        let db = &self.context.db;
        let what = "reading all senders";
        let rows = db.stream::<Row>(what, &db.statements.all_rows, (), 5_000);
        let mut rows = rows.await?;
        let mut names: HashMap<String, UserId> = HashMap::new();
        let mut pairs: Vec<Pair> = Vec::new();
        while let Some((room, kind, user, cell, texts, joins, leaves, first_at, last_at)) =
            rows.try_next().await?
        {
            if kind != Some(SENDER) {
                continue;
            }
            let row = (cell, texts, joins, leaves, first_at, last_at);
            let (Some(user), Some(counts)) = (user, counts::read(what, &row)?) else { continue };
            let room = match pairs.last().filter(|last| last.room.as_str() == room) {
                Some(last) => last.room.clone(),
                None => room_id(&room)?,
            };
            let user = match names.get(&user) {
                Some(known) => known.clone(),
                None => names.entry(user.clone()).or_insert(user_id(&user)?).clone(),
            };
            pairs.push(Pair { room, user, counts });
        }
        Ok(pairs)
    }

    /// The user's counts in the rooms of the user behind `after`, in their order, up to `limit`.
    async fn rooms_written_in(
        &self,
        user: &str,
        after: Option<RoomId>,
        limit: usize,
    ) -> Result<Vec<Participation>> {
        let db = &self.context.db;
        let after = after.map(|room| room.to_string()).unwrap_or_default();
        let what = "reading a user's counts";
        // Each room is in one of the two lists at least.
        let firsts = db.stream::<(String,)>(what, &db.statements.user_first_rooms, (user,), PAGE_ROWS);
        let rooms = db.stream::<(String, i32)>(what, &db.statements.user_rooms, (user, &after), PAGE_ROWS);
        let mut names: BTreeSet<String> = BTreeSet::new();
        let (mut firsts, mut rooms) = try_join(firsts, rooms).await?;
        while let Some((room,)) = firsts.try_next().await? {
            if room > after {
                names.insert(room);
            }
        }
        while let Some((room, _)) = rooms.try_next().await? {
            names.insert(room);
        }
        let reading = stream::iter(names).map(async |room| {
            let users = [user];
            let values = (room.as_str(), users.as_slice());
            let found = db.row::<SenderRow>(what, &db.statements.senders_of, values).await?;
            let Some((_, cell, texts, joins, leaves, first_at, last_at)) = found else { return Ok(None) };
            let counts = counts::read_some(what, &(cell, texts, joins, leaves, first_at, last_at))?;
            let (messages, received) = (counts.total(), first_last(&counts));
            Ok::<_, DbError>(Some(Participation { room: room_id(&room)?, messages, received }))
        });
        let mut rooms = reading.buffered(ROOMS_AT_ONCE);
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(one) = rooms.try_next().await? else { break };
            found.extend(one);
        }
        Ok(found)
    }
}

fn sorted<T>(mut all: Vec<T>, messages: impl Fn(&T) -> u64, limit: usize) -> Vec<T> {
    all.sort_by_key(|one| Reverse(messages(one)));
    all.truncate(limit);
    all
}

impl StatsStore for Scylla {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        Box::pin(self.counted(async {
            let pairs = self.all_pairs().await?;
            let all = merged(&pairs, |_| ()).remove(&()).map(|(counts, _)| counts);
            let users = pairs.iter().map(|pair| &pair.user).collect::<HashSet<_>>().len() as u64;
            let rooms = pairs.iter().map(|pair| &pair.room).collect::<HashSet<_>>().len() as u64;
            let messages = all.as_ref().map(types).unwrap_or_default();
            Ok(Totals { messages, users, rooms, received: all.as_ref().map(first_last) })
        }))
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        Box::pin(self.counted(async move {
            let state = state::read_present(&self.context.db, room.as_str()).await?;
            Ok(state.filter(|state| state.kept > 0).map(|state| {
                let at = |at: Option<i64>| Timestamp::from_micros(at.unwrap_or_default());
                let received = FirstLast { first: at(state.first_at), last: at(state.last_at) };
                let (messages, users) = (state.kept.unsigned_abs(), state.senders.unsigned_abs());
                RoomStats { room, messages, users, received }
            }))
        }))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        Box::pin(self.counted(async move {
            let pairs = self.all_pairs().await?;
            let rooms = merged(&pairs, |pair| pair.room.clone()).into_iter();
            let rooms = rooms.map(|(room, (counts, users))| RoomStats {
                room,
                messages: counts.total(),
                users,
                received: first_last(&counts),
            });
            Ok(sorted(rooms.collect(), |room| room.messages, limit))
        }))
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        Box::pin(self.counted(async move {
            let rooms = self.rooms_written_in(user.as_str(), None, usize::MAX).await?;
            let first = rooms.iter().map(|room| room.received.first).min();
            let last = rooms.iter().map(|room| room.received.last).max();
            Ok(first.zip(last).map(|(first, last)| UserStats {
                user,
                messages: rooms.iter().map(|room| room.messages).sum(),
                rooms: rooms.len() as u64,
                received: FirstLast { first, last },
            }))
        }))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        Box::pin(self.counted(async move {
            let pairs = self.all_pairs().await?;
            let users = merged(&pairs, |pair| pair.user.clone()).into_iter();
            let users = users.map(|(user, (counts, rooms))| UserStats {
                user,
                messages: counts.total(),
                rooms,
                received: first_last(&counts),
            });
            Ok(sorted(users.collect(), |user| user.messages, limit))
        }))
    }

    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>> {
        Box::pin(self.counted(async move {
            let pairs = self.all_pairs().await?;
            let all = merged(&pairs, |pair| (pair.room.clone(), pair.user.clone())).into_iter();
            let all =
                all.map(|((room, user), (counts, _))| PairStats { room, user, messages: counts.total() });
            Ok(sorted(all.collect(), |pair| pair.messages, limit))
        }))
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        Box::pin(self.counted(hours::hours(&self.context, query)))
    }

    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        Box::pin(self.counted(async move {
            let mut users = if query.from.is_none() && query.to.is_none() {
                let pairs = self.all_pairs().await?;
                pairs.iter().map(|pair| pair.user.to_string()).collect()
            } else {
                hours::active_users(&self.context, query.from, query.to).await?
            };
            let count = users.len() as u64;
            if let Some(after) = &query.after {
                users = users.split_off(after.as_str());
                users.remove(after.as_str());
            }
            let more = users.len() > query.limit;
            let users = users.iter().take(query.limit).map(|user| user_id(user)).collect::<Result<_>>()?;
            Ok(ActiveUsers { count, users, more })
        }))
    }

    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        Box::pin(self.counted(async move {
            let wanted = limit.saturating_add(1);
            let mut rooms = self.rooms_written_in(user.as_str(), after, wanted).await?;
            let more = rooms.len() > limit;
            rooms.truncate(limit);
            Ok(ParticipationPage { rooms, more })
        }))
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        Box::pin(async move { Ok(user_history(&self.context.db, user.as_str(), &query).await?) })
    }

    fn audit(&self) -> Read<'_, Counted<Audit>> {
        Box::pin(self.counted(audit::audit(self)))
    }
}
