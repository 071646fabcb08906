//! Bars of HTML beside their names: names of any length fit, on a narrow screen and on paper.

use std::fmt::Write as _;

use super::{chart, escape, figure};

/// A bar for each of `names` at each point, over the largest of all. One without a name is the only one of its point.
pub(crate) fn bar_rows<const N: usize>(
    title: &str,
    names: [&str; N],
    points: &[(String, [Option<f64>; N])],
) -> String {
    let values = points.iter().flat_map(|(_, values)| values).flatten();
    let largest = values.copied().fold(0.0, f64::max);
    let mut out = String::new();
    for (point, values) in points {
        // Writing to a String cannot fail.
        let _ = write!(out, "<div class=\"point\">{}", escape(point));
        for (name, value) in names.iter().zip(values) {
            let _ = write!(out, "{}", row(name, *value, largest));
        }
        out.push_str("</div>\n");
    }
    chart(title, &out)
}

/// Nothing where there is no value.
fn row(name: &str, value: Option<f64>, largest: f64) -> String {
    let Some(value) = value else { return String::new() };
    let percent = if largest > 0.0 { 100.0 * (value / largest).clamp(0.0, 1.0) } else { 0.0 };
    let name =
        if name.is_empty() { String::new() } else { format!("<span class=\"name\">{}</span>", escape(name)) };
    let value = figure(value);
    format!(
        "<div class=\"row\">{name}<div><div class=\"fill\" style=\"width:{percent:.1}%\"></div></div>\
         <span class=\"value\">{value}</span></div>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_share_one_scale() {
        let points = [("a <b>".to_owned(), [Some(50.0), Some(200.0)]), ("c".to_owned(), [None, Some(0.0)])];
        let html = bar_rows("rate", ["A", "B"], &points);
        for part in ["<h2>rate</h2>", "a &lt;b&gt;", "width:25.0%", "width:100.0%", ">200.000<", "width:0.0%"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(html.matches("class=\"fill\"").count(), 3, "one is not there: {html}");
        assert!(!bar_rows("rate", [""], &[("a".to_owned(), [Some(1.0)])]).contains("class=\"name\""));
        assert!(bar_rows::<1>("rate", [""], &[]).contains("<h2>rate</h2>"));
    }
}
