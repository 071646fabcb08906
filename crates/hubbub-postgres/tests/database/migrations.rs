//! Migrations of a schema with data, beside servers that still work with the old one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Op, OpBatch, Outcome, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use refinery_core::{Migration, Runner};
use tokio_postgres::Client;

/// The version before the one that counts messages, and gives them an index.
const BEFORE_COUNTS: i32 = 3;
/// The version before the one that gives rooms a table of names.
const BEFORE_ROOM_NAMES: i32 = 5;
/// The version before the one that knows the place of a history.
const BEFORE_PLACES: i32 = 8;

/// Makes the schema of an older program.
async fn migrate_to(client: &mut Client, version: i32) {
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")).unwrap();
    let all = files.map(|file| file.unwrap().path()).map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        Migration::unapplied(name, &std::fs::read_to_string(&path).unwrap()).unwrap()
    });
    let mut old: Vec<_> = all.filter(|migration| migration.version() <= version).collect();
    old.sort_by_key(Migration::version);
    Runner::new(&old).run_async(client).await.unwrap();
}

async fn open(url: String) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let store = Postgres::open(PostgresOptions::new(url), clock, &SeededRandom::new(3)).await;
    Arc::new(store.unwrap_or_else(|error| panic!("{error}")))
}

/// The numbers of one message to each of these rooms.
async fn send(store: &Arc<Postgres>, id: &str, rooms: &[&str]) -> Vec<u64> {
    let (store, mut batch) = (store.clone(), OpBatch::default());
    for room in rooms {
        batch.push(&Op::Send(Post::new(room, id).as_send()));
    }
    let done = tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap();
    let seq = |outcome: &Outcome| match outcome {
        Outcome::Stored(receipt) => receipt.seq,
        other => panic!("{other:?}"),
    };
    done.iter().map(seq).collect()
}

/// Waits until so many sessions of this database wait for locks.
async fn until_waiting(client: &Client, count: i64) {
    let text = "select count(distinct pid) from pg_stat_activity \
                where datname = current_database() and wait_event_type = 'Lock'";
    for _ in 0..600 {
        if client.query_one(text, &[]).await.unwrap().get::<_, i64>(0) >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("there are not {count} sessions that wait");
}

/// What an older server commits at the last moment is migrated, too. Otherwise its room would get a second row, or its
/// number another room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_that_older_servers_make_meanwhile_have_one_row() {
    let database = Database::fresh().await;
    let mut client = connect(&database.url).await;
    migrate_to(&mut client, BEFORE_ROOM_NAMES).await;
    client.batch_execute("insert into rooms (id, head) values ('first', 7)").await.unwrap();
    let older = connect(&database.url).await;
    older.batch_execute("begin; insert into rooms (id, head) values ('late', 41)").await.unwrap();

    // Two servers start at the same time.
    let opening = [(); 2].map(|()| tokio::spawn(open(database.url.clone())));
    until_waiting(&client, 2).await;
    older.batch_execute("commit").await.unwrap();
    let [one, other] = opening;
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert_eq!(send(&one, "a", &["first", "late", "new"]).await, [8, 42, 1]);
    assert_eq!(send(&other, "b", &["late", "first", "new"]).await, [43, 9, 2]);
    let rows = "select count(*), count(distinct r.no), count(distinct r.id), count(n.id) \
                from rooms r left join room_names n on (n.no, n.id) = (r.no, r.id)";
    let row = client.query_one(rows, &[]).await.unwrap();
    let counts: Vec<i64> = (0..4).map(|column| row.get(column)).collect();
    assert_eq!(counts, [3; 4], "each room has one row, one number and one name");
}

/// An older server waits for the migration, which waits for the older server: whoever gives up tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_an_older_server_is_survived() {
    let database = Database::fresh().await;
    let mut client = connect(&database.url).await;
    migrate_to(&mut client, BEFORE_ROOM_NAMES).await;
    let older = connect(&database.url).await;
    // It waits longer, so the migration is ended.
    older
        .batch_execute("begin; set deadlock_timeout = '1min'; lock table members in row exclusive mode")
        .await
        .unwrap();
    let opening = tokio::spawn(open(database.url.clone()));
    until_waiting(&client, 1).await;
    older.batch_execute("select from rooms for update; commit").await.unwrap();
    assert_eq!(send(&opening.await.unwrap(), "a", &["r"]).await, [1]);
}

/// A migration that waits for a lock has everybody wait who comes after it. So it lets them pass, and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_waits_for_a_backup_stops_nobody() {
    let database = Database::fresh().await;
    let mut client = connect(&database.url).await;
    migrate_to(&mut client, BEFORE_ROOM_NAMES).await;
    let [backup, older] = [connect(&database.url).await, connect(&database.url).await];
    backup.batch_execute("begin; select from rooms").await.unwrap();
    let opening = tokio::spawn(open(database.url.clone()));
    until_waiting(&client, 1).await;
    let working = older.batch_execute("insert into rooms (id, head) values ('late', 41)");
    tokio::time::timeout(Duration::from_secs(60), working).await.expect("it waits for the backup").unwrap();
    assert!(!opening.is_finished());
    backup.batch_execute("commit").await.unwrap();
    assert_eq!(send(&opening.await.unwrap(), "a", &["late"]).await, [42]);
}

/// While it waits for one table, it does not hold up those who write to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_has_its_locks_before_it_makes_an_index() {
    let database = Database::fresh().await;
    let mut client = connect(&database.url).await;
    migrate_to(&mut client, BEFORE_COUNTS).await;
    let backup = connect(&database.url).await;
    backup.batch_execute("begin; select from takeouts").await.unwrap();
    let opening = tokio::spawn(open(database.url.clone()));
    until_waiting(&client, 1).await;
    let held = "select count(*) from pg_locks where relation = 'messages'::regclass and granted and mode = 'ShareLock'";
    assert_eq!(client.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
    backup.batch_execute("commit").await.unwrap();
    assert_eq!(send(&opening.await.unwrap(), "a", &["r"]).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migrated_history_is_the_same() {
    let database = Database::fresh().await;
    let mut client = connect(&database.url).await;
    migrate_to(&mut client, BEFORE_PLACES).await;
    let named = "insert into history (epoch, system_identifier, timeline) select 'kept', system_identifier::text, \
         timeline_id from pg_control_system(), pg_control_checkpoint()";
    client.batch_execute(named).await.unwrap();
    assert_eq!(&*open(database.url.clone()).await.epoch(), "kept");
}

/// What is left of a killed process would hold its locks until it is through, or wait for others'.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_ends_with_its_process() {
    let database = Database::fresh().await;
    let [client, other] = [connect(&database.url).await, connect(&database.url).await];
    other.batch_execute("select pg_advisory_lock(7161616174)").await.unwrap();
    let killed = tokio::runtime::Runtime::new().unwrap();
    killed.spawn(open(database.url.clone()));
    until_waiting(&client, 1).await;
    killed.shutdown_background();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let began = std::time::Instant::now();
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it waits for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Limits of the user's are for short statements. Here it waits for another server that migrates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_database_do_not_stop_a_migration() {
    for limit in ["lock_timeout", "statement_timeout"] {
        let database = Database::fresh().await;
        let [client, other] = [connect(&database.url).await, connect(&database.url).await];
        let name: String = client.query_one("select current_database()::text", &[]).await.unwrap().get(0);
        client.batch_execute(&format!("alter database {name} set {limit} = '300ms'")).await.unwrap();
        other.batch_execute("select pg_advisory_lock(7161616174)").await.unwrap();
        let opening = tokio::spawn(open(database.url.clone()));
        until_waiting(&client, 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        other.batch_execute("select pg_advisory_unlock(7161616174)").await.unwrap();
        assert_eq!(send(&opening.await.unwrap(), "a", &["r"]).await, [1], "{limit}");
    }
}
