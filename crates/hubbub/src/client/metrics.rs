//! Reads `/metrics` of a server.

use anyhow::bail;
use hyper::Method;
use hyper::header::ACCEPT;

use super::connection::{Connection, TIMEOUT};

/// The text, and how to find something in it.
pub(super) struct Metrics(String);

impl Metrics {
    pub(super) async fn of(connection: &mut Connection) -> anyhow::Result<Self> {
        let accept = [(ACCEPT, "text/plain")];
        let answer = connection.whole(TIMEOUT, Method::GET, "/metrics", &accept, "").await?;
        if !answer.status.is_success() {
            bail!("the server answered {} to /metrics", answer.status.as_u16());
        }
        Ok(Self(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// The value of a metric without labels, by its whole name.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// A label of the first sample of a metric.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let labels = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('{'))?;
        let (_, value) = labels.split_once(&format!("{label}=\""))?;
        value.split_once('"').map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_labels_are_found_by_name() {
        let metrics = Metrics("# HELP a b\na_b 1\na 2.5\ninfo{x=\"1\",version=\"0.1\"} 1\n".into());
        assert_eq!((metrics.value("a"), metrics.value("b")), (Some(2.5), None));
        assert_eq!((metrics.label("info", "version"), metrics.label("a", "x")), (Some("0.1"), None));
    }
}
