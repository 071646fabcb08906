//! A gauge of a time: kept in whole microseconds, shown in seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The last value set; starts at 0.
#[derive(Debug, Clone, Default)]
pub struct MicrosGauge(Arc<AtomicI64>);

impl MicrosGauge {
    /// Replaces the value, in microseconds.
    pub fn set(&self, micros: i64) {
        self.0.store(micros, Ordering::Relaxed);
    }

    /// The value, in microseconds.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl EncodeMetric for MicrosGauge {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        #[allow(clippy::cast_precision_loss, reason = "exact up to 285 years")]
        let micros = self.get() as f64;
        ConstGauge::new(micros / 1e6).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
