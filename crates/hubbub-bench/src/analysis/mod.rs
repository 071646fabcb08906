//! What the figures mean: stages, prices, capacity, and the verdict.

pub(crate) mod backlog;
pub(crate) mod capacity;
pub(crate) mod main_phase;
pub(crate) mod price;
pub(crate) mod stages;
pub(crate) mod verdict;
