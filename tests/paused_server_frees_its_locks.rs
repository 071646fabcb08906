//! A server that is stopped in the middle of a transaction, as a paused virtual machine is, does not hold up the others.

use std::time::Duration;

use crate::harness::{Postgres, Setup, in_time, seqs};

/// A session that waits for a lock, or stands still in a transaction, of those that write rooms.
const WAITING: &str = "select count(*) from pg_stat_activity where application_name = 'hubbub' and wait_event_type = 'Lock' \
    and query not like '%kv_%'";
const STILL: &str = "select count(*) from pg_stat_activity where application_name = 'hubbub' and state = 'idle in transaction' \
    and query not like '%kv_%'";

async fn until_one(postgres: &Postgres, count: &str) {
    in_time("a session", async {
        while postgres.query("postgres", count).await != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_paused_in_a_transaction_frees_its_locks() {
    let postgres = Postgres::start("");
    let servers = [(); 2].map(|()| {
        let setup = Setup::new().store(&postgres.url("postgres"));
        setup
            .set("store.postgres.apply_timeout=30s")
            .set("store.postgres.idle_transaction_timeout=4s")
            .start()
    });
    let [paused, other] = &servers;
    assert_eq!(paused.send("r", "1").await["seq"], 1);
    // What is locked for the paused one is free at once when it is paused, and is its then.
    let holding = postgres.connect("postgres").await;
    holding.batch_execute("begin; select from rooms where id = 'r' for update").await.unwrap();
    let (sent, ()) = tokio::join!(paused.send_as("r", "late", "late"), async {
        until_one(&postgres, WAITING).await;
        paused.pause();
        holding.batch_execute("commit").await.unwrap();
        until_one(&postgres, STILL).await;
        assert_eq!(other.send("r", "2").await["seq"], 2);
        paused.resume();
    });
    // It tries again with another session.
    assert_eq!((sent.status, &sent.json()["seq"]), (201, &3.into()), "{}", sent.text());
    let history = paused.history("r").await;
    assert_eq!(history, other.history("r").await);
    assert_eq!(seqs(&history), [1, 2, 3]);
}
