//! What only PostgreSQL has: what is promised beyond the conformance suite, and what the database itself must show.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod broadcasts;
mod clock;
mod clusters;
mod connections;
mod counting;
mod durability;
mod histories;
mod identities;
mod keys;
mod large;
mod lease;
mod log;
mod migrations;
mod outages;
mod partitions;
mod parts;
mod planning;
mod queues;
mod recent;
mod retention;
mod rooms;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
mod takes;
mod unknown_outcomes;
mod unreadable;
mod values;
