//! Loads the newest messages of a room, or those that the cache lacks.

use hubbub_core::invariant::saturate;
use hubbub_core::{MessageRun, Timestamp};
use tokio_postgres::Row;

use super::newest::{BYTES_MAX, MESSAGES_MAX, NewestMessages};
use super::room_state::RoomState;
use crate::db::{DbError, PgTime, Result, Sql};
use crate::rooms::names::Names;
use crate::rooms::read::{MESSAGE_COLUMNS, count, message_columns, not_erased, push};
use crate::rooms::versions::newest_version;
use crate::store::Context;

/// Fewest messages fetched for a room that is not cached: readers of the newest messages soon want more.
const FETCHED_MIN: usize = 100;

/// Before every message.
const BEGIN: Timestamp = Timestamp::from_micros(i64::MIN);

/// The newest messages between two numbers, newest first, and what the room hides in the same snapshot.
///
/// The head of that snapshot would be no bound: the plan, which is older, may lack a partition made since. What was committed
/// before the statement was sent is in partitions that its plan has.
const TAIL: Sql = Sql {
    what: "reading the newest messages",
    text: concat! {
        "select ", message_columns!("m"),
        ", m.found, r.oldest, r.erased from (", newest_version!("*", "no", "$1"), ") r left join lateral ( \
             select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                 count(*) over () as found \
             from (select * from messages m \
                 where m.room = $1 and m.seq > $2 and m.seq <= $6 and m.seq >= r.oldest and m.received_at >= $3 \
                     and ", not_erased!("$1", "m.seq"), " \
                 order by m.seq desc limit $4) one \
             window page as (order by seq desc)) m on m.place = 1 or m.bytes <= $5 \
         where r.no = $1 order by m.place"
    },
};

/// Messages up to the head that was known when they were fetched, and what their room hides.
struct Fetched {
    oldest: u64,
    erased: i64,
    run: MessageRun,
    /// Whether nothing requested is left out.
    is_whole: bool,
}

/// Loads at least `wanted` of the newest messages, if the room has as many and they are not too large. `before` is what the
/// cache holds.
pub(super) async fn load(
    context: &Context,
    users: &Names,
    state: &RoomState,
    before: Option<&NewestMessages>,
    wanted: usize,
) -> Result<NewestMessages> {
    if let Some(before) = before.filter(|before| before.version() == state.version()) {
        let from = before.last_received_at().unwrap_or(BEGIN);
        let fetched = fetch(context, users, state, (before.head(), from), MESSAGES_MAX).await?;
        if fetched.is_whole && (fetched.oldest, fetched.erased) == before.version() {
            return Ok(before.with(state.info.head.max(before.head()), &fetched.run));
        }
    }
    let count = wanted.saturating_add(1).clamp(FETCHED_MIN, MESSAGES_MAX);
    let length: i64 = saturate(context.options.partition.as_micros());
    if let Some(last) = state.info.last_received_at {
        // Search recent partitions only, not years.
        let recent_from = Timestamp::from_micros(last.as_micros().saturating_sub(length));
        let fetched = fetch(context, users, state, (0, recent_from), count).await?;
        let first = fetched.run.get(0).map(|message| message.seq);
        if !fetched.is_whole || first.is_some_and(|first| first <= fetched.oldest) {
            return Ok(whole(state, fetched));
        }
    }
    Ok(whole(state, fetch(context, users, state, (0, BEGIN), count).await?))
}

/// Newest messages made of what was fetched alone.
fn whole(state: &RoomState, fetched: Fetched) -> NewestMessages {
    let first = fetched.run.get(0).map(|message| message.seq);
    let low = match first {
        Some(first) if !fetched.is_whole => first,
        _ => fetched.oldest,
    };
    NewestMessages::new(state.info.head, (fetched.oldest, fetched.erased), low, fetched.run)
}

async fn fetch(
    context: &Context,
    users: &Names,
    state: &RoomState,
    (after, from): (u64, Timestamp),
    limit: usize,
) -> Result<Fetched> {
    let (after, limit, bytes_max): (i64, i64, i64) = (saturate(after), saturate(limit), saturate(BYTES_MAX));
    let (to, from) = (saturate::<u64, i64>(state.info.head), PgTime(from));
    let rows = context.db.read(&TAIL, &[&state.no, &after, &from, &limit, &bytes_max, &to]).await?;
    let unexpected =
        || DbError::UnexpectedRow { what: TAIL.what, found: format!("no room {}", state.info.room) };
    let first_row = rows.first().ok_or_else(unexpected)?;
    let [found, oldest, erased] = [0, 1, 2].map(|column| MESSAGE_COLUMNS + column);
    let has_message = |row: &&Row| row.get::<_, Option<i64>>(0).is_some();
    let messages: Vec<&Row> = rows.iter().filter(has_message).collect();
    let senders = users.names(&context.db, messages.iter().map(|row| row.get(2))).await?;
    let mut run = MessageRun::default();
    for row in messages.iter().rev() {
        push(&mut run, (row, 0), state.info.room.as_str(), &senders)?;
    }
    let found = first_row.get::<_, Option<i64>>(found).unwrap_or(0);
    let is_whole = found < limit && usize::try_from(found).is_ok_and(|found| found == run.len());
    Ok(Fetched { oldest: count(first_row, oldest)?, erased: first_row.get(erased), run, is_whole })
}
