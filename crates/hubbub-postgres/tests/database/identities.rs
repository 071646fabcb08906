//! A publication of all tables, as logical replication makes it: it refuses changes of rows that nothing identifies.

use crate::support::connect;
use crate::support::queues::{done, make, send, servers, settle, take, taken};
use hubbub_conformance::model::Post;
use hubbub_conformance::queues::message;
use hubbub_core::kv::Condition;
use hubbub_core::queue::Settle;
use hubbub_core::{Change, KvOp, Op, OpBatch, Outcome, RoomChange, Store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_can_be_identified() {
    let servers = servers(1).await;
    let text = "select relname::text from pg_class where relnamespace = current_schema()::regnamespace \
                and relkind = 'r' and relreplident = 'd' \
                and not exists (select from pg_index where indrelid = pg_class.oid and indisprimary)";
    let rows = connect(&servers.database.url).await.query(text, &[]).await.unwrap();
    let without: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(without, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_of_all_tables_stops_nothing() {
    let servers = servers(1).await;
    let (store, client) = (&*servers.stores[0], connect(&servers.database.url).await);
    client.batch_execute("create publication everything for all tables").await.unwrap();
    for id in ["m-1", "m-2"] {
        let mut batch = OpBatch::default();
        batch.push(&Op::Send(Post::new("room", id).as_send()));
        let condition = Condition::Always;
        batch.push(&Op::Kv(KvOp::Put { key: b"k", value: id.as_bytes(), ttl_ms: None, condition }));
        let outcomes = store.apply(&batch).unwrap();
        assert!(matches!(outcomes[..], [Outcome::Stored(_), Outcome::Kv(_)]), "{outcomes:?}");
    }
    make(store, "queue");
    send(store, message("queue", "text"));
    for delivery in taken(done(store, take("queue", "bob", 1, Some(60_000)))) {
        done(store, settle(&delivery, Settle::Ack));
    }
    let mut batch = OpBatch::default();
    batch.push(&Op::Change(Change { by: None, what: RoomChange::DeleteRoom { room: "room" } }));
    store.apply(&batch).unwrap();
    store.finish_maintenance().await.unwrap();
    let left = client.query_one("select count(*) from messages", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
    store.close();
}
