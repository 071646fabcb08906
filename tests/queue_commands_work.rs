//! `hubbub queue`, for people and with `--json` for scripts.

use serde_json::{Value, json};

use crate::harness::Server;

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn queue_commands_work() {
    let server = Server::start();
    let run = async |arguments: &[&str], input: &str| {
        let arguments: Vec<&str> = [&["queue"], arguments].concat();
        server.run(&arguments, input).await
    };
    let make = ["create", "jobs", "--lease", "5min", "--max-deliveries", "1", "--on-full", "drop-oldest"];
    assert_eq!(run(&make, "").await.success(), "created: jobs\n");
    let changed = json_lines(&run(&["create", "jobs", "--ttl", "7d", "--json"], "").await.success());
    let set = |name: &str| changed[0][name].clone();
    let settings = (set("leaseMs"), set("ttlMs"), set("onFull"), set("maxDeliveries"));
    assert_eq!(settings, (json!(300_000), json!(604_800_000), json!("dropOldest"), json!(1)));

    let sent = run(&["send", "jobs", "one", "--from", "boss", "--id", "k"], "").await.success();
    assert_eq!(sent, "waits as message 1 of jobs\n");
    let again = run(&["send", "jobs", "one", "--from", "boss", "--id", "k"], "").await.success();
    assert_eq!(again, "was there before as message 1 of jobs\n");
    let lines = run(&["send", "jobs", "--from", "boss", "--json"], "two\n\nthree\n").await.success();
    assert_eq!(json_lines(&lines).iter().map(|line| line["id"].clone()).collect::<Vec<_>>(), ["2", "3"]);
    let delayed = ["send", "jobs", "later", "--delay", "1h", "--group", "g"];
    run(&delayed, "").await.success();
    run(&["clients", "--add", "ann"], "").await.success();
    let all = run(&["send", "jobs", "all", "--all", "--from", "boss"], "").await.success();
    assert_eq!(all, "waits as message 5 of jobs, 2 copies\n");

    let seen = run(&["read", "jobs", "--as", "ann", "--newest", "--json"], "").await.success();
    assert_eq!(json_lines(&seen)[0]["message"], "all");
    let got = run(&["get", "jobs", "--as", "ann", "--json"], "").await.success();
    assert_eq!(json_lines(&got)[0]["message"], "one");
    let leased = run(&["lease", "jobs", "--as", "ann", "--max", "2", "--lease", "10min"], "").await.success();
    let receipt_of = |text: &str| {
        let (_, rest) = leased.split_once(&format!("boss → *: {text}  [receipt ")).unwrap();
        rest.split_once(" until ").unwrap().0.to_owned()
    };
    let (second, third) = (receipt_of("two"), receipt_of("three"));
    let longer = run(&["extend", "jobs", &second, "--lease", "20min"], "").await.success();
    assert!(longer.starts_with("on lease until "), "{longer}");
    assert_eq!(run(&["ack", "jobs", &second], "").await.success(), "acknowledged: 1 message\n");
    let dead = run(&["nack", "jobs", &third], "").await.success();
    assert_eq!(dead, "that was its last delivery: it is a dead letter\n");
    let stale = run(&["ack", "jobs", &second], "").await.refusal(1);
    assert!(stale.contains("1 of 1 receipt refused"), "{stale}");

    let peeked = run(&["peek", "jobs.dead"], "").await.success();
    assert!(peeked.contains("three  [from jobs: rejected, deliveries 1]"), "{peeked}");
    let redriven = run(&["redrive", "jobs.dead"], "").await.success();
    assert_eq!(redriven, "moved 1 message back where it came from\n");
    let other = run(&["redrive", "jobs"], "").await;
    let meant =
        "jobs is no dead-letter queue; its dead letters go to jobs.dead: hubbub queue redrive jobs.dead";
    assert!(other.code == Some(0) && other.stderr.contains(meant), "{other:?}");
    let list = run(&["ls"], "").await.success();
    assert!(list.lines().any(|line| line.starts_with("jobs ")), "{list}");
    assert_eq!(run(&["ls", "--for", "ann"], "").await.success(), "jobs\n");
    assert_eq!(run(&["clients"], "").await.success(), "client\nann\nboss\ncli\n");
    assert_eq!(run(&["remove", "jobs", "3"], "").await.success(), "removed: 3\n");

    assert!(run(&["delete", "jobs"], "").await.refusal(1).contains("queue_not_empty"));
    let deleted = run(&["delete", "jobs", "--force"], "").await;
    assert_eq!((deleted.code, deleted.stdout.as_str()), (Some(0), "deleted: jobs\n"));
    let left =
        "hubbub: jobs.dead, the queue of its dead letters, is still there: hubbub queue delete jobs.dead\n";
    assert_eq!(deleted.stderr, left);
    assert!(run(&["get", "jobs"], "").await.refusal(1).contains("there is no queue 'jobs'; PUT"));
    assert_eq!(run(&["delete", "jobs.dead", "--force"], "").await.success(), "deleted: jobs.dead\n");
}
