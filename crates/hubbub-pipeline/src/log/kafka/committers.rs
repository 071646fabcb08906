//! Watches, on a server that stores nothing itself, whether any other one does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Core;

const INTERVAL: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks Kafka who is in the group of those that store, until the server stops.
pub(super) async fn watch(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        }
        let asking = {
            let (core, group) = (core.clone(), core.options.group());
            tokio::task::spawn_blocking(move || core.producer.members_of(&group, PATIENCE))
        };
        match asking.await {
            Ok(Ok(members)) => core.set_alarm((members == 0).then(|| {
                "no server stores what is accepted: messages wait in Kafka, and changes of rooms are not answered; \
                 start one with the role committer"
                    .to_owned()
            })),
            // That Kafka is away is noticed elsewhere.
            Ok(Err(error)) => tracing::debug!(%error, "asking Kafka for the servers that store failed"),
            Err(error) => tracing::debug!(%error, "asking Kafka for the servers that store failed"),
        }
    }
}

impl Core {
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
