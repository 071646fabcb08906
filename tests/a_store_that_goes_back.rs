//! The store of a server with Kafka goes back: its database is replaced by an older copy, or loses what it confirmed. Kafka
//! still has what is missing, and all of it is stored again, also where nobody writes any more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::harness::{Dialect, Kafka, Postgres, Server, Writer, in_time, texts, until};

const ROOMS: usize = 8;

fn room(number: usize) -> String {
    format!("room-{number}")
}

/// Sends one message to each room, and waits until it is stored.
async fn send_to_all(servers: &[Server], text: &str, count: usize) {
    for number in 0..ROOMS {
        let id = format!("{text}-{number}");
        until("it is taken", async || servers[0].send_as(&room(number), &id, text).await.status == 202).await;
    }
    for number in 0..ROOMS {
        until("it is stored", async || servers[1].history(&room(number)).await.len() == count).await;
    }
}

async fn rewinds(servers: &[Server]) -> u64 {
    let mut sum = 0;
    for server in servers {
        sum += server.metric("log_rewinds_total").await;
    }
    sum
}

/// Each room has these messages, whichever server is asked.
async fn all_have(servers: &[Server], expected: &[&str]) {
    for server in servers {
        for number in 0..ROOMS {
            let mut has = String::new();
            let what = format!("{} has all", room(number));
            until(&what, async || {
                let answer = server.get(&format!("/v1/rooms/{}/messages?after=0", room(number))).await;
                let now = answer.text();
                if now != has {
                    println!("{now}");
                    has = now;
                }
                answer.status == 200 && texts(answer.json()["messages"].as_array().unwrap()) == expected
            })
            .await;
        }
    }
}

/// Sends at this server until told to stop.
fn write(name: &str, number: usize, address: SocketAddr, stop: &Arc<AtomicBool>) -> JoinHandle<Writer> {
    let window = if number.is_multiple_of(2) { 1 } else { 40 };
    let mut writer = Writer::new(name, &format!("load-{number}"), Dialect::Api, window).through_outages();
    let stop = stop.clone();
    tokio::spawn(async move {
        while writer.run(address, |_| stop.load(Ordering::SeqCst)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        writer
    })
}

/// What was acknowledged is stored once and in order, and nothing else is.
async fn check(writers: Vec<JoinHandle<Writer>>, servers: &[Server]) {
    for writer in writers {
        let writer = in_time("the writers", writer).await.unwrap();
        until("all is stored", async || servers[0].history(&writer.room).await.len() == writer.acked.len())
            .await;
        let history = servers[0].history(&writer.room).await;
        writer.check(&history);
        assert_eq!(servers[1].history(&writer.room).await, history);
        println!("{} messages", history.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_database_misses_is_stored_again() {
    let (kafka, primary) = (Kafka::shared(), Postgres::start(""));
    let replica = Postgres::replica_of(&primary);
    let both = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port, replica.port);
    let setup = kafka.setup(&both, 4);
    let servers = ["a", "b"].map(|name| setup.clone().on(name).start());
    send_to_all(&servers, "one", 1).await;
    let end = primary.query("postgres", "select pg_current_wal_lsn()").await;
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{end}'");
    until("the replica has it", async || replica.query("postgres", &replayed).await == "t").await;
    let stop = Arc::<AtomicBool>::default();
    let write = |number: usize| write("w", number, servers[number % 3 % 2].address(), &stop);
    let writers: Vec<_> = (0..6).map(write).collect();
    let has_load = async |room: &str| servers[0].history(room).await.len() > 20;
    until("load", async || has_load("load-0").await && has_load("load-1").await).await;
    replica.crash();

    // Acknowledged, stored, and lost with the primary.
    send_to_all(&servers, "two", 2).await;
    assert_eq!(rewinds(&servers).await, 0);
    primary.crash();
    // Nobody can store it now. The other rooms' partitions, but one, stay silent.
    assert_eq!(servers[0].send_as("silent", "s-1", "three").await.status, 202);
    replica.restart();
    replica.script(&["promote"]);
    all_have(&servers, &["one", "two"]).await;
    until("it is stored", async || servers[1].history("silent").await.len() == 1).await;
    assert!(rewinds(&servers).await >= 1);
    // It goes on from there.
    send_to_all(&servers, "four", 3).await;
    all_have(&servers, &["one", "two", "four"]).await;
    stop.store(true, Ordering::SeqCst);
    check(writers, &servers).await;
    assert!(kafka.dead_letters().is_empty());
}

/// A room in each of two partitions: the first one's, and one that is alone in the other partition, with the partitions.
async fn rooms_apart(server: &Server, postgres: &Postgres) -> [(String, i32); 2] {
    let begun = "select string_agg(partition::text, ',') from log_offsets where next_offset > 0";
    let mut first = String::new();
    for number in 0.. {
        assert_eq!(server.send_as(&room(number), "one", "one").await.status, 202);
        until("it is stored", async || server.history(&room(number)).await.len() == 1).await;
        let begun = postgres.query("postgres", begun).await;
        if first.is_empty() {
            first = begun;
        } else if begun != first {
            let first: i32 = first.parse().unwrap();
            return [(room(0), first), (room(number), 1 - first)];
        }
    }
    unreachable!()
}

/// Takes a partition back to where it was before its only room.
fn forgetting((room, partition): &(String, i32)) -> String {
    let of_room = format!("room = (select no from room_names where id = '{room}')");
    format!(
        "delete from messages where {of_room}; delete from message_ids where {of_room}; \
         update rooms set head = 0, messages = 0, last_received_at = null where id = '{room}'; \
         update log_offsets set next_offset = 0 where partition = {partition};"
    )
}

/// Whether the database has the room's first message. What the server remembers says nothing of that.
async fn has_row(postgres: &Postgres, (room, _): &(String, i32)) -> bool {
    let count =
        format!("select count(*) from messages where room = (select no from room_names where id = '{room}')");
    postgres.query("postgres", &count).await == "1"
}

/// Has everything fail that is stored of a partition.
fn failing(partition: i32) -> String {
    format!(
        "create function fail() returns trigger language plpgsql as $$ begin raise exception 'broken'; end $$; \
         create trigger fail before update on log_offsets for each row when (new.partition = {partition}) \
         execute function fail();"
    )
}

const HEALING: &str = "drop trigger fail on log_offsets; drop function fail();";

/// A database that was away came back as an older copy, which only one partition notices by a failure of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_partition_without_failures_lost_is_stored_again() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let server = kafka.setup(&postgres.url("postgres"), 2).start();
    let [failed, silent] = rooms_apart(&server, &postgres).await;
    let has = async |room: &str, expected: &[&str]| {
        let what = format!("{room} has {expected:?}");
        until(&what, async || texts(&server.history(room).await) == expected).await;
    };
    let fails = async |id: &str| {
        let before = server.metric("log_batches_retried_total").await;
        assert_eq!(server.send_as(&failed.0, id, id).await.status, 202);
        until("it fails", async || server.metric("log_batches_retried_total").await > before).await;
    };

    // Nobody writes to it, and the other one goes on failing.
    postgres.run(&failing(failed.1)).await;
    fails("two").await;
    postgres.run(&forgetting(&silent)).await;
    until("it is stored again", async || has_row(&postgres, &silent).await).await;
    postgres.run(HEALING).await;
    has(&failed.0, &["one", "two"]).await;

    // It is written to before anything else looks where the store is.
    postgres.run(&failing(failed.1)).await;
    fails("three").await;
    postgres.run(&format!("{HEALING}{}", forgetting(&silent))).await;
    assert_eq!(server.send_as(&silent.0, "two", "two").await.status, 202);
    has(&silent.0, &["one", "two"]).await;
    has(&failed.0, &["one", "two", "three"]).await;
    assert!(kafka.dead_letters().is_empty());
}

/// Where the store is in one partition is not known; what another one lost is stored again all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_beside_an_unreadable_position_is_stored_again() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let server = kafka.setup(&postgres.url("postgres"), 2).start();
    let [unreadable, silent] = rooms_apart(&server, &postgres).await;
    let take = format!(
        "create table taken as select * from log_offsets where partition = {0}; \
         delete from log_offsets where partition = {0};",
        unreadable.1
    );
    postgres.run(&take).await;
    until("it is told", async || server.metric("log_partitions_unreadable").await == 1).await;
    let log = server.get("/health").await.json()["components"]["log"].clone();
    assert_eq!(log["status"], "DEGRADED", "{log}");
    assert!(log["reason"].as_str().unwrap().contains(&format!("partition {}", unreadable.1)), "{log}");
    postgres.run(&forgetting(&silent)).await;
    assert_eq!(server.send_as(&unreadable.0, "two", "two").await.status, 202);
    until("it is stored again", async || has_row(&postgres, &silent).await).await;
    assert_eq!(server.send_as(&silent.0, "two", "two").await.status, 202);
    until("it goes on", async || texts(&server.history(&silent.0).await) == ["one", "two"]).await;
    assert_eq!(texts(&server.history(&unreadable.0).await), ["one"]);

    postgres.run("insert into log_offsets select * from taken; drop table taken;").await;
    until("the rest", async || texts(&server.history(&unreadable.0).await) == ["one", "two"]).await;
    until("nothing is told", async || server.metric("log_partitions_unreadable").await == 0).await;
    let log = server.get("/health").await.json()["components"]["log"].clone();
    assert_eq!(log["status"], "UP", "{log}");
    assert!(kafka.dead_letters().is_empty());
}

#[cfg(feature = "scylla")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cassandra_forgot_is_stored_again() {
    use crate::harness::Cassandra;

    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    let servers = ["a", "b"].map(|name| setup.clone().on(name).start());
    send_to_all(&servers, "one", 1).await;
    send_to_all(&servers, "two", 2).await;
    // Nobody writes meanwhile.
    cassandra.forget().await;
    all_have(&servers, &["one", "two"]).await;
    cassandra.forget().await;
    // Only one partition is written to.
    assert_eq!(servers[0].send_as("silent", "s-1", "three").await.status, 202);
    all_have(&servers, &["one", "two"]).await;
    until("it is stored", async || servers[1].history("silent").await.len() == 1).await;
    assert!(rewinds(&servers).await >= 4);
    send_to_all(&servers, "four", 3).await;
    all_have(&servers, &["one", "two", "four"]).await;
    assert!(kafka.dead_letters().is_empty());
}
