//! Expired messages are deleted with their counts and ids, and nothing else is.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually, wait_for_waiters};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::StatsStore;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{
    Change, MessageType, Op, OpBatch, Outcome, RoomChange, RoomId, RoomSettings, RoomStore, Send, Store,
    Timestamp,
};
use hubbub_postgres::{Postgres, PostgresOptions};

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// What whoever makes or drops partitions holds, 7161616175.
const PARTITIONS_LOCK: (i64, i64) = (1, 2_866_648_879);

struct Opened {
    database: Database,
    clock: Arc<ManualClock>,
    store: Arc<Postgres>,
}

/// Messages are kept for three days, in partitions of a day.
async fn opened() -> Opened {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let store = open(&database, &clock, Some(3), 3).await;
    Opened { database, clock, store }
}

/// A server that keeps messages for so many days, or all, in partitions of a day.
async fn open(
    database: &Database,
    clock: &Arc<ManualClock>,
    kept_days: Option<u64>,
    seed: u64,
) -> Arc<Postgres> {
    let options = PostgresOptions {
        partition: Duration::from_secs(86_400),
        retention: kept_days.map(|days| Duration::from_secs(days * 86_400)),
        ..PostgresOptions::new(&database.url)
    };
    Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(seed)).await.unwrap())
}

impl Opened {
    fn apply(&self, ops: &[Op<'_>]) -> Vec<Outcome> {
        let mut batch = OpBatch::default();
        ops.iter().for_each(|op| batch.push(op));
        self.store.apply(&batch).unwrap()
    }

    fn send(&self, room: &str, user: &str, id: &str) -> Outcome {
        let (text, timestamp) = ("text", Timestamp::from_micros(0));
        let send = Send { room, user, id, username: None, text, kind: MessageType::Text, timestamp };
        self.apply(&[Op::Send(send)]).remove(0)
    }

    fn change(&self, what: RoomChange<'_>) {
        self.apply(&[Op::Change(Change { by: None, what })]);
    }

    fn keep(&self, room: &str, seconds: u64) {
        let settings = RoomSettings { retention_s: Some(seconds), ..RoomSettings::default() };
        self.change(RoomChange::PutRoom { room, settings });
    }

    /// Numbers of the messages of a room.
    async fn seqs(&self, room: &str) -> Vec<u64> {
        let query =
            HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 1_000, bytes_max: 1 << 20 };
        let page = self.store.history(RoomId::new(room).unwrap(), query).await.unwrap();
        let seqs: Vec<u64> = page.messages.iter().map(|message| message.seq).collect();
        let info = self.store.room(RoomId::new(room).unwrap()).await.unwrap().unwrap();
        assert_eq!(info.messages, seqs.len() as u64, "messages of {room}");
        assert_eq!(info.oldest, seqs.first().copied().unwrap_or(info.head + 1), "oldest of {room}");
        seqs
    }

    async fn number(&self, text: &str) -> i64 {
        connect(&self.database.url).await.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Runs all due work, and checks that counts and tables hold `messages`.
    async fn holds(&self, messages: u64) {
        self.store.finish_maintenance().await.unwrap();
        let audit = self.store.audit().await.unwrap();
        assert_eq!(audit.as_of, hubbub_core::Clock::now(&*self.clock));
        assert_eq!((audit.value.messages, audit.value.differences), (messages, Vec::new()));
        assert_eq!(self.store.totals().await.unwrap().value.messages.total(), messages);
        let messages = i64::try_from(messages).unwrap();
        assert_eq!(self.number("select count(*) from messages").await, messages);
        assert_eq!(self.number("select count(*) from message_ids").await, messages);
        assert_eq!(self.number("select count(*) from takeouts").await, 0);
    }

    /// Waits for so many partitions, including those created ahead.
    async fn partitions(&self, wanted: i64) {
        for _ in 0..200 {
            if self.count_partitions().await == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(self.count_partitions().await, wanted, "partitions");
    }

    async fn count_partitions(&self) -> i64 {
        let text = "select count(*) from partitions full join pg_inherits on inhrelid::regclass::text = name \
                    where inhparent = 'messages'::regclass or inhparent is null";
        self.number(text).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_partitions_are_dropped() {
    let opened = opened().await;
    for day in 0..6 {
        for n in 0..4 {
            opened.send(&format!("room-{}", n % 2), &format!("user-{n}"), &format!("m-{day}-{n}"));
            opened.clock.advance_micros(6 * HOUR);
        }
    }
    // Six days have ended, three of them more than three days ago.
    opened.holds(12).await;
    assert_eq!(opened.seqs("room-0").await, [7, 8, 9, 10, 11, 12]);
    opened.partitions(3 + 3).await;
    assert_eq!(
        opened.send("room-0", "user-9", "m-5-0"),
        Outcome::Refused(hubbub_core::Refusal::IdReused { seq: 11 })
    );
    let Outcome::Stored(receipt) = opened.send("room-0", "user-9", "m-0-0") else { panic!("the id is free") };
    assert_eq!(receipt.seq, 13);
    opened.clock.advance_micros(100 * DAY);
    opened.holds(0).await;
    assert_eq!(opened.seqs("room-1").await, [0; 0]);
    opened.store.close();
}

/// As when a log brings what is older than what is kept: a server that found a partition empty meets it with a message in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_written_to_meanwhile_stays() {
    for cleaned_pages in [0_i64, 1_000] {
        let opened = opened().await;
        opened.keep("long", 200 * 86_400);
        let then = Arc::new(ManualClock::at(hubbub_core::Clock::now(&*opened.clock)));
        let late = open(&opened.database, &then, None, 4).await;
        let holder = connect(&opened.database.url).await;
        // Its ids are to be deleted, or were, and it is to be dropped.
        holder.execute("update partitions set cleaned_pages = $1", &[&cleaned_pages]).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(7161616175)").await.unwrap();
        // Whoever creates partitions waits, and so does who drops one that it found empty.
        opened.clock.advance_micros(100 * DAY);
        let dropping = tokio::spawn({
            let store = opened.store.clone();
            async move { store.finish_maintenance().await }
        });
        wait_for_waiters(&holder, PARTITIONS_LOCK, 2).await;
        let sending = tokio::task::spawn_blocking({
            let late = late.clone();
            move || {
                let mut batch = OpBatch::default();
                let (room, user, id, text, kind) = ("long", "user", "m-1", "text", MessageType::Text);
                let timestamp = Timestamp::from_micros(0);
                batch.push(&Op::Send(Send { room, user, id, username: None, text, kind, timestamp }));
                late.apply(&batch)
            }
        });
        assert!(matches!(sending.await.unwrap().unwrap()[..], [Outcome::Stored(_)]));
        holder.batch_execute("select pg_advisory_unlock(7161616175)").await.unwrap();
        dropping.await.unwrap().unwrap();
        assert_eq!(opened.seqs("long").await, [1]);
        opened.holds(1).await;
        // Its id is kept, too.
        assert!(matches!(opened.send("long", "user", "m-1"), Outcome::Duplicate(_)));
        late.close();
        opened.store.close();
    }
}

/// Of two servers that want to drop a partition, the second finds that it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_drop_a_partition_once() {
    let opened = opened().await;
    let second = open(&opened.database, &opened.clock, Some(3), 4).await;
    let holder = connect(&opened.database.url).await;
    holder.batch_execute("select pg_advisory_lock(7161616175)").await.unwrap();
    opened.clock.advance_micros(100 * DAY);
    let dropping = [opened.store.clone(), second.clone()]
        .map(|store| tokio::spawn(async move { store.finish_maintenance().await }));
    wait_for_waiters(&holder, PARTITIONS_LOCK, 4).await;
    holder.batch_execute("select pg_advisory_unlock(7161616175)").await.unwrap();
    for dropped in dropping {
        dropped.await.unwrap().unwrap();
    }
    opened.partitions(3).await;
    second.close();
    opened.store.close();
}

/// A vacuum of the database's own gives way, but only to who waits for a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_partition_under_a_vacuum_is_dropped() {
    let opened = opened().await;
    let partition = "select name from partitions order by begins limit 1";
    let vacuum = connect(&opened.database.url).await;
    let name: String = vacuum.query_one(partition, &[]).await.unwrap().get(0);
    vacuum.batch_execute(&format!("begin; lock table {name} in share update exclusive mode")).await.unwrap();
    let gives_way = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(700)).await;
        vacuum.batch_execute("commit").await
    });
    opened.clock.advance_micros(5 * DAY);
    opened.store.finish_maintenance().await.unwrap();
    assert_eq!(opened.number(&format!("select count(*) from partitions where name = '{name}'")).await, 0);
    gives_way.await.unwrap().unwrap();
    opened.store.close();
}

/// A change that comes between finding old messages and hiding them counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_is_to_keep_its_messages_after_all_keeps_them() {
    for has_own in [true, false] {
        let opened = opened().await;
        if has_own {
            opened.keep("room", 3_600);
        }
        opened.send("room", "user", "m");
        let mut other = connect(&opened.database.url).await;
        let change = other.transaction().await.unwrap();
        change
            .execute("update rooms set retention_s = 99 * 86400, changes = changes + 1", &[])
            .await
            .unwrap();
        opened.clock.advance_micros(10 * DAY);
        // The messages are found, and the room is to be locked.
        let waits = "select count(*) from pg_stat_activity \
                     where datname = current_database() and wait_event_type = 'Lock'";
        eventually("hiding waits", async || opened.number(waits).await > 0).await;
        change.commit().await.unwrap();
        opened.holds(1).await;
        assert_eq!(opened.seqs("room").await, [1], "{has_own}");
        opened.clock.advance_micros(90 * DAY);
        opened.holds(0).await;
        opened.store.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_keep_to_a_retention_of_their_own() {
    let opened = opened().await;
    opened.keep("long", 20 * 86_400);
    opened.keep("short", 3_600);
    for n in 0..8 {
        for room in ["long", "short", "other"] {
            opened.send(room, &format!("user-{}", n % 2), &format!("m-{n}"));
        }
        opened.clock.advance_micros(DAY / 2);
    }
    opened.send("short", "user-0", "last");
    opened.holds(8 + 1 + 6).await;
    assert_eq!(opened.seqs("long").await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(opened.seqs("short").await, [9]);
    assert_eq!(opened.seqs("other").await, [3, 4, 5, 6, 7, 8]);

    opened.clock.advance_micros(HOUR + 1);
    opened.holds(8 + 6).await;
    opened.clock.advance_micros(10 * DAY);
    opened.holds(8).await;
    opened.clock.advance_micros(10 * DAY);
    opened.holds(0).await;
    opened.partitions(3).await;
    opened.store.close();
}

/// However many partitions a room keeps, those behind them expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_stay_do_not_hide_later_ones() {
    const DAYS: i64 = 70;
    let opened = opened().await;
    opened.keep("long", 200 * 86_400);
    for day in 0..DAYS {
        for room in ["long", "other"] {
            opened.send(room, "user", &format!("m-{day}"));
        }
        opened.clock.advance_micros(DAY);
    }
    opened.holds(DAYS.unsigned_abs() + 3).await;
    assert_eq!(opened.seqs("other").await, [68, 69, 70]);
    // The beat comes around to each of them, too.
    opened.clock.advance_micros(10 * DAY);
    let text = "select count(*) from messages m join room_names r on r.no = m.room where r.id = 'other'";
    eventually("all have expired", async || opened.number(text).await == 0).await;
    assert_eq!(opened.seqs("long").await.len(), 70);
    opened.store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_messages_and_old_ones_are_counted_once() {
    let opened = opened().await;
    for n in 0..16 {
        opened.send("room", &format!("user-{}", n % 4), &format!("m-{n}"));
        opened.clock.advance_micros(6 * HOUR);
    }
    // The first message kept would be an erased one.
    opened.change(RoomChange::EraseUser { user: "user-0" });
    opened.holds(9).await;
    assert_eq!(opened.seqs("room").await, [6, 7, 8, 10, 11, 12, 14, 15, 16]);
    assert_eq!(opened.number("select count(*) from erased").await, 2);
    opened.change(RoomChange::DeleteRoom { room: "room" });
    opened.holds(0).await;
    opened.store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_does_it_too() {
    let opened = opened().await;
    for n in 0..100 {
        opened.send("room", "user", &format!("m-{n}"));
        opened.clock.advance_micros(HOUR);
    }
    opened.clock.advance_micros(7 * DAY);
    opened.partitions(3).await;
    assert_eq!(opened.number("select count(*) from message_ids").await, 0);
    opened.holds(0).await;
    opened.store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_finds_what_is_wrong() {
    let opened = opened().await;
    for n in 0..10 {
        opened.send("room", &format!("user-{}", n % 3), &format!("m-{n}"));
    }
    opened.holds(10).await;
    let client = connect(&opened.database.url).await;
    for (wrong, told) in [
        ("update pair_counts set messages = messages + 1 where sender = 1", "user and room 1 1: counted 5"),
        ("update room_counts set users = 2", "room 1: counted 10 of 2 users"),
        ("delete from user_counts where sender = 2", "user 2: counted nothing"),
        ("update hour_counts set joins = 1", "counted 10, 1, 0"),
        ("update hour_room_counts set messages = 9", "room in the hour"),
        ("update hour_users set users = set_bit(users, 5, 1)", "users in the hour"),
    ] {
        client.batch_execute(wrong).await.unwrap();
        let differences = opened.store.audit().await.unwrap().value.differences;
        assert!(differences.iter().any(|found| found.contains(told)), "{wrong}: {differences:?}");
    }
    opened.store.close();
}
