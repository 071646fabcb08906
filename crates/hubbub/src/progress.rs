//! Progress of long commands on standard error; nothing where that is no terminal.

use std::io::Read;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::output;

/// A bar or a counter. It is gone from the terminal when finished or dropped.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Bytes of a known total.
    pub(crate) fn of_bytes(what: &'static str, total: u64) -> Self {
        let template = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        Self::new(ProgressBar::new(total), template, what)
    }

    /// Messages, of which nobody knows the number.
    pub(crate) fn of_messages(what: &'static str) -> Self {
        Self::new(ProgressBar::no_length(), "{msg} {human_pos} messages, {per_sec}", what)
    }

    /// The library draws to standard error, and only if that is a terminal.
    fn new(bar: ProgressBar, template: &str, what: &'static str) -> Self {
        let bar = bar.with_message(what).with_finish(ProgressFinish::AndClear);
        // The templates above are right.
        Self(if let Ok(style) = ProgressStyle::with_template(template) { bar.with_style(style) } else { bar })
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// What was added is to be done once more.
    pub(crate) fn take_back(&self, count: u64) {
        self.0.dec(count);
    }

    /// Counts the bytes that are read.
    pub(crate) fn reading(&self, reader: impl Read + 'static) -> impl Read + 'static {
        self.0.wrap_read(reader)
    }

    /// Says something without disturbing the bar.
    pub(crate) fn remark(&self, text: &str) {
        self.0.suspend(|| output::remark(text));
    }

    /// To be called before anything else is printed.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
