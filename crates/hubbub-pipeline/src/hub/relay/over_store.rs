//! Records between the servers of a shared store that carries texts.

use std::sync::Arc;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::essential::{Essential, supervise};
use hubbub_core::store::Store;

use super::super::Hub;
use super::{NodeBus, TICK, run_relay};

const RECORDS_PER_TICK: usize = 8;

struct StoreBus(Arc<dyn Store>);

impl NodeBus for StoreBus {
    fn partitions(&self) -> u32 {
        1
    }

    fn partition_of(&self, _: &str) -> u32 {
        0
    }

    fn is_subscribed(&self, _: u32) -> bool {
        true
    }

    fn record_bytes(&self) -> usize {
        self.0.peers().map_or(0, |peers| peers.text_bytes())
    }

    fn records_per_tick(&self) -> usize {
        RECORDS_PER_TICK
    }

    fn lacks_marks(&self) -> bool {
        true
    }

    fn send(&self, _: u32, record: String) {
        self.0.peers().into_iter().for_each(|peers| peers.broadcast(record.clone()));
    }
}

/// Starts the exchange over a shared store, if it carries texts between its servers.
pub fn relay_over_store(
    hub: &Arc<Hub>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    random: &dyn RandomSource,
) {
    if store.peers().is_none() {
        return;
    }
    hub.enable_relay(Arc::new(StoreBus(store.clone())), random);
    let ticking = run_relay(hub.clone(), clock.clone());
    tokio::spawn(supervise(Essential::new("presence"), ticking));
    let receiving = receive(hub.clone(), store.clone(), clock.clone());
    tokio::spawn(supervise(Essential::new("presence of other servers"), receiving));
}

async fn receive(hub: Arc<Hub>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    loop {
        // The store may be opened again; then another one receives.
        match store.peers() {
            Some(peers) => {
                if let Ok(text) = tokio::time::timeout(TICK, peers.receive()).await {
                    hub.apply_record(0, text.as_bytes(), clock.monotonic());
                }
            }
            None => tokio::time::sleep(TICK).await,
        }
    }
}
