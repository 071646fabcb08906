//! `hubbub ping` and `hubbub status`: whether a server answers, and how it is.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use hubbub_core::Clock;
use hubbub_core::backoff::Backoff;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::address::Server;
use super::connection::{Connection, TIMEOUT};
use super::metrics::Metrics;
use super::{show, text};
use crate::cli::{ClientArgs, PingArgs};
use crate::output::{notice, size};
use crate::system::SystemClock;

/// Pauses between attempts to reach a server that starts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Figures of `status`: what they are called, in JSON, and the metric.
const FIGURES: &[(&str, &str, &str)] = &[
    ("connections", "connections", "hubbub_connections"),
    ("rooms", "rooms", "hubbub_store_rooms"),
    ("messages", "messages", "hubbub_store_messages"),
    ("queues", "queues", "hubbub_store_queues"),
    ("queued", "queueMessages", "hubbub_store_queue_messages"),
    ("keys", "keys", "hubbub_store_keys"),
    ("on disk", "storeBytes", "hubbub_store_disk_bytes"),
    ("memory", "memoryBytes", "process_resident_memory_bytes"),
];

/// Asks whether the process answers; with `--wait` until it does.
pub(crate) async fn ping(args: PingArgs) -> anyhow::Result<()> {
    let server = args.client.server()?;
    let mut connection = match args.wait {
        Some(wait) => match tokio::time::timeout(wait, reach(&server)).await {
            Ok(connection) => connection,
            Err(_) => bail!("{} did not answer in {wait:?}", server.url()),
        },
        None => server.clone().connection(),
    };
    for _ in 0..args.count {
        let begun = Instant::now();
        live(&mut connection).await?;
        let ms = (begun.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        let url = server.url();
        show(args.client.json, &json!({"url": url, "ms": ms}), |_| format!("{url} answers in {ms} ms\n"))?;
    }
    Ok(())
}

/// A connection to the server, once it answers.
async fn reach(server: &Server) -> Connection {
    let mut backoff = PAUSES;
    loop {
        let mut connection = server.clone().connection();
        if live(&mut connection).await.is_ok() {
            return connection;
        }
        tokio::time::sleep(backoff.exact_pause()).await;
    }
}

/// One attempt: how long that takes is what is asked for.
async fn live(connection: &mut Connection) -> anyhow::Result<()> {
    connection.request(TIMEOUT, Method::GET, "/health/live", "").await?.success().map(drop)
}

/// Shows health and figures. Fails if the server takes no writes.
pub(crate) async fn status(args: ClientArgs) -> anyhow::Result<()> {
    let url = args.server.url();
    let mut connection = args.server()?.connection();
    // 503 comes with the same body.
    let health = connection.request(TIMEOUT, Method::GET, "/health", "").await?.body;
    let status = text(&health, "status");
    ensure!(matches!(status, "UP" | "DEGRADED" | "DOWN"), "{url} is no Hubbub server");
    let components = health.get("components").and_then(Value::as_object);
    // They may be nobody's business; then health alone is shown.
    let metrics = Metrics::of(&mut connection).await.ok();
    let figure = |name: &str| metrics.as_ref().and_then(|metrics| metrics.value(name));
    let revision = metrics.as_ref().and_then(|metrics| metrics.label("hubbub_build_info", "revision"));
    let uptime = figure("process_start_time_seconds").map(uptime_seconds);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
    let figures = FIGURES
        .iter()
        .filter_map(|(_, name, metric)| Some(((*name).to_owned(), Value::from(figure(metric)? as u64))));
    let shown = json!({
        "url": url, "status": status, "version": health.get("version"), "revision": revision,
        "uptimeSeconds": uptime, "components": components, "figures": Map::from_iter(figures),
    });
    show(args.json, &shown, lines)?;
    if components.is_none() {
        notice("the version and the components need a token with the scope health (--token-file)");
    }
    match status {
        "DOWN" => bail!("the server is DOWN: it takes no writes"),
        "DEGRADED" => notice(
            "the server is DEGRADED: its store takes nothing now; messages are taken, and wait in the broker, but reads and \
             changes of rooms may fail",
        ),
        _ => {}
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn uptime_seconds(started: f64) -> u64 {
    let now = SystemClock::new().now().as_micros() as f64 / 1e6;
    (now - started).max(0.0) as u64
}

fn lines(status: &Value) -> String {
    let (state, url) = (text(status, "status"), text(status, "url"));
    let part = |before: &str, name: &str, after: &str| match text(status, name) {
        "" => String::new(),
        part => format!("{before}{part}{after}"),
    };
    let (version, revision) = (part("  hubbub ", "version", ""), part(" (", "revision", ")"));
    let mut out = format!("{state}  {url}{version}{revision}\n");
    if let Some(seconds) = status.get("uptimeSeconds").and_then(Value::as_u64) {
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        out.push_str(&format!("{:<14}{hours} h {minutes} min {} s\n", "up for", seconds % 60));
    }
    for (name, component) in status.get("components").and_then(Value::as_object).into_iter().flatten() {
        let (state, kind, reason) =
            (text(component, "status"), text(component, "kind"), text(component, "reason"));
        let line = format!("{name:<14}{state}  {kind}  {reason}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for (title, name, _) in FIGURES {
        if let Some(value) = status.pointer(&format!("/figures/{name}")).and_then(Value::as_u64) {
            let value = if name.ends_with("Bytes") { size(value) } else { value.to_string() };
            out.push_str(&format!("{title:<14}{value}\n"));
        }
    }
    out
}
