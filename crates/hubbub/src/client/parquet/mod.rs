//! Messages in files of Apache Parquet (<https://parquet.apache.org/docs/file-format/>), for data analysis.
//!
//! [`write`] writes row groups of a bounded size; [`read`] reads these files and those of other programs.

mod bounds;
mod read;
mod write;

pub(super) use read::Reader;
pub(super) use write::Writer;

#[cfg(test)]
mod tests;
