//! When messages are counted without a query: counting costs rows, and many messages of a room share most of them.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually, wait_for_waiters};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::StatsStore;
use hubbub_core::store::StoreHealth;
use hubbub_core::{Change, Op, OpBatch, RoomChange, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

struct Opened {
    database: Database,
    clock: Arc<ManualClock>,
    store: Arc<Postgres>,
}

impl Opened {
    async fn fresh() -> Self {
        let database = Database::fresh().await;
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        let options =
            PostgresOptions { partition: Duration::from_secs(86_400), ..PostgresOptions::new(&database.url) };
        let store = Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap();
        Self { database, clock, store: Arc::new(store) }
    }

    async fn apply(&self, batch: OpBatch) {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap();
    }

    /// Stores messages of a room with these numbers.
    async fn send(&self, room: &str, numbers: std::ops::RangeInclusive<u64>) {
        let mut batch = OpBatch::default();
        for number in numbers {
            batch.push(&Op::Send(Post::new(room, &format!("m-{number}")).as_send()));
        }
        self.apply(batch).await;
    }

    async fn number(&self, text: &str) -> i64 {
        connect(&self.database.url).await.query_one(text, &[]).await.unwrap().get(0)
    }

    /// The last counted message of a room.
    async fn counted(&self, room: &str) -> i64 {
        let text =
            "select coalesce(max(c.seq), 0) from counted c join rooms r on r.no = c.room where r.id = ";
        self.number(&format!("{text}'{room}'")).await
    }

    async fn is_counted(&self, room: &str, through: i64) {
        for _ in 0..400 {
            if self.counted(room).await >= through {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(self.counted(room).await, through, "counted in {room}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_messages_wait_until_somebody_asks() {
    let opened = Opened::fresh().await;
    opened.send("quiet", 1..=1).await;
    opened.send("busy", 1..=1).await;
    opened.is_counted("quiet", 1).await;
    opened.is_counted("busy", 1).await;

    opened.send("quiet", 2..=6).await;
    opened.send("busy", 2..=501).await;
    opened.is_counted("busy", 501).await;
    assert_eq!(opened.counted("quiet").await, 1);

    assert_eq!(opened.store.totals().await.unwrap().value.messages.total(), 507);
    assert_eq!(opened.counted("quiet").await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_waited_for_long_is_counted() {
    let opened = Opened::fresh().await;
    opened.send("quiet", 1..=1).await;
    opened.is_counted("quiet", 1).await;
    opened.send("quiet", 2..=3).await;
    opened.clock.advance_micros(31_000_000);
    opened.is_counted("quiet", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_does_not_wait_on_the_disk() {
    let opened = Opened::fresh().await;
    opened.send("gone", 1..=1).await;
    opened.is_counted("gone", 1).await;
    opened.send("gone", 2..=6).await;
    let mut batch = OpBatch::default();
    batch.push(&Op::Change(Change { by: None, what: RoomChange::DeleteRoom { room: "gone" } }));
    opened.apply(batch).await;
    for _ in 0..400 {
        if opened.number("select count(*) from takeouts").await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(opened.number("select count(*) from messages").await, 0);
    assert_eq!(opened.store.totals().await.unwrap().value.messages.total(), 0);
}

/// Counts in as many steps as it takes, whatever is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_counts_everything() {
    let opened = Opened::fresh().await;
    for room in 0..60 {
        opened.send(&format!("room-{room}"), 1..=1).await;
    }
    assert_eq!(opened.store.totals().await.unwrap().value.messages.total(), 60);
    for room in 0..60 {
        opened.send(&format!("room-{room}"), 2..=199).await;
    }
    assert_eq!(opened.store.totals().await.unwrap().value.messages.total(), 60 * 199);
    assert!(opened.store.audit().await.unwrap().value.differences.is_empty());
}

/// Even the first answer, where more is left to count than a query waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_that_lag_say_since_when() {
    let opened = Arc::new(Opened::fresh().await);
    let first = hubbub_core::Clock::now(&*opened.clock);
    let holder = connect(&opened.database.url).await;
    holder.batch_execute("select pg_advisory_lock(7161616176)").await.unwrap();
    for number in 0..3 {
        opened.send("room", number * 3_000 + 1..=number * 3_000 + 3_000).await;
        opened.clock.advance_micros(60_000_000);
    }
    let asking = tokio::spawn({
        let opened = opened.clone();
        async move { opened.store.totals().await }
    });
    // It has begun to wait, for so long. 7161616176 in halves.
    let watching = connect(&opened.database.url).await;
    wait_for_waiters(&watching, (1, 2_866_648_880), 1).await;
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    holder.batch_execute("select pg_advisory_unlock(7161616176)").await.unwrap();
    let told = asking.await.unwrap().unwrap();
    assert_eq!(told.value.messages.total(), 5_000);
    assert_eq!(told.as_of.as_micros(), first.as_micros() + 60_000_000 - 1);
    let told = opened.store.totals().await.unwrap();
    assert_eq!((told.value.messages.total(), told.as_of), (9_000, hubbub_core::Clock::now(&*opened.clock)));
}

/// Also where rooms are deleted before they were ever counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_current_while_rooms_come_and_go() {
    let opened = Arc::new(Opened::fresh().await);
    let coming = tokio::spawn({
        let opened = opened.clone();
        async move {
            for room in 0..400 {
                let room = format!("room-{room}");
                opened.send(&room, 1..=1).await;
                let mut batch = OpBatch::default();
                let what = RoomChange::DeleteRoom { room: &room };
                batch.push(&Op::Change(Change { by: None, what }));
                opened.apply(batch).await;
            }
        }
    });
    let now = hubbub_core::Clock::now(&*opened.clock);
    while !coming.is_finished() {
        assert_eq!(opened.store.totals().await.unwrap().as_of, now);
    }
    coming.await.unwrap();
}

/// So that each part is deleted with the partition, and not row by row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_deletion_keeps_its_partition_when_it_is_split() {
    let opened = Opened::fresh().await;
    opened.send("lobby", 1..=1).await;
    let large = "insert into takeouts (room, first_seq, last_seq, partition) select no, 1, 500000, '2020-01-01' from rooms";
    connect(&opened.database.url).await.execute(large, &[]).await.unwrap();
    opened.store.totals().await.unwrap();
    assert!(opened.number("select count(*) from takeouts").await > 1);
    assert_eq!(opened.number("select count(*) from takeouts where partition is null").await, 0);
}

/// Writes go on, so servers stay in use; and the other figures go on, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_counted_stops_nothing() {
    let opened = Opened::fresh().await;
    opened.send("busy", 1..=1).await;
    opened.is_counted("busy", 1).await;
    assert_eq!((opened.store.health(), opened.store.figures().partitions_missing), (StoreHealth::Up, 0));

    let client = connect(&opened.database.url).await;
    client.batch_execute("alter table pair_counts rename to elsewhere").await.unwrap();
    opened.send("busy", 2..=501).await;
    eventually("no alarm", async || matches!(opened.store.health(), StoreHealth::Alarm(_))).await;
    let StoreHealth::Alarm(reason) = opened.store.health() else { panic!("{:?}", opened.store.health()) };
    assert!(reason.contains("counting messages") && reason.contains("pair_counts"), "{reason}");
    opened.send("busy", 502..=502).await;

    // Today, tomorrow and the day after have a partition. None can be made for the one behind.
    client.batch_execute("create table messages_20231117 (taken int)").await.unwrap();
    opened.clock.advance_micros(86_400_000_000);
    eventually("no figure", async || opened.store.figures().partitions_missing > 0).await;
    assert!(matches!(opened.store.health(), StoreHealth::Alarm(_)), "{:?}", opened.store.health());

    client
        .batch_execute("alter table elsewhere rename to pair_counts; drop table messages_20231117")
        .await
        .unwrap();
    eventually("the alarm stays", async || opened.store.health() == StoreHealth::Up).await;
    assert_eq!(opened.store.figures().partitions_missing, 0);
    opened.is_counted("busy", 502).await;
}

/// Sends are refused for the same; so servers must not pass for working.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_no_mere_alarm() {
    let opened = Opened::fresh().await;
    opened.send("busy", 1..=1).await;
    opened.is_counted("busy", 1).await;
    let full = "create function full_disk() returns trigger language plpgsql as \
            $$ begin raise 'could not extend file' using errcode = 'disk_full'; end $$; \
        create trigger full_disk before insert or update on pair_counts \
            for each statement execute function full_disk()";
    let client = connect(&opened.database.url).await;
    client.batch_execute(full).await.unwrap();
    opened.send("busy", 2..=501).await;
    eventually("nothing", async || opened.store.health() != StoreHealth::Up).await;
    let StoreHealth::DiskFull(reason) = opened.store.health() else { panic!("{:?}", opened.store.health()) };
    assert!(reason.contains("could not extend file (SQLSTATE 53100)"), "{reason}");

    client.batch_execute("drop trigger full_disk on pair_counts").await.unwrap();
    eventually("it stays full", async || opened.store.health() == StoreHealth::Up).await;
    opened.is_counted("busy", 501).await;
}
