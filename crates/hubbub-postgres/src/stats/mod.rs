//! Counts.

use std::sync::Arc;

use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, HoursPage, HoursQuery, ParticipationPage, RoomStats,
    StatsStore, Totals, UserHistoryPage, UserHistoryQuery, UserStats,
};
use hubbub_core::store::{Read, ReadError, StoreFigures};
use hubbub_core::{RoomId, UserId};

use crate::store::Postgres;

use crate::db::Fault;
use crate::db::connect::OpenError;
use crate::store::Context;

/// Counts.
pub(crate) struct Stats {
    context: Arc<Context>,
}

impl Stats {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        Ok(Self { context })
    }

    /// Counts everything stored, takes everything deleted out.
    pub(crate) async fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, _figures: &mut StoreFigures) -> Result<(), Fault> {
        Ok(())
    }
}

fn missing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "not built yet".into() })))
}

impl StatsStore for Postgres {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        missing()
    }

    fn room_stats(&self, _room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        missing()
    }

    fn top_rooms(&self, _limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        missing()
    }

    fn user_stats(&self, _user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        missing()
    }

    fn top_users(&self, _limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        missing()
    }

    fn hours(&self, _query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        missing()
    }

    fn active_users(&self, _query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        missing()
    }

    fn participation(
        &self,
        _user: UserId,
        _after: Option<RoomId>,
        _limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        missing()
    }

    fn user_history(&self, _user: UserId, _query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        missing()
    }

    fn audit(&self) -> Read<'_, Counted<Audit>> {
        missing()
    }
}
