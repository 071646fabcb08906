//! A real Prometheus reads `/metrics` and computes a quantile of every histogram.

use std::io::Write;
use std::process::{Command, Stdio};

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::prometheus::{Prometheus, has_prometheus};
use crate::harness::{Broker, Server, Setup, until};

/// The names of all histograms that `/metrics` declares.
async fn histograms(server: &Server) -> Vec<String> {
    let text = server.get("/metrics").await.text();
    let declared = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram"));
    declared.map(str::to_owned).collect()
}

/// Does what each histogram measures: messages through the broker, to a subscriber, a change of a key, a value read from the disk, a
/// line.
async fn use_everything(server: &mut Server) {
    server.call("", Method::PUT, "/kv/greeting", json!("hello")).await;
    server.restart();
    assert_eq!(server.get("/kv/greeting").await.status, 200);
    server.call("", Method::PUT, "/kv/farewell", json!("goodbye")).await;
    let mut follower = server.subscriber("lobby", json!({})).await;
    let sent = server.post("/v1/rooms/lobby/messages", &json!({"userId": "ada", "message": "hello"})).await;
    assert_eq!(sent.status, 202);
    follower.receive_type("message").await;
    server.line().await.request("ping\n\n", &["OK"]).await;
}

#[tokio::test]
async fn every_histogram_has_quantiles() {
    if !has_prometheus() {
        return;
    }
    let broker = Broker::shared();
    let mut server = Setup::new().set(&broker.setting()).line().start();
    use_everything(&mut server).await;
    let mut histograms = histograms(&server).await;
    assert_eq!(histograms.len(), 15, "{histograms:?}");
    // Has values where another server stores; `dashboards_have_data` looks there.
    histograms.retain(|name| name != "hubbub_bus_seconds");
    let prometheus = Prometheus::start(server.address()).await;
    for name in histograms {
        // Until then, because a scrape that fails, as on a busy machine, leaves no sample for a while.
        until(&format!("a value in {name}"), async || {
            prometheus.value(&format!("{name}_count > 0")).await.is_some()
        })
        .await;
        for quantile in ["0.5", "0.99"] {
            let query = format!("histogram_quantile({quantile}, {name}_bucket)");
            let is_sensible = |value: f64| value.is_finite() && value >= 0.0;
            until(&query, async || prometheus.value(&query).await.is_some_and(is_sensible)).await;
        }
    }
}

#[tokio::test]
async fn promtool_finds_nothing_wrong() {
    if !has_prometheus() {
        return;
    }
    let server = Server::start();
    server.call("", Method::PUT, "/kv/greeting", Value::from("hello")).await;
    let text = server.get("/metrics").await.text();
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), said.as_str()), (Some(0), ""));
}
