//! Settings of topics that exist: some are refused, others are warned of.

use std::time::Duration;

use hubbub_core::invariant::saturate;

/// A store may lag behind for at least so long without a loss.
pub const RETENTION_MIN: Duration = Duration::from_secs(3_600);

/// What a topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Messages,
    Live,
    Dead,
}

/// A topic, and what it should have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Topic<'a> {
    pub(super) name: &'a str,
    pub(super) purpose: Purpose,
    /// Copies of the partition that has the fewest.
    pub(super) copies: usize,
    /// Brokers of the cluster that are there.
    pub(super) brokers: usize,
    /// The retention that a new topic of messages would get, in milliseconds.
    pub(super) retention_ms: u128,
    /// The largest record, in bytes.
    pub(super) record_bytes_max: i64,
}

impl Topic<'_> {
    /// What is wrong with its settings. What cannot be gone on with is the error; the rest are warnings. `value` gives a
    /// setting's value; empty = the broker does not know the setting.
    pub(super) fn check<'a>(&self, value: impl Fn(&str) -> &'a str) -> Result<Vec<String>, String> {
        let number = |name: &str| value(name).parse::<i64>().ok();
        let mut warnings = self.risks(number("min.insync.replicas"));
        let wanted = |name: &str, remedy: &dyn std::fmt::Display| {
            let topic = self.name;
            let tool = "kafka-configs.sh --alter --entity-type topics --entity-name";
            let is = value(name);
            format!(
                "the topic {topic} has {name} = {is}; set it with: {tool} {topic} --add-config {name}={remedy}"
            )
        };
        let mut fatal = Vec::new();
        if value("cleanup.policy") != "delete" {
            fatal.push(wanted("cleanup.policy", &"delete"));
        }
        let bytes_max = self.record_bytes_max;
        if number("max.message.bytes").is_some_and(|bytes| bytes < bytes_max) {
            fatal.push(wanted("max.message.bytes", &bytes_max));
        }
        if self.purpose != Purpose::Messages {
            // They hold nothing that the store has not got, or will get from the topic of messages.
            warnings.extend(fatal);
            return Ok(warnings);
        }
        if value("message.timestamp.type") != "LogAppendTime" {
            fatal.push(wanted("message.timestamp.type", &"LogAppendTime"));
        }
        let retention_ms_min = saturate(RETENTION_MIN.as_millis());
        if number("retention.ms").is_some_and(|retention| (0..retention_ms_min).contains(&retention)) {
            fatal.push(wanted("retention.ms", &self.retention_ms.max(RETENTION_MIN.as_millis())));
        }
        if let Some(refusal) = fatal.into_iter().next() {
            return Err(refusal);
        }
        if number("retention.bytes").is_some_and(|bytes| bytes >= 0) {
            let reason = "a burst removes messages that the store has not got yet, however young they are";
            warnings.push(format!("{reason}: {}", wanted("retention.bytes", &-1)));
        }
        if value("unclean.leader.election.enable") == "true" {
            let topic = self.name;
            warnings.push(format!(
                "the topic {topic} has unclean leader elections enabled: acknowledged messages may be lost"
            ));
        }
        Ok(warnings)
    }

    /// What the number of copies means for what was confirmed, and for what can be. `in_sync` is how many must confirm a
    /// record; brokers with a rule of their own do not have it.
    fn risks(&self, in_sync: Option<i64>) -> Vec<String> {
        let Self { name, copies, brokers, .. } = *self;
        let mut risks = Vec::new();
        if copies == 1 && brokers > 1 {
            risks.push(format!(
                "the topic {name} has one copy on {brokers} brokers: the loss of a broker's disk loses what is there; add \
                 copies with kafka-reassign-partitions.sh"
            ));
        }
        if copies >= 3 && in_sync == Some(1) {
            risks.push(format!(
                "the topic {name} has {copies} copies, but min.insync.replicas = 1: what is confirmed may be on one broker \
                 only; set it with: kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config \
                 min.insync.replicas=2"
            ));
        }
        if copies > 1 && in_sync.is_some_and(|in_sync| usize::try_from(in_sync).is_ok_and(|n| n >= copies)) {
            risks.push(format!(
                "the topic {name} has min.insync.replicas = {}, and no more copies: nothing is taken while one broker is \
                 away; lower it, or add copies with kafka-reassign-partitions.sh",
                in_sync.unwrap_or_default()
            ));
        }
        risks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [(&str, &str); 7] = [
        ("cleanup.policy", "delete"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "2"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("unclean.leader.election.enable", "false"),
    ];

    fn topic(purpose: Purpose) -> Topic<'static> {
        let (retention_ms, record_bytes_max) = (604_800_000, 1_048_588);
        Topic { name: "t", purpose, copies: 3, brokers: 3, retention_ms, record_bytes_max }
    }

    /// What is said of a topic whose settings differ from [`SETTINGS`].
    fn check(topic: Topic<'_>, changed: &[(&'static str, &'static str)]) -> Result<Vec<String>, String> {
        topic.check(|name| {
            let mut settings = changed.iter().chain(&SETTINGS);
            settings.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
        })
    }

    #[test]
    fn what_the_server_creates_is_fine() {
        for purpose in [Purpose::Messages, Purpose::Live, Purpose::Dead] {
            assert_eq!(check(topic(purpose), &[]), Ok(Vec::new()));
            for (copies, brokers) in [(1, 1), (2, 2)] {
                let topic = Topic { copies, brokers, ..topic(purpose) };
                assert_eq!(check(topic, &[("min.insync.replicas", "1")]), Ok(Vec::new()));
            }
        }
    }

    #[test]
    fn settings_that_lose_messages_are_refused_for_messages_only() {
        for (name, value, remedy) in [
            ("cleanup.policy", "compact", "cleanup.policy=delete"),
            ("cleanup.policy", "compact,delete", "cleanup.policy=delete"),
            ("max.message.bytes", "1000000", "max.message.bytes=1048588"),
            ("message.timestamp.type", "CreateTime", "message.timestamp.type=LogAppendTime"),
            ("retention.ms", "3599999", "retention.ms=604800000"),
        ] {
            let refused = check(topic(Purpose::Messages), &[(name, value)]).unwrap_err();
            assert!(refused.contains(value) && refused.ends_with(remedy), "{refused}");
            let is_of_all = ["cleanup.policy", "max.message.bytes"].contains(&name);
            for purpose in [Purpose::Live, Purpose::Dead] {
                let warned = check(topic(purpose), &[(name, value)]).unwrap();
                assert_eq!(warned.len(), usize::from(is_of_all), "{warned:?}");
            }
        }
        let of_a_second = Topic { retention_ms: 1_000, ..topic(Purpose::Messages) };
        let refused = check(of_a_second, &[("retention.ms", "1000")]).unwrap_err();
        assert!(refused.ends_with("retention.ms=3600000"), "{refused}");
        for (name, value) in [("retention.ms", "-1"), ("retention.ms", "3600000")] {
            assert_eq!(check(topic(Purpose::Messages), &[(name, value)]), Ok(Vec::new()));
        }
    }

    #[test]
    fn risks_are_warned_of() {
        let warned = |topic: Topic<'_>, name, value| check(topic, &[(name, value)]).unwrap();
        let messages = topic(Purpose::Messages);
        for (topic, name, value, told) in [
            (Topic { copies: 1, ..messages }, "min.insync.replicas", "1", "one copy on 3 brokers"),
            (messages, "min.insync.replicas", "1", "may be on one broker only"),
            (messages, "min.insync.replicas", "3", "nothing is taken while one broker is away"),
            (Topic { copies: 2, ..messages }, "min.insync.replicas", "2", "nothing is taken"),
            (messages, "retention.bytes", "0", "retention.bytes = 0"),
            (messages, "unclean.leader.election.enable", "true", "unclean leader elections"),
        ] {
            let warnings = warned(topic, name, value);
            assert!(matches!(warnings.as_slice(), [one] if one.contains(told)), "{warnings:?}");
        }
        assert_eq!(warned(Topic { copies: 1, ..topic(Purpose::Live) }, "min.insync.replicas", "1").len(), 1);
        // Redpanda has no such setting.
        assert!(warned(messages, "min.insync.replicas", "").is_empty());
    }
}
