//! The store's history and statistics, from replicas where they will do.

use std::sync::Arc;

use hubbub_core::RoomId;
use hubbub_core::replica::{ReplicaFigures, ReplicaStore};
use hubbub_core::store::{HistoryPage, HistoryQuery, Read};

use super::{Reader, Replicas};
use crate::db::Db;
use crate::rooms::{self, Rooms};
use crate::stats::{Counts, Stats, hand_on_counts};

/// Reads that replicas may answer.
pub(crate) struct Replicated {
    rooms: Arc<Rooms>,
    counts: Counts,
    reader: Reader,
    replicas: Arc<Replicas>,
}

impl Replicated {
    pub(crate) fn new(rooms: &Arc<Rooms>, stats: &Arc<Stats>, primary: &Db, replicas: Arc<Replicas>) -> Self {
        let reader = Reader::new(primary, Some(replicas.clone()));
        Self { rooms: rooms.clone(), counts: Counts::new(stats, reader.clone()), reader, replicas }
    }

    pub(crate) fn close(&self) {
        self.replicas.close();
    }
}

impl ReplicaStore for Replicated {
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { rooms::history(&self.rooms, &self.reader, &room, &query).await })
    }

    fn replicas(&self) -> Vec<ReplicaFigures> {
        self.replicas.figures()
    }
}

hand_on_counts!(Replicated, |replicated| replicated.counts);
