//! The workloads, each a module behind one trait, and the [`engine`] that measures them.

pub(crate) mod chat;
pub(crate) mod engine;
pub(crate) mod fanout;
pub(crate) mod http;
pub(crate) mod kv;
pub(crate) mod persist;
pub(crate) mod query;
pub(crate) mod query_load;
pub(crate) mod queue;
pub(crate) mod store_alone;
