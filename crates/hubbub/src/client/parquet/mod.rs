//! Messages in files of Apache Parquet (<https://parquet.apache.org/docs/file-format/>), for programs that analyse.
//!
//! [`write`] makes them in row groups of a bounded size; [`read`] takes its own and those of other programs.

mod read;
mod write;

pub(super) use read::Reader;
pub(super) use write::Writer;

#[cfg(test)]
mod tests;
