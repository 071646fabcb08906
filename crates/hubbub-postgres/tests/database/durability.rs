//! A database whose commits do not wait for the disk.

use std::sync::Arc;

use crate::support::{Database, connect, eventually};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, Op, OpBatch, Store, Timestamp};
use hubbub_postgres::{Pooler, Postgres, PostgresOptions};

/// Notes with which setting each table is written, and who gave it. The notes of a transaction that is rolled back are lost with it.
const SPY: &str = "create table written (name text, setting text); \
     create function spy() returns trigger language plpgsql as $$ begin \
         insert into written select tg_table_name, setting || ' of the ' || source from pg_settings \
             where name = 'synchronous_commit'; \
         return null; end $$; \
     do $$ declare name text; begin \
         foreach name in array array['history', 'rooms', 'users', 'messages', 'kv', 'kv_servers'] loop \
             execute format('create trigger spy after insert or update on %I for each statement \
                 execute function spy()', name); \
         end loop; end $$";

async fn open(options: PostgresOptions) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap())
}

/// What is written through `options` with the default `given`: of each table, the settings it was written with.
async fn settings(database: &Database, options: PostgresOptions, given: &str) -> Vec<String> {
    let client = connect(&database.url).await;
    // The schema is there.
    open(PostgresOptions::new(&database.url)).await.close();
    client.batch_execute(SPY).await.unwrap();
    let name: String = client.query_one("select current_database()::text", &[]).await.unwrap().get(0);
    // A history that must be named anew.
    let setting = format!(
        "alter database {name} set synchronous_commit = {given}; update history set timeline = timeline + 1; \
         truncate written"
    );
    client.batch_execute(&setting).await.unwrap();

    let store = open(options).await;
    let mut batch = OpBatch::default();
    batch.push(&Op::Send(Post::new("room", "id").as_send()));
    let condition = Condition::Always;
    batch.push(&Op::Kv(KvOp::Put { key: b"k", value: b"value", ttl_ms: None, condition }));
    store.apply(&batch).unwrap();
    let written = "select coalesce(array_agg(distinct name order by name), '{}'), \
         coalesce(array_agg(distinct setting), '{}') from written";
    let mut found = Vec::new();
    eventually("all tables are written", async || {
        let row = client.query_one(written, &[]).await.unwrap();
        found = row.get(1);
        let names: Vec<String> = row.get(0);
        names == ["history", "kv", "kv_servers", "messages", "rooms", "users"]
    })
    .await;
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_confirmed_is_on_disk() {
    // What is left as it is follows when it is changed.
    for (given, found) in [
        ("off", "on of the session"),
        ("local", "local of the database"),
        ("remote_apply", "remote_apply of the database"),
    ] {
        let database = Database::fresh().await;
        let direct = PostgresOptions::new(&database.url);
        assert_eq!(settings(&database, direct, given).await, [found], "{given}");
    }
    let database = Database::fresh().await;
    let pooled = PostgresOptions {
        url: database.pooled_url(),
        pooler: Pooler::Transaction,
        migrate_url: Some(database.url.clone()),
        ..PostgresOptions::new(&database.url)
    };
    assert_eq!(
        settings(&database, pooled, "off").await,
        ["on of the session"],
        "behind a transaction pooler"
    );
}
