//! Records about presence, and hints about joins, on the bus: in the partitions of the rooms or users they are about.

use std::sync::{Arc, Weak};

use hubbub_core::log_partition;
use rdkafka::message::{Header, OwnedHeaders};
use tokio::sync::watch;

use super::{Core, bus};
use crate::hub::{NodeBus, run_relay};

/// Header of a record about presence.
pub(super) const PRESENCE: &str = "hubbub-presence";
const RECORDS_PER_TICK: usize = 64;

/// The bus, as long as the log is open.
struct PresenceBus {
    core: Weak<Core>,
    partitions: u32,
}

impl NodeBus for PresenceBus {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn partition_of(&self, id: &str) -> u32 {
        log_partition::of_room(id, self.partitions)
    }

    fn is_subscribed(&self, partition: u32) -> bool {
        self.core.upgrade().is_some_and(|core| core.bus.reads(partition))
    }

    fn record_bytes(&self) -> usize {
        bus::RECORD_BYTES
    }

    fn records_per_tick(&self) -> usize {
        RECORDS_PER_TICK
    }

    fn lacks_marks(&self) -> bool {
        false
    }

    fn send(&self, partition: u32, record: String) {
        if let Some(core) = self.core.upgrade() {
            let headers = OwnedHeaders::new().insert(Header { key: PRESENCE, value: Some("") });
            bus::write(&core, partition, None, record.as_bytes(), Some(headers));
        }
    }
}

pub(super) fn enable(core: &Arc<Core>) {
    let bus = PresenceBus { core: Arc::downgrade(core), partitions: core.topics.partitions };
    core.hub.enable_relay(Arc::new(bus), &*core.random);
}

/// Sends the presence of this server to the others until it stops.
pub(super) async fn run(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = run_relay(core.hub.clone(), core.clock.clone()) => {}
        _ = stop.wait_for(|is_stopping| *is_stopping) => {}
    }
}
