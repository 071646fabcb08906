//! Keys and values: newest ones in the journal with an index in memory, the rest in sorted immutable runs.

mod service;
