//! Background rewriting of sorted files: small neighbours become one, and what is too old or hidden is dropped.

mod expire;
#[cfg(test)]
mod expire_tests;
pub(crate) mod keys;
pub(crate) mod segments;
