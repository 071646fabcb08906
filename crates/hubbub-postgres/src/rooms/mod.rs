//! Rooms, messages, members.

use std::sync::Arc;

use hubbub_core::store::{
    Access, ApplyError, HistoryPage, HistoryQuery, Member, Read, ReadError, RoomInfo, RoomStore,
    StoreFigures, UserRooms,
};
use hubbub_core::{Outcome, RoomId, UserId};

use crate::apply::RoomOp;
use crate::store::Postgres;

use crate::db::Fault;
use crate::db::connect::OpenError;
use crate::store::Context;

/// Rooms, messages, members.
pub(crate) struct Rooms {
    context: Arc<Context>,
}

impl Rooms {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        Ok(Self { context })
    }

    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, _figures: &mut StoreFigures) -> Result<(), Fault> {
        Ok(())
    }

    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, _ops: &[RoomOp<'_>]) -> Result<Vec<Outcome>, ApplyError> {
        Err(ApplyError::Unavailable { reason: "not built yet".into() })
    }
}

fn missing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "not built yet".into() })))
}

impl RoomStore for Postgres {
    fn epoch(&self) -> Arc<str> {
        self.context.epoch.read().clone()
    }

    fn history(&self, _room: RoomId, _query: HistoryQuery) -> Read<'_, HistoryPage> {
        missing()
    }

    fn room(&self, _room: RoomId) -> Read<'_, Option<RoomInfo>> {
        missing()
    }

    fn rooms(&self, _after: Option<RoomId>, _limit: usize) -> Read<'_, Vec<RoomInfo>> {
        missing()
    }

    fn access(&self, _room: RoomId, _user: UserId) -> Read<'_, Access> {
        missing()
    }

    fn members(&self, _room: RoomId, _after: Option<UserId>, _limit: usize) -> Read<'_, Vec<Member>> {
        missing()
    }

    fn user_rooms(&self, _user: UserId, _after: Option<RoomId>, _limit: usize) -> Read<'_, UserRooms> {
        missing()
    }
}
