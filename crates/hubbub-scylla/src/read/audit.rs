//! Recounts everything from the messages, and compares it with what is counted.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use hubbub_core::MessageType;
use hubbub_core::stats::{AUDIT_DIFFERENCES_MAX, Audit};

use super::hours;
use super::messages::Row;
use crate::db::{DbError, PAGE_ROWS, Result};
use crate::state::{self, Counts, RoomState, hour_of};
use crate::store::Scylla;

#[derive(Default)]
struct Recount {
    audit: Audit,
    pairs: BTreeMap<(String, String), Counts>,
    hours: BTreeMap<(i64, String, String), Counts>,
}

impl Recount {
    fn differs(&mut self, text: String) {
        if self.audit.differences.len() < AUDIT_DIFFERENCES_MAX {
            self.audit.differences.push(text);
        }
    }

    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, counted: &T, found: &T) {
        if counted != found {
            self.differs(format!("{what}: {counted:?} is counted, {found:?} is there"));
        }
    }
}

pub(super) async fn audit(store: &Scylla) -> Result<Audit> {
    let db = &store.context.db;
    let mut recount = Recount::default();
    let statement = &db.statements.all_rooms;
    let mut rooms = db.stream::<(String, Option<RoomState>)>("auditing", statement, (), PAGE_ROWS).await?;
    while let Some((room, _)) = rooms.try_next().await? {
        recount_room(store, &room, &mut recount).await?;
    }
    let pairs = store.all_pairs().await?;
    let counted: BTreeMap<(String, String), Counts> =
        pairs.iter().map(|pair| ((pair.room.to_string(), pair.user.to_string()), pair.counts)).collect();
    compare_maps(&mut recount, "a sender", &counted, |recount| &recount.pairs);
    let mut counted = BTreeMap::new();
    let all: BTreeSet<i64> = recount.hours.keys().map(|(hour, ..)| *hour).collect();
    for hour in all {
        for row in hours::rows(&store.context, hour).await? {
            counted.insert((hour, row.room, row.user), row.counts);
        }
    }
    compare_maps(&mut recount, "an hour", &counted, |recount| &recount.hours);
    Ok(recount.audit)
}

fn compare_maps<K: Ord + Clone + std::fmt::Debug>(
    recount: &mut Recount,
    what: &str,
    counted: &BTreeMap<K, Counts>,
    of: impl Fn(&Recount) -> &BTreeMap<K, Counts>,
) {
    let keys: BTreeSet<K> = counted.keys().chain(of(recount).keys()).cloned().collect();
    for key in keys {
        let found = of(recount).get(&key).copied();
        recount.compare(&format!("{what} {key:?}"), &counted.get(&key).copied(), &found);
    }
}

/// Recounts a room as of a moment at which nothing changes it.
async fn recount_room(store: &Scylla, room: &str, recount: &mut Recount) -> Result<()> {
    let db = &store.context.db;
    let what = "auditing";
    let Some(state) = state::read_present(db, room).await? else { return Ok(()) };
    let values = (room, state.floor, i32::MAX);
    let buckets = db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_after, values).await?;
    let mut seqs: Vec<i64> = Vec::new();
    let mut times: Vec<i64> = Vec::new();
    for (bucket, kept, _) in buckets {
        let before = seqs.len();
        let values = (room, bucket, state.removed.saturating_add(1), state.head, i32::MAX);
        let mut rows = db.stream::<Row>(what, &db.statements.messages_after, values, PAGE_ROWS).await?;
        while let Some((seq, _, user, .., kind, _, at)) = rows.try_next().await? {
            let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8);
            let kind =
                kind.ok_or_else(|| DbError::new(what, format!("message {seq} of {room} has no type")))?;
            let hour = (hour_of(at), room.to_owned(), user.clone());
            recount.hours.entry(hour).or_insert_with(|| Counts::none(at)).add(kind, at);
            recount.pairs.entry((room.to_owned(), user)).or_insert_with(|| Counts::none(at)).add(kind, at);
            seqs.push(seq);
            times.push(at);
        }
        recount.compare(&format!("bucket {bucket} of {room}"), &kept, &((seqs.len() - before) as i64));
    }
    recount.audit.messages += seqs.len() as u64;
    recount.compare(&format!("messages of {room}"), &state.kept, &(seqs.len() as i64));
    let received = (times.first().copied(), times.last().copied());
    recount.compare(&format!("times of {room}"), &(state.first_at, state.last_at), &received);
    let members = db.rows::<(String, i64, i64)>(what, &db.statements.members, (room, "", i32::MAX)).await?;
    recount.compare(&format!("members of {room}"), &state.members, &(members.len() as i64));
    for (member, mark, rank) in members {
        let read = seqs.partition_point(|seq| *seq <= mark) as i64;
        recount.compare(&format!("what {member} has read in {room}"), &state.kept_until(rank), &read);
    }
    Ok(())
}
