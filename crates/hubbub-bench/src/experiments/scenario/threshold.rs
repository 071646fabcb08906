//! Bounds that the figures of a summary must keep.

use std::fmt::{self, Display};
use std::str::FromStr;

use anyhow::{Context, bail};
use serde_json::Value;

/// A bound that a figure of every summary must keep: `latency.p99Ms < 50`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Threshold {
    /// Names in `summary.json`, from the outermost one to the figure.
    figure: String,
    is_least: bool,
    is_equal_met: bool,
    bound: f64,
}

impl FromStr for Threshold {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let rule = || format!("thresholds: '{text}' must be FIGURE < NUMBER, or with <=, > or >=");
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [figure, comparison @ ("<" | "<=" | ">" | ">="), bound] = *parts.as_slice() else {
            bail!(rule())
        };
        let bound = bound.parse::<f64>().with_context(rule)?;
        let (is_least, is_equal_met) = (comparison.starts_with('>'), comparison.ends_with('='));
        Ok(Self { figure: figure.to_owned(), is_least, is_equal_met, bound })
    }
}

impl Display for Threshold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, is_least, is_equal_met, bound } = self;
        let (comparison, equal) = (if *is_least { ">" } else { "<" }, if *is_equal_met { "=" } else { "" });
        write!(out, "{figure} {comparison}{equal} {bound}")
    }
}

impl Threshold {
    /// Why a summary does not keep it.
    pub(super) fn fault(&self, summary: &Value) -> Option<String> {
        let Self { figure, is_least, is_equal_met, bound } = self;
        let Some(found) = summary.pointer(&format!("/{}", figure.replace('.', "/"))).and_then(Value::as_f64)
        else {
            return Some(format!("thresholds: the summary has no figure {figure}"));
        };
        let is_met = if *is_least { found > *bound } else { found < *bound };
        let wanted = match (*is_least, *is_equal_met) {
            (true, true) => "at least",
            (true, false) => "more than",
            (false, true) => "at most",
            (false, false) => "less than",
        };
        let is_met = is_met || *is_equal_met && found == *bound;
        (!is_met).then(|| format!("{figure} is {found}, and should be {wanted} {bound}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn thresholds_are_kept_or_not() {
        let summary = json!({"perSecond": 100.0, "latency": {"p99Ms": 5}});
        for (text, is_met) in [
            ("perSecond > 99", true),
            ("perSecond > 100", false),
            ("perSecond >= 100", true),
            ("latency.p99Ms < 5", false),
            ("latency.p99Ms <= 5", true),
            ("latency.p98Ms <= 5", false),
        ] {
            let threshold: Threshold = text.parse().unwrap();
            assert_eq!(threshold.fault(&summary).is_none(), is_met, "{text}");
            assert_eq!(threshold.to_string(), text);
        }
    }
}
