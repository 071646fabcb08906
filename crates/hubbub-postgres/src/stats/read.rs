//! Reads the tables of counts, by one statement per answer, so that each is of one snapshot.

use hubbub_core::invariant::saturate;
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, FirstLast, HourStats, HoursPage, HoursQuery, PairStats, Participation,
    ParticipationPage, RoomStats, Totals, TypeCounts, UserStats, hour_of,
};
use hubbub_core::{RoomId, Timestamp, UserId};
use tokio_postgres::Row;

use super::pending_deletes::matches_pending_delete;
use crate::db::read_source::ReadSource;
use crate::db::row::unsigned;
use crate::db::{DbError, PgTime, Sql};

const TOTALS: Sql = Sql {
    what: "reading totals",
    text: "select h.texts, h.joins, h.leaves, (select count(*) from user_counts), r.rooms, r.first, r.last \
           from (select coalesce(sum(texts), 0)::int8 as texts, coalesce(sum(joins), 0)::int8 as joins, \
                     coalesce(sum(leaves), 0)::int8 as leaves from hour_counts) h, \
               (select count(*) as rooms, min(first) as first, max(last) as last from room_counts) r",
};

const ROOM: Sql = Sql {
    what: "reading a room's counts",
    text: "select r.id, c.messages, c.users, c.first, c.last from rooms r join room_counts c on c.room = r.no \
           where r.id = $1",
};

const TOP_ROOMS: Sql = Sql {
    what: "reading rooms' counts",
    text: "select r.id, c.messages, c.users, c.first, c.last from room_counts c join rooms r on r.no = c.room \
           order by c.messages desc, r.id limit $1",
};

const USER: Sql = Sql {
    what: "reading a user's counts",
    text: "select u.id, c.messages, c.rooms, c.first, c.last from users u join user_counts c on c.sender = u.no \
           where u.id = $1",
};

const TOP_USERS: Sql = Sql {
    what: "reading users' counts",
    text: "select u.id, c.messages, c.rooms, c.first, c.last from user_counts c join users u on u.no = c.sender \
           order by c.messages desc, u.id limit $1",
};

/// Names are looked up only for possible results; pairs with equal counts are all possible.
const TOP_PAIRS: Sql = Sql {
    what: "reading the counts of rooms and users",
    text: "select r.id, u.id, c.messages from (select room, sender, messages from pair_counts \
               order by messages desc fetch first $1 rows with ties) c \
               join rooms r on r.no = c.room join users u on u.no = c.sender \
           order by c.messages desc, r.id, u.id limit $1",
};

const HOURS: Sql = Sql {
    what: "reading hours",
    text: "select h.hour, h.texts, h.joins, h.leaves, \
               (select coalesce(sum(bit_count(users)), 0)::int8 from hour_users u where u.hour = h.hour), \
               (select count(*) from hour_room_counts r where r.hour = h.hour) \
           from hour_counts h where h.hour >= $1 and h.hour < $2 order by h.hour limit $3",
};

const PARTICIPATION: Sql = Sql {
    what: "reading a user's rooms",
    text: "select r.id, c.messages, c.first, c.last from users u join pair_counts c on c.sender = u.no \
               join rooms r on r.no = c.room \
           where u.id = $1 and r.id > $2 order by r.id limit $3",
};

/// Whole hours come from the counts, the edges of the window from the messages.
const ACTIVE: Sql = Sql {
    what: "reading active users",
    text: concat!(
        "with found as materialized ( \
            select block, bit_or(users) as users from ( \
                select block, users from hour_users where hour >= $3 and hour < $4 \
                union all \
                select sender / 1024, bit_or(set_bit(B'0'::bit(1024), sender % 1024, 1)) from ( \
                    select m.sender from messages m where m.received_at >= $1 and m.received_at < $2 \
                        and not exists (select from takeouts t where t.counted_out and ",
        matches_pending_delete!(),
        ") \
                    union \
                    select m.sender from messages m where m.received_at >= $5 and m.received_at < $6 \
                        and not exists (select from takeouts t where t.counted_out and ",
        matches_pending_delete!(),
        ")) edges \
                group by sender / 1024) both_kinds \
            group by block) \
        select (select coalesce(sum(bit_count(users)), 0)::int8 from found), \
            array(select u.id from users u join found f on f.block = u.no / 1024 \
                where $8 > 0 and u.id > $7 and get_bit(f.users, u.no % 1024) = 1 order by u.id limit $8)"
    ),
};

/// Before and after every message.
const BEGIN: Timestamp = Timestamp::from_micros(i64::MIN);
const END: Timestamp = Timestamp::from_micros(i64::MAX);

const HOUR_MICROS: i64 = 3_600_000_000;

fn count(row: &Row, column: usize) -> Result<u64, DbError> {
    unsigned(row, column, "reading counts")
}

fn rows(limit: usize) -> i64 {
    saturate(limit)
}

/// One more than requested, to see whether there are more.
fn one_more(limit: usize) -> i64 {
    rows(limit).saturating_add(1)
}

fn types(row: &Row, column: usize) -> Result<TypeCounts, DbError> {
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

fn room_id(text: &str) -> Result<RoomId, DbError> {
    RoomId::new(text).map_err(|_| unexpected("reading rooms", text))
}

fn user_id(text: &str) -> Result<UserId, DbError> {
    UserId::new(text).map_err(|_| unexpected("reading users", text))
}

pub(super) async fn totals(source: ReadSource) -> Result<Totals, DbError> {
    let row = source.read_one(&TOTALS, &[]).await?;
    let rooms = count(&row, 4)?;
    let received = (rooms > 0).then(|| first_last(&row, 5));
    Ok(Totals { messages: types(&row, 0)?, users: count(&row, 3)?, rooms, received })
}

fn room_of(row: &Row) -> Result<RoomStats, DbError> {
    let (messages, users) = (count(row, 1)?, count(row, 2)?);
    Ok(RoomStats { room: room_id(row.get(0))?, messages, users, received: first_last(row, 3) })
}

pub(super) async fn room(source: ReadSource, room: RoomId) -> Result<Option<RoomStats>, DbError> {
    source.read(&ROOM, &[&room.as_str()]).await?.first().map(room_of).transpose()
}

pub(super) async fn top_rooms(source: ReadSource, limit: usize) -> Result<Vec<RoomStats>, DbError> {
    source.read(&TOP_ROOMS, &[&rows(limit)]).await?.iter().map(room_of).collect()
}

fn user_of(row: &Row) -> Result<UserStats, DbError> {
    let (messages, rooms) = (count(row, 1)?, count(row, 2)?);
    Ok(UserStats { user: user_id(row.get(0))?, messages, rooms, received: first_last(row, 3) })
}

pub(super) async fn user(source: ReadSource, user: UserId) -> Result<Option<UserStats>, DbError> {
    source.read(&USER, &[&user.as_str()]).await?.first().map(user_of).transpose()
}

pub(super) async fn top_users(source: ReadSource, limit: usize) -> Result<Vec<UserStats>, DbError> {
    source.read(&TOP_USERS, &[&rows(limit)]).await?.iter().map(user_of).collect()
}

pub(super) async fn top_pairs(source: ReadSource, limit: usize) -> Result<Vec<PairStats>, DbError> {
    let pair = |row: &Row| {
        let (room, user) = (room_id(row.get(0))?, user_id(row.get(1))?);
        Ok(PairStats { room, user, messages: count(row, 2)? })
    };
    source.read(&TOP_PAIRS, &[&rows(limit)]).await?.iter().map(pair).collect()
}

pub(super) async fn hours(source: ReadSource, query: HoursQuery) -> Result<HoursPage, DbError> {
    let from = PgTime(query.from.map_or(BEGIN, hour_of));
    let to = PgTime(query.to.unwrap_or(END));
    let rows = source.read(&HOURS, &[&from, &to, &one_more(query.limit)]).await?;
    let hour = |row: &Row| {
        Ok(HourStats {
            hour: row.get::<_, PgTime>(0).0,
            messages: types(row, 1)?,
            users: count(row, 4)?,
            rooms: count(row, 5)?,
        })
    };
    let hours = rows.iter().take(query.limit).map(hour).collect::<Result<_, DbError>>()?;
    Ok(HoursPage { hours, more: rows.len() > query.limit })
}

pub(super) async fn participation(
    source: ReadSource,
    user: UserId,
    after: Option<RoomId>,
    limit: usize,
) -> Result<ParticipationPage, DbError> {
    let after = after.as_ref().map_or("", RoomId::as_str);
    let rows = source.read(&PARTICIPATION, &[&user.as_str(), &after, &one_more(limit)]).await?;
    let room = |row: &Row| {
        Ok(Participation {
            room: room_id(row.get(0))?,
            messages: count(row, 1)?,
            received: first_last(row, 2),
        })
    };
    let rooms = rows.iter().take(limit).map(room).collect::<Result<_, DbError>>()?;
    Ok(ParticipationPage { rooms, more: rows.len() > limit })
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

pub(super) async fn active_users(
    source: ReadSource,
    query: ActiveUsersQuery,
) -> Result<ActiveUsers, DbError> {
    let Window { before_hours, hours, after_hours } = Window::of(query.from, query.to);
    let [[b1, b2], [h1, h2], [e1, e2]] = [before_hours, hours, after_hours].map(|ends| ends.map(PgTime));
    let after = query.after.as_ref().map_or("", UserId::as_str);
    let wanted = if query.limit == 0 { 0 } else { one_more(query.limit) };
    let row = source.read_one(&ACTIVE, &[&b1, &b2, &h1, &h2, &e1, &e2, &after, &wanted]).await?;
    let (total, names): (u64, Vec<&str>) = (count(&row, 0)?, row.get(1));
    let users = names.iter().take(query.limit).map(|name| user_id(name)).collect::<Result<_, DbError>>()?;
    let more = names.len() > query.limit;
    if query.limit > 0 {
        return Ok(ActiveUsers { count: total, users, more });
    }
    // A page of limit 0 holds nobody, so there are more if anybody comes after its cursor.
    let more = match query.after {
        None => total > 0,
        Some(_) => {
            let row = source.read_one(&ACTIVE, &[&b1, &b2, &h1, &h2, &e1, &e2, &after, &1_i64]).await?;
            !row.get::<_, Vec<&str>>(1).is_empty()
        }
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
