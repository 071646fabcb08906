//! Whether a read of history or statistics may go to a replica: yes, unless the header `Hubbub-Consistency` forbids it.

use hubbub_core::replica::ReplicaStore;
use hubbub_core::store::{HistoryPage, HistoryQuery, Read};
use hubbub_core::{ErrorCode, RoomId, StatsStore, Store};
use hyper::HeaderMap;

use crate::Gateway;
use crate::problem::Problem;

/// The header, and the one value it may have.
pub(super) const HEADER: &str = "Hubbub-Consistency";
pub(super) const STRONG: &str = "strong";
pub(super) const RULE: &str = "the header Hubbub-Consistency must be strong, or be left out";

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
