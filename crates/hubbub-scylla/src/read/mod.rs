//! Reads of rooms, members, histories and statistics. Each touches a number of database partitions that follows from the
//! size of its page, not from that of the room.

mod audit;
mod history;
mod hours;
mod messages;
mod rooms;
pub(crate) mod stats;
mod user_history;

use crate::db::{Db, Result};

/// Buckets read at once.
const BUCKETS: i32 = 64;

/// Number and time of the oldest message behind `floor`.
pub(crate) async fn oldest(db: &Db, room: &str, floor: i64, head: i64) -> Result<Option<(i64, i64)>> {
    let mut after = floor;
    loop {
        let values = (room, after, BUCKETS);
        let what = "looking for the oldest message";
        let buckets = db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_after, values).await?;
        let Some((last, ..)) = buckets.last() else { return Ok(None) };
        after = *last;
        for (bucket, ..) in buckets {
            let from = (room, bucket, 0_i64);
            let found = db.row::<(i64, i64)>(what, &db.statements.message_from, from).await?;
            if let Some(found) = found.filter(|(seq, _)| *seq <= head) {
                return Ok(Some(found));
            }
        }
    }
}

/// Number and time of the newest message that is not beyond `head`.
pub(crate) async fn newest(db: &Db, room: &str, floor: i64, head: i64) -> Result<Option<(i64, i64)>> {
    let mut before = head.saturating_add(1);
    loop {
        let values = (room, before, BUCKETS);
        let what = "looking for the newest message";
        let buckets = db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_before, values).await?;
        let Some((last, ..)) = buckets.last() else { return Ok(None) };
        before = *last;
        for (bucket, ..) in buckets.into_iter().filter(|(bucket, ..)| *bucket > floor) {
            let until = (room, bucket, head);
            if let Some(found) = db.row::<(i64, i64)>(what, &db.statements.message_until, until).await? {
                return Ok(Some(found));
            }
        }
        if before <= floor {
            return Ok(None);
        }
    }
}
