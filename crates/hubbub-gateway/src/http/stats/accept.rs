//! Content negotiation of `/metrics`: OpenMetrics text or the JSON report (RFC 9110, section 12.5.1).

use hyper::HeaderMap;
use hyper::header::ACCEPT;

use super::state::MetricsDefault;

/// Media types of the text; clients without OpenMetrics ask for `text/plain`.
const TEXT: [(&str, &str); 2] = [("application", "openmetrics-text"), ("text", "plain")];
const REPORT: [(&str, &str); 1] = [("application", "json")];

/// The format with the higher quality; `default` where both are equal, also at 0.
pub(super) fn preferred(headers: &HeaderMap, default: MetricsDefault) -> MetricsDefault {
    let ranges: Vec<Range<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(Range::parse)
        .collect();
    let (text, report) = (quality(&ranges, &TEXT), quality(&ranges, &REPORT));
    match text.cmp(&report) {
        std::cmp::Ordering::Less => MetricsDefault::Report,
        std::cmp::Ordering::Equal => default,
        std::cmp::Ordering::Greater => MetricsDefault::Prometheus,
    }
}

/// `application/*;q=0.5`.
struct Range<'a> {
    kind: &'a str,
    of_kind: &'a str,
    /// In thousandths.
    quality: u32,
}

impl<'a> Range<'a> {
    /// `None` when it names no type.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, of_kind) = parts.next()?.split_once('/')?;
        let weight = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| {
            // Other parameters, as the version of a format, decide nothing.
            name.trim().eq_ignore_ascii_case("q")
        });
        let quality = weight.map_or(1.0, |(_, value)| value.trim().parse::<f32>().unwrap_or(0.0));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        let quality = (quality.clamp(0.0, 1.0) * 1_000.0).round() as u32;
        Some(Self { kind, of_kind, quality })
    }

    /// How exactly it names the type: 3 = by its name, 1 = as any; `None` = not at all.
    fn fit(&self, kind: &str, of_kind: &str) -> Option<u8> {
        if self.kind == "*" && self.of_kind == "*" {
            Some(1)
        } else if !self.kind.eq_ignore_ascii_case(kind) {
            None
        } else if self.of_kind == "*" {
            Some(2)
        } else {
            self.of_kind.eq_ignore_ascii_case(of_kind).then_some(3)
        }
    }
}

/// The quality of a format: for each of its media types that of the most specific range; the highest of them.
fn quality(ranges: &[Range<'_>], names: &[(&str, &str)]) -> u32 {
    let of_name = |(kind, of_kind): &(&str, &str)| {
        let fitting = ranges.iter().filter_map(|range| Some((range.fit(kind, of_kind)?, range.quality)));
        fitting.max().map_or(0, |(_, quality)| quality)
    };
    names.iter().map(of_name).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use MetricsDefault::{Prometheus, Report};

    #[test]
    fn the_better_liked_kind_is_chosen() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, wants) in [
            (None, None),
            (Some(""), None),
            (Some("*/*"), None),
            (Some("application/*"), None),
            (Some("image/png"), None),
            (Some(browser), None),
            (Some("nonsense;q=;;,,/"), None),
            (Some("application/json;q=0, application/openmetrics-text;q=0"), None),
            (Some("application/json"), Some(Report)),
            (Some("APPLICATION/JSON; charset=utf-8"), Some(Report)),
            (Some("application/json, */*;q=0.1"), Some(Report)),
            (Some("application/json;q=0.4, text/plain;q=0.3"), Some(Report)),
            (Some("*/*, text/plain;q=0.1, application/openmetrics-text;q=0.1"), Some(Report)),
            (Some(prometheus), Some(Prometheus)),
            (Some("text/plain"), Some(Prometheus)),
            (Some("text/*"), Some(Prometheus)),
            (Some("application/json;q=0.4, text/plain ; q=0.5"), Some(Prometheus)),
            (Some("application/json;q=0, */*"), Some(Prometheus)),
            (Some("application/json;q=high, text/plain;q=0.001"), Some(Prometheus)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            for default in [Prometheus, Report] {
                assert_eq!(preferred(&headers, default), wants.unwrap_or(default), "{accept:?}");
            }
        }
    }

    #[test]
    fn several_headers_are_one() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "text/plain;q=0.5".parse().unwrap());
        headers.append(ACCEPT, "application/json".parse().unwrap());
        assert_eq!(preferred(&headers, Prometheus), Report);
    }
}
