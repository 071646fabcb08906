//! What a run records: histograms, rows, minutes and steps, and the ledger that must balance.

pub(crate) mod followed;
pub(crate) mod ledger;
pub(crate) mod message_rows;
pub(crate) mod minutes;
pub(crate) mod record;
pub(crate) mod steps;
pub(crate) mod tally;
