//! The database goes away, comes back, or is another one: the server says so, and goes on by itself.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Pooler, Postgres, Server, Setup, Watch, in_time, texts, until};

/// Sends until a message is stored under this id; what was answered before must be worth another try.
pub(crate) async fn send_at_last(server: &Server, room: &str, id: &str) -> Value {
    let mut stored = Value::Null;
    until("a message is stored again", async || {
        let answer = server.send_as(room, id, id).await;
        if answer.status < 300 {
            stored = answer.json();
            return true;
        }
        assert!(answer.status == 503 || answer.status == 504, "{}", answer.text());
        assert_eq!(answer.json()["retryable"], true);
        false
    })
    .await;
    stored
}

#[tokio::test]
async fn db_down_answers_503_and_recovers() {
    let postgres = Postgres::start("");
    let server = Setup::new().store(&postgres.url("postgres")).start();
    server.send("r", "1").await;
    assert_eq!(server.get("/health").await.status, 200);
    let idle = server.metric("store_pool_connections").await;
    assert!(idle >= 1, "{idle}");

    postgres.crash();
    let answer = server.send_as("r", "2", "2").await;
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    answer.problem(503, "unavailable");
    server.get("/v1/rooms/r/messages").await.problem(503, "unavailable");
    let health = server.get("/health").await;
    let store = &health.json()["components"]["store"];
    assert_eq!((health.status, &store["status"]), (503, &json!("DOWN")), "{store}");
    assert!(store["reason"].as_str().unwrap().contains("database"), "{store}");
    assert_eq!(server.get("/health/live").await.status, 200);
    until("it is known to be down", async || server.metric("store_up").await == 0).await;

    postgres.restart();
    let receipt = send_at_last(&server, "r", "3").await;
    until("health", async || server.get("/health").await.status == 200).await;
    assert_eq!(texts(&server.history("r").await), ["1", "3"]);
    assert_eq!(receipt["seq"], 2);
    let again = server.send_as("r", "3", "3").await;
    assert_eq!((again.status, &again.json()["epoch"]), (200, &receipt["epoch"]), "the same history");
}

/// A primary is lost, its replica promoted: servers that know both go on with it, in a history of its own, and whoever
/// followed is told.
#[tokio::test]
async fn a_promoted_replica_is_followed() {
    let primary = Postgres::start("");
    let replica = Postgres::replica_of(&primary);
    let both = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port, replica.port);
    let server = Setup::new().store(&both).start();
    let other = Setup::new().store(&both).start();
    let epoch = server.send("r", "1").await["epoch"].clone();
    assert_eq!(other.send("r", "2").await["epoch"], epoch);
    let end = primary.query("postgres", "select pg_current_wal_lsn()").await;
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{end}'");
    until("the replica has it all", async || replica.query("postgres", &replayed).await == "t").await;
    let mut follower = server.subscriber("r", json!({"after": 2, "epoch": epoch})).await;

    primary.crash();
    server.send_as("r", "lost", "lost").await.problem(503, "unavailable");
    replica.script(&["promote"]);
    let receipt = send_at_last(&server, "r", "3").await;
    assert_ne!(receipt["epoch"], epoch);
    assert_eq!(send_at_last(&other, "r", "4").await["epoch"], receipt["epoch"], "one history, one name");
    assert_eq!(texts(&server.history("r").await), ["1", "2", "3", "4"]);

    // Who followed is cut off, asks anew, and is told.
    assert_eq!(follower.closed().await.0, 4409);
    let mut follower = server.subscriber("r", json!({"after": 2, "epoch": epoch})).await;
    let reset = follower.receive_type("reset").await;
    assert_eq!((&reset["epoch"], &reset["oldest"]), (&receipt["epoch"], &json!(1)));
    let path = format!("/v1/rooms/r/messages?after=2&epoch={}", epoch.as_str().unwrap());
    other.get(&path).await.problem(410, "reset");
    let mut live = other.subscriber("r", json!({"after": 4, "epoch": receipt["epoch"]})).await;
    other.send("r", "5").await;
    assert_eq!(live.receive_type("message").await["seq"], 5);
}

/// Behind a pooler of transactions the connections stay when the primary is another one. A server that only reads notices
/// it by its reads: nobody there is left to wait for numbers that were given before and are given again.
#[tokio::test]
async fn a_promotion_behind_a_pooler_is_seen_by_who_only_reads() {
    let primary = Postgres::start("");
    let replica = Postgres::replica_of(&primary);
    let pooler = Pooler::start(&primary);
    let setup = || {
        Setup::new()
            .store(&pooler.url("postgres"))
            .set("store.postgres.pooler=transaction")
            // A new connection would notice it in any case.
            .set("store.postgres.pool.max=2")
            .set(&format!("store.postgres.migrate_url={}", primary.url("postgres")))
    };
    let (writer, reader) = (setup().start(), setup().start());
    let epoch = writer.send("r", "1").await["epoch"].clone();
    let end = primary.query("postgres", "select pg_current_wal_lsn()").await;
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{end}'");
    until("the replica has it all", async || replica.query("postgres", &replayed).await == "t").await;

    // What comes now is lost with the primary, but for those who heard it.
    replica.crash();
    let mut follower = reader.subscriber("r", json!({"after": 0, "epoch": epoch})).await;
    assert_eq!(follower.receive_type("message").await["message"], "1");
    for text in ["lost 2", "lost 3"] {
        writer.send("r", text).await;
        assert_eq!(follower.receive_type("message").await["message"], text);
    }
    let mut watching = Watch::open(&reader, "", None).await;
    let put = async |path: &str| writer.http().await.request(Method::PUT, path, &[], "1").await.status;
    assert_eq!(put("/kv/lost").await, 201);
    let (id, ..) = watching.next().await.unwrap();
    assert_eq!(id, format!("{}:1", epoch.as_str().unwrap()));
    pooler.command("pause").await;
    primary.crash();
    replica.restart();
    replica.script(&["promote"]);
    pooler.lead_to(&replica);
    pooler.command("resume").await;
    let receipt = send_at_last(&writer, "r", "other2").await;
    assert_eq!(receipt["seq"], 2);
    assert_ne!(receipt["epoch"], epoch);

    assert_eq!(in_time("the end of what was followed", follower.closed()).await.0, 4409);
    // Both come behind the lost one, and far.
    for key in ["/kv/one", "/kv/two"] {
        until("a key is put again", async || put(key).await < 300).await;
    }
    let (_, kind, problem) = watching.next().await.expect("a reason for the end");
    assert_eq!((kind.as_str(), &problem["code"]), ("error", &json!("reset")), "{problem}");
    assert_eq!(problem["epoch"], receipt["epoch"]);
    until("the reader knows", async || {
        let answer = reader.get("/v1/rooms/r/messages").await;
        // Never a page of the one history under the name of the other.
        let page = answer.json();
        let is_new = answer.status == 200 && page["epoch"] != epoch;
        assert!(answer.status == 503 || is_new, "{page}");
        is_new
    })
    .await;
    let mut follower = reader.subscriber("r", json!({"after": 3, "epoch": epoch})).await;
    assert_eq!(follower.receive_type("reset").await["epoch"], receipt["epoch"]);
    for text in ["1", "other2"] {
        assert_eq!(follower.receive_type("message").await["message"], text);
    }
    writer.send("r", "other3").await;
    assert_eq!(follower.receive_type("message").await["message"], "other3");
}
