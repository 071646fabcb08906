//! The brokers' address.

use std::fmt;

/// Why Kafka cannot be used: one line with the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KafkaError(pub(super) String);

/// Hosts and ports of some brokers; the others are found through them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brokers(String);

impl Brokers {
    /// From `kafka://host:9092,host:9092`.
    pub fn parse(url: &str) -> Result<Self, KafkaError> {
        let bad = || {
            let form =
                "must be kafka://HOST:PORT, with further brokers behind commas, and without user and path";
            KafkaError(form.to_owned())
        };
        let brokers = url.strip_prefix("kafka://").ok_or_else(bad)?.trim_end_matches('/');
        let is_broker = |broker: &str| {
            let (host, port) = broker.rsplit_once(':').unwrap_or_default();
            let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            !host.is_empty() && host.chars().all(is_host) && port.parse().is_ok_and(|port: u16| port > 0)
        };
        if brokers.split(',').all(is_broker) { Ok(Self(brokers.to_owned())) } else { Err(bad()) }
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (url, bootstrap) in [
            ("kafka://h:9092", Some("h:9092")),
            ("kafka://a.b-c:1,10.0.0.1:2,[::1]:3/", Some("a.b-c:1,10.0.0.1:2,[::1]:3")),
            ("kafka://h", None),
            ("kafka://h:0", None),
            ("kafka://h:9092/x", None),
            ("kafka://u:p@h:9092", None),
            ("kafka://h:9092,", None),
            ("amqp://h:9092", None),
        ] {
            assert_eq!(Brokers::parse(url).ok().as_ref().map(Brokers::bootstrap), bootstrap, "{url}");
        }
    }
}
