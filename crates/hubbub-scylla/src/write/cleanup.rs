//! Removes what deleted rooms and expired messages left behind, by whole buckets: messages, ids, and where users' messages
//! are. It is invisible already.
//!
//! Everything here may be repeated, by any server, and be cut at any point: the entry in `deleted_rooms` goes last.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};

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
    let statements = &db.statements;
    let owners =
        db.stream::<(i64, String, i64)>(WHAT, &statements.message_owners, (room, bucket), PAGE_ROWS).await?;
    let mut owners = owners.try_chunks(PAGE_ROWS.unsigned_abs() as usize);
    while let Some(some) = owners.next().await {
        let some = some.map_err(|error| error.1)?;
        // Each is in one of the two tables.
        let mut users: BTreeMap<&str, BTreeMap<(i64, i64), i64>> = BTreeMap::new();
        for (seq, user, at) in &some {
            users.entry(user).or_default().insert((*at, *seq), slot_of(*at));
        }
        let mut slots: BTreeMap<(&str, i64), Writes<'_>> = BTreeMap::new();
        let mut firsts: BTreeMap<&str, Writes<'_>> = BTreeMap::new();
        let reading: Vec<_> =
            users.iter().map(|(user, places)| listed_firsts(db, room, user, places)).collect();
        let mut reading = stream::iter(reading).buffer_unordered(AT_ONCE);
        while let Some((user, first)) = reading.try_next().await? {
            let Some(places) = users.get(user) else { continue };
            for (place, slot) in places {
                let (at, seq) = *place;
                if first.contains(place) {
                    let values = (seq, user, at, room, seq);
                    firsts.entry(user).or_default().add(&statements.remove_user_first, values, 80);
                } else {
                    let values = (seq, user, *slot, at, room, seq);
                    slots.entry((user, *slot)).or_default().add(&statements.remove_user_message, values, 80);
                }
            }
        }
        drop(reading);
        let removing = slots.into_values().chain(firsts.into_values());
        let removing: Vec<_> = removing.map(|rows| db.write_all(WHAT, rows)).collect();
        stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    }
    Ok(())
}

/// Times and numbers of those messages of a user that are listed among the user's first ones of the room.
async fn listed_firsts<'a>(
    db: &Db,
    room: &str,
    user: &'a str,
    places: &BTreeMap<(i64, i64), i64>,
) -> Result<(&'a str, BTreeSet<(i64, i64)>)> {
    type Row = (i64, String, i64, Option<i64>, Option<i64>);
    let mut found = BTreeSet::new();
    if let (Some(((begin, _), _)), Some(((end, _), _))) = (places.first_key_value(), places.last_key_value())
    {
        let values = (user, *begin, *end);
        let mut rows = db.stream::<Row>(WHAT, &db.statements.user_firsts, values, PAGE_ROWS).await?;
        while let Some((at, of, seq, ..)) = rows.try_next().await? {
            if of == room && places.contains_key(&(at, seq)) {
                found.insert((at, seq));
            }
        }
    }
    Ok((user, found))
}
