//! `hubbub stats`: statistics, their course over time, and the audit.

mod watch;

use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_core::text::counted;
use hyper::Method;
use serde_json::{Value, json};

use super::connection::Connection;
use super::session::Session;
use super::table::Table;
use super::{entries, number, print_json, show};
use crate::cli::{ClientArgs, StatsAction, StatsArgs};
use crate::output::print;

/// An audit reads everything that is stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(3_600);

pub(crate) async fn stats(args: StatsArgs) -> anyhow::Result<()> {
    match (&args.action, args.every) {
        (Some(StatsAction::Audit(client)), _) => audit(client).await,
        (None, Some(every)) => watch::watch(&args, every).await,
        (None, None) => overview(&args).await,
    }
}

/// Totals, and the rooms and users with most messages.
async fn overview(args: &StatsArgs) -> anyhow::Result<()> {
    let connection = &mut Session::new(&args.client)?.connection;
    let totals = connection.get("/v1/stats").await?;
    let rooms = list(connection, "rooms", args.top).await?;
    let users = list(connection, "users", args.top).await?;
    if args.client.json {
        return print_json(&json!({"totals": totals, "topRooms": rooms, "topUsers": users}));
    }
    let number = |name: &str| number(&totals, name);
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
    let answer = connection.get(&format!("/v1/stats/{name}?limit={top}")).await?;
    Ok(entries(&answer, name)?.to_vec())
}

/// A table of names with two numbers and the time of the last message.
fn table(heads: [&'static str; 3], names: [&str; 3], rows: &[Value]) -> String {
    let ([who, first, second], [name, one, two]) = (heads, names);
    let rows = rows.iter().map(|row| {
        let number = |name: &str| number(row, name).to_string();
        [text(row, name).to_owned(), number(one), number(two), text(row, "lastMessageAt").to_owned()]
    });
    format!("\n{}", Table::new([who, first, second, "last"]).add(rows))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}

async fn audit(args: &ClientArgs) -> anyhow::Result<()> {
    let connection = &mut Session::new(args)?.connection;
    let audit = connection.request(AUDIT_TIMEOUT, Method::POST, "/v1/stats/audit", "");
    let audit = audit.await?.success()?;
    let differences = entries(&audit, "differences").context("the server's answer is not an audit")?;
    show(args.json, &audit, |audit| {
        let number = |name: &str| audit.get(name).and_then(Value::as_f64).unwrap_or_default();
        let (messages, seconds) = (number("messages"), number("tookMs") / 1e3);
        let mut out: String =
            differences.iter().filter_map(Value::as_str).flat_map(|line| [line, "\n"]).collect();
        let count = differences.len();
        let (messages, count) = (counted(messages, "message"), counted(count, "difference"));
        out.push_str(&format!("{messages} recounted in {seconds:.1} s: {count}\n"));
        out
    })?;
    if differences.is_empty() {
        Ok(())
    } else {
        bail!("the statistics differ from the stored messages; see above")
    }
}
