//! A room's history. Buckets are found in the room's own partition, messages in those of the buckets.

use futures_util::StreamExt;
use hubbub_core::invariant::saturate;
use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{RoomId, Timestamp};

use super::messages::{Page, Row, Stored};
use super::{BUCKETS, before_bucket_of};
use crate::db::{Db, PAGE_ROWS, Result};
use crate::state;

/// Attempts to read a page of a room that messages are being removed from.
const TRIES: usize = 5;

pub(super) async fn history(
    db: &Db,
    room: RoomId,
    query: HistoryQuery,
) -> std::result::Result<HistoryPage, ReadError> {
    let mut tries = 1;
    loop {
        let state = state::read_present(db, room.as_str()).await?.ok_or(ReadError::UnknownRoom)?;
        let (mut low, mut high) = match query.cursor {
            Cursor::After(after) => (saturate::<_, i64>(after).saturating_add(1), i64::MAX),
            Cursor::Before(before) => (0, saturate::<_, i64>(before).saturating_sub(1)),
        };
        (low, high) = (low.max(state.oldest().cast_signed()), high.min(state.head));
        if let Some(from) = query.from {
            low = low.max(first_at(db, room.as_str(), (state.floor, state.head), from).await?);
        }
        if let Some(to) = query.to {
            high =
                high.min(first_at(db, room.as_str(), (state.floor, state.head), to).await?.saturating_sub(1));
        }
        let mut page = Page::new(query.limit, query.bytes_max);
        if low <= high && state.kept > 0 {
            let is_forward = matches!(query.cursor, Cursor::After(_));
            fill(db, room.as_str(), &mut page, (low, high), state.floor, is_forward).await?;
            if !is_forward {
                page.run.reverse();
            }
        }
        let (head, oldest) = (state.head.unsigned_abs(), state.oldest());
        // Messages may have been removed while the page was read. It must be of one moment.
        let now = state::read_present(db, room.as_str()).await?;
        if now.is_some_and(|now| (now.floor, now.oldest()) == (state.floor, state.oldest())) {
            return Ok(HistoryPage { messages: page.run, head, oldest, more: page.more });
        }
        tries += 1;
        if tries > TRIES {
            // A page with a gap that its `oldest` does not tell of must not be shown.
            let reason = "the room's messages are being removed while they are read".to_owned();
            return Err(ReadError::Unavailable { reason });
        }
    }
}

/// Adds the messages with these numbers, from either end.
async fn fill(
    db: &Db,
    room: &str,
    page: &mut Page,
    (low, high): (i64, i64),
    floor: i64,
    is_forward: bool,
) -> Result<()> {
    let what = "reading buckets";
    let statements = &db.statements;
    let mut next = high.saturating_add(1);
    if is_forward {
        next = before_bucket_of(db, room, low, floor).await?;
    }
    // Erasing leaves empty buckets, which are passed over by many.
    let mut count = 2;
    loop {
        let statement = if is_forward { &statements.buckets_after } else { &statements.buckets_before };
        let buckets = db.rows::<(i64, i64, i64)>(what, statement, (room, next, count)).await?;
        let Some((last, ..)) = buckets.last() else { break };
        next = *last;
        count = BUCKETS;
        for (bucket, kept, _) in buckets {
            if bucket <= floor || bucket > high {
                return Ok(());
            }
            if kept > 0 && !fill_from(db, room, bucket, page, (low, high), is_forward).await? {
                return Ok(());
            }
            if !is_forward && bucket <= low {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Adds messages of a bucket. Whether the page takes more.
async fn fill_from(
    db: &Db,
    room: &str,
    bucket: i64,
    page: &mut Page,
    (low, high): (i64, i64),
    is_forward: bool,
) -> Result<bool> {
    let statements = &db.statements;
    let statement = if is_forward { &statements.messages_after } else { &statements.messages_before };
    let limit: i32 = saturate(page.wanted());
    let values = (room, bucket, low, high, limit);
    let mut rows = db.stream::<Row>("reading messages", statement, values, limit.min(PAGE_ROWS / 4)).await?;
    while let Some(row) = rows.next().await.transpose()? {
        let message = Stored::of(db, room, bucket, row).await?;
        if !page.add(&message, room) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number from which on all messages were received at `time` or later. Times do not decrease with numbers.
async fn first_at(db: &Db, room: &str, (floor, head): (i64, i64), time: Timestamp) -> Result<i64> {
    let time = time.as_micros();
    let what = "looking for a time";
    let buckets =
        db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_after, (room, floor, i32::MAX)).await?;
    let before = buckets.partition_point(|(_, _, first_at)| *first_at < time);
    let Some((bucket, ..)) = before.checked_sub(1).and_then(|last| buckets.get(last)) else { return Ok(0) };
    let mut low = *bucket;
    let mut high = buckets.get(before).map_or(head.saturating_add(1), |(bucket, ..)| *bucket);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = db.row::<(i64, i64)>(what, &db.statements.message_from, (room, bucket, middle)).await?;
        match found {
            Some((seq, at)) if seq < high && at < time => low = seq.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}
