//! The cache of rooms, with several servers on one database.

use std::sync::Arc;

use crate::support::Database;
use hubbub_conformance::model::{KeptMessage, Post};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{
    Change, Op, OpBatch, RandomSource, RoomChange, RoomId, RoomSettings, RoomStore, Store, Timestamp, UserId,
};
use hubbub_postgres::{Postgres, PostgresOptions};

const ROOMS: [&str; 2] = ["r0", "r1"];
const USERS: [&str; 3] = ["u0", "u1", "u2"];

async fn open(database: &Database, clock: &Arc<ManualClock>, recent_cache_bytes: usize) -> Arc<Postgres> {
    let options = PostgresOptions { recent_cache_bytes, ..PostgresOptions::new(&database.url) };
    Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap())
}

async fn apply(store: &Arc<Postgres>, ops: &[Op<'_>]) {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(op));
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap();
}

/// Everything that can be read of a room.
async fn told(store: &Postgres, room: &str, query: HistoryQuery) -> String {
    let room = RoomId::new(room).unwrap();
    let page = store.history(room.clone(), query).await;
    let page = page.map(|page| {
        let messages: Vec<KeptMessage> =
            page.messages.iter().map(|message| KeptMessage::of(&message)).collect();
        (messages, page.head, page.oldest, page.more)
    });
    let info = store.room(room.clone()).await.unwrap();
    let mut accesses = Vec::new();
    for user in USERS {
        accesses.push(store.access(room.clone(), UserId::new(user).unwrap()).await.unwrap());
    }
    format!("{page:#?}\n{info:#?}\n{accesses:#?}")
}

/// Two servers with caches change the same rooms in turn. Both must answer as a server without a cache does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_remembered_is_never_stale() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let plain = open(&database, &clock, 0).await;
    let servers = [open(&database, &clock, 1 << 20).await, open(&database, &clock, 1 << 20).await];
    let random = SeededRandom::new(7);
    let below = |end: usize| usize::try_from(random.next_u64()).unwrap() % end;
    for step in 0..200 {
        let (room, user) = (ROOMS[below(2)], USERS[below(3)]);
        let server = &servers[below(2)];
        let change = |what| Op::Change(Change { by: None, what });
        let settings = RoomSettings { members_only: Some(below(3) == 0), ..RoomSettings::default() };
        match below(24) {
            0 => apply(server, &[change(RoomChange::PutRoom { room, settings })]).await,
            1 if below(3) == 0 => apply(server, &[change(RoomChange::DeleteRoom { room })]).await,
            2 => apply(server, &[change(RoomChange::EraseUser { user })]).await,
            3..6 => apply(server, &[change(RoomChange::AddMember { room, user })]).await,
            6 => apply(server, &[change(RoomChange::RemoveMember { room, user })]).await,
            7..10 => {
                let seq = below(step + 1) as u64;
                apply(server, &[change(RoomChange::MarkRead { room, user, seq })]).await;
            }
            _ => {
                let posts: Vec<Post> = (0..=below(if below(20) == 0 { 300 } else { 6 }))
                    .map(|n| Post::new(room, &format!("m{step}-{n}")).user(user))
                    .collect();
                let ops: Vec<_> = posts.iter().map(|post| Op::Send(post.as_send())).collect();
                apply(server, &ops).await;
            }
        }
        clock.advance_micros(1_000);
        let head = plain.room(RoomId::new(room).unwrap()).await.unwrap().map_or(0, |info| info.head);
        let some = head.saturating_sub(below(30) as u64);
        let query = HistoryQuery {
            cursor: match below(3) {
                0 => Cursor::Before(u64::MAX),
                1 => Cursor::Before(some),
                _ => Cursor::After(some),
            },
            from: None,
            to: None,
            limit: 1 + below(60),
            bytes_max: if below(3) == 0 { 1 + below(500) } else { usize::MAX },
        };
        let expected = told(&plain, room, query).await;
        for server in &servers {
            assert_eq!(told(server, room, query).await, expected, "step {step}, {room}, {query:?}");
        }
    }
    let figures = servers[0].figures().cache;
    assert!(figures.hits > figures.misses && figures.misses > 0, "{figures:?}");
    assert_eq!(plain.figures().cache.hits, 0);
    servers.iter().chain([&plain]).for_each(|store| store.close());
}
