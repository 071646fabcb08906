//! Queues: states and order in memory, operations in the journal, texts on the disk.

mod service;
