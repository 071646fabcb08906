//! What `/metrics` says of the program and its process, by the names all Prometheus clients use.

use hubbub_core::invariant::saturate;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The running program. Reading the system is the caller's part.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Such as `1.2.3`.
    pub version: &'static str,
    /// The commit it was built from, or `unknown`.
    pub revision: &'static str,
    /// The process's figures of now.
    pub figures: fn() -> ProcessFigures,
}

/// Figures of a process. `None` = the system does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessFigures {
    /// Processor time of all threads, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Memory in use.
    pub resident_bytes: Option<u64>,
    /// Address space in use.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Limit of open file descriptors.
    pub max_fds: Option<u64>,
    /// When it was started, in seconds since 1970.
    pub start_time_seconds: Option<f64>,
}

impl Program {
    pub(super) fn register(&self, registry: &mut Registry) {
        let build = Build { version: self.version, revision: self.revision };
        registry.register(
            "hubbub_build_info",
            "The version, and the commit it was built from; always 1",
            build,
        );
        let figures = (self.figures)();
        if let Some(seconds) = figures.cpu_seconds {
            let help = "Processor time of all threads since the start";
            registry.register("process_cpu_seconds", help, ConstCounter::new(seconds));
        }
        let counts = [
            ("resident_memory_bytes", "Memory in use", figures.resident_bytes),
            ("virtual_memory_bytes", "Address space in use", figures.virtual_bytes),
            ("open_fds", "Open file descriptors", figures.open_fds),
            ("max_fds", "Limit of open file descriptors", figures.max_fds),
        ];
        for (name, help, value) in counts {
            let Some(value) = value else { continue };
            let value = ConstGauge::new(saturate::<_, i64>(value));
            registry.register(format!("process_{name}"), help, value);
        }
        if let Some(seconds) = figures.start_time_seconds {
            let help = "When the process was started, in seconds since 1970";
            registry.register("process_start_time_seconds", help, ConstGauge::new(seconds));
        }
    }
}

#[derive(Debug)]
struct Build {
    version: &'static str,
    revision: &'static str,
}

impl EncodeMetric for Build {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let labels = [("version", self.version), ("revision", self.revision)];
        ConstGauge::new(1_i64).encode(encoder.encode_family(&labels)?)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
