//! Logging to standard error.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::config::LogFormat;

/// Starts logging. Only the first call has an effect.
pub(crate) fn start(level: LevelFilter, format: LogFormat) {
    // The RabbitMQ library logs whole messages. Its returned errors contain what matters.
    let filter = Targets::new().with_default(level).with_target("lapin", LevelFilter::OFF);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // Fails only if a logger is already installed.
    let _ = match format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
}
