//! What a store knows a topic by: the cluster's id and the topic's. One that was deleted and created again has another id.
//!
//! Brokers whose protocol has no ids (Redpanda before 25.3) are known by the topic's name instead. Older versions stored
//! nothing of the topic then. A store keeps what it stored first, also where the brokers learn to give ids later. So a topic
//! is compared with all that a store may know it by.

use hubbub_core::LogIdentity;

use super::topic_id;

/// What a topic may be known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicIdentity {
    /// What it is attached as, if no store knows it yet.
    pub(super) id: String,
    /// What stores may know it by that attached it before.
    earlier: Vec<String>,
}

/// How well a store knows a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownBy {
    /// By its id.
    Id,
    /// By its name: one that was deleted and created again is taken for the same.
    Name,
    /// By its cluster only: any topic there is taken for the same.
    Cluster,
}

impl TopicIdentity {
    /// `id` is the topic's, or [`topic_id::NONE`].
    pub(super) fn new(cluster: &str, topic: &str, id: &str) -> Self {
        // A colon is in no id.
        let named = format!("{cluster}/topic:{topic}");
        let unnamed = format!("{cluster}/{}", topic_id::NONE);
        match id {
            topic_id::NONE => Self { id: named, earlier: vec![unnamed] },
            id => Self { id: format!("{cluster}/{id}"), earlier: vec![named, unnamed] },
        }
    }

    /// Whether it is certain that the topic is another one than this. Brokers that give no id tell nothing.
    pub(super) fn differs_from(&self, known: &Self) -> bool {
        let has_id = |identity: &Self| KnownBy::of_id(&identity.id) == KnownBy::Id;
        has_id(self) && has_id(known) && self.id != known.id
    }

    /// Whether a store that knows `id` means this topic.
    pub(super) fn is_known_as(&self, id: &str) -> bool {
        self.id == id || self.earlier.iter().any(|earlier| earlier == id)
    }
}

impl KnownBy {
    /// How well a store knows the topic that has this identity there.
    pub(super) fn of(stored: &LogIdentity) -> Self {
        Self::of_id(&stored.id)
    }

    fn of_id(id: &str) -> Self {
        match id.split_once('/') {
            Some((_, topic_id::NONE)) => Self::Cluster,
            Some((_, topic)) if topic.starts_with("topic:") => Self::Name,
            _ => Self::Id,
        }
    }

    /// What is not noticed of the topic; `None` = nothing.
    pub(super) fn warning(self, topic: &str) -> Option<String> {
        let unnoticed = match self {
            Self::Id => return None,
            Self::Name => "it is not noticed if it is deleted and created again",
            Self::Cluster => {
                "it is not noticed if it is deleted and created again, or if kafka.topic_prefix names another one"
            }
        };
        Some(format!(
            "the brokers gave the topic {topic} no id when it was attached to the store (Redpanda before 25.3): {unnoticed}; \
             see docs/kafka.md"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = topic_id::NONE;

    fn certainty(id: &str) -> KnownBy {
        KnownBy::of(&LogIdentity { id: id.to_owned(), partitions: 1 })
    }

    #[test]
    fn topics_with_ids_are_told_apart_by_them() {
        let topic = TopicIdentity::new("c", "hubbub.messages", "bzx1-Yq_Rn6TQmC0pWkLxA");
        assert_eq!(topic.id, "c/bzx1-Yq_Rn6TQmC0pWkLxA");
        assert!(topic.is_known_as(&topic.id));
        assert!(!topic.is_known_as("c/another"), "it was created again");
        assert!(!topic.is_known_as("d/bzx1-Yq_Rn6TQmC0pWkLxA"));
        assert_eq!(certainty(&topic.id), KnownBy::Id);
        assert_eq!(certainty(&topic.id).warning("t"), None);
    }

    #[test]
    fn a_topic_that_was_created_again_differs() {
        let [first, again, without] = ["a", "b", ZERO].map(|id| TopicIdentity::new("c", "t", id));
        assert!(again.differs_from(&first) && !first.differs_from(&first));
        assert!(!without.differs_from(&first) && !first.differs_from(&without), "the brokers were upgraded");
    }

    #[test]
    fn topics_without_ids_are_told_apart_by_their_names() {
        let topic = TopicIdentity::new("c", "hubbub.messages", ZERO);
        assert_eq!(topic.id, "c/topic:hubbub.messages");
        assert!(!topic.is_known_as("c/topic:other.messages"));
        assert_eq!(certainty(&topic.id), KnownBy::Name);
        assert!(certainty(&topic.id).warning("t").is_some());
    }

    #[test]
    fn stores_of_older_versions_and_brokers_are_not_refused() {
        let stored_before = format!("c/{ZERO}");
        let without = TopicIdentity::new("c", "hubbub.messages", ZERO);
        let with = TopicIdentity::new("c", "hubbub.messages", "bzx1-Yq_Rn6TQmC0pWkLxA");
        assert!(without.is_known_as(&stored_before) && with.is_known_as(&stored_before));
        assert_eq!(certainty(&stored_before), KnownBy::Cluster);
        assert!(certainty(&stored_before).warning("t").is_some_and(|text| text.contains("topic_prefix")));
        // The brokers were upgraded.
        assert!(with.is_known_as(&without.id));
        assert!(!TopicIdentity::new("c", "other.messages", "x").is_known_as(&without.id));
        // Ids that are gone are no longer those of this topic.
        assert!(!without.is_known_as(&with.id));
    }
}
