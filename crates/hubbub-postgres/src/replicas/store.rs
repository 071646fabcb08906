//! The reads that replicas may answer: history and statistics.

use std::sync::Arc;

use hubbub_core::RoomId;
use hubbub_core::replica::{ReplicaFigures, ReplicaStore};
use hubbub_core::store::{HistoryPage, HistoryQuery, Read};

use super::{Reader, Replicas};
use crate::db::Db;
use crate::rooms::{self, Rooms};
use crate::stats::{CountReader, Stats, delegate_stats};

/// Reads that replicas may answer.
pub(crate) struct ReplicatedReads {
    rooms: Arc<Rooms>,
    counts: CountReader,
    reader: Reader,
    replicas: Arc<Replicas>,
}

impl ReplicatedReads {
    pub(crate) fn new(rooms: &Arc<Rooms>, stats: &Arc<Stats>, primary: &Db, replicas: Arc<Replicas>) -> Self {
        let reader = Reader::new(primary, Some(replicas.clone()));
        Self { rooms: rooms.clone(), counts: CountReader::new(stats, reader.clone()), reader, replicas }
    }

    pub(crate) fn close(&self) {
        self.replicas.close();
    }
}

impl ReplicaStore for ReplicatedReads {
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { rooms::history(&self.rooms, &self.reader, &room, &query).await })
    }

    fn replicas(&self) -> Vec<ReplicaFigures> {
        self.replicas.figures()
    }
}

delegate_stats!(ReplicatedReads, |replicated_reads| replicated_reads.counts);
