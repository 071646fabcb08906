//! Assembles what stands between the clients of a server and its store: the one place that says which parts there are, and in
//! which order they start. Logs with a broker and the gateway are built on it.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::store::Store;

use crate::access_cache::AccessCache;
use crate::hub::Hub;
use crate::kv::{CacheLimits, Keys};
use crate::log::{DirectLog, LogOptions, StartError};
use crate::metrics::Metrics;

/// The parts of a running server, from its store up to the direct log. Clones share them.
#[derive(Clone)]
pub struct Pipeline {
    /// Where everything is stored.
    pub store: Arc<dyn Store>,
    /// Live delivery.
    pub hub: Arc<Hub>,
    /// Who may read what.
    pub members: Arc<AccessCache>,
    /// Values of keys, in memory and from the store.
    pub keys: Arc<Keys>,
    /// Commits to the store. It has the handles of all that runs; closing it ends them.
    pub direct: Arc<DirectLog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For ids and pauses.
    pub random: Arc<dyn RandomSource>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Options of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineOptions {
    /// Of the direct log.
    pub log: LogOptions,
    /// How long a user's access to a room is cached; zero = not at all.
    pub members_ttl: Duration,
    /// Of the cache of keys.
    pub keys: CacheLimits,
}

impl Default for PipelineOptions {
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            members_ttl: Duration::from_secs(10),
            keys: CacheLimits { bytes: 256 << 20, entries: 1_000_000, value_bytes: 1 << 20 },
        }
    }
}

impl Pipeline {
    /// Starts to commit to `store`, on the current tokio runtime and on threads of its own. The hub is made before the store is
    /// opened: the store tells it when another history begins.
    pub fn start(
        options: PipelineOptions,
        store: Arc<dyn Store>,
        hub: Arc<Hub>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let members = AccessCache::new(store.clone(), clock.clone(), metrics.clone(), options.members_ttl);
        let members = Arc::new(members);
        let keys = Arc::new(keys(options.keys, &store, clock.clone(), metrics.clone()));
        let direct = DirectLog::start(
            options.log,
            store.clone(),
            hub.clone(),
            members.clone(),
            keys.clone(),
            clock.clone(),
            metrics.clone(),
        );
        let direct = Arc::new(direct?);
        Ok(Self { store, hub, members, keys, direct, clock, random, metrics })
    }
}

fn keys(limits: CacheLimits, store: &Arc<dyn Store>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Keys {
    if store.is_shared() {
        let history_of = store.clone();
        let epoch = Arc::new(move || history_of.epoch());
        return Keys::shared(store.clone(), epoch, clock, metrics, limits);
    }
    Keys::new(store.clone(), clock, metrics, limits)
}
