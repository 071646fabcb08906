//! The embedded store.

pub mod embedded;
