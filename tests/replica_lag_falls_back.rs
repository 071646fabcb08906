//! History and statistics come from replicas, are never older than what anybody was told, and never fail because of one.

use std::sync::Arc;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Postgres, Server, Setup, texts, until};
use crate::postgres_comes_and_goes::send_at_last;

/// A window of time: it is read from the database, whatever is in memory.
const WINDOW: &str = "/v1/rooms/r/messages?from=2001-01-01T00:00:00Z&limit=1000";

/// How often the replica answered, and how often the primary had to.
async fn counts(server: &Server, replica: &Postgres) -> (u64, u64) {
    let metric = async |name: &str| {
        server.metric(&format!("store_replica_{name}_total{{replica=\"127.0.0.1:{}\"}}", replica.port)).await
    };
    (metric("reads").await, metric("fallbacks").await)
}

async fn gauge(server: &Server, name: &str, replica: &Postgres) -> u64 {
    server.metric(&replica_metric(name, replica)).await
}

fn replica_metric(name: &str, replica: &Postgres) -> String {
    format!("store_replica_{name}{{replica=\"127.0.0.1:{}\"}}", replica.port)
}

async fn is_up(server: &Server, replica: &Postgres) -> bool {
    gauge(server, "up", replica).await == 1
}

/// What `/health` says of the first replica; the server itself must be well.
async fn told(server: &Server) -> Value {
    let health = server.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text());
    health.json()["components"]["store"]["replicas"][0].clone()
}

async fn with_consistency(server: &Server, path: &str, value: &str) -> Answer {
    server.http().await.request(Method::GET, path, &[("Hubbub-Consistency", value)], "").await
}

/// Reads until the replica answers; each answer must be complete.
async fn answered_by(server: &Server, replica: &Postgres, path: &str, is_complete: impl Fn(&Value) -> bool) {
    let (before, _) = counts(server, replica).await;
    until("the replica answers", async || {
        let answer = server.get(path).await;
        assert!(answer.status == 200 && is_complete(&answer.json()), "{path}: {}", answer.text());
        counts(server, replica).await.0 > before
    })
    .await;
}

/// The texts of a page.
fn page_texts(page: &Value) -> Vec<&str> {
    texts(page["messages"].as_array().unwrap())
}

fn all<'a>(wanted: &'a [&'a str]) -> impl Fn(&Value) -> bool + 'a {
    move |page| page_texts(page) == wanted
}

#[tokio::test]
async fn replica_lag_falls_back() {
    let primary = Postgres::start("");
    let replica = Arc::new(Postgres::replica_of(&primary));
    let server = Setup::new()
        .store(&primary.url("postgres"))
        .set(&format!("store.postgres.replicas={}", replica.url("postgres")))
        .set("store.postgres.replica_lag=300ms")
        .start();
    until("the replica is read from", async || is_up(&server, &replica).await).await;
    server.send("r", "1").await;
    server.send("r", "2").await;
    let user = "/v1/users/ada/messages";
    let total = |count: u64| move |stats: &Value| stats["messages"] == count;
    answered_by(&server, &replica, WINDOW, all(&["1", "2"])).await;
    answered_by(&server, &replica, user, all(&["1", "2"])).await;
    answered_by(&server, &replica, "/v1/stats", total(2)).await;
    answered_by(&server, &replica, "/v1/stats/active-users?limit=0", |stats| stats["count"] == 1).await;

    // Who wants the primary gets it; who wants something else is told.
    let before = counts(&server, &replica).await;
    for path in [WINDOW, user, "/v1/stats", "/v1/stats/report"] {
        assert_eq!(with_consistency(&server, path, "Strong").await.status, 200, "{path}");
        with_consistency(&server, path, "weak").await.problem(400, "malformed");
    }
    assert_eq!(counts(&server, &replica).await, before);

    // Behind by a message: nobody may notice, however short the lag.
    replica.run("select pg_wal_replay_pause()").await;
    let is_paused = "select pg_get_wal_replay_pause_state()";
    until("a pause", async || replica.query("postgres", is_paused).await == "paused").await;
    server.send("r", "3").await;
    let (reads, fallbacks) = counts(&server, &replica).await;
    for _ in 0..5 {
        assert_eq!(page_texts(&server.get(WINDOW).await.json()), ["1", "2", "3"]);
        assert_eq!(page_texts(&server.get(user).await.json()), ["1", "2", "3"]);
        assert_eq!(server.get("/v1/stats").await.json()["messages"], 3);
    }
    assert_eq!(counts(&server, &replica).await, (reads, fallbacks + 15));
    until("it is too far behind", async || !is_up(&server, &replica).await).await;
    let lag = server.metric_text(&format!("hubbub_{}", replica_metric("lag_seconds", &replica))).await;
    assert!(lag.parse::<f64>().unwrap() > 0.3, "{lag}");
    let health = told(&server).await;
    assert_eq!(
        (&health["status"], health["lagMs"].as_u64() >= Some(300)),
        (&json!("DOWN"), true),
        "{health}"
    );
    assert!(health["reason"].as_str().unwrap().contains("store.postgres.replica_lag"), "{health}");

    replica.run("select pg_wal_replay_resume()").await;
    until("it has caught up", async || is_up(&server, &replica).await).await;
    answered_by(&server, &replica, WINDOW, all(&["1", "2", "3"])).await;
    assert_eq!(told(&server).await["status"], "UP");

    // Killed while it is read from: no request fails, and it is used again when it is back.
    let killing = tokio::task::spawn_blocking({
        let replica = replica.clone();
        move || replica.crash()
    });
    let mut reads_after = 0;
    while reads_after < 50 {
        reads_after += usize::from(killing.is_finished());
        let answer = server.get(WINDOW).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(page_texts(&answer.json()), ["1", "2", "3"]);
    }
    killing.await.unwrap();
    until("it is away", async || !is_up(&server, &replica).await).await;
    let health = told(&server).await;
    assert_eq!((&health["status"], &health["lagMs"]), (&json!("DOWN"), &Value::Null), "{health}");
    assert_eq!(page_texts(&server.get(WINDOW).await.json()), ["1", "2", "3"]);
    replica.restart();
    until("it is back", async || is_up(&server, &replica).await).await;
    answered_by(&server, &replica, WINDOW, all(&["1", "2", "3"])).await;
}

/// Whoever hears of a message finds it, also of one that another server stored a moment ago.
#[tokio::test]
async fn what_was_told_is_found() {
    let primary = Postgres::start("");
    let replica = Postgres::replica_of(&primary);
    replica.run("alter system set recovery_min_apply_delay = '20ms'").await;
    replica.run("select pg_reload_conf()").await;
    let setup = || {
        Setup::new()
            .store(&primary.url("postgres"))
            .set(&format!("store.postgres.replicas={}", replica.url("postgres")))
    };
    let (server, other) = (setup().start(), setup().start());
    until("the replica is read from", async || is_up(&server, &replica).await).await;
    let mut follower = server.subscriber("r", json!({"after": 0})).await;
    for number in 1..=100_usize {
        let sender = if number % 2 == 0 { &server } else { &other };
        let receipt = sender.send("r", &number.to_string()).await;
        assert_eq!(page_texts(&sender.get(WINDOW).await.json()).len(), number);
        let live = follower.receive_type("message").await;
        assert_eq!(live["seq"], receipt["seq"]);
        assert_eq!(page_texts(&server.get(WINDOW).await.json()).len(), number);
        let page = server.get("/v1/users/ada/messages?limit=1000").await.json();
        assert_eq!(page_texts(&page).len(), number);
        let cursor = number - 1;
        let page = server.get(&format!("{WINDOW}&after={cursor}")).await;
        assert_eq!(page_texts(&page.json()), [number.to_string()]);
    }
    let path = "/v1/users/ada/messages?limit=1000";
    answered_by(&server, &replica, path, |page| page_texts(page).len() == 100).await;
}

/// When one replica is promoted, it is the primary, and the others copy a history that is over.
#[tokio::test]
async fn replicas_of_another_history_are_not_read() {
    let primary = Postgres::start("");
    let (heir, left) = (Postgres::replica_of(&primary), Postgres::replica_of(&primary));
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, heir.port);
    let server = Setup::new()
        .store(&format!("postgres://postgres@{hosts}/postgres"))
        .set(&format!("store.postgres.replicas={},{}", left.url("postgres"), heir.url("postgres")))
        .start();
    server.send("r", "1").await;
    for replica in [&heir, &left] {
        until("a replica is read from", async || is_up(&server, replica).await).await;
        answered_by(&server, replica, WINDOW, all(&["1"])).await;
    }
    primary.crash();
    heir.script(&["promote"]);
    send_at_last(&server, "r", "2").await;
    assert!(page_texts(&server.get(WINDOW).await.json()).contains(&"2"));
    let reasons = async || {
        let health = server.get("/health").await.json();
        let replicas = health["components"]["store"]["replicas"].as_array().unwrap().clone();
        replicas.iter().map(|replica| replica["reason"].as_str().unwrap_or_default().to_owned()).collect()
    };
    until("both are known", async || {
        let reasons: Vec<String> = reasons().await;
        reasons[0].contains("another history") && reasons[1].contains("takes writes itself")
    })
    .await;
    // One that follows the heir is of this history.
    let next = Postgres::replica_of(&heir);
    let later = Setup::new()
        .store(&heir.url("postgres"))
        .set(&format!("store.postgres.replicas={}", next.url("postgres")))
        .start();
    until("the new replica is read from", async || is_up(&later, &next).await).await;
    let wanted = server.get(WINDOW).await.json();
    answered_by(&later, &next, WINDOW, |page| page_texts(page) == page_texts(&wanted)).await;
}
