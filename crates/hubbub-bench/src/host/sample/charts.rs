//! Which figures are drawn together.

/// The title of a chart, and how the names of its figures begin and end. The first that fits counts.
const SHARED: [(&str, &str, &str); 8] = [
    ("cores, busy %", "core ", " busy %"),
    ("cores, stolen %", "core ", " stolen %"),
    ("hottest thread %", "", " hottest thread %"),
    ("run-queue delay ms/s", "", " run-queue delay ms/s"),
    ("context switches/s", "", " switches/s"),
    ("disk requests/s", "disk ", "s/s"),
    ("disk MB/s", "disk ", "MB/s"),
    ("network MB/s", "network ", " MB/s"),
];

/// The title of the chart that a figure is drawn in; its own name, if it has one for itself.
fn title_of(name: &str) -> &str {
    let has = |(_, begins, ends): &&(&str, &str, &str)| name.starts_with(begins) && name.ends_with(ends);
    SHARED.iter().find(has).map_or(name, |(title, ..)| *title)
}

/// Charts with the names of their figures, in the order in which these come.
pub(crate) fn charts<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<(&'n str, Vec<&'n str>)> {
    let mut charts: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in names {
        let title = title_of(name);
        match charts.iter_mut().find(|(same, _)| *same == title) {
            Some((_, names)) => names.push(name),
            None => charts.push((title, vec![name])),
        }
    }
    charts
}

/// Whether it is one of many of its kind, which say little alone.
pub(crate) fn is_detail(name: &str) -> bool {
    name.starts_with("core ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_kind_share_a_chart() {
        let names = [
            "busiest disk %",
            "core 0 busy %",
            "core 1 busy %",
            "disk MB/s",
            "disk flush ms",
            "disk flushes/s",
            "disk read MB/s",
            "disk writes/s",
            "generator CPU",
            "generator involuntary switches/s",
            "loopback MB/s",
            "network in MB/s",
            "network out MB/s",
            "server voluntary switches/s",
        ];
        let charts = charts(names);
        let titles: Vec<&str> = charts.iter().map(|(title, _)| *title).collect();
        assert_eq!(
            titles,
            [
                "busiest disk %",
                "cores, busy %",
                "disk MB/s",
                "disk flush ms",
                "disk requests/s",
                "generator CPU",
                "context switches/s",
                "loopback MB/s",
                "network MB/s",
            ]
        );
        assert_eq!(charts[1].1, ["core 0 busy %", "core 1 busy %"]);
        assert_eq!(charts[2].1, ["disk MB/s", "disk read MB/s"]);
        assert_eq!(charts[6].1, ["generator involuntary switches/s", "server voluntary switches/s"]);
    }
}
