//! The header `Hubbub-Consistency`. Whether a read of history or statistics may go to a replica: yes, unless it forbids
//! that. How old the value of a key may be: not at all, unless it allows that.

use std::time::Duration;

use hubbub_core::replica::ReplicaStore;
use hubbub_core::store::{HistoryPage, HistoryQuery, Read};
use hubbub_core::{ErrorCode, RoomId, StatsStore, Store, duration};
use hyper::HeaderMap;

use crate::Gateway;
use crate::problem::Problem;

/// The header, and the one value it may have.
pub(super) const HEADER: &str = "Hubbub-Consistency";
pub(super) const STRONG: &str = "strong";
pub(super) const RULE: &str = "the header Hubbub-Consistency must be strong, or be left out";

/// The other value that it may have for a key's value, before a duration.
const BOUNDED: &str = "bounded=";
/// Longest such duration.
const BOUND_MAX: Duration = Duration::from_secs(60);
const KEY_RULE: &str = "the header Hubbub-Consistency must be strong, or bounded= with at most one minute, like \
                        bounded=50ms, or be left out";
/// The values that it may have for a key's value, for the API's description.
pub(super) const KEY_PATTERN: &str = "^(strong|bounded=[0-9]+(ms|s|min))$";

/// The time of the monotonic clock as of which a key's value is asked for.
pub(super) fn value_as_of(gateway: &Gateway, headers: &HeaderMap) -> Result<Duration, Problem> {
    let now = gateway.clock.monotonic();
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(now) };
    let value = value.to_str().ok().filter(|_| values.next().is_none());
    let bound = value.and_then(|value| match value.strip_prefix(BOUNDED) {
        Some(bound) => duration::parse(bound).filter(|bound| *bound <= BOUND_MAX),
        None => value.eq_ignore_ascii_case(STRONG).then_some(Duration::ZERO),
    });
    let bound = bound.ok_or_else(|| Problem::new(ErrorCode::Malformed, KEY_RULE))?;
    Ok(now.saturating_sub(bound))
}

#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    store: &'a dyn Store,
    replicas: Option<&'a dyn ReplicaStore>,
}

impl<'a> Reads<'a> {
    pub(super) fn of(gateway: &'a Gateway, headers: &HeaderMap) -> Result<Self, Problem> {
        let mut values = headers.get_all(HEADER).iter().peekable();
        let is_strong = values.peek().is_some();
        if values.any(|value| !value.as_bytes().eq_ignore_ascii_case(STRONG.as_bytes())) {
            return Err(Problem::new(ErrorCode::Malformed, RULE));
        }
        let store = &*gateway.store;
        Ok(Self { store, replicas: if is_strong { None } else { store.replicas() } })
    }

    pub(super) fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'a, HistoryPage> {
        match self.replicas {
            Some(replicas) => replicas.history(room, query),
            None => self.store.history(room, query),
        }
    }

    pub(super) fn stats(&self) -> &'a dyn StatsStore {
        match self.replicas {
            Some(replicas) => replicas,
            None => self.store,
        }
    }
}
