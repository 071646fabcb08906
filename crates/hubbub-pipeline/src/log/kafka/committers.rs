//! Watches who stores what is accepted: whether anybody does, where this server does not, and whether all have the same store.
//!
//! A copy of a database remembers the topic, too. Its servers would be in the same group, and take a share of the partitions:
//! what is accepted here would be stored there. So each member's client id says where its store is, which a promotion does not
//! change. Older versions say nothing, and are let pass.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Core;
use super::address::KafkaError;
use super::faults::Cause;

/// How often the members are asked for, where this server stores nothing itself, and where it does.
const INTERVAL: Duration = Duration::from_secs(2);
const OWN_INTERVAL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long there may be members with a store in another place. A database that was moved is found by one server after the
/// other, and each joins again then.
const STRANGERS_TIME: Duration = Duration::from_secs(10);
const CLIENT: &str = "hubbub";

/// The client id of a server that stores in the store at this place.
fn client_id(place: &str) -> String {
    if place.is_empty() { CLIENT.to_owned() } else { format!("{CLIENT}.{place}") }
}

/// How many of these members have another store than the one at this place. Who does not say counts as having the same.
fn count_strangers(members: &[String], place: &str) -> usize {
    let place_of = |member: &String| Some(member.strip_prefix(CLIENT)?.strip_prefix('.')?.to_owned());
    let places = members.iter().filter_map(place_of);
    if place.is_empty() { 0 } else { places.filter(|other| *other != place).count() }
}

/// Since when something has been so.
#[derive(Debug, Default)]
struct Since(Option<Duration>);

impl Since {
    /// Whether it has been so for `least`.
    fn has_lasted(&mut self, is_so: bool, now: Duration, least: Duration) -> bool {
        self.0 = is_so.then(|| self.0.unwrap_or(now));
        self.0.is_some_and(|since| now.saturating_sub(since) >= least)
    }
}

/// Refuses to start while servers of another store are in the group. Those that were killed are in it for a while.
pub(super) async fn expect_no_strangers(core: &Arc<Core>) -> Result<(), KafkaError> {
    let patience = core.options.session_timeout + STRANGERS_TIME;
    let (began, mut has_told) = (core.clock.monotonic(), false);
    loop {
        let count = match core.members().await {
            Ok(members) => count_strangers(&members, &core.place()),
            Err(error) => {
                tracing::debug!(error, "asking Kafka for the servers that store failed");
                return Ok(());
            }
        };
        if count == 0 {
            return Ok(());
        }
        if core.clock.monotonic().saturating_sub(began) >= patience {
            return Err(KafkaError(core.strangers(count)));
        }
        if !std::mem::replace(&mut has_told, true) {
            tracing::warn!(count, "servers of another store are in the group; waiting for them to leave");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Asks Kafka who is in the group of those that store, until the server stops.
pub(super) async fn watch(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut interval = tokio::time::interval(if core.options.commits { OWN_INTERVAL } else { INTERVAL });
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut strangers = Since::default();
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        }
        let members = match core.members().await {
            Ok(members) => members,
            // That Kafka is away is noticed elsewhere.
            Err(error) => {
                tracing::debug!(error, "asking Kafka for the servers that store failed");
                continue;
            }
        };
        if !core.options.commits {
            core.set_alarm(members.is_empty().then(|| {
                "no server stores what is accepted: messages wait in Kafka, and changes of rooms are not answered; \
                 start one with the role committer"
                    .to_owned()
            }));
        }
        let (count, now) = (count_strangers(&members, &core.place()), core.clock.monotonic());
        if strangers.has_lasted(count > 0, now, STRANGERS_TIME) {
            core.faults.set(Cause::OtherStore, core.strangers(count));
        } else if count == 0 {
            core.faults.clear(Cause::OtherStore);
        }
    }
}

impl Core {
    fn place(&self) -> Arc<str> {
        self.store.log().map(hubbub_core::LogStore::place).unwrap_or_default()
    }

    /// The client id of this server as a member of the group.
    pub(super) fn client_id(&self) -> String {
        client_id(&self.place())
    }

    /// The client ids of those that store.
    async fn members(self: &Arc<Self>) -> Result<Vec<String>, String> {
        let (core, group) = (self.clone(), self.options.group());
        let asking = tokio::task::spawn_blocking(move || core.producer.members_of(&group, PATIENCE));
        asking.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    fn strangers(&self, count: usize) -> String {
        format!(
            "servers of another store, {count} members of the group {}, take partitions of the topic {}: what is sent to \
             one store would be stored in the other; stop them, or set another kafka.topic_prefix for a new store; a copy of \
             a database keeps its topic, so start it without --log kafka to read it, see docs/kafka.md",
            self.options.group(),
            self.topics.messages
        )
    }

    pub(super) fn set_alarm(&self, alarm: Option<String>) {
        let mut current = self.alarm.lock();
        match &alarm {
            Some(reason) if current.is_none() => tracing::error!("{reason}"),
            None if current.is_some() => tracing::info!("all that is accepted is stored again"),
            _ => {}
        }
        *current = alarm;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_say_which_store_they_have() {
        let own = "7-16384-1";
        // An older version, one whose store does not know, and other programs.
        let unknown = ["hubbub", &client_id(""), "hubbub-tools.x", "rdkafka"].map(str::to_owned);
        assert_eq!(count_strangers(&unknown, own), 0);
        let members = [client_id(own), client_id("7-16385-1"), client_id("8-16384-1"), client_id("")];
        assert_eq!(count_strangers(&members, own), 2);
        assert_eq!(count_strangers(&members, ""), 0);
    }

    #[test]
    fn what_is_so_for_a_moment_is_not_told() {
        let (mut since, at) = (Since::default(), Duration::from_secs);
        assert!(!since.has_lasted(true, at(5), at(10)));
        assert!(!since.has_lasted(true, at(14), at(10)));
        assert!(since.has_lasted(true, at(15), at(10)));
        assert!(!since.has_lasted(false, at(16), at(10)));
        assert!(!since.has_lasted(true, at(26), at(10)));
    }
}
