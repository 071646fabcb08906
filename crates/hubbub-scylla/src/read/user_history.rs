//! A user's messages over all rooms, newest first: spans of time that hold some, the places of the messages in them and of
//! the first ones of each room, the messages. A place may lead to a message that is gone, or not committed yet; it is passed over.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::future::{join, try_join_all};
use futures_util::stream::{BoxStream, Peekable};
use futures_util::{StreamExt, TryStreamExt, stream};
use hubbub_core::stats::{UserHistoryPage, UserHistoryQuery};

use super::messages::{Page, Row, Stored};
use crate::db::{Db, DbError, PAGE_ROWS, Result};
use crate::state::{self, slot_of};

/// Spans of time that are read at the same time.
const SLOTS_AT_ONCE: usize = 8;
/// Most places that are followed at once. ScyllaDB allows 100 in a statement.
const PLACES_AT_ONCE: usize = 90;

/// Time, room, number and bucket of a message, and what erased it. Without a bucket it is what is left of a place that
/// expired, and leads nowhere.
pub(super) type PlaceRow = (i64, String, i64, Option<i64>, Option<i64>);

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    received_at: i64,
    room: String,
    seq: i64,
    bucket: i64,
}

pub(super) async fn user_history(db: &Db, user: &str, query: &UserHistoryQuery) -> Result<UserHistoryPage> {
    let mut page = Page::new(query.limit, query.bytes_max);
    let mut places = places(db, user, query).await?;
    let mut is_full = false;
    while !is_full {
        let wanted = page.wanted().min(PLACES_AT_ONCE);
        let mut some = Vec::with_capacity(wanted);
        while some.len() < wanted {
            let Some(place) = places.try_next().await? else { break };
            some.push(place);
        }
        if some.is_empty() {
            break;
        }
        let mut messages = follow(db, &some).await?;
        for place in some {
            let Some(message) = messages.remove(&(place.room.clone(), place.seq)) else { continue };
            if !page.add(&message, &place.room) {
                is_full = true;
                break;
            }
        }
    }
    page.run.reverse();
    Ok(UserHistoryPage { messages: page.run, more: page.more })
}

/// The places of the window, newest first.
async fn places<'a>(
    db: &'a Db,
    user: &'a str,
    query: &UserHistoryQuery,
) -> Result<BoxStream<'a, Result<Place>>> {
    let from = query.from.map_or(i64::MIN, |from| from.as_micros());
    let mut until = query.to.map_or(i64::MAX, |to| to.as_micros().saturating_sub(1));
    let before = query.before.clone();
    if let Some(before) = &before {
        until = until.min(before.received_at.as_micros());
    }
    let what = "reading a user's history";
    let statements = &db.statements;
    let window = (user, slot_of(from), slot_of(until));
    let slots = db.stream::<(i64, i32)>(what, &statements.user_slots, window, PAGE_ROWS).await?;
    // A slot is listed once for each partition of the log, one after the other.
    let mut last = None;
    let slots = slots.try_filter_map(move |(slot, _)| {
        let is_new = last.replace(slot) != Some(slot);
        std::future::ready(Ok(is_new.then_some(slot)))
    });
    let page_rows = i32::try_from(query.limit).unwrap_or(i32::MAX).saturating_add(1).min(PAGE_ROWS);
    let rows = slots.map(move |slot| async move {
        let values = (user, slot?, from, until);
        db.stream::<PlaceRow>(what, &statements.user_messages, values, page_rows).await
    });
    let in_slots = rows.buffered(SLOTS_AT_ONCE).try_flatten();
    let values = (user, from, until);
    let firsts = db.stream::<PlaceRow>(what, &statements.user_firsts, values, page_rows).await?;
    let rows = merged(firsts, in_slots.boxed());
    let places = rows.try_filter_map(move |(received_at, room, seq, bucket, erased)| {
        let is_before = before.as_ref().is_none_or(|before| {
            let cursor = (before.received_at.as_micros(), before.room.as_str(), before.seq);
            (received_at, room.as_str(), seq.unsigned_abs()) < cursor
        });
        let bucket = bucket.filter(|_| is_before && erased.is_none());
        std::future::ready(Ok(bucket.map(|bucket| Place { received_at, room, seq, bucket })))
    });
    Ok(places.boxed())
}

type Places<'a> = BoxStream<'a, Result<PlaceRow>>;
type Heads<'a> = (Peekable<Places<'a>>, Peekable<Places<'a>>);

/// Merges the places of two lists, both newest first.
fn merged<'a>(one: Places<'a>, other: Places<'a>) -> Places<'a> {
    let next = |(mut one, mut other): Heads<'a>| async move {
        let heads = join(Pin::new(&mut one).peek(), Pin::new(&mut other).peek()).await;
        let takes_one = match heads {
            (Some(Ok((at, room, seq, ..))), Some(Ok((other_at, other_room, other_seq, ..)))) => {
                (at, room, seq) >= (other_at, other_room, other_seq)
            }
            (one, _) => one.is_some(),
        };
        let row: Option<Result<PlaceRow>> = if takes_one { one.next().await } else { other.next().await };
        Ok(row.transpose()?.map(|row| (row, (one, other))))
    };
    stream::try_unfold((one.peekable(), other.peekable()), next).boxed()
}

/// The messages at some places, where they are committed and kept.
async fn follow(db: &Db, places: &[Place]) -> Result<BTreeMap<(String, i64), Stored>> {
    let mut rooms: BTreeMap<&str, BTreeMap<i64, Vec<i64>>> = BTreeMap::new();
    for place in places {
        rooms.entry(&place.room).or_default().entry(place.bucket).or_default().push(place.seq);
    }
    let reading = rooms.into_iter().map(async |(room, buckets)| {
        let Some(state) = state::read_present(db, room).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (bucket, seqs) in buckets {
            let values = (room, bucket, &seqs);
            for row in db.rows::<Row>("reading messages", &db.statements.messages_at, values).await? {
                if row.0 > state.removed && row.0 <= state.head {
                    found.push(((room.to_owned(), row.0), Stored::of(db, room, bucket, row).await?));
                }
            }
        }
        Ok::<_, DbError>(found)
    });
    Ok(try_join_all(reading).await?.into_iter().flatten().collect())
}
