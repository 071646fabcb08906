//! The load generator behind `hubbub bench`. It knows a server only by its public protocol. Each workload ([`workloads`]) is a
//! module with the steps of a run; [`workloads::engine`] takes them, closes the ledger and reports. A [scenario](experiments) is
//! a file that says which workload to run, at which points, how often; [`analysis::capacity`] predicts from what it measured.
//!
//! Path of a message of the rooms: one generator draws it ([`load::message_plan`], [`load::pace`]) → a bounded queue
//! ([`load::feed`]) → a connection writes it out ([`load::session`], [`client`]; [`workloads::persist`] has connections of its
//! own) and keeps it until its answer ([`load::in_flight`]) → histograms and rates ([`results::record`]), and a row of a file
//! ([`results::message_rows`]) → the [`report`], which closes the ledger with the server's own counters ([`results::ledger`]).
//!
//! Workloads whose next step follows from the answer to the last (queue, kv, query) have a task for each connection
//! ([`load::worker`]) that asks one thing at a time ([`client::caller`]), and end in the same record and report.
//!
//! A load runs through [`load::phases`]; what begins in the main one is measured, and beside it the machine
//! ([`analysis::main_phase`]). Where its rate changes, [`results::steps`] are told apart. Each run ends in a
//! [verdict](analysis::verdict): what limited it, by which figures.
//!
//! A load may come from several processes at once, on this or other machines ([`agents`]); they end in one report.
//!
//! What a scenario says of processors, of limits and of the network is done by [`host::lab`]; [`host::background_load`] measures
//! what processes that have nothing to do with it take of the machine. [`host::sample`] watches PostgreSQL and RabbitMQ.
//!
//! [`experiments::limits`] stand apart: they measure what a server cannot have more of than the machine, so `limits::engine`
//! uses the embedded engine, `limits::postgres` and `limits::plain_rows` use PostgreSQL; [`workloads::store_alone`] measures
//! with these.
//!
//! Invariants
//! - A message has one id however often it is sent; each ends as accepted, rejected or unconfirmed.
//! - What a measurement starts ([`host::children`]) and makes ([`host::machine::scratch`], `host::temporary`, [`host::cleanup`])
//!   is gone when it ends, also where it fails or is told to [`stop`].
//! - In an open loop latency counts from the intended send, so a stalled server cannot hide behind a stalled client.
//! - The same client code measures the real server and the bare ones ([`experiments::bare`]).

mod agents;
mod analysis;
pub mod cli;
mod client;
mod experiments;
mod host;
mod load;
mod options;
mod progress;
mod report;
mod results;
mod statistics;
mod stop;
mod workloads;

#[cfg(test)]
mod broker_tests;
#[cfg(test)]
mod tests;
