//! Content negotiation of `/metrics`: Prometheus text or the JSON report (RFC 9110, section 12.5.1).

use hyper::HeaderMap;
use hyper::header::ACCEPT;

use super::state::MetricsDefault;

/// Media types of the text. Who asks for OpenMetrics alone reads the older format, too.
const TEXT: [&str; 2] = ["application/openmetrics-text", "text/plain"];
const REPORT: [&str; 1] = ["application/json"];

/// The format with the higher quality; `default` where both are equal, also at 0.
pub(super) fn preferred(headers: &HeaderMap, default: MetricsDefault) -> MetricsDefault {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(&str, u32)> = values.flat_map(|value| value.split(',')).map(range_and_quality).collect();
    match quality(&ranges, &TEXT).cmp(&quality(&ranges, &REPORT)) {
        std::cmp::Ordering::Less => MetricsDefault::Report,
        std::cmp::Ordering::Equal => default,
        std::cmp::Ordering::Greater => MetricsDefault::Prometheus,
    }
}

/// Of `application/*;q=0.5`: the range of types, and the quality in thousandths.
fn range_and_quality(text: &str) -> (&str, u32) {
    let (range, parameters) = text.split_once(';').unwrap_or((text, ""));
    // Other parameters, as the version of a format, decide nothing.
    let mut weights = parameters.split(';').filter_map(|part| part.split_once('='));
    let weight = weights.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let quality = weight.map_or(1.0, |(_, value)| value.trim().parse::<f32>().unwrap_or(0.0));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    let thousandths = (quality.clamp(0.0, 1.0) * 1_000.0).round() as u32;
    (range.trim(), thousandths)
}

/// How exactly a range names a type: 3 = by its name, 1 = as any; `None` = not at all.
fn fit(range: &str, name: &str) -> Option<u8> {
    match range.strip_suffix("/*") {
        Some("*") => Some(1),
        Some(kind) => name.split_once('/').is_some_and(|(of, _)| of.eq_ignore_ascii_case(kind)).then_some(2),
        None => range.eq_ignore_ascii_case(name).then_some(3),
    }
}

/// The quality of a format: for each of its media types that of the most specific range; the highest of them.
fn quality(ranges: &[(&str, u32)], names: &[&str]) -> u32 {
    let of_name = |name: &&str| {
        let fitting = ranges.iter().filter_map(|(range, quality)| Some((fit(range, name)?, *quality)));
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
