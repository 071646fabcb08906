//! A store on PostgreSQL, with the same contracts as the embedded store, for any number of servers on one database.
//!
//! [`Postgres`] divides a batch between the subsystems: [`rooms`] (over several connections, each for rooms of its own),
//! [`queues`] and [`kv`]. Each runs one transaction of set-based statements. Reads use the same pool ([`db`]). [`stats`]
//! keeps counts by a rollup that follows the numbers of each room. [`maintenance`] runs due work: figures,
//! [`partitions`], pending deletes. [`replicas`] may answer history and statistics. [`log`] takes operations of rooms from a
//! log outside the process.
//!
//! Invariants
//! - Whoever assigns a number locks the row that holds it until the commit. So numbers become visible in order.
//! - Memory holds nothing that another server may have changed, unless the same read compares it with the database.
//! - The work of a statement does not grow with the data: it touches what the batch or the page names.
//! - A read from a replica is as new as one from the primary.
//! - What is confirmed is on the database's disk ([`durability`]).

mod apply;
mod db;
mod division;
mod durability;
mod history;
mod kv;
mod log;
mod maintenance;
mod migrate;
mod notifications;
mod options;
mod partitions;
mod peers;
mod queues;
mod reopening;
mod replicas;
mod rooms;
mod stats;
mod step_size;
mod store;

pub use db::connect::{OpenError, check_replica_urls, check_url};
pub use migrate::{Pending, Touched, migrate};
pub use options::{BroadcastOptions, Exclusive, PoolOptions, Pooler, PostgresOptions};
pub use reopening::{OnNewEpoch, ReopeningStore};
pub use store::Postgres;
