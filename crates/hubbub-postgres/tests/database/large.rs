//! What maintenance reads does not grow with what there is, but with what there is to do.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::StatsStore;
use hubbub_core::{Change, Op, OpBatch, RoomChange, RoomSettings, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

const DAY: i64 = 86_400_000_000;

struct Opened {
    database: Database,
    clock: Arc<ManualClock>,
    store: Arc<Postgres>,
    client: Client,
}

async fn open(database: &Database, clock: &Arc<ManualClock>) -> Arc<Postgres> {
    let options = PostgresOptions {
        partition: Duration::from_secs(86_400),
        retention: Some(Duration::from_secs(30 * 86_400)),
        ..PostgresOptions::new(&database.url)
    };
    Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap())
}

impl Opened {
    /// Messages are kept for 30 days, in partitions of a day.
    async fn fresh() -> Self {
        let database = Database::fresh().await;
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
        let (store, client) = (open(&database, &clock).await, connect(&database.url).await);
        Self { database, clock, store, client }
    }

    fn apply(&self, ops: &[Op<'_>]) {
        let mut batch = OpBatch::default();
        ops.iter().for_each(|op| batch.push(op));
        self.store.apply(&batch).unwrap();
    }

    /// Makes so many rooms, each with one message.
    fn make_rooms(&self, count: usize) {
        let names: Vec<String> = (0..count).map(|room| format!("room-{room}")).collect();
        for names in names.chunks(1_000) {
            let posts: Vec<_> = names.iter().map(|name| Post::new(name, "m-1")).collect();
            self.apply(&posts.iter().map(|post| Op::Send(post.as_send())).collect::<Vec<_>>());
        }
    }

    /// Gives each room so many messages, counts them, and lets the database know how much there is.
    async fn fill(&self, each: i64) {
        let text = format!(
            "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
                 select m.room, m.sender, n, m.received_at, m.sent_at, m.kind, 'm-' || n, m.username, m.body \
                 from messages m, generate_series(2, {each}) n; \
             update rooms set head = {each}, messages = {each}"
        );
        self.client.batch_execute(&text).await.unwrap();
        self.store.finish_maintenance().await.unwrap();
        self.client.batch_execute("analyze").await.unwrap();
    }

    /// Hides messages. Nobody changes counts before [`Self::reads_of`].
    async fn hide(&self, text: &str) {
        self.client.batch_execute("select pg_advisory_lock(7161616176)").await.unwrap();
        self.client.batch_execute(text).await.unwrap();
    }

    /// Hides 50 messages, and uncounts them.
    async fn reads_little_to_hide_50(self, hide: &str) {
        self.hide(hide).await;
        let reads = self.reads_of("messages_2%").await;
        assert!(reads < 5_000, "{reads} were read for 50 messages");
    }

    async fn number(&self, text: &str) -> i64 {
        self.client.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Waits until all sessions have ended: then they have told what they read.
    async fn close(&self) {
        self.store.close();
        let others = "select count(*) from pg_stat_activity where datname = current_database() \
                      and application_name = 'hubbub'";
        eventually("all sessions have ended", async || self.number(others).await == 0).await;
    }

    /// How many rows or entries of indexes of tables with such names maintenance reads in one run.
    async fn reads_of(mut self, names: &str) -> i64 {
        self.close().await;
        self.client.batch_execute("select pg_stat_reset(); select pg_advisory_unlock_all()").await.unwrap();
        self.store = open(&self.database, &self.clock).await;
        self.store.finish_maintenance().await.unwrap();
        self.close().await;
        let text = "select (coalesce(sum(idx_tup_read), 0) + (select coalesce(sum(seq_tup_read), 0) \
                        from pg_stat_user_tables where relname like $1))::int8 \
                    from pg_stat_user_indexes where relname like $1";
        self.client.query_one(text, &[&names]).await.unwrap().get(0)
    }
}

/// A user who wrote everything everywhere: the first message of each room is hidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_user_wrote_elsewhere_is_not_read_to_uncount_a_message() {
    let opened = Opened::fresh().await;
    opened.make_rooms(50);
    opened.fill(400).await;
    let hide = "update rooms set oldest = 2, messages = messages - 1; \
                insert into takeouts (room, first_seq, last_seq) select no, 1, 1 from rooms";
    opened.reads_little_to_hide_50(hide).await;
}

/// Users who wrote a message each in a large room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_in_a_room_is_not_read_to_uncount_a_message() {
    let opened = Opened::fresh().await;
    opened.make_rooms(1);
    let users = "insert into users (id) select 'user-' || n from generate_series(1, 50) n";
    opened.client.batch_execute(users).await.unwrap();
    opened.fill(20_000).await;
    // They wrote the first messages, and the last ones.
    let write = "update messages set sender = (select max(no) from users) - seq % 50 where seq <= 50 or seq > 19950; \
                 truncate counted, pair_counts, room_counts, user_counts, hour_counts, hour_room_counts, hour_users";
    opened.client.batch_execute(write).await.unwrap();
    opened.store.finish_maintenance().await.unwrap();
    opened.client.batch_execute("analyze").await.unwrap();
    let hide = "update rooms set oldest = 51, messages = messages - 50; \
                insert into takeouts (room, first_seq, last_seq) select no, 1, 50 from rooms";
    opened.reads_little_to_hide_50(hide).await;
}

/// Rooms with a retention of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_in_which_nothing_has_expired_are_not_read() {
    let opened = Opened::fresh().await;
    opened.make_rooms(20);
    let settings = RoomSettings { retention_s: Some(86_400), ..RoomSettings::default() };
    for room in 0..20 {
        let room = format!("room-{room}");
        opened.apply(&[Op::Change(Change { by: None, what: RoomChange::PutRoom { room: &room, settings } })]);
    }
    opened.fill(3_000).await;
    let reads = opened.reads_of("messages_2%").await;
    assert!(reads < 5_000, "{reads} were read although nothing has expired");
}

/// Each room is looked at a few times, not once in each step; and what is left of it is not removed one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_of_many_rooms_is_removed_in_few_steps() {
    const ROOMS: i64 = 5_000;
    let opened = Opened::fresh().await;
    opened.make_rooms(5_000);
    opened.store.finish_maintenance().await.unwrap();
    opened.client.batch_execute("analyze; select pg_stat_reset()").await.unwrap();
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    opened.clock.advance_micros(40 * DAY);
    opened.store.finish_maintenance().await.unwrap();
    assert_eq!(opened.number("select count(*) from messages").await, 0);
    assert_eq!(opened.number("select count(*) from takeouts").await, 0);
    opened.close().await;
    let transactions = opened.number(commits).await;
    assert!(transactions < 500, "{transactions} transactions");
    let text = "select sum(idx_tup_read)::int8 from pg_stat_user_indexes where indexrelname = 'rooms_by_no'";
    let looks = opened.number(text).await / ROOMS;
    assert!(looks < 20, "each room was looked at {looks} times");
}

/// What is hidden is cut into parts, of which none is larger than a step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_deletion_is_uncounted_part_by_part() {
    let opened = Opened::fresh().await;
    opened.make_rooms(1);
    opened.store.totals().await.unwrap();
    let large = "insert into takeouts (room, first_seq, last_seq) select no, 1, 2000000 from rooms; \
                 update rooms set head = 2000000, oldest = 2000001; update counted set seq = 2000000; \
                 create table steps (size int8); \
                 create function note() returns trigger language plpgsql as $$ begin \
                     insert into steps values (new.last_seq - new.first_seq + 1); return null; end $$; \
                 create trigger note after update on takeouts for each row \
                     when (new.counted_out and not old.counted_out) execute function note()";
    opened.client.batch_execute(large).await.unwrap();
    opened.store.totals().await.unwrap();
    assert_eq!(opened.number("select sum(size)::int8 from steps").await, 2_000_000);
    assert_eq!(opened.number("select max(size) from steps").await, 200_000);
    opened.store.close();
}

/// Here counts cannot be changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_expire_though_others_cannot_be_uncounted() {
    let opened = Opened::fresh().await;
    opened.make_rooms(2);
    let (room, settings) = ("room-1", RoomSettings { retention_s: Some(86_400), ..RoomSettings::default() });
    opened.apply(&[Op::Change(Change { by: None, what: RoomChange::PutRoom { room, settings } })]);
    opened.store.finish_maintenance().await.unwrap();
    let fails = "create function fails() returns trigger language plpgsql as $$ begin \
                     raise exception 'too slow' using errcode = '57014'; end $$; \
                 create trigger fails before update on takeouts for each row when (new.counted_out) \
                     execute function fails()";
    opened.client.batch_execute(fails).await.unwrap();
    opened.apply(&[Op::Change(Change { by: None, what: RoomChange::DeleteRoom { room: "room-0" } })]);
    opened.clock.advance_micros(2 * DAY);
    let hidden = "select count(*) from rooms where id = 'room-1' and messages = 0";
    eventually("nothing expires", async || opened.number(hidden).await == 1).await;
    opened.store.close();
}
