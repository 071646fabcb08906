//! What orders messages before they are stored. `direct` has them ordered by the process itself.

mod direct;

pub use direct::{DirectLog, LogOptions, StartError};
