//! Keys.

use std::sync::Arc;

use std::time::Duration;

use hubbub_core::kv::{KeyInfo, KvEntry, KvHistory};
use hubbub_core::store::{ApplyError, KvStore, Read, ReadError, StoreFigures};
use hubbub_core::{KvOp, Outcome};

use crate::store::Postgres;

use crate::db::Fault;
use crate::db::connect::OpenError;
use crate::store::Context;

/// Keys.
pub(crate) struct Kv {
    context: Arc<Context>,
}

impl Kv {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        Ok(Self { context })
    }

    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, _figures: &mut StoreFigures) -> Result<(), Fault> {
        Ok(())
    }

    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, _ops: &[KvOp<'_>]) -> Result<Vec<Outcome>, ApplyError> {
        Err(ApplyError::Unavailable { reason: "not built yet".into() })
    }
}

fn missing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "not built yet".into() })))
}

impl KvStore for Postgres {
    fn value(&self, _key: &[u8]) -> Read<'_, Option<KvEntry>> {
        missing()
    }

    fn keys(&self, _prefix: &[u8], _after: Option<&[u8]>, _limit: usize) -> Read<'_, Vec<KeyInfo>> {
        missing()
    }

    fn changes(&self, _prefix: &[u8], _after: u64, _limit: usize) -> Read<'_, KvHistory> {
        missing()
    }

    fn revision(&self) -> u64 {
        0
    }

    fn kv_due_in(&self) -> Option<Duration> {
        None
    }
}
