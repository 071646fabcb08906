//! Reads the tables of counts, and a user's messages from all rooms, by one statement per answer, so that each is of one snapshot.

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, FirstLast, HOUR_MICROS, HourStats, HoursPage, HoursQuery,
    PairStats, Participation, ParticipationPage, RoomStats, StatsStore, Totals, TypeCounts, UserHistoryPage,
    UserHistoryQuery, UserStats, hour_of,
};
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{MessageRun, RoomId, Timestamp, UserId};
use tokio_postgres::Row;

use super::pending_deletes::matches_pending_delete;
use super::{Stats, audit};
use crate::db::sql::unsigned;
use crate::db::{DbError, Param, PgTime, ReadSource, Result, Sql, statements};
use crate::replicas::Reader;
use crate::rooms::{message_columns, not_erased, push_of};

const TOTALS: Sql = Sql {
    what: "reading totals",
    text: "select h.texts, h.joins, h.leaves, (select count(*) from user_counts), r.rooms, r.first, r.last \
           from (select coalesce(sum(texts), 0)::int8 as texts, coalesce(sum(joins), 0)::int8 as joins, \
                     coalesce(sum(leaves), 0)::int8 as leaves from hour_counts) h, \
               (select count(*) as rooms, min(first) as first, max(last) as last from room_counts) r",
};

statements! {
    ROOM("reading a room's counts") =
        "select r.id, c.messages, c.users, c.first, c.last from rooms r join room_counts c on c.room = r.no \
         where r.id = $1";

    TOP_ROOMS("reading rooms' counts") =
        "select r.id, c.messages, c.users, c.first, c.last from room_counts c join rooms r on r.no = c.room \
         order by c.messages desc, r.id limit $1";

    USER("reading a user's counts") =
        "select u.id, c.messages, c.rooms, c.first, c.last from users u join user_counts c on c.sender = u.no \
         where u.id = $1";

    TOP_USERS("reading users' counts") =
        "select u.id, c.messages, c.rooms, c.first, c.last from user_counts c join users u on u.no = c.sender \
         order by c.messages desc, u.id limit $1";

    /// Names are looked up only for possible results; pairs with equal counts are all possible.
    TOP_PAIRS("reading the counts of rooms and users") =
        "select r.id, u.id, c.messages from (select room, sender, messages from pair_counts \
             order by messages desc fetch first $1 rows with ties) c \
             join rooms r on r.no = c.room join users u on u.no = c.sender \
         order by c.messages desc, r.id, u.id limit $1";

    HOURS("reading hours") =
        "select h.hour, h.texts, h.joins, h.leaves, \
             (select coalesce(sum(bit_count(users)), 0)::int8 from hour_users u where u.hour = h.hour), \
             (select count(*) from hour_room_counts r where r.hour = h.hour) \
         from hour_counts h where h.hour >= $1 and h.hour < $2 order by h.hour limit $3";

    PARTICIPATION("reading a user's rooms") =
        "select r.id, c.messages, c.first, c.last from users u join pair_counts c on c.sender = u.no \
             join rooms r on r.no = c.room \
         where u.id = $1 and r.id > $2 order by r.id limit $3";

    /// Whole hours come from the counts, the edges of the window from the messages.
    ACTIVE("reading active users") = concat!(
        "with found as materialized ( \
            select block, bit_or(users) as users from ( \
                select block, users from hour_users where hour >= $3 and hour < $4 \
                union all \
                select sender / 1024, bit_or(set_bit(B'0'::bit(1024), sender % 1024, 1)) from ( \
                    select m.sender from messages m where m.received_at >= $1 and m.received_at < $2 \
                        and not exists (select from takeouts t where t.counted_out and ",
        matches_pending_delete!(), ") \
                    union \
                    select m.sender from messages m where m.received_at >= $5 and m.received_at < $6 \
                        and not exists (select from takeouts t where t.counted_out and ",
        matches_pending_delete!(), ")) edges \
                group by sender / 1024) both_kinds \
            group by block) \
        select (select coalesce(sum(bit_count(users)), 0)::int8 from found), \
            array(select u.id from users u join found f on f.block = u.no / 1024 \
                where $8 > 0 and u.id > $7 and get_bit(f.users, u.no % 1024) = 1 order by u.id limit $8)"
    );
}

/// The newest messages before a cursor, one more than requested. Texts beyond those that fit are counted, not read. What rooms
/// hide is read in the same snapshot.
const USER_HISTORY: Sql = Sql {
    what: "reading a user's messages",
    text: concat! {
        "select id, found, ", message_columns!("m"), " from ( \
               select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                   count(*) over () as found from ( \
                   select r.id, ", message_columns!("m"), " \
                   from messages m join rooms r on r.no = m.room and r.oldest <= m.seq \
                   where m.sender = (select no from users where id = $1) \
                       and m.received_at >= $2 and m.received_at < $3 and m.received_at <= $4 \
                       and (m.received_at < $4 or r.id < $5 or r.id = $5 and m.seq < $6) \
                       and ", not_erased!("m.room", "m.seq"), " \
                   order by m.received_at desc, r.id desc, m.seq desc limit $7) one \
               window page as (order by received_at desc, id desc, seq desc)) m \
           where place = 1 or place < $7 and bytes <= $8 order by place"
    },
};

/// Before and after every message.
const BEGIN: Timestamp = Timestamp::from_micros(i64::MIN);
const END: Timestamp = Timestamp::from_micros(i64::MAX);

fn count(row: &Row, column: usize) -> Result<u64> {
    unsigned(row, column, "reading counts")
}

fn rows(limit: usize) -> i64 {
    saturate(limit)
}

/// One more than requested, to see whether there are more.
fn one_more(limit: usize) -> i64 {
    rows(limit).saturating_add(1)
}

fn types(row: &Row, column: usize) -> Result<TypeCounts> {
    let at = |offset: usize| count(row, column + offset);
    Ok(TypeCounts { text: at(0)?, join: at(1)?, leave: at(2)? })
}

fn first_last(row: &Row, column: usize) -> FirstLast {
    let at = |column: usize| row.get::<_, PgTime>(column).0;
    FirstLast { first: at(column), last: at(column + 1) }
}

fn unexpected(what: &'static str, found: &str) -> DbError {
    DbError::UnexpectedRow { what, found: format!("the name {found:?}") }
}

fn room_id(text: &str) -> Result<RoomId> {
    RoomId::new(text).map_err(|_| unexpected("reading rooms", text))
}

fn user_id(text: &str) -> Result<UserId> {
    UserId::new(text).map_err(|_| unexpected("reading users", text))
}

fn room_of(row: &Row) -> Result<RoomStats> {
    let (messages, users) = (count(row, 1)?, count(row, 2)?);
    Ok(RoomStats { room: room_id(row.get(0))?, messages, users, received: first_last(row, 3) })
}

fn user_of(row: &Row) -> Result<UserStats> {
    let (messages, rooms) = (count(row, 1)?, count(row, 2)?);
    Ok(UserStats { user: user_id(row.get(0))?, messages, rooms, received: first_last(row, 3) })
}

fn pair_of(row: &Row) -> Result<PairStats> {
    Ok(PairStats { room: room_id(row.get(0))?, user: user_id(row.get(1))?, messages: count(row, 2)? })
}

fn hour_stats(row: &Row) -> Result<HourStats> {
    let (hour, messages) = (row.get::<_, PgTime>(0).0, types(row, 1)?);
    Ok(HourStats { hour, messages, users: count(row, 4)?, rooms: count(row, 5)? })
}

fn participation_of(row: &Row) -> Result<Participation> {
    Ok(Participation { room: room_id(row.get(0))?, messages: count(row, 1)?, received: first_last(row, 2) })
}

/// A window, divided into whole hours and its two edges.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    before_hours: [Timestamp; 2],
    hours: [Timestamp; 2],
    after_hours: [Timestamp; 2],
}

impl Window {
    fn of(from: Option<Timestamp>, to: Option<Timestamp>) -> Self {
        let begin = from.map_or(BEGIN, |from| {
            let hour = hour_of(from);
            if hour == from {
                hour
            } else {
                Timestamp::from_micros(hour.as_micros().saturating_add(HOUR_MICROS))
            }
        });
        let end = to.map_or(END, hour_of);
        let (from, to) = (from.unwrap_or(BEGIN), to.unwrap_or(END));
        if begin >= end {
            return Self { before_hours: [from, to], hours: [END, END], after_hours: [END, END] };
        }
        Self { before_hours: [from, begin], hours: [begin, end], after_hours: [end, to] }
    }
}

/// Statistics with the reader that answers them.
pub(crate) struct CountReader {
    stats: Arc<Stats>,
    reader: Reader,
}

impl CountReader {
    pub(crate) fn new(stats: &Arc<Stats>, reader: Reader) -> Self {
        Self { stats: stats.clone(), reader }
    }

    /// Makes the counts current, then reads.
    async fn counted<T>(&self, read: impl AsyncFn(ReadSource) -> Result<T>) -> Result<Counted<T>, ReadError> {
        let as_of = self.stats.catch_up().await?;
        Ok(Counted { value: self.reader.read(read).await?, as_of })
    }
}

impl StatsStore for CountReader {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        Box::pin(self.counted(async |source| {
            let row = source.read_one(&TOTALS, &[]).await?;
            let rooms = count(&row, 4)?;
            let received = (rooms > 0).then(|| first_last(&row, 5));
            Ok(Totals { messages: types(&row, 0)?, users: count(&row, 3)?, rooms, received })
        }))
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        Box::pin(self.counted(async move |source| {
            source.read(&ROOM, &[&room.as_str()]).await?.first().map(room_of).transpose()
        }))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        Box::pin(self.counted(async move |source| {
            source.read(&TOP_ROOMS, &[&rows(limit)]).await?.iter().map(room_of).collect()
        }))
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        Box::pin(self.counted(async move |source| {
            source.read(&USER, &[&user.as_str()]).await?.first().map(user_of).transpose()
        }))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        Box::pin(self.counted(async move |source| {
            source.read(&TOP_USERS, &[&rows(limit)]).await?.iter().map(user_of).collect()
        }))
    }

    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>> {
        Box::pin(self.counted(async move |source| {
            source.read(&TOP_PAIRS, &[&rows(limit)]).await?.iter().map(pair_of).collect()
        }))
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        let (from, to) = (PgTime(query.from.map_or(BEGIN, hour_of)), PgTime(query.to.unwrap_or(END)));
        Box::pin(self.counted(async move |source| {
            let rows = source.read(&HOURS, &[&from, &to, &one_more(query.limit)]).await?;
            let hours = rows.iter().take(query.limit).map(hour_stats).collect::<Result<_, _>>()?;
            Ok(HoursPage { hours, more: rows.len() > query.limit })
        }))
    }

    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        Box::pin(self.counted(async move |source| active_users(&source, &query).await))
    }

    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        Box::pin(self.counted(async move |source| {
            let after = after.as_ref().map_or("", RoomId::as_str);
            let rows = source.read(&PARTICIPATION, &[&user.as_str(), &after, &one_more(limit)]).await?;
            let rooms = rows.iter().take(limit).map(participation_of).collect::<Result<_, _>>()?;
            Ok(ParticipationPage { rooms, more: rows.len() > limit })
        }))
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        Box::pin(async move {
            Ok(self.reader.read(async move |source| user_history(&source, &user, &query).await).await?)
        })
    }

    /// Always on the primary: it compares its tables.
    fn audit(&self) -> Read<'_, Counted<Audit>> {
        Box::pin(async move {
            let as_of = self.stats.catch_up().await?;
            Ok(Counted { value: audit::run(&self.stats.context.db).await?, as_of })
        })
    }
}

async fn user_history(
    source: &ReadSource,
    user: &UserId,
    query: &UserHistoryQuery,
) -> Result<UserHistoryPage> {
    let (before, room, seq) = match &query.before {
        Some(before) => (before.received_at, before.room.as_str(), before.seq),
        None => (END, "", 0),
    };
    let params: [Param<'_>; 8] = [
        &user.as_str(),
        &PgTime(query.from.unwrap_or(BEGIN)),
        &PgTime(query.to.unwrap_or(END)),
        &PgTime(before),
        &room,
        &saturate::<u64, i64>(seq),
        &one_more(query.limit),
        &rows(query.bytes_max),
    ];
    let rows = source.read(&USER_HISTORY, &params).await?;
    let found: i64 = rows.first().map_or(0, |row| row.get(1));
    let mut messages = MessageRun::default();
    for row in rows.iter().rev() {
        push_of(&mut messages, (row, 2), row.get(0), user.as_str())?;
    }
    let more = found > saturate(messages.len());
    Ok(UserHistoryPage { messages, more })
}

async fn active_users(source: &ReadSource, query: &ActiveUsersQuery) -> Result<ActiveUsers> {
    let Window { before_hours, hours, after_hours } = Window::of(query.from, query.to);
    let [[b1, b2], [h1, h2], [e1, e2]] = [before_hours, hours, after_hours].map(|ends| ends.map(PgTime));
    let after = query.after.as_ref().map_or("", UserId::as_str);
    let read =
        async |wanted: i64| source.read_one(&ACTIVE, &[&b1, &b2, &h1, &h2, &e1, &e2, &after, &wanted]).await;
    let row = read(if query.limit == 0 { 0 } else { one_more(query.limit) }).await?;
    let (total, names): (u64, Vec<&str>) = (count(&row, 0)?, row.get(1));
    let users = names.iter().take(query.limit).map(|name| user_id(name)).collect::<Result<_>>()?;
    let more = match query.after {
        _ if query.limit > 0 => names.len() > query.limit,
        // A page of limit 0 holds nobody, so there are more if anybody comes after its cursor.
        None => total > 0,
        Some(_) => !read(1).await?.get::<_, Vec<&str>>(1).is_empty(),
    };
    Ok(ActiveUsers { count: total, users, more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_hours_and_two_ends() {
        let time = |text| Timestamp::parse(text).unwrap();
        let (nine, ten, noon) =
            (time("2026-01-31T09:00:00Z"), time("2026-01-31T10:00:00Z"), time("2026-01-31T12:00:00Z"));
        let (from, to) = (time("2026-01-31T09:30:00Z"), time("2026-01-31T12:00:00.000001Z"));
        let window = Window::of(Some(from), Some(to));
        assert_eq!(window, Window { before_hours: [from, ten], hours: [ten, noon], after_hours: [noon, to] });
        let window = Window::of(Some(nine), Some(noon));
        assert_eq!(
            window,
            Window { before_hours: [nine, nine], hours: [nine, noon], after_hours: [noon, noon] }
        );
        let later = time("2026-01-31T09:59:00Z");
        let window = Window::of(Some(from), Some(later));
        assert_eq!(
            window,
            Window { before_hours: [from, later], hours: [END, END], after_hours: [END, END] }
        );
        let window = Window::of(None, None);
        assert_eq!(
            window,
            Window { before_hours: [BEGIN, BEGIN], hours: [BEGIN, END], after_hours: [END, END] }
        );
    }
}
