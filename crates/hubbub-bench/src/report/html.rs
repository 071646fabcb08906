//! `report.html`: one file with everything in it, light or dark as the reader's system is.

use std::collections::BTreeSet;

use serde::Serialize;

use super::svg::{Axes, bars, escape, legend, line, lines};
use super::{Origin, Report, Table, figure};
use crate::host::sample::SystemSample;
use crate::host::sample::charts::charts as charts_of;
use crate::load::run::Run;
use crate::results::record::STEP_US;
use crate::statistics::Moments;
use crate::workloads::engine::Findings;

const STYLE: &str = include_str!("style.css");

pub(super) fn page(report: &Report, run: &Run) -> String {
    let title = format!("hubbub bench {}", report.workload);
    let body = [
        format!(
            "<h1>{}</h1><p class=\"soft\">{}, {}</p>",
            escape(&title),
            report.origin.started,
            escape(&report.origin.machine.to_string())
        ),
        section("Summary", &preformatted(&report.terminal())),
        notes(report),
        charts(run),
        section("Latency in milliseconds", &latencies(report).html()),
        report.analysis.html(),
        super::analysis::section("The slowest rooms", &slowest_rooms(report)),
        over_time(&report.samples, names_of(&report.samples)),
        repeat(&report.origin, &report.parameters),
    ];
    document(&title, &body.concat())
}

/// A page with a title and what stands in it.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{STYLE}</style><main>{body}</main></html>\n",
        escape(title)
    )
}

fn section(title: &str, body: &str) -> String {
    format!("<h2>{title}</h2>{body}\n")
}

/// A chart with its title, which stay together on paper. Where it is too wide, it scrolls.
pub(crate) fn chart(title: &str, chart: &str) -> String {
    let title = escape(title);
    format!("<div class=\"chart\"><h2>{title}</h2><div class=\"scroll\" tabindex=\"0\">{chart}</div></div>\n")
}

/// Text as it is. Where it is too wide, it scrolls, by keyboard too; on paper it is wrapped.
pub(crate) fn preformatted(text: &str) -> String {
    format!("<pre tabindex=\"0\">{}</pre>", escape(text))
}

/// Points that make a readable line.
const POINTS: usize = 200;

fn names_of(samples: &[SystemSample]) -> BTreeSet<&str> {
    samples.iter().flat_map(|sample| sample.values.keys()).map(String::as_str).collect()
}

/// Charts of these figures of servers, databases and the machine; figures of one kind share one.
fn over_time<'n>(samples: &[SystemSample], names: impl IntoIterator<Item = &'n str>) -> String {
    let points = |name: &str| {
        let seen = samples.iter().filter_map(|sample| Some((sample.at_s, sample.values.get(name)?.mean())));
        let seen: Vec<(f64, f64)> = seen.collect();
        let mean = |part: &[(f64, f64)]| {
            let values: Moments = part.iter().map(|(_, value)| *value).collect();
            (part.last().map_or(0.0, |(at_s, _)| *at_s), values.mean)
        };
        seen.chunks(seen.len().div_ceil(POINTS).max(1)).map(mean).collect::<Vec<_>>()
    };
    let draw = |(title, names): (&str, Vec<&str>)| {
        let series: Vec<_> = names.iter().map(|name| (*name, points(name))).collect();
        let drawn = lines(&series, Axes { x: "seconds", y: title });
        chart(title, &(drawn + &legend(&names)))
    };
    charts_of(names).into_iter().map(draw).collect()
}

fn slowest_rooms(report: &Report) -> Table {
    let mut table = Table::new(["room", "messages", "mean ms"]);
    for room in report.rooms.iter().flat_map(|rooms| &rooms.slowest) {
        let mean_ms = room.mean_ms.map_or_else(String::new, figure);
        table.row([room.room.clone(), room.messages.to_string(), mean_ms]);
    }
    table
}

fn notes(report: &Report) -> String {
    let notes = report.notes.iter();
    notes.map(|note| format!("<p class=\"note\">{}</p>", escape(note))).collect()
}

/// Accepted messages per second at each step, with the step's end in seconds. The last step ends with the run,
/// somewhere in its middle, and is left out.
fn rates(steps: &[u64]) -> Vec<(f64, f64)> {
    let merged = (steps.len() / POINTS).max(1);
    let whole = steps.get(..steps.len().saturating_sub(1)).unwrap_or_default();
    let seconds = |steps: usize| steps as f64 * STEP_US as f64 / 1e6;
    // The last part may be shorter than the others.
    let rate = |(index, part): (usize, &[u64])| {
        let until = index * merged + part.len();
        (seconds(until), part.iter().sum::<u64>() as f64 / seconds(part.len()))
    };
    whole.chunks(merged).enumerate().map(rate).collect()
}

fn charts(run: &Run) -> String {
    let record = run.record.lock();
    let rates = rates(&record.steps);
    let mut total = 0.0;
    let mut last_s = 0.0;
    let cumulative: Vec<(f64, f64)> = rates
        .iter()
        .map(|(at_s, rate)| {
            total += rate * (at_s - std::mem::replace(&mut last_s, *at_s));
            (*at_s, total)
        })
        .collect();
    let percentiles: Vec<(String, f64)> = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99]
        .map(|percentile| (format!("p{percentile}"), record.all.percentile_ms(percentile)))
        .into();
    let histogram: Vec<(String, f64)> =
        record.all.bars().into_iter().map(|(ms, count)| (figure(ms), count as f64)).collect();
    [
        chart("Throughput", &line(&rates, Axes { x: "seconds", y: "messages/s" })),
        chart("Messages so far", &line(&cumulative, Axes { x: "seconds", y: "messages" })),
        chart("Latency percentiles", &bars(&percentiles, Axes { x: "percentile", y: "ms" })),
        chart("Latency histogram", &bars(&histogram, Axes { x: "up to ms", y: "messages" })),
    ]
    .concat()
}

fn latencies(report: &Report) -> Table {
    let mut table = Table::new([
        "",
        "count",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "max",
        "variance",
        "variation",
    ]);
    let all = std::iter::once(("all", &report.latency));
    let by_type = report.latency_by_type.iter().map(|(kind, stats)| (*kind, stats));
    let arrival = report.delivery.iter().map(|delivery| ("arrival", &delivery.latency));
    for (name, s) in all.chain(by_type).chain(arrival) {
        let times =
            [s.mean_ms, s.median_ms, s.p90_ms, s.p95_ms, s.p99_ms, s.p99_9_ms, s.max_ms, s.variance_ms2];
        let times = times.map(|time| format!("{time:.3}"));
        let variation = format!("{:.0} %", 100.0 * s.variation);
        table.row([name.to_owned(), s.count.to_string()].into_iter().chain(times).chain([variation]));
    }
    table
}

/// The section that says how to repeat it, with what parameters.
pub(crate) fn repeat(origin: &Origin, parameters: &impl Serialize) -> String {
    let commit = origin.commit.map(|commit| format!(", commit {}", escape(commit))).unwrap_or_default();
    // Parameters are made of numbers and texts; they always print.
    let parameters = serde_json::to_string_pretty(parameters).unwrap_or_default();
    let said = format!(
        "<p>hubbub {}{commit}</p>{}{}",
        origin.version,
        preformatted(&origin.command),
        preformatted(&parameters)
    );
    section("How to repeat it", &said)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_may_be_wide_scrolls_by_itself() {
        let page = document("a <b>", &format!("{}{}", preformatted("x < y"), chart("c & d", "<svg></svg>")));
        assert!(page.contains("<title>a &lt;b&gt;</title>") && page.contains("<main>"), "{page}");
        assert!(page.contains("<pre tabindex=\"0\">x &lt; y</pre>"), "{page}");
        assert!(page.contains("<h2>c &amp; d</h2><div class=\"scroll\" tabindex=\"0\"><svg>"), "{page}");
        assert!(STYLE.contains("@media print") && STYLE.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn a_chart_goes_on_to_the_end() {
        // Steps are merged by five; four are left, and the last one is not whole.
        let rates = rates(&[&[3; 5 * POINTS + 4][..], &[1]].concat());
        let step_s = STEP_US as f64 / 1e6;
        assert_eq!(rates.len(), POINTS + 1);
        assert!(rates.iter().all(|(_, rate)| (rate * step_s - 3.0).abs() < 1e-9), "{rates:?}");
        let (until_s, _) = rates[POINTS];
        assert!((until_s - (5 * POINTS + 4) as f64 * step_s).abs() < 1e-9, "{until_s}");
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = document("x", &repeat(&Origin::here(), &Value::Null));
        for elsewhere in ["src=", "<link", "@import", "url("] {
            assert!(!page.contains(elsewhere), "{elsewhere}: {page}");
        }
    }
}
