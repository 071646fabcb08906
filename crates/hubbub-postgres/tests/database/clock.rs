//! The store when the database's clock jumps, stops answering, or is not proven.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::queues::{START, apply, done, info, make, send, take, taken, texts};
use crate::support::{Database, connect};
use hubbub_core::clock::{ManualClock, SeededRandom, SteadyClock, TRUST_AFTER};
use hubbub_core::queue::{Audience, Due, QueueOutcome, QueueSend};
use hubbub_core::store::StoreHealth;
use hubbub_core::{Clock, QueueOp, QueueStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 24 * 3_600 * SECOND;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The machine's clocks.
struct Machine(Instant);

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_micros(i64::try_from(since.as_millis()).unwrap() * 1_000)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

fn message<'a>(text: &'a str, id: Option<&'a str>, ttl_ms: Option<u64>) -> QueueSend<'a> {
    QueueSend {
        queue: "q",
        sender: "ada",
        audience: Audience::Anyone,
        text,
        message_id: id,
        due: Due::Now,
        group: None,
        ttl_ms,
        registers: true,
    }
}

fn is_duplicate(store: &Postgres, id: &str) -> bool {
    match done(store, QueueOp::Send(message("known", Some(id), None))) {
        QueueOutcome::Sent { duplicate, .. } => duplicate,
        other => panic!("{other:?}"),
    }
}

/// Takes everything available, after a sweep.
fn swept(store: &Postgres) -> Vec<String> {
    apply(store, &[QueueOp::Sweep, QueueOp::Sweep]);
    let all = taken(done(store, take("q", "bob", 10, None)));
    texts(&all).into_iter().map(str::to_owned).collect()
}

async fn open(database: &Database, machine: &Arc<ManualClock>, proven: Timestamp) -> Arc<Postgres> {
    let clock = SteadyClock::new(machine.clone(), TRUST_AFTER);
    clock.begin_at(Some(proven));
    let options = PostgresOptions::new(&database.url);
    Arc::new(Postgres::open(options, Arc::new(clock), &SeededRandom::new(3)).await.unwrap())
}

/// Waits until maintenance has made a condition true.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_runs_out_by_a_clock_that_nothing_proves_is_not_lost() {
    let database = Database::fresh().await;
    let start = Timestamp::from_micros(START);
    let machine = Arc::new(ManualClock::at(start));
    let store = open(&database, &machine, start).await;
    make(&store, "q");
    send(&store, message("known", Some("k"), None));
    assert_eq!(swept(&store), ["known"]);
    send(&store, message("lives for a day", None, Some(DAY_MS)));
    store.close();

    machine.step_micros(2 * DAY);
    let store = open(&database, &machine, start).await;
    assert!(swept(&store).is_empty(), "nobody gets what has run out");
    assert!(is_duplicate(&store, "k"), "ids are forgotten for good");
    // What cannot be swept yet is not retried over and over.
    let due_in = || store.queue_due_in().is_none_or(|due| due > Duration::from_secs(1));
    until("nothing is due", async || due_in()).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(due_in(), "{:?}", store.queue_due_in());
    send(&store, message("new", None, Some(DAY_MS)));
    assert_eq!(swept(&store), ["new"]);
    store.close();

    machine.step_micros(-2 * DAY);
    let store = open(&database, &machine, start).await;
    assert_eq!(swept(&store), ["lives for a day"]);
    store.close();
}

/// Takes look for the first message where they last found one, but never behind one that is hidden for the time being.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_runs_out_by_a_clock_that_nothing_proves_is_found_again() {
    let database = Database::fresh().await;
    let start = Timestamp::from_micros(START);
    let machine = Arc::new(ManualClock::at(start));
    let store = open(&database, &machine, start).await;
    make(&store, "q");
    // So many that it is noted where the queue begins.
    for _ in 0..5 {
        apply(&store, &[QueueOp::Send(message("lives for a day", None, Some(DAY_MS))); 900]);
    }
    send(&store, message("stays", None, None));
    store.close();

    machine.step_micros(2 * DAY);
    let store = open(&database, &machine, start).await;
    assert_eq!(swept(&store), ["stays"]);
    assert!(swept(&store).is_empty());
    store.close();

    machine.step_micros(-2 * DAY);
    let store = open(&database, &machine, start).await;
    assert_eq!(swept(&store), ["lives for a day"; 10]);
    store.close();
}

/// Queues go by the database's clock from the start on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_became_due_while_nobody_was_there_comes_at_once() {
    let database = Database::fresh().await;
    let start = Timestamp::from_micros(START);
    let machine = Arc::new(ManualClock::at(start));
    let store = open(&database, &machine, start).await;
    make(&store, "q");
    send(&store, QueueSend { due: Due::In(DAY_MS), ..message("tomorrow", None, None) });
    send(&store, message("now", None, None));
    assert_eq!(texts(&taken(done(&store, take("q", "bob", 9, Some(DAY_MS))))), ["now"]);
    store.close();

    machine.step_micros(2 * DAY);
    let store = open(&database, &machine, start).await;
    assert_eq!(swept(&store), ["tomorrow", "now"]);
    store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_ran_out_is_removed_once_that_is_proven() {
    let database = Database::fresh().await;
    let start = Timestamp::from_micros(START);
    let machine = Arc::new(ManualClock::at(start));
    let store = open(&database, &machine, start).await;
    make(&store, "q");
    send(&store, message("known", Some("k"), None));
    assert_eq!(swept(&store), ["known"]);
    send(&store, message("lives for a day", None, Some(DAY_MS)));
    store.close();

    machine.step_micros(2 * DAY);
    let store = open(&database, &machine, start).await;
    // It was swept up to an unproven time, so it is swept again.
    send(&store, message("new", None, Some(DAY_MS)));
    assert_eq!(swept(&store), ["new"]);
    assert_eq!(info(&store, "q").await.dropped, 0);
    machine.advance_micros(61 * SECOND);
    until("something is due", async || store.queue_due_in() == Some(Duration::ZERO)).await;
    assert!(swept(&store).is_empty());
    assert_eq!(info(&store, "q").await.dropped, 1);
    until("the id is forgotten", async || !is_duplicate(&store, "k")).await;
    store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_behind_ends_no_lease_of_the_others() {
    let database = Database::fresh().await;
    let start = Timestamp::from_micros(START);
    let (slept, awake) = (Arc::new(ManualClock::at(start)), Arc::new(ManualClock::at(start)));
    let (behind, right) = (open(&database, &slept, start).await, open(&database, &awake, start).await);
    make(&right, "q");
    ["one", "two"].iter().for_each(|text| _ = send(&right, message(text, None, None)));
    // The machine slept: its monotonic clock stood still, so the right time looks like a step.
    slept.step_micros(120 * SECOND);
    awake.advance_micros(120 * SECOND);
    let lease = |store: &Postgres| taken(done(store, take("q", "bob", 1, Some(30_000))));
    assert_eq!(texts(&lease(&right)), ["one"]);
    assert_eq!(texts(&lease(&behind)), ["two"]);
    // Maintenance runs meanwhile.
    tokio::time::sleep(Duration::from_millis(700)).await;
    for store in [&right, &behind] {
        apply(store, &[QueueOp::Sweep]);
        assert!(lease(store).is_empty(), "both are on lease");
    }
    for machine in [&slept, &awake] {
        machine.advance_micros(31 * SECOND);
    }
    apply(&right, &[QueueOp::Sweep]);
    assert_eq!(texts(&lease(&right)), ["one"]);
    behind.close();
    right.close();
}

/// Makes the database's clock wrong by what the table `clock` says, and its answers as slow.
async fn fake(database: &Database) -> Client {
    let client = connect(&database.url).await;
    let (_, name) = database.url.rsplit_once('/').unwrap();
    let sql = format!(
        "create table fake_clock (ahead interval not null, seconds float8 not null); \
         insert into fake_clock values ('0', 0); \
         create function clock_timestamp() returns timestamptz language plpgsql volatile as $$ \
           declare said public.fake_clock; begin \
             select * into said from public.fake_clock; perform pg_catalog.pg_sleep(said.seconds); \
             return pg_catalog.clock_timestamp() + said.ahead; end $$; \
         alter database {name} set search_path = public, pg_catalog"
    );
    client.batch_execute(&sql).await.unwrap();
    client
}

async fn of_database(database: &Database) -> Arc<Postgres> {
    let options = PostgresOptions {
        clock_trust_after: Some(TRUST_AFTER),
        apply_timeout: Duration::from_secs(4),
        ..PostgresOptions::new(&database.url)
    };
    let clock = Arc::new(Machine(Instant::now()));
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_does_not_say_what_time_it_is_stops_no_maintenance() {
    let database = Database::fresh().await;
    let client = fake(&database).await;
    let store = of_database(&database).await;
    make(&store, "q");
    assert_eq!(store.health(), StoreHealth::Up);
    client.batch_execute("update fake_clock set seconds = 600").await.unwrap();
    until("it is said", async || matches!(store.health(), StoreHealth::Unreachable(_))).await;
    // Meanwhile time continues.
    send(&store, message("short", None, Some(1)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(swept(&store).is_empty());
    client.batch_execute("update fake_clock set seconds = 0").await.unwrap();
    until("it goes on", async || store.health() == StoreHealth::Up).await;
    store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_clock_of_the_database_that_jumps_removes_nothing() {
    let database = Database::fresh().await;
    let client = fake(&database).await;
    let old = of_database(&database).await;
    make(&old, "q");
    send(&old, message("lives for a day", None, Some(DAY_MS)));
    client.batch_execute("update fake_clock set ahead = '2 days'").await.unwrap();
    until("the clock is unproven", async || old.clock_anomaly().is_some()).await;
    // Another server starts. It uses the time it sees, but deletes nothing by it.
    let new = of_database(&database).await;
    assert!(new.clock_anomaly().is_some());
    assert!(swept(&new).is_empty());
    tokio::time::sleep(Duration::from_millis(700)).await;
    client.batch_execute("update fake_clock set ahead = '0'").await.unwrap();
    until("the clock is proven", async || old.clock_anomaly().is_none() && new.clock_anomaly().is_none())
        .await;
    assert_eq!(swept(&old), ["lives for a day"]);
    old.close();
    new.close();
}
