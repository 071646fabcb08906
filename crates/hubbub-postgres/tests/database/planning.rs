//! What a statement reads of a partition that was made while the statement was being planned: PostgreSQL takes the snapshot
//! of a statement after its plan, so the plan may lack a partition whose messages the snapshot shows.

use std::sync::Arc;

use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::StatsStore;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Op, OpBatch, RoomId, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

use crate::support::{Database, connect, eventually};

const DAY: i64 = 86_400_000_000;

struct Opened {
    clock: Arc<ManualClock>,
    /// One that reads, and another one that writes.
    servers: [Arc<Postgres>; 2],
    /// Holds the lock, and sees what waits for it: a transaction would see that as of its first look.
    others: [Client; 2],
    _database: Database,
}

impl Opened {
    async fn fresh() -> Self {
        let database = Database::fresh().await;
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
        let open = async |seed| {
            let options = PostgresOptions {
                partition: std::time::Duration::from_secs(86_400),
                ..PostgresOptions::new(&database.url)
            };
            Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(seed)).await.unwrap())
        };
        let servers = [open(1).await, open(2).await];
        let others = [connect(&database.url).await, connect(&database.url).await];
        Self { clock, servers, others, _database: database }
    }

    async fn send(&self, id: &'static str) {
        let store = self.servers[1].clone();
        let sending = tokio::task::spawn_blocking(move || {
            let mut batch = OpBatch::default();
            batch.push(&Op::Send(Post::new("room", id).as_send()));
            store.apply(&batch)
        });
        sending.await.unwrap().unwrap();
    }

    /// Runs `reading` until it is being planned, sends a message that needs a partition of its own, and ends it.
    async fn send_while_planning<T: Send + 'static>(
        &self,
        text: &str,
        reading: impl Future<Output = T> + Send + 'static,
        id: &'static str,
    ) -> T {
        // A plan looks at all partitions.
        let hold = "begin; lock table messages_20260131 in access exclusive mode";
        let [holder, watcher] = &self.others;
        holder.batch_execute(hold).await.unwrap();
        let reading = tokio::spawn(reading);
        let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                     and wait_event_type = 'Lock' and position($1 in query) > 0";
        eventually("it is being planned", async || {
            watcher.query_one(waits, &[&text]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        self.clock.advance_micros(40 * DAY);
        self.send(id).await;
        holder.batch_execute("commit").await.unwrap();
        reading.await.unwrap()
    }

    async fn seqs(&self) -> Vec<u64> {
        let query =
            HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 1_000, bytes_max: 1 << 20 };
        let page = self.servers[0].history(RoomId::new("room").unwrap(), query).await.unwrap();
        page.messages.iter().map(|message| message.seq).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_a_partition_made_meanwhile_is_counted() {
    let opened = Opened::fresh().await;
    opened.send("m-1").await;
    let reader = opened.servers[0].clone();
    let counting = async move { reader.totals().await.unwrap().value.messages.total() };
    let counted = opened.send_while_planning("as chosen (room", counting, "m-2").await;
    assert!((1..=2).contains(&counted), "{counted}");
    assert_eq!(opened.servers[0].totals().await.unwrap().value.messages.total(), 2);
    assert_eq!(opened.servers[0].audit().await.unwrap().value.differences, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_a_partition_made_meanwhile_is_remembered() {
    let opened = Opened::fresh().await;
    opened.send("m-1").await;
    let reader = opened.servers[0].clone();
    let newest = async move {
        let query = HistoryQuery {
            cursor: Cursor::Before(u64::MAX),
            from: None,
            to: None,
            limit: 10,
            bytes_max: 1 << 20,
        };
        reader.history(RoomId::new("room").unwrap(), query).await.unwrap().messages.len()
    };
    opened.send_while_planning("m.found", newest, "m-2").await;
    assert_eq!(opened.seqs().await, [1, 2]);
    opened.send("m-3").await;
    assert_eq!(opened.seqs().await, [1, 2, 3]);
}
