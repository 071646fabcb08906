//! Reads of rooms, members, histories and statistics. Each touches a number of database partitions that follows from the
//! size of its page, not from that of the room.

mod audit;
mod history;
mod hours;
mod messages;
pub(crate) mod rooms;
pub(crate) mod stats;
mod user_history;

use crate::db::{Db, Result};
use crate::state::RoomState;

/// Buckets read at once.
const BUCKETS: i32 = 64;

/// A number that precedes the bucket which holds `low`, and all later ones, and follows those before it.
pub(crate) async fn before_bucket_of(db: &Db, room: &str, low: i64, floor: i64) -> Result<i64> {
    let bucket = db.row::<(i64, i64, i64)>("reading buckets", &db.statements.bucket_of, (room, low)).await?;
    Ok(bucket.map_or(low, |(bucket, ..)| bucket).max(floor.saturating_add(1)).saturating_sub(1))
}

/// Number and time of the oldest message that is not removed.
pub(crate) async fn oldest(db: &Db, room: &str, state: &RoomState) -> Result<Option<(i64, i64)>> {
    let low = state.removed.saturating_add(1);
    let mut after = before_bucket_of(db, room, low, state.floor).await?;
    loop {
        let values = (room, after, BUCKETS);
        let what = "looking for the oldest message";
        let buckets = db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_after, values).await?;
        let Some((last, ..)) = buckets.last() else { return Ok(None) };
        after = *last;
        for (bucket, ..) in buckets {
            let from = (room, bucket, low);
            let found = db.row::<(i64, i64)>(what, &db.statements.message_from, from).await?;
            if let Some(found) = found.filter(|(seq, _)| *seq <= state.head) {
                return Ok(Some(found));
            }
        }
    }
}

/// Number and time of the newest message that is not beyond the head.
pub(crate) async fn newest(db: &Db, room: &str, state: &RoomState) -> Result<Option<(i64, i64)>> {
    let (head, floor) = (state.head, state.floor);
    let mut before = head.saturating_add(1);
    loop {
        let values = (room, before, BUCKETS);
        let what = "looking for the newest message";
        let buckets = db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_before, values).await?;
        let Some((last, ..)) = buckets.last() else { return Ok(None) };
        before = *last;
        for (bucket, ..) in buckets.into_iter().filter(|(bucket, ..)| *bucket > floor) {
            let until = (room, bucket, head);
            let found = db.row::<(i64, i64)>(what, &db.statements.message_until, until).await?;
            if let Some(found) = found.filter(|(seq, _)| *seq > state.removed) {
                return Ok(Some(found));
            }
        }
        if before <= state.removed {
            return Ok(None);
        }
    }
}
