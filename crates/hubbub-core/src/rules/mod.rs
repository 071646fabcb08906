//! Rules that every store follows, as pure functions: no I/O, no clock, no state of their own.

pub mod queues;
