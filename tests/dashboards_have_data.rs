//! Every query of the dashboards in `deploy/grafana` and of the alert rules, answered by a real Prometheus that scrapes real
//! servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::prometheus::{Prometheus, has_prometheus};
use crate::harness::{Broker, Cassandra, Kafka, Postgres, Server, Setup, receipt, until};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// The dashboards: name and content.
fn dashboards() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for file in std::fs::read_dir(Path::new(DEPLOY).join("grafana/dashboards")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let content: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(content["uid"], name, "the address of a dashboard is the name of its file");
        all.push((name, content));
    }
    all
}

/// The queries of a dashboard, with the title of the panel, as Grafana sends them when these servers are chosen.
fn queries(dashboard: &Value, servers: &str) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let mut all = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "5s").replace("$instance", servers);
            assert!(!query.contains('$'), "{query}");
            all.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    all
}

/// The names of all metrics in a query.
fn metrics(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | ':'));
    words.filter(|word| word.starts_with("hubbub_"))
}

/// Uses what the dashboards show: rooms with a subscriber and, where there are any, keys and a queue.
async fn use_everything(server: &Server, has_queues: bool, is_over: &AtomicBool) {
    let mut subscriber = server.subscriber("lobby", json!({})).await;
    if has_queues {
        server.put_queue("work", json!({})).await;
        server.register(&["boss", "ada"]).await;
    }
    let mut line = if has_queues { Some(server.line().await) } else { None };
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let message = json!({"userId": "ada", "message": format!("hello {n}")});
        let sent = server.post("/v1/rooms/lobby/messages", &message).await;
        assert!(matches!(sent.status, 201 | 202), "{}", sent.text());
        subscriber.receive_until("message", "lobby").await;
        let Some(line) = &mut line else { continue };
        line.request("ping\n\n", &["OK"]).await;
        server.call("", Method::PUT, &format!("/kv/{n}"), json!("value")).await;
        assert_eq!(server.get(&format!("/kv/{n}")).await.status, 200);
        assert_eq!(server.get("/kv/nothing").await.status, 404);
        let page = server.call("ada", Method::GET, "/v1/rooms/lobby/messages?limit=1", Value::Null).await;
        assert_eq!(page.status, 200);
        server.enqueue("work", "text").await;
        let taken = server.take("lease", "work", json!({"client": "ada"})).await;
        server.settle("ack", "work", receipt(&taken[0]), json!({"client": "ada"})).await;
    }
}

/// Whether there is a number: a share or a quantile of nothing is none.
fn is_data(values: &[f64]) -> bool {
    values.iter().any(|value| value.is_finite())
}

#[tokio::test]
async fn dashboards_have_data() {
    if !has_prometheus() {
        return;
    }
    let (primary, broker) = (Postgres::start(""), Broker::shared());
    let replica = Postgres::replica_of(&primary);
    let embedded = Setup::new().line().start();
    let on_postgres = Setup::new()
        .store(&primary.url("postgres"))
        .set(&format!("store.postgres.replicas={}", replica.url("postgres")))
        .set(&broker.setting())
        .line()
        .start();
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 2));
    let committer = Setup::on(setup.clone(), "committer").start();
    // It stores nothing, so all that its subscribers get comes over the bus.
    let front = Setup::on(setup, "front").set("server.role=gateway").start();
    let rules = Path::new(DEPLOY).join("prometheus/alerts.yml").canonicalize().unwrap();
    let servers = [&embedded, &on_postgres, &committer, &front].map(Server::address);
    let prometheus = Prometheus::start_all(&servers, Some(&rules)).await;
    let choose =
        |servers: &[SocketAddr]| servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join("|");
    let shared = choose(&servers[2..]);
    let chosen = BTreeMap::from([
        ("hubbub-cassandra", shared.clone()),
        ("hubbub-embedded", choose(&servers[..1])),
        ("hubbub-kafka", shared),
        ("hubbub-overview", ".*".to_owned()),
        ("hubbub-postgresql", choose(&servers[1..2])),
        ("hubbub-rabbitmq", choose(&servers[1..2])),
    ]);
    let is_over = Arc::new(AtomicBool::new(false));
    let checking = async {
        let dashboards = dashboards();
        let names: BTreeSet<&str> = dashboards.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, chosen.keys().copied().collect());
        for (name, dashboard) in &dashboards {
            for (title, query) in queries(dashboard, &chosen[name.as_str()]) {
                let what = format!("data of {name}, \"{title}\": {query}");
                until(&what, async || is_data(&prometheus.values(&query).await)).await;
            }
        }
        // Alerts are empty while nothing is wrong, so their metrics are looked for.
        let rules = async || {
            let rules = prometheus.get("/api/v1/rules").await.json();
            rules["data"]["groups"][0]["rules"].as_array().unwrap().clone()
        };
        let is_evaluated = |rule: &Value| rule["health"] != "unknown";
        until("an evaluation of every rule", async || rules().await.iter().all(is_evaluated)).await;
        let all = rules().await;
        assert!(all.len() > 10, "{all:?}");
        for rule in &all {
            let query = rule["query"].as_str().unwrap();
            for metric in metrics(query) {
                until(&format!("{metric} of {query}"), async || !prometheus.values(metric).await.is_empty())
                    .await;
            }
            assert_eq!(rule["health"], "ok", "{rule}");
            if rule["type"] == "recording" {
                let name = rule["name"].as_str().unwrap();
                until(name, async || is_data(&prometheus.values(name).await)).await;
                continue;
            }
            // On a busy machine something may be slow for a moment, and shares of what was slow tell of it for minutes.
            if query.contains("_bucket") {
                assert_ne!(rule["state"], "firing", "{rule}");
                continue;
            }
            let is_same = |other: &&Value| other["name"] == rule["name"];
            until(&format!("nothing is wrong: {}", rule["name"]), async || {
                rules().await.iter().find(is_same).is_some_and(|now| now["state"] == "inactive")
            })
            .await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(
        use_everything(&embedded, true, &is_over),
        use_everything(&on_postgres, true, &is_over),
        use_everything(&front, false, &is_over),
        checking
    );
}
