//! The machine: its processors and processes, what is started, limited and removed on it.

pub(crate) mod background_load;
pub(crate) mod children;
pub(crate) mod cleanup;
pub(crate) mod lab;
pub(crate) mod machine;
pub(crate) mod process_tree;
pub(crate) mod sample;
pub(crate) mod spawn;
#[cfg(any(feature = "postgres", feature = "amqp", feature = "kafka"))]
pub(crate) mod temporary;
