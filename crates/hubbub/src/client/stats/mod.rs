//! `hubbub stats`: statistics, their course over time, and the audit.

mod watch;

use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::{Value, json};

use super::connection::{Connection, Server};
use super::{print, print_json};
use crate::cli::{AuditArgs, StatsAction, StatsArgs};

/// An audit reads everything that is stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(3_600);

pub(crate) async fn stats(args: StatsArgs) -> anyhow::Result<()> {
    let server = Server::parse(match &args.action {
        Some(StatsAction::Audit(audit)) => &audit.client.server,
        None => &args.client.server,
    })?;
    match (&args.action, args.every) {
        (Some(StatsAction::Audit(args)), _) => audit(&server, args).await,
        (None, Some(every)) => watch::watch(&server, &args, every).await,
        (None, None) => overview(&mut server.connect().await?, &args).await,
    }
}

/// Totals, and the rooms and users with most messages.
async fn overview(connection: &mut Connection, args: &StatsArgs) -> anyhow::Result<()> {
    let totals = connection.get("/v1/stats").await?;
    let rooms = list(connection, "rooms", args.top).await?;
    let users = list(connection, "users", args.top).await?;
    if args.client.json {
        return print_json(&json!({"totals": totals, "topRooms": rooms, "topUsers": users}));
    }
    let number = |name: &str| totals.get(name).and_then(Value::as_u64).unwrap_or_default();
    let types = totals.get("messagesByType").and_then(Value::as_object).into_iter().flatten();
    let types: Vec<String> = types.map(|(kind, count)| format!("{kind} {count}")).collect();
    let mut out = format!("{:<10}{:>12}  {}\n", "messages", number("messages"), types.join(", "));
    for name in ["users", "rooms"] {
        out.push_str(&format!("{name:<10}{:>12}\n", number(name)));
    }
    for (label, name) in [("first", "firstMessageAt"), ("last", "lastMessageAt"), ("as of", "asOf")] {
        out.push_str(&format!("{label:<10}{:>24}\n", text(&totals, name)));
    }
    out.push_str(&table(["room", "messages", "users"], ["roomId", "messages", "uniqueUsers"], &rooms));
    out.push_str(&table(["user", "messages", "rooms"], ["userId", "messages", "rooms"], &users));
    print(&out)
}

async fn list(connection: &mut Connection, name: &str, top: u16) -> anyhow::Result<Vec<Value>> {
    let mut answer = connection.get(&format!("/v1/stats/{name}?limit={top}")).await?;
    match answer.get_mut(name).map(Value::take) {
        Some(Value::Array(list)) => Ok(list),
        _ => bail!("the server's answer contains no {name}"),
    }
}

/// A table of names with two numbers and the time of the last message.
fn table(heads: [&str; 3], names: [&str; 3], rows: &[Value]) -> String {
    let [who, first, second] = heads;
    let mut out = format!("\n{who:<32} {first:>10} {second:>10}  last\n");
    let [who, first, second] = names;
    for row in rows {
        let number = |name: &str| row.get(name).and_then(Value::as_u64).unwrap_or_default();
        let (first, second, last) = (number(first), number(second), text(row, "lastMessageAt"));
        out.push_str(&format!("{:<32} {first:>10} {second:>10}  {last}\n", text(row, who)));
    }
    out
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}

/// Runs an audit. Fails if the counts are wrong.
async fn audit(server: &Server, args: &AuditArgs) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    let asked = connection.request_within(AUDIT_TIMEOUT, Method::POST, "/v1/stats/audit", String::new());
    let audit = asked.await?.success()?;
    let differences =
        audit.get("differences").and_then(Value::as_array).context("the server's answer is not an audit")?;
    if args.client.json {
        print_json(&audit)?;
    } else {
        let number = |name: &str| audit.get(name).and_then(Value::as_f64).unwrap_or_default();
        let (messages, seconds) = (number("messages"), number("tookMs") / 1e3);
        let mut out = String::new();
        for difference in differences {
            out.push_str(&format!("{}\n", difference.as_str().unwrap_or_default()));
        }
        out.push_str(&format!(
            "{messages} messages recounted in {seconds:.1} s: {} differences\n",
            differences.len()
        ));
        print(&out)?;
    }
    if differences.is_empty() {
        Ok(())
    } else {
        bail!("the statistics differ from the stored messages; see above")
    }
}
