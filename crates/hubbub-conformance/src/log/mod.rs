//! Taking operations of rooms from a log: the contract of [`hubbub_core::LogStore`] as tests.
//!
//! A store need not number the messages of a room without holes here, so no case looks at distances between numbers.

use std::future::Future;
use std::sync::Arc;

use hubbub_core::Store;

use super::Fixture;

pub mod basics;
pub mod erasure;
pub mod repeats;
mod script;
mod steps;
#[cfg(test)]
pub(crate) mod tests;

/// A store under test that takes operations from a log. Fresh ones have none attached.
pub trait LogFixture: Fixture {
    /// Opens the same data once more, as another server does. Both stay open.
    fn open_second(&mut self) -> impl Future<Output = Arc<dyn Store>> + Send;
}
