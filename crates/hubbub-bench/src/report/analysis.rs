//! What follows from a run beyond its rates and latencies: where the time went, how even it was, what it cost. It stands in
//! summaries under these names; what a run does not have, or one of an older program, is left out.

use std::fmt::{self, Display};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ASSUMED, Headroom, Table, Trends, escape, figure, write_files};
use crate::analysis::price::{Cost, Price, Usage};
use crate::analysis::stages::Stages;
use crate::results::minutes::{self, Minute};
use crate::results::steps::{self, StepResult};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Analysis {
    #[serde(skip_serializing_if = "Stages::is_empty")]
    pub(crate) stages: Stages,
    /// Of a rate that changes within the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<StepResult>,
    /// Of a run of two minutes or more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) minutes: Vec<Minute>,
    /// Of the same.
    #[serde(skip_serializing_if = "Trends::is_empty")]
    pub(crate) trends: Trends,
    /// How much more there is room for, where the server's processors are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<Headroom>,
    /// What the servers, and what they need, used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    /// What that costs, where prices are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Cost>,
}

impl Analysis {
    /// That of a summary; each part on its own, so that one that is written otherwise takes no other with it.
    pub(crate) fn of(summary: &Value) -> Self {
        fn part<T: DeserializeOwned + Default>(summary: &Value, name: &str) -> T {
            summary.get(name).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
        }
        Self {
            stages: part(summary, "stages"),
            steps: part(summary, "steps"),
            minutes: part(summary, "minutes"),
            trends: part(summary, "trends"),
            capacity: part(summary, "capacity"),
            usage: part(summary, "usage"),
            cost: part(summary, "cost"),
        }
    }

    /// What it costs at these prices; none where it is not known what was used.
    pub(crate) fn set_price(&mut self, price: Price) {
        self.cost = self.usage.as_ref().map(|usage| usage.at(price));
    }

    /// What is to be known of it, if anything is.
    pub(crate) fn marks(&self) -> impl Iterator<Item = String> {
        self.stages.marks()
    }

    /// The parts of a page, each with its title.
    pub(crate) fn html(&self) -> String {
        let ways = self.stages.ways().map(|(when, way)| {
            let mark = way.mark().map(|mark| format!("<p class=\"note\">{}</p>\n", escape(&mark)));
            section(&format!("Where the time goes {when}"), &way.table()) + &mark.unwrap_or_default()
        });
        let steps = steps::in_short(&self.steps).map(|said| {
            let said = format!("<p class=\"note\">{}</p>\n", escape(&said.to_string()));
            section("Step by step", &steps::table(&self.steps)) + &said
        });
        let over_time = [
            section("From the beginning to the end", &self.trends.table()),
            section("Minute by minute", &minutes::table(&self.minutes)),
        ];
        let capacity = self.capacity.iter().map(|headroom| {
            let note = format!("<p class=\"note\">{}</p>\n", escape(ASSUMED));
            section("How much more there is room for", &headroom.table()) + &note
        });
        ways.chain(steps).chain(capacity).chain(over_time).collect()
    }

    /// Writes `minutes.csv`, if there are any.
    pub(crate) fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        if self.minutes.is_empty() {
            return Ok(());
        }
        write_files(dir, [("minutes.csv", minutes::csv(&self.minutes))])
    }
}

/// Nothing where the table has no rows.
pub(super) fn section(title: &str, table: &Table) -> String {
    if table.is_empty() { String::new() } else { format!("<h2>{title}</h2>{}\n", table.html()) }
}

/// Lines of a summary.
impl Display for Analysis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(said) = steps::in_short(&self.steps) {
            writeln!(out, "  steps        {said}")?;
            out.write_str(&steps::table(&self.steps).text())?;
        }
        if let Some(minutes) = minutes::in_short(&self.minutes) {
            writeln!(out, "  by minute    {minutes}")?;
        }
        for trend in self.trends.iter() {
            writeln!(out, "  trend        {trend}")?;
        }
        for (when, way) in self.stages.ways() {
            writeln!(out, "  stages       {when}, {} ms: {way}", figure(way.whole_ms))?;
        }
        self.capacity.as_ref().map_or(Ok(()), |headroom| write!(out, "{headroom}"))?;
        self.cost.as_ref().map_or(Ok(()), |cost| writeln!(out, "  price        {cost}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_marks_stages_that_leave_time_out() {
        let way = json!({"wholeMs": 10.0, "stages": [{"name": "commit", "ms": 8.8, "share": 0.88}],
                         "unaccounted": 0.12, "overlaps": false});
        let analysis = Analysis::of(&json!({"stages": {"confirmed": way}}));
        let html = analysis.html();
        assert!(html.ends_with("</table></div>\n<p class=\"note\">12 % not accounted for</p>\n"), "{html}");
        assert_eq!(analysis.marks().collect::<Vec<_>>(), ["until the answer, 12 % not accounted for"]);
    }

    #[test]
    fn a_summary_of_an_older_program_has_none() {
        assert_eq!(Analysis::of(&json!({"perSecond": 5.0, "latency": {"count": 3}})), Analysis::default());
        assert_eq!(serde_json::to_value(Analysis::default()).unwrap(), json!({}));
        assert_eq!(
            (Analysis::default().to_string(), Analysis::default().html()),
            (String::new(), String::new())
        );
        let usage =
            json!({"messages": 1e6, "seconds": 10.0, "processorS": {"server": 36.0}, "writtenBytes": null});
        let summary = json!({"perSecond": 1e5, "usage": usage});
        let mut analysis = Analysis::of(&summary);
        assert_eq!(serde_json::to_value(&analysis).unwrap(), json!({"usage": usage}));
        let partly = json!({"usage": usage, "stages": "a text", "minutes": [{"startS": null}], "cost": 5});
        assert_eq!(Analysis::of(&partly), analysis, "what cannot be read takes nothing with it");
        analysis.set_price("core-hour=5,gb-month=1".parse().unwrap());
        let said = "  price        0.0500 a million (processors 0.0500, disk not known), 13,140 a month at 100,000/s, \
                    at core-hour=5,gb-month=1\n";
        assert_eq!(analysis.to_string(), said);
    }
}
