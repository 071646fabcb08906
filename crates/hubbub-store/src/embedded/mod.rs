//! The embedded engine.

pub mod disk;
