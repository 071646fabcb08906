//! Cassandra as the store: its schema is planned and made, and no server runs on it without the log that orders its rooms.

use crate::harness::{hubbub, hubbub_aside};

/// The server for all tests; `HUBBUB_TEST_CQL` names another one.
fn url(keyspace: &str) -> String {
    let host = std::env::var("HUBBUB_TEST_CQL").unwrap_or_else(|_| "127.0.0.1:19042".into());
    format!("scylla://{host}/{keyspace}")
}

#[test]
fn a_server_without_the_log_is_refused() {
    let serve =
        |more: &[&str]| hubbub(&[&["serve", "--listen", "127.0.0.1:0"], more].concat(), "").refusal(2);
    let said = serve(&["--store", "scylla://127.0.0.1:1/hubbub"]);
    assert!(said.contains("--store scylla:// requires --log kafka://"), "{said}");
    let said = serve(&["--store", "scylla://127.0.0.1:1/Hubbub"]);
    assert!(said.contains("store.url must name a keyspace"), "{said}");
    let said = serve(&["--store", "scylla://ada:geheim@127.0.0.1:1/hubbub", "--log", "kafka://127.0.0.1:1"]);
    assert!(said.contains("must not be on the command line") && !said.contains("geheim"), "{said}");
    let said = serve(&["--store", "scylla://127.0.0.1:1/hubbub", "--set", "store.scylla.consistency=any"]);
    assert!(said.contains("store.scylla.consistency must be local_quorum, quorum or one"), "{said}");
    let serve_on_a_log = |option: &str, value: &str| {
        let store = ["--store", "scylla://127.0.0.1:1/hubbub", "--log", "kafka://127.0.0.1:1"];
        serve(&[&store[..], &[option, value]].concat())
    };
    let said = serve_on_a_log("--line", "127.0.0.1:3456");
    assert!(said.contains("server.line is for queues"), "{said}");
    let said = serve_on_a_log("--compat", "chats");
    assert!(said.contains("server.compat = \"chats\" keeps names as keys"), "{said}");
}

#[tokio::test]
async fn the_schema_is_planned_and_made() {
    let url = url(&format!("migrated_{}", std::process::id()));
    let replication = "store.scylla.replication={'class': 'SimpleStrategy', 'replication_factor': 1}";
    let migrate = async |more: &[&str]| {
        let arguments = ["migrate", "--store", &url, "--set", replication];
        let arguments = arguments.iter().chain(more).map(|part| (*part).to_owned()).collect();
        hubbub_aside(arguments, String::new()).await.success()
    };
    let plan = migrate(&["--plan"]).await;
    assert!(
        plan.contains("-- version 1: rooms") && plan.contains("create table if not exists messages"),
        "{plan}"
    );
    assert_eq!(migrate(&["--plan"]).await, plan, "a plan changes nothing");
    // Two at the same time.
    let (one, other) = tokio::join!(migrate(&[]), migrate(&[]));
    assert!([&one, &other].iter().any(|said| said.contains("version 1 (rooms) is done")), "{one} {other}");
    assert_eq!(migrate(&["--plan"]).await, "the schema is up to date\n");
    assert_eq!(migrate(&[]).await, "the schema is up to date\n");
}
