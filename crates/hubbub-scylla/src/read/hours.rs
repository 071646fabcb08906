//! Hours: how many messages, and whose.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use hubbub_core::stats::{HourStats, HoursPage, HoursQuery};

use super::stats::types;
use super::user_history::PlaceRow;
use crate::counts;
use crate::db::{Db, DbError, PAGE_ROWS, Result};
use crate::state::{Counts, hour_of, slot_of};
use crate::store::Context;

/// Hours that are read at the same time.
const AT_ONCE: usize = 8;

/// A sender's messages in a room in an hour.
pub(super) struct HourRow {
    pub(super) room: String,
    pub(super) user: String,
    pub(super) counts: Counts,
}

type Number = Option<i64>;
/// Room, user and counts.
type StoredRow = (String, String, Option<Vec<u8>>, Number, Number, Number, Number, Number);

/// Hours of a window that may hold messages, in order; at least `limit` if there are so many.
async fn list(context: &Context, from: i64, to: i64, limit: usize) -> Result<BTreeSet<i64>> {
    let db = &context.db;
    let mut hours = BTreeSet::new();
    for part in context.parts() {
        let values = (part, from, to, saturate::<_, i32>(limit));
        let rows = db.rows::<(i64,)>("listing hours", &db.statements.hours, values).await?;
        hours.extend(rows.into_iter().map(|(hour,)| hour));
    }
    Ok(hours.into_iter().take(limit).collect())
}

/// Everybody who wrote in an hour.
pub(super) async fn rows(context: &Context, hour: i64) -> Result<Vec<HourRow>> {
    let db = &context.db;
    let mut all = Vec::new();
    for part in context.parts() {
        let statement = &db.statements.hour_users;
        let what = "reading an hour";
        let mut rows = db.stream::<StoredRow>(what, statement, (hour, part), PAGE_ROWS).await?;
        while let Some((room, user, cell, texts, joins, leaves, first_at, last_at)) = rows.try_next().await? {
            let row = (cell, texts, joins, leaves, first_at, last_at);
            all.push(HourRow { room, user, counts: counts::read_some(what, &row)? });
        }
    }
    Ok(all)
}

fn stats(hour: i64, rows: &[HourRow]) -> Option<HourStats> {
    let mut all = rows.first()?.counts;
    rows.iter().skip(1).for_each(|row| all.merge(&row.counts));
    Some(HourStats {
        hour: Timestamp::from_micros(hour),
        messages: types(&all),
        users: rows.iter().map(|row| &row.user).collect::<BTreeSet<_>>().len() as u64,
        rooms: rows.iter().map(|row| &row.room).collect::<BTreeSet<_>>().len() as u64,
    })
}

pub(super) async fn hours(context: &Context, query: HoursQuery) -> Result<HoursPage> {
    let mut from = query.from.map_or(i64::MIN, |from| hour_of(from.as_micros()));
    let to = query.to.map_or(i64::MAX, |to| to.as_micros());
    let mut page = HoursPage::default();
    loop {
        // An hour may be listed and hold nothing any more.
        let wanted = query.limit.saturating_sub(page.hours.len()).saturating_add(1).min(1_000);
        let listed = list(context, from, to, wanted).await?;
        let Some(last) = listed.last().copied() else { return Ok(page) };
        from = last.saturating_add(1);
        let reading =
            stream::iter(listed).map(async |hour| Ok::<_, DbError>(stats(hour, &rows(context, hour).await?)));
        let mut found = reading.buffered(AT_ONCE);
        while let Some(hour) = found.try_next().await? {
            let Some(hour) = hour else { continue };
            if page.hours.len() >= query.limit {
                page.more = true;
                return Ok(page);
            }
            page.hours.push(hour);
        }
    }
}

/// Names of those who wrote in a window that has at least one bound.
pub(super) async fn active_users(
    context: &Context,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> Result<BTreeSet<String>> {
    let from = from.map_or(i64::MIN, |from| from.as_micros());
    let to = to.map_or(i64::MAX, |to| to.as_micros());
    let first_hour = if from == i64::MIN { from } else { hour_of(from) };
    let hours = list(context, first_hour, to, usize::MAX).await?;
    let mut found = BTreeSet::new();
    let mut undecided: BTreeMap<String, Vec<(i64, String)>> = BTreeMap::new();
    let mut reading = stream::iter(hours).map(async |hour| rows(context, hour).await).buffered(AT_ONCE);
    while let Some(rows) = reading.try_next().await? {
        for row in rows {
            let is_inside = |at: i64| at >= from && at < to;
            if is_inside(row.counts.first_at) || is_inside(row.counts.last_at) {
                found.insert(row.user);
            } else if row.counts.first_at < from && row.counts.last_at >= to {
                undecided.entry(row.user).or_default().push((row.counts.first_at, row.room));
            }
        }
    }
    // Before and behind the window, in the hour of both its ends: the messages themselves say.
    for (user, rooms) in undecided {
        if !found.contains(&user) && wrote_between(&context.db, &user, &rooms, from, to).await? {
            found.insert(user);
        }
    }
    Ok(found)
}

/// Whether a user wrote in one of these rooms in a window that is within an hour.
async fn wrote_between(db: &Db, user: &str, rooms: &[(i64, String)], from: i64, to: i64) -> Result<bool> {
    let until = to.saturating_sub(1);
    let statements = &db.statements;
    let slots = (slot_of(from)..=slot_of(until)).map(Some);
    for slot in std::iter::once(None).chain(slots) {
        let what = "reading a user's history";
        let places = match slot {
            None => {
                let values = (user, from, until);
                db.stream::<PlaceRow>(what, &statements.user_firsts, values, PAGE_ROWS).await
            }
            Some(slot) => {
                let values = (user, slot, from, until);
                db.stream::<PlaceRow>(what, &statements.user_messages, values, PAGE_ROWS).await
            }
        };
        let mut places = places?;
        while let Some((_, room, seq, bucket, erased)) = places.try_next().await? {
            let Some(bucket) = bucket.filter(|_| erased.is_none()) else { continue };
            if !rooms.iter().any(|(_, of)| *of == room) {
                continue;
            }
            let seqs = [seq];
            let there = (room.as_str(), bucket, seqs.as_slice());
            let is_there =
                db.row::<(i64, String)>(what, &db.statements.message_ids_at, there).await?.is_some();
            let state = crate::state::read_present(db, &room).await?;
            if is_there && state.is_some_and(|state| seq > state.floor && seq <= state.head) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
