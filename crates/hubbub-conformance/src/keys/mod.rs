//! Keys and values: the contract of [`hubbub_core::KvStore`] and of [`hubbub_core::KvOp`] as tests.

pub mod basics;
pub mod changes;
pub mod expiry;
pub mod model;
pub mod random;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
