//! A store of rooms and statistics on Cassandra or ScyllaDB (CQL), behind a log that orders everything. No queues, no keys.
//!
//! Any number of servers may share a keyspace. Each partition of the log has one owner, which applies its records; an owner
//! that lost its partition may go on for a while, and anybody may repeat anything. Nothing is locked, and there are no
//! lightweight transactions. Instead:
//!
//! - **The number of a record is the timestamp of all it writes**, and the `seq` of the message it stores. Of two writes of
//!   a row the one of the later record wins, whenever it comes.
//! - **Every row belongs to one partition of the log**, so timestamps of a row have one meaning.
//! - **A row as of a record follows from the records up to that one.** So whoever repeats a record writes what is there.
//! - **A room's decisions rest on one database partition** (its state, members, senders, buckets), which changes in one atomic
//!   batch, last of all that a batch of records writes. It says which record is the last that is in it ([`state`]).
//!   Messages beyond its head, and ids that point there, are not committed, and are invisible.
//! - **Indexes may hold too much**, never too little: they are written first, and what they lead to is verified.
//!
//! [`write`] applies, [`read`] answers, [`db`] sends statements, [`schema`] has the tables, [`properties`] what is true of all.

mod counts;
mod db;
mod log;
mod options;
mod properties;
mod read;
mod refused;
mod replicas;
mod requests;
mod schema;
mod state;
mod statements;
mod status;
mod store;
mod write;

pub use db::OpenError;
pub use hubbub_tls::TlsFiles;
pub use options::{BucketLimits, Consistency, ScyllaOptions, check_url};
pub use schema::Version;
pub use store::{Scylla, migrate, session};
