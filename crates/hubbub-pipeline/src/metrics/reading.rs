//! What a metric was at one moment: for those who compare two moments rather than export the metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::MicrosGauge;

/// A metric whose value can be read.
pub trait Readable {
    /// What it is at one moment.
    type Value: std::fmt::Debug + Clone;

    /// The value of now. Takes no lock.
    fn read(&self) -> Self::Value;
}

impl Readable for Counter {
    type Value = u64;

    fn read(&self) -> u64 {
        self.get()
    }
}

impl Readable for Gauge {
    type Value = i64;

    fn read(&self) -> i64 {
        self.get()
    }
}

impl Readable for MicrosGauge {
    /// Microseconds.
    type Value = i64;

    fn read(&self) -> i64 {
        self.get()
    }
}
