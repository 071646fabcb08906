//! The client against servers that do what a script says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod moments;
mod refusals;
mod requests;
mod scripted;
mod slow;
mod socket;
mod strange;
mod tokens;
