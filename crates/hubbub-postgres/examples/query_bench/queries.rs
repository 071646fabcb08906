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

/// Asks each query for many rooms, users and windows.
pub(crate) async fn time_all(store: &Postgres, workload: &Workload) -> Result<(), Failure> {
    println!("\n{:<44} {:>8} {:>8} {:>8} {:>8}", "query, milliseconds", "p50", "p95", "p99", "target");
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
    let mut active: Vec<(&str, i64, Vec<Duration>)> =
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
    line("room by time range: 1,000 of a day", history, 100);
    line("user history: newest 100", users, 200);
    for (what, _, times) in active {
        line(what, times, 500);
    }
    line("a user's rooms: wrote in", wrote, 50);
    line("a user's rooms: member of, with unread", rooms, 50);
    Ok(())
}

fn line(what: &str, mut times: Vec<Duration>, target: u32) {
    times.sort_unstable();
    let at = |part: usize| {
        times
            .get((times.len() * part / 100).min(times.len().saturating_sub(1)))
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    println!("{what:<44} {:>8.2} {:>8.2} {:>8.2} {:>8}", at(50), at(95), at(99), target);
}
