//! The summary on the terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Report;
use crate::host::machine::CpuUse;
use crate::host::sample::charts::is_detail;
use crate::host::sample::series::SeriesSummary;
use crate::results::ledger::Ledger;
use crate::results::record::Stats;
use crate::statistics::models::little::Little;

/// Thousands apart, for people.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn summary(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_summary(report, &mut out);
    out
}

fn write_summary(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{} on {}", report.workload, report.origin.machine)?;
    if let Some(ledger) = &report.ledger {
        write_ledger(ledger, out)?;
    }
    if let Some(persisted) = &report.persisted {
        write!(out, "{persisted}")?;
    }
    if let Some(settling) = &report.settling {
        write!(out, "{settling}")?;
    }
    if report.latency.count > 0 {
        let [rate, count] = [report.per_second, report.latency.count as f64].map(grouped);
        write!(out, "  throughput   {rate} {}/s ({count} in {:.2} s", report.unit, report.elapsed_s)?;
        if let Some(variation) = report.per_second_variation {
            write!(out, "; variation of single seconds {:.1} %", 100.0 * variation)?;
        }
        writeln!(out, ")")?;
        writeln!(out, "  latency ms   {}", line(&report.latency))?;
        if let Some(from_send) = &report.latency_from_send {
            writeln!(out, "  from send ms {}", line(from_send))?;
        }
        for (kind, stats) in report.latency_by_type.iter().filter(|(_, stats)| stats.count > 0) {
            writeln!(out, "    {kind:<10} {}", line(stats))?;
        }
    }
    if let Some(rooms) = &report.rooms {
        writeln!(out, "  rooms        {rooms}")?;
    }
    if let Some(delivery) = &report.delivery {
        let [count, rate] = [delivery.delivered as f64, delivery.per_second].map(grouped);
        writeln!(out, "  deliveries   {count} to {} subscribers, {rate}/s", delivery.subscribers)?;
        writeln!(out, "               {} missing, {} out of order", delivery.missing, delivery.misordered)?;
        writeln!(out, "  arrival ms   {}", line(&delivery.latency))?;
    }
    let lost: u64 = report.reconnects.values().sum();
    write!(out, "  connections  {} opened, {lost} reconnections", report.connections_opened)?;
    for (cause, count) in &report.reconnects {
        write!(out, ", {count} {cause}")?;
    }
    writeln!(out, ", {}", retries(report.retries, &report.retries_by_cause))?;
    if let Some(Little { observed, concurrency, think_ms, efficiency, marked, .. }) = &report.little {
        let share = 100.0 * efficiency;
        let verdict = if *marked { ": more than 5 % apart" } else { "" };
        let thinking =
            if *think_ms > 0.0 { format!(" or thinking, {think_ms:.3} ms each") } else { String::new() };
        writeln!(
            out,
            "  Little       {observed:.1} of {concurrency} under way{thinking} ({share:.1} %){verdict}"
        )?;
    }
    if let Some(CpuUse { generator, server, machine, cores, stolen, .. }) = &report.cpu {
        let server = server.map_or_else(String::new, |server| format!(", server {server:.2}"));
        write!(out, "  processors   generator {generator:.2}{server}")?;
        writeln!(out, ", machine {machine:.2} of {cores}, stolen {stolen:.2}")?;
    }
    if let Some(agents) = &report.agents {
        write!(out, "{agents}")?;
    }
    if let Some(timing) = &report.generator {
        writeln!(out, "  generator    {timing}")?;
    }
    write!(out, "{}", report.analysis)?;
    if report.persisted.is_some() {
        write_series(&report.series, out)?;
    }
    if let Some(verdict) = &report.verdict {
        write!(out, "{verdict}")?;
    }
    report.notes.iter().try_for_each(|note| writeln!(out, "  note: {note}"))
}

/// Figures of server, database and machine, where they were seen idle as well.
fn write_series(series: &[SeriesSummary], out: &mut String) -> std::fmt::Result {
    writeln!(out, "  {:<34}{:>12}{:>12}{:>12}{:>12}", "", "before", "average", "peak", "after")?;
    for SeriesSummary { name, before, average, peak, after } in
        series.iter().filter(|one| !is_detail(&one.name))
    {
        writeln!(out, "  {name:<34}{before:>12.2}{average:>12.2}{peak:>12.2}{after:>12.2}")?;
    }
    Ok(())
}

/// How many there were, and why.
fn retries(count: u64, by_cause: &BTreeMap<&'static str, u64>) -> String {
    let causes: String = by_cause.iter().map(|(cause, count)| format!(", {count} {cause}")).collect();
    format!("{count} retries{causes}")
}

/// What makes figures worth less than they seem, behind a line of a table.
pub(crate) fn flags(marks: &[String]) -> String {
    marks.iter().map(|mark| format!("   ! {mark}")).collect()
}

fn write_ledger(ledger: &Ledger, out: &mut String) -> std::fmt::Result {
    let [sent, accepted] = [ledger.sent, ledger.accepted].map(|n| grouped(n as f64));
    let (failed, unconfirmed) = (ledger.rejected + ledger.unconfirmed, ledger.unconfirmed);
    writeln!(out, "  sent         {sent}, accepted {accepted}, failed {failed} ({unconfirmed} unconfirmed)")?;
    if let Some(server) = &ledger.server {
        let closed =
            if ledger.faults.is_empty() { "the ledger balances" } else { "the ledger does not balance" };
        let (stored, duplicate) = (grouped(server.stored as f64), server.duplicate);
        writeln!(out, "  server       stored {stored}, duplicates {duplicate}: {closed}")?;
    }
    if let Some(queues) = &ledger.queues {
        writeln!(out, "  queues       {queues}")?;
    }
    if let Some(keys) = &ledger.keys {
        writeln!(out, "  keys         {keys}")?;
    }
    Ok(())
}

fn line(stats: &Stats) -> String {
    let Stats { mean_ms, median_ms, p90_ms, p95_ms, p99_ms, p99_9_ms, min_ms, max_ms, .. } = stats;
    let (variance_ms2, variation) = (stats.variance_ms2, 100.0 * stats.variation);
    format!(
        "mean {mean_ms:.3}, p50 {median_ms:.3}, p90 {p90_ms:.3}, p95 {p95_ms:.3}, p99 {p99_ms:.3}, \
         p99.9 {p99_9_ms:.3}, min {min_ms:.3}, max {max_ms:.3}, variance {variance_ms2:.3} \
         (variation {variation:.0} %)"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_grouped() {
        for (value, text) in
            [(0.0, "0"), (999.0, "999"), (1_000.0, "1,000"), (1_234_567.4, "1,234,567"), (-1_000.0, "-1,000")]
        {
            assert_eq!(super::grouped(value), text);
        }
    }
}
