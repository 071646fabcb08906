//! The schema: shown before it is changed, and changed once however many do it.

use crate::harness::{Postgres, Setup, hubbub};

#[tokio::test]
async fn migrate_plans_and_runs() {
    let postgres = Postgres::start("");
    let url = postgres.url("postgres");
    let migrate = |more: &[&str]| hubbub(&[&["migrate", "--store", &url], more].concat(), "").success();

    let plan = migrate(&["--plan"]);
    for part in
        ["-- version 1: rooms", "create table messages", "-- version 2: queues", "-- touches no table"]
    {
        assert!(plan.contains(part), "{part} is not in {plan}");
    }
    let tables =
        "select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')";
    assert_eq!(postgres.query("postgres", tables).await, "0", "a plan changes nothing");

    // Two at the same time, and a server.
    let both = std::thread::scope(|scope| {
        let one = scope.spawn(|| migrate(&[]));
        let other = scope.spawn(|| migrate(&[]));
        [one.join().unwrap(), other.join().unwrap()]
    });
    assert!(both.iter().any(|said| said.contains("version 1 (rooms) is done")), "{both:?}");
    let versions = "select count(*) = max(version) from refinery_schema_history";
    assert_eq!(postgres.query("postgres", versions).await, "t", "each once");
    assert_eq!(migrate(&["--plan"]), "the schema is up to date\n");
    assert_eq!(migrate(&[]), "the schema is up to date\n");

    let server = Setup::new().store(&url).set("store.postgres.migrate=false").start();
    assert_eq!(server.send("r", "1").await["seq"], 1);
    let embedded = hubbub(&["migrate", "--store", "embedded"], "").refusal(2);
    assert!(embedded.contains("postgres://"), "{embedded}");
}
