//! The procedure of docs/postgresql.md, done: a base backup, an archive of the WAL, something that should not have
//! happened, and back to the moment before it. Prints what it cost.

use std::io::Write as _;
use std::time::Instant;

use hubbub_core::Timestamp;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Postgres, Setup, texts, until};
use crate::postgres_comes_and_goes::send_at_last;

const ARCHIVED: &str = "archive_mode = on
archive_command = 'mkdir -p ../archive && test ! -f ../archive/%f && cp %p ../archive/.%f.tmp && mv ../archive/.%f.tmp ../archive/%f'
archive_timeout = 60";

/// In the server's directory, with its tools at hand; `$1` is the moment.
const RESTORE: &str = "mv data lost && cp -a base data && cat >>data/postgresql.auto.conf <<C
archive_mode = off
restore_command = 'cp ../archive/%f %p'
recovery_target_time = '$1'
recovery_target_action = 'promote'
C
touch data/recovery.signal";

fn micros(text: &str) -> i64 {
    Timestamp::parse(text).map(Timestamp::as_micros).unwrap_or_else(|| panic!("'{text}' is no time"))
}

#[tokio::test]
async fn pitr_restores_to_a_moment() {
    let postgres = Postgres::start(ARCHIVED);
    let server = Setup::new().store(&postgres.url("postgres")).start();
    server.send("r", "before the backup").await;
    let source = format!("host=127.0.0.1 port={} user=postgres", postgres.port);
    postgres.script(&["run", "pg_basebackup", "-d", &source, "-D", "base", "-X", "none", "-c", "fast"]);
    let mut last = Value::Null;
    for text in ["1", "2", "3"] {
        last = server.send("r", text).await;
    }
    let (epoch, head) = (last["epoch"].clone(), last["seq"].clone());
    server.send("quiet", "kept").await;
    let mut follower = server.subscriber("quiet", json!({"after": 1, "epoch": epoch})).await;

    let clock = "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let moment = postgres.query("postgres", clock).await;

    // What should not have happened. It ends in the archive, like everything else.
    let deleted = server.call("", Method::DELETE, "/v1/rooms/r", Value::Null).await;
    assert!(deleted.status < 300, "{}", deleted.text());
    server.send("other", "after the moment").await;
    let file = postgres.query("postgres", "select pg_walfile_name(pg_switch_wal())").await;
    let archived = format!("select coalesce(last_archived_wal >= '{file}', false) from pg_stat_archiver");
    until("the archive has it all", async || postgres.query("postgres", &archived).await == "t").await;

    let begun = Instant::now();
    postgres.crash();
    // PostgreSQL takes no `Z` there.
    let target = moment.replace('Z', "+00");
    postgres.script(&["run", "bash", "-euc", RESTORE, "restore", &target]);
    postgres.restart();
    until("it takes writes", async || postgres.query("postgres", "select pg_is_in_recovery()").await == "f")
        .await;
    let receipt = send_at_last(&server, "r", "afterwards").await;
    let back = begun.elapsed();

    assert_ne!(receipt["epoch"], epoch, "another history");
    let history = server.history("r").await;
    assert_eq!(texts(&history), ["before the backup", "1", "2", "3", "afterwards"]);
    server.get("/v1/rooms/other/messages").await.problem(404, "unknown_room");
    assert_eq!(follower.closed().await.0, 4409, "who followed is cut off");
    let mut follower = server.subscriber("r", json!({"after": head, "epoch": epoch})).await;
    assert_eq!(follower.receive_type("reset").await["epoch"], receipt["epoch"]);
    let kept = micros(history[3]["receivedAt"].as_str().unwrap());
    // Past the test's own capture: whoever runs it wants to see it.
    let _ = writeln!(
        std::io::stderr(),
        "restored to {moment}: the last message acknowledged before it, {:.1} ms earlier, is there (RPO 0 for what is \
         archived, up to archive_timeout for the rest); messages were taken again after {:.1} s (RTO)",
        (micros(&moment) - kept) as f64 / 1e3,
        back.as_secs_f64()
    );
}
