//! The summary on the terminal.

use std::fmt::Write as _;

use super::Report;
use crate::record::Stats;

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
        let [sent, accepted] = [ledger.sent, ledger.accepted].map(|n| grouped(n as f64));
        let failed = ledger.rejected + ledger.unconfirmed;
        writeln!(
            out,
            "  sent         {sent}, accepted {accepted}, failed {failed} ({} unconfirmed)",
            ledger.unconfirmed
        )?;
        if let Some(server) = &ledger.server {
            let closed =
                if ledger.faults.is_empty() { "the ledger balances" } else { "the ledger does not balance" };
            writeln!(
                out,
                "  server       stored {}, duplicates {}: {closed}",
                grouped(server.stored as f64),
                server.duplicate
            )?;
        }
    }
    if let Some(ledger) = report.ledger.as_ref().and_then(|ledger| ledger.queues.as_ref()) {
        writeln!(out, "  queues       {ledger}")?;
    }
    if let Some(ledger) = report.ledger.as_ref().and_then(|ledger| ledger.keys.as_ref()) {
        writeln!(out, "  keys         {ledger}")?;
    }
    if report.latency.count > 0 {
        let rate = grouped(report.per_second);
        let count = grouped(report.latency.count as f64);
        writeln!(out, "  throughput   {rate} {}/s ({count} in {:.2} s)", report.unit, report.elapsed_s)?;
        writeln!(out, "  latency ms   {}", line(&report.latency))?;
        for (kind, stats) in report.latency_by_type.iter().filter(|(_, stats)| stats.count > 0) {
            writeln!(out, "    {kind:<10} {}", line(stats))?;
        }
    }
    if let Some(delivery) = &report.delivery {
        let (count, rate) = (grouped(delivery.delivered as f64), grouped(delivery.per_second));
        writeln!(out, "  deliveries   {count} to {} subscribers, {rate}/s", delivery.subscribers)?;
        writeln!(out, "               {} missing, {} out of order", delivery.missing, delivery.misordered)?;
        writeln!(out, "  arrival ms   {}", line(&delivery.latency))?;
    }
    let lost: u64 = report.reconnects.values().sum();
    write!(out, "  connections  {} opened, {lost} reconnections", report.connections_opened)?;
    for (cause, count) in &report.reconnects {
        write!(out, ", {count} {cause}")?;
    }
    writeln!(out, ", {} retries", report.retries)?;
    if let Some(little) = &report.little {
        let share = 100.0 * little.observed / little.concurrency;
        writeln!(
            out,
            "  Little       {:.1} of {} under way ({share:.1} %)",
            little.observed, little.concurrency
        )?;
    }
    if let Some(cpu) = &report.cpu {
        write!(out, "  processors   generator {:.2}", cpu.generator)?;
        if let Some(server) = cpu.server {
            write!(out, ", server {server:.2}")?;
        }
        writeln!(out, ", machine {:.2} of {}, stolen {:.2}", cpu.machine, cpu.cores, cpu.stolen)?;
    }
    for note in &report.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

fn line(stats: &Stats) -> String {
    format!(
        "mean {:.3}, p50 {:.3}, p90 {:.3}, p95 {:.3}, p99 {:.3}, p99.9 {:.3}, min {:.3}, max {:.3}, variance {:.3}",
        stats.mean_ms,
        stats.median_ms,
        stats.p90_ms,
        stats.p95_ms,
        stats.p99_ms,
        stats.p99_9_ms,
        stats.min_ms,
        stats.max_ms,
        stats.variance_ms2
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
