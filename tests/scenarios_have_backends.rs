//! Scenarios that say which store and which log their servers use: each measurement has its own, and nothing is left of it.

use std::path::Path;

use serde_json::Value;

use crate::harness::{Broker, Cassandra, Kafka, Postgres, Ran, hubbub, hubbub_at_length, until};

/// A few hundred messages, all of which are stored.
const PERSIST: &str = "workload = 'persist'\n[options]\nmessages = 400\npublishers = 1\nwindow = 100\nrooms = 4\n\
    users = 10\nlisten = 2\naround = '0s'\n";

/// What all names of a measurement begin with, in brokers and in databases.
const NAMES: [&str; 2] = ["hubbub-bench-", "hubbub_bench_"];

/// Runs a scenario whose results go into `dir`.
async fn run(dir: &Path, scenario: &str, own: &[&str]) -> Ran {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("own.toml"), format!("title = 'x'\n{scenario}")).unwrap();
    let line = ["bench", "run", "--json", "--quiet"].map(str::to_owned);
    let line = line.into_iter().chain([path("own.toml"), "--dir".to_owned(), path("")]);
    let line = line
        .chain(["--overwrite".to_owned(), "--out".to_owned(), path("out")])
        .chain(own.iter().map(|word| (*word).to_owned()));
    hubbub_at_length(line.collect()).await
}

/// Those of its measurement, which must be clean.
fn results(ran: &Ran) -> Value {
    let results: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    assert_eq!((ran.code, &results["runs"][0]["isClean"]), (Some(0), &Value::Bool(true)), "{ran:?}");
    results
}

fn of_measurements(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| NAMES.iter().any(|begin| name.starts_with(begin))).collect()
}

/// Waits until nothing of measurements is left that was not there `before`; others may measure meanwhile.
async fn are_gone(before: &[String], names: impl AsyncFn() -> Vec<String>) {
    until("nothing is left", async || {
        of_measurements(names().await).iter().all(|name| before.contains(name))
    })
    .await;
}

#[tokio::test]
async fn servers_share_a_database_behind_rabbitmq() {
    let (postgres, broker, dir) = (Postgres::start(""), Broker::shared(), tempfile::tempdir().unwrap());
    // Passwords are in the scenario: this database takes any.
    let store = postgres.url("postgres").replace("postgres@", "postgres:geheim@");
    let scenario =
        format!("store = '{store}'\nlog = 'rabbitmq'\n{PERSIST}servers = 2\n[settings.amqp]\nshards = 2\n");
    let ran = run(dir.path(), &scenario, &["--rabbitmq", &broker.url()]).await;
    let found = results(&ran);
    assert_eq!((&found["store"], &found["log"]), (&"postgres".into(), &"rabbitmq".into()));
    assert_eq!(found["runs"][0]["summary"]["latency"]["count"], 400, "{found}");
    assert!(!ran.stdout.contains("geheim") && !ran.stderr.contains("geheim"), "{ran:?}");
    let kept = std::fs::read_to_string(dir.path().join("out/results.json")).unwrap();
    assert!(kept.contains("postgres:***@") && !kept.contains("geheim"), "{kept}");
    nothing_is_left(&postgres, &broker).await;
}

async fn nothing_is_left(postgres: &Postgres, broker: &Broker) {
    assert_eq!(broker.names_of("exchanges"), [""; 0]);
    // Dead letters of all servers of a virtual host are in one queue.
    assert_eq!(broker.names_of("queues"), ["hubbub.dead"]);
    let databases = "select count(*) from pg_database where datname like 'hubbub_bench_%'";
    assert_eq!(postgres.query("postgres", databases).await, "0");
}

#[tokio::test]
async fn a_server_with_a_directory_of_its_own_is_behind_rabbitmq() {
    let (broker, dir) = (Broker::shared(), tempfile::tempdir().unwrap());
    let found = results(&run(dir.path(), &format!("log = '{}'\n{PERSIST}", broker.url()), &[]).await);
    assert_eq!((&found["store"], &found["log"]), (&"embedded".into(), &"rabbitmq".into()));
    // The classic load, whose answers have no numbers then.
    let chat = "workload = 'chat'\n[options]\nmessages = 300\nconnections = 4\nrooms = 2\nwarmup-connections = 1\n\
        warmup-messages = 10\n";
    let found =
        results(&run(dir.path(), &format!("log = 'rabbitmq'\n{chat}"), &["--rabbitmq", &broker.url()]).await);
    assert_eq!(found["runs"][0]["summary"]["ledger"]["server"]["stored"], 300, "{found}");
    assert_eq!(broker.names_of("exchanges"), [""; 0]);
}

#[tokio::test]
async fn servers_share_a_keyspace_behind_kafka() {
    let (kafka, cassandra, dir) = (Kafka::shared(), Cassandra::shared(), tempfile::tempdir().unwrap());
    let [topics, keyspaces] = [kafka.topics(), cassandra.keyspaces().await].map(of_measurements);
    let scenario = format!("store = 'scylla'\nlog = '{}'\n{PERSIST}servers = 2\n", kafka.url());
    let found = results(&run(dir.path(), &scenario, &["--cql", &cassandra.cluster()]).await);
    assert_eq!((&found["store"], &found["log"]), (&"scylla".into(), &"kafka".into()));
    let summary = &found["runs"][0]["summary"];
    assert!(summary["storedPerSecond"].as_f64().unwrap() > 0.0, "{found}");
    let is_told = summary["notes"].to_string().contains("the processes of --cql");
    assert_ne!(summary["cpuUs"]["database"].is_number(), is_told, "counted, or told that it is not: {found}");
    are_gone(&topics, async || kafka.topics()).await;
    are_gone(&keyspaces, async || cassandra.keyspaces().await).await;
}

#[tokio::test]
async fn a_measurement_that_failed_leaves_nothing() {
    let (postgres, broker, dir) = (Postgres::start(""), Broker::shared(), tempfile::tempdir().unwrap());
    let (url, log) = (postgres.url("postgres"), broker.url());
    let own = ["--postgres", &*url, "--rabbitmq", &*log];
    // Before servers have made anything: they refuse a setting.
    let ran = run(dir.path(), &format!("{PERSIST}[settings.amqp]\nshard = 2\n"), &own).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("amqp.shard"), "{ran:?}");
    // And while they work: nobody takes what is published.
    let elsewhere = PERSIST.replace("[options]\n", "[options]\nlog = 'amqp://127.0.0.1:1'\n");
    let ran = run(dir.path(), &elsewhere, &own).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("connecting to RabbitMQ"), "{ran:?}");
    nothing_is_left(&postgres, &broker).await;
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.toml").to_str().unwrap().to_owned();
    for (scenario, own, said) in [
        ("log = 'rabbitmq'", &[][..], "log = \"rabbitmq\": give --rabbitmq URL"),
        ("log = 'kafka'", &[], "log = \"kafka\": give --kafka URL"),
        ("store = 'scylla'", &[], "store = \"scylla\": give --cql URL"),
        ("store = 'scylla'", &["--cql", "scylla://a:geheim@b"], "give --kafka URL"),
        ("log = 'kafka://a:1'", &[], "give --postgres URL, or --cql URL"),
        (
            "store = 'postgres'",
            &["--rabbitmq", "amqp://a:geheim@b"],
            "store = \"postgres\": give --postgres URL",
        ),
        ("log = 'direct'", &["--rabbitmq", "amqp://a:geheim@b"], "log = \"direct\": leave out --rabbitmq"),
        ("", &["--rabbitmq", "amqp://a:geheim@b", "--kafka", "kafka://b:1"], "--kafka and --rabbitmq"),
        ("log = 'mqtt://a:geheim@b'", &[], "log: 'mqtt://a:***@b' must be direct, kafka or rabbitmq"),
    ] {
        std::fs::write(&path, format!("title = 'x'\nworkload = 'chat'\n{scenario}\n")).unwrap();
        // What a file says wrongly of itself is wrong usage; what else is missing, a failure.
        let code = if scenario.contains("mqtt") { 2 } else { 1 };
        let refused = hubbub(&[&["bench", "run", &path], own].concat(), "").refusal(code);
        assert!(refused.contains(said) && refused.contains("own.toml"), "{scenario}: {refused}");
        assert!(!refused.contains("geheim"), "{refused}");
    }
}
