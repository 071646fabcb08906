//! PostgreSQL as the store: the same contracts as the embedded engine's, for any number of servers on one database.
//!
//! A batch comes to [`Postgres`], which gives each face its operations: [`rooms`] (over several connections, each for
//! rooms of its own), [`queues`] and [`kv`], each in a transaction of set-based statements. Reads run on connections of
//! the same pool ([`db`]); [`stats`] keeps counts by a rollup that follows each room's numbers. [`pulse`] does what time
//! brings: figures, [`partitions`], removal of what was deleted. [`replicas`] may answer history and statistics, as new as the
//! primary would.
//!
//! Invariants
//! - Whoever numbers something holds the row that has the number until the commit, so numbers are seen in their order.
//! - Nothing is remembered in memory that another server may have changed, unless it is compared with the database in
//!   the same read.
//! - A statement never grows with the data: it touches what the batch or the page names.

mod apply;
mod db;
mod history;
mod kv;
mod lasting;
mod migrate;
mod options;
mod partitions;
mod pulse;
mod queues;
mod replicas;
mod rooms;
mod stats;
mod store;

pub use db::connect::{OpenError, check_replica_urls, check_url};
pub use lasting::{BeginAnew, Lasting};
pub use migrate::{Pending, Touched, migrate};
pub use options::{BroadcastOptions, PoolOptions, Pooler, PostgresOptions};
pub use store::Postgres;
