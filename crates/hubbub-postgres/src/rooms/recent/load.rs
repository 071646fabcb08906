//! Fetching the end of a room, or what is missing of it.

use hubbub_core::{MessageRun, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::look::Look;
use super::tail::{BYTES_MAX, KEPT_MAX, Tail};
use crate::db::{Fault, PgTime, Sql};
use crate::rooms::names::Names;
use crate::rooms::read::{MESSAGE_COLUMNS, count, message_columns, push};
use crate::store::Context;

/// Messages fetched at least where nothing is known: who reads the last of a room reads some more soon.
const FETCHED_MIN: usize = 100;

/// Before every message.
const BEGIN: Timestamp = Timestamp::from_micros(i64::MIN);

/// The newest messages behind a number, newest first, and where the room stood at the same moment.
const TAIL: Sql = Sql {
    what: "reading the newest messages",
    text: concat!(
        "select ",
        message_columns!("m"),
        ", m.found, r.head, r.oldest, r.erased from rooms r left join lateral ( \
             select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                 count(*) over () as found \
             from (select * from messages m \
                 where m.room = $1 and m.seq > $2 and m.seq >= r.oldest and m.received_at >= $3 \
                     and (r.erased = 0 or not exists ( \
                         select from erased e where e.room = $1 and e.seq = m.seq)) \
                 order by m.seq desc limit $4) one \
             window page as (order by seq desc)) m on m.place = 1 or m.bytes <= $5 \
         where r.no = $1 order by m.place"
    ),
    types: &[Type::INT4, Type::INT8, Type::TIMESTAMPTZ, Type::INT8, Type::INT8],
};

/// What was fetched.
struct Fetched {
    head: u64,
    oldest: u64,
    erased: i64,
    run: MessageRun,
    /// Whether nothing that was asked for is left out.
    is_whole: bool,
}

/// The end of a room, at least `wanted` messages of it where it has as many, and they are not too large. `before` is what
/// was known.
pub(super) async fn load(
    context: &Context,
    users: &Names,
    look: &Look,
    before: Option<&Tail>,
    wanted: usize,
) -> Result<Tail, Fault> {
    if let Some(before) = before.filter(|before| before.stamp() == look.stamp()) {
        let from = before.last_received_at().unwrap_or(BEGIN);
        let fetched = fetch(context, users, look, (before.head(), from), KEPT_MAX).await?;
        if fetched.is_whole && (fetched.oldest, fetched.erased) == before.stamp() {
            return Ok(before.with(fetched.head, &fetched.run));
        }
    }
    let count = wanted.saturating_add(1).clamp(FETCHED_MIN, KEPT_MAX);
    let length = i64::try_from(context.options.partition.as_micros()).unwrap_or(i64::MAX);
    if let Some(last) = look.info.last_received_at {
        // What was received lately is found without looking through years.
        let lately = Timestamp::from_micros(last.as_micros().saturating_sub(length));
        let fetched = fetch(context, users, look, (0, lately), count).await?;
        let first = fetched.run.get(0).map(|message| message.seq);
        if !fetched.is_whole || first.is_some_and(|first| first <= fetched.oldest) {
            return Ok(whole(fetched));
        }
    }
    Ok(whole(fetch(context, users, look, (0, BEGIN), count).await?))
}

/// Everything fetched, with nothing known before.
fn whole(fetched: Fetched) -> Tail {
    let first = fetched.run.get(0).map(|message| message.seq);
    let low = match first {
        Some(first) if !fetched.is_whole => first,
        _ => fetched.oldest,
    };
    Tail::new(fetched.head, (fetched.oldest, fetched.erased), low, fetched.run)
}

async fn fetch(
    context: &Context,
    users: &Names,
    look: &Look,
    (after, from): (u64, Timestamp),
    limit: usize,
) -> Result<Fetched, Fault> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bytes_max = i64::try_from(BYTES_MAX).unwrap_or(i64::MAX);
    let rows = context.db.read(&TAIL, &[&look.no, &after, &PgTime(from), &limit, &bytes_max]).await?;
    let nonsense = || Fault::Nonsense { what: TAIL.what, found: format!("no room {}", look.info.room) };
    let state = rows.first().ok_or_else(nonsense)?;
    let [found, head, oldest, erased] = [0, 1, 2, 3].map(|column| MESSAGE_COLUMNS + column);
    let has_message = |row: &&Row| row.get::<_, Option<i64>>(0).is_some();
    let messages: Vec<&Row> = rows.iter().filter(has_message).collect();
    let senders = users.names(&context.db, messages.iter().map(|row| row.get(2))).await?;
    let mut run = MessageRun::default();
    for row in messages.iter().rev() {
        push(&mut run, (row, 0), look.info.room.as_str(), &senders)?;
    }
    let found = state.get::<_, Option<i64>>(found).unwrap_or(0);
    let is_whole = found < limit && usize::try_from(found).is_ok_and(|found| found == run.len());
    Ok(Fetched {
        head: count(state, head),
        oldest: count(state, oldest),
        erased: state.get(erased),
        run,
        is_whole,
    })
}
