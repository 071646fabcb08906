//! The rules that every store follows: pure functions that decide what an operation comes to.
//!
//! A rule reads through a `View` that the store implements, and returns the outcome and its effects. The store makes the
//! effects durable and applies them, so that the next operation is decided by what they left. Nothing here does I/O.

pub mod keys;
pub mod queues;
pub mod rooms;
