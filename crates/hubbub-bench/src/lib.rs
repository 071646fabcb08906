//! The load generator behind `hubbub bench`. It knows a server only by its public protocol. Each workload is a module with
//! the steps of a run; the [`engine`] takes them, closes the ledger and reports. A [`scenario`] is a file that says which
//! workload to run, at which points, how often; [`model`] predicts from what it measured.
//!
//! Path of a message of the rooms: one generator draws it ([`job`], [`pace`]) → a bounded queue ([`feed`]) → a connection writes
//! it out ([`session`], [`client`]; [`persist`] has connections of its own) and keeps it until its answer ([`lane`]) →
//! histograms and rates ([`record`]), and a row of a file ([`rows`]) → the report ([`report`]), which closes the ledger with the server's own counters
//! ([`ledger`]).
//!
//! Workloads whose next step follows from the answer to the last ([`queue`], [`kv`], [`query`]) have a task for each
//! connection ([`worker`]) that asks one thing at a time ([`caller`]), and end in the same record and report.
//!
//! A load runs through [`phases`]; what begins in the main one is measured, beside it the machine ([`main_phase`]). Where its rate
//! changes, [`steps`] are told apart.
//!
//! Each run ends in a [`verdict`]: what limited it, by which figures.
//!
//! A load may come from several processes at once, on this or other machines ([`agents`]); they end in one report.
//!
//! What a scenario says of processors, of limits and of the network is done by [`lab`]; [`others`] measures what processes that
//! have nothing to do with it take of the machine.
//!
//! [`limits`] stand apart: they measure what a server cannot have more of than the machine, so `limits::engine` uses the
//! embedded engine, and `limits::postgres` and `limits::plain_rows` use PostgreSQL; [`store_alone`] measures with these. [`sample`] watches PostgreSQL and RabbitMQ.
//!
//! Invariants
//! - A message has one id however often it is sent; each ends as accepted, rejected or unconfirmed.
//! - What a measurement starts ([`children`]) and makes ([`machine::scratch`], `temporary`, [`made`]) is gone when it ends, also where it
//!   fails or is told to [`stop`].
//! - In an open loop latency counts from the intended send, so a stalled server cannot hide behind a stalled client.
//! - The same client code measures the real server and the bare ones ([`bare`]).

mod access;
mod agents;
mod bare;
mod caller;
mod chat;
mod children;
pub mod cli;
mod client;
mod engine;
mod fanout;
mod feed;
mod followed;
mod http;
mod job;
mod kv;
mod lab;
mod lane;
mod ledger;
mod limits;
mod listener;
mod live;
mod machine;
mod made;
mod main_phase;
mod minutes;
mod model;
mod models;
mod options;
mod others;
mod pace;
mod persist;
mod phase;
mod phases;
mod price;
mod process_tree;
mod query;
mod query_load;
mod queue;
mod record;
mod report;
mod rows;
mod run;
mod sample;
mod scenario;
mod session;
mod settling;
mod spawn;
mod stages;
mod statistics;
mod steps;
mod stop;
mod store_alone;
mod stream;
mod suite;
mod tally;
#[cfg(any(feature = "postgres", feature = "amqp", feature = "kafka"))]
mod temporary;
mod timing;
mod verdict;
mod wire;
mod worker;

#[cfg(test)]
mod broker_tests;
#[cfg(test)]
mod tests;
