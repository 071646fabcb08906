//! The embedded engine.

pub mod disk;
pub mod filter;
pub mod segment;
