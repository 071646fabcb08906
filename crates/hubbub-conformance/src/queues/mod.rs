//! Queues: the contract of [`hubbub_core::QueueStore`] and of [`hubbub_core::QueueOp`] as tests.

pub mod basics;
pub mod broadcasts;
pub mod delivery;
mod known;
pub mod leases;
pub mod limits;
pub mod many;
pub mod model;
pub mod over;
pub mod random;
mod steps;
#[cfg(test)]
pub(crate) mod tests;

pub use steps::message;
