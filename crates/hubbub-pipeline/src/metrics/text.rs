//! Converts OpenMetrics, which the registry writes, to the Prometheus text format 0.0.4, which everything reads.
//!
//! They differ in the comments: there, a counter's help and type carry the sample's whole name, and no end is marked.

/// Media type of the result.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const HELP: &str = "# HELP ";
const TYPE: &str = "# TYPE ";

/// Expects the help of each metric right before its type, as the registry writes them.
pub(super) fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut help = None;
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(named) = line.strip_prefix(HELP) {
            help = named.split_once(' ').map(|(_, help)| help.trim_end_matches('.'));
        } else if let Some((name, kind)) = line.strip_prefix(TYPE).and_then(|named| named.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let help = help.take().unwrap_or_default();
            out.extend([HELP, name, suffix, " ", help, "\n", TYPE, name, suffix, " ", kind, "\n"]);
        } else {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_whole_name_in_every_line() {
        let text = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{why=\"# EOF\"} 1\n\
                    # HELP c Of now.\n# TYPE c gauge\nc 2.5\n# EOF\n";
        let expected = "# HELP a_b_total Things\n# TYPE a_b_total counter\na_b_total{why=\"# EOF\"} 1\n\
                        # HELP c Of now\n# TYPE c gauge\nc 2.5\n";
        assert_eq!(from_open_metrics(text), expected);
    }
}
