//! Where everything is kept: the embedded engine, and the conformance suite that every store passes.

pub mod conformance;
pub mod embedded;
