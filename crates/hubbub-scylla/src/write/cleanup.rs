//! Removes what deleted rooms and expired messages left behind, by whole buckets: messages, ids, and where users' messages
//! are. It is invisible already.
//!
//! Everything here may be repeated, by any server, and be cut at any point: the entry in `deleted_rooms` goes last.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::expire::ListedRow;
use crate::db::{Db, PAGE_ROWS, Result, Writes};
use crate::state::{self, FIRST_SHARD, ID_SHARDS, slot_of};

/// Removals at the same time.
const AT_ONCE: usize = 16;
/// Buckets in one read.
const BUCKETS: i32 = 1_000;
const WHAT: &str = "removing messages that are gone";

/// Removes the leftovers of all rooms of a partition.
pub(crate) async fn remove_leftovers(db: &Db, part: i32) -> Result<()> {
    let statements = &db.statements;
    for (room, through) in db.rows::<(String, i64)>(WHAT, &statements.deleted_rooms, (part,)).await? {
        // It may be announced only, and still be there.
        let Some(state) = state::read(db, &room).await? else { continue };
        if state.removed < through {
            continue;
        }
        remove(db, &room, through, state.applied).await?;
        let values = (state.applied, part, room.as_str(), through);
        db.write(WHAT, &statements.remove_deleted_room, values).await?;
    }
    Ok(())
}

/// Removes the buckets up to `through`. Later messages have later timestamps than these removals: so all ids of a shard go at
/// once. Rows of buckets have the timestamps of records up to the removal, hence up to `applied`.
async fn remove(db: &Db, room: &str, through: i64, applied: i64) -> Result<()> {
    let statements = &db.statements;
    let mut before = through.saturating_add(1);
    loop {
        let values = (room, before, BUCKETS);
        let buckets = db.rows::<(i64, i64, i64)>(WHAT, &statements.buckets_before, values).await?;
        let Some((last, ..)) = buckets.last() else { break };
        before = *last;
        for (bucket, ..) in buckets {
            remove_places(db, room, bucket).await?;
            db.write(WHAT, &statements.remove_large_texts, (through, room, bucket)).await?;
            db.write(WHAT, &statements.remove_bucket, (through, room, bucket)).await?;
        }
    }
    db.write(WHAT, &statements.remove_bucket_rows, (applied, room, through)).await?;
    let remove = |shard| db.write(WHAT, &statements.remove_ids, (through, room, shard));
    let removing: Vec<_> = (FIRST_SHARD..ID_SHARDS).map(remove).collect();
    stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

/// Removes the messages of a bucket from those of their users. What is not there is not removed: each removal leaves a mark, and
/// all messages of a user that are the first ones of a room share a partition, which could not be read any more beyond 100,000
/// marks.
async fn remove_places(db: &Db, room: &str, bucket: i64) -> Result<()> {
    let values = (room, bucket);
    let owners = db.stream::<(i64, String, i64)>(WHAT, &db.statements.message_owners, values, PAGE_ROWS);
    let owners = owners.await?;
    let mut owners = owners.try_chunks(PAGE_ROWS.unsigned_abs() as usize);
    while let Some(some) = owners.next().await {
        let some = some.map_err(|error| error.1)?;
        let mut users: BTreeMap<&str, BTreeSet<(i64, i64)>> = BTreeMap::new();
        for (seq, user, at) in &some {
            users.entry(user).or_default().insert((*at, *seq));
        }
        let remove = |(user, places)| remove_user_places(db, room, user, places);
        let removing: Vec<_> = users.iter().map(|(user, places)| (*user, places)).map(remove).collect();
        stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    }
    Ok(())
}

/// The same for messages of one user, by their times and numbers. Each is in one of two tables.
async fn remove_user_places(db: &Db, room: &str, user: &str, places: &BTreeSet<(i64, i64)>) -> Result<()> {
    let statements = &db.statements;
    let listed = listed_firsts(db, room, user, places).await?;
    let (mut firsts, mut slots) = (Writes::default(), BTreeMap::<i64, Writes<'_>>::new());
    for place in places {
        let (at, seq) = *place;
        if listed.contains(place) {
            firsts.add(&statements.remove_user_first, (seq, user, at, room, seq), 80);
        } else {
            let slot = slot_of(at);
            let values = (seq, user, slot, at, room, seq);
            slots.entry(slot).or_default().add(&statements.remove_user_message, values, 80);
        }
    }
    let removing: Vec<_> = slots.into_values().chain([firsts]).map(|rows| db.write_all(WHAT, rows)).collect();
    stream::iter(removing).buffer_unordered(AT_ONCE).try_collect().await
}

/// Those of them that are listed among the user's first ones of the room.
async fn listed_firsts(
    db: &Db,
    room: &str,
    user: &str,
    places: &BTreeSet<(i64, i64)>,
) -> Result<BTreeSet<(i64, i64)>> {
    let (Some((begin, _)), Some((end, _))) = (places.first(), places.last()) else {
        return Ok(BTreeSet::new());
    };
    let values = (user, *begin, *end);
    let rows = db.stream::<ListedRow>(WHAT, &db.statements.user_firsts, values, PAGE_ROWS).await?;
    let found = rows.try_filter_map(async |(at, of, seq, ..)| {
        Ok(Some((at, seq)).filter(|place| of == room && places.contains(place)))
    });
    found.try_collect().await
}
