//! The four core queries as the server asks them.

use std::time::{Duration, Instant};

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::stats::{ActiveUsersQuery, StatsStore, UserHistoryQuery};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{RoomId, RoomStore, Timestamp, UserId};
use hubbub_postgres::Postgres;

use crate::{Failure, SPAN_MICROS, START_MICROS, Workload};

const TIMES: usize = 200;
const HOUR: i64 = 3_600_000_000;

/// A query, how long its answers took, the shortest first, and how many milliseconds they may take.
pub(crate) struct Timed {
    pub(crate) what: &'static str,
    pub(crate) times: Vec<Duration>,
    #[allow(dead_code, reason = "not every example compares with it")]
    pub(crate) target: u32,
}

/// Asks each query for many rooms, users and windows.
pub(crate) async fn time_all(store: &Postgres, workload: &Workload) -> Result<Vec<Timed>, Failure> {
    let random = SeededRandom::new(7);
    let pick = |most: u64| random.next_u64() % most.max(1);
    let room = || RoomId::new(&format!("room-{}", pick(workload.rooms)));
    let user = || UserId::new(&format!("user-{}", pick(workload.users)));
    let window = |length: i64| {
        let from = i64::try_from(pick(u64::try_from(SPAN_MICROS - length).unwrap_or(1))).unwrap_or(0);
        let at = |micros| Some(Timestamp::from_micros(START_MICROS + micros));
        (at(from), at(from + length))
    };
    let (mut history, mut users, mut rooms, mut wrote) = (vec![], vec![], vec![], vec![]);
    let mut active: Vec<(&'static str, i64, Vec<Duration>)> =
        vec![("active users in 1 hour", HOUR, vec![]), ("active users in 7 days", 168 * HOUR, vec![])];
    for _ in 0..TIMES {
        let (from, to) = window(24 * HOUR);
        let query =
            HistoryQuery { cursor: Cursor::Before(u64::MAX), from, to, limit: 1_000, bytes_max: 1 << 20 };
        let begin = Instant::now();
        store.history(room()?, query).await?;
        history.push(begin.elapsed());

        let query = UserHistoryQuery { before: None, from: None, to: None, limit: 100, bytes_max: 1 << 20 };
        let begin = Instant::now();
        store.user_history(user()?, query).await?;
        users.push(begin.elapsed());

        for (_, length, times) in &mut active {
            let (from, to) = window(*length);
            let begin = Instant::now();
            store.active_users(ActiveUsersQuery { from, to, after: None, limit: 100 }).await?;
            times.push(begin.elapsed());
        }

        let begin = Instant::now();
        store.participation(user()?, None, 1_000).await?;
        wrote.push(begin.elapsed());

        let member = UserId::new(&format!("user-{}", pick(1_000.min(workload.users))))?;
        let begin = Instant::now();
        store.user_rooms(member, None, 1_000).await?;
        rooms.push(begin.elapsed());
    }
    let timed = |what, mut times: Vec<Duration>, target| {
        times.sort_unstable();
        Timed { what, times, target }
    };
    let mut all = vec![
        timed("room by time range: 1,000 of a day", history, 100),
        timed("user history: newest 100", users, 200),
    ];
    all.extend(active.into_iter().map(|(what, _, times)| timed(what, times, 500)));
    all.push(timed("a user's rooms: wrote in", wrote, 50));
    all.push(timed("a user's rooms: member of, with unread", rooms, 50));
    Ok(all)
}

/// A percentile of sorted times, in milliseconds.
pub(crate) fn at(times: &[Duration], percent: usize) -> f64 {
    let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}
