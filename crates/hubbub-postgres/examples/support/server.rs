//! A PostgreSQL of an example's own, started and stopped by `scripts/services/postgres.sh`.

use std::path::PathBuf;
use std::process::Command;

use crate::Failure;

/// A server on 127.0.0.1, wiped when it is dropped.
pub(crate) struct Server {
    port: u16,
    config: String,
}

impl Server {
    /// One that does not run yet: PostgreSQL's defaults, and what `config` says.
    pub(crate) fn new(port: u16, config: &str) -> Self {
        Self { port, config: config.to_owned() }
    }

    /// Where it is.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Starts it; the first start makes its directory.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        self.script("start")
    }

    /// Stops it; what is in memory goes to the disk.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.script("stop")
    }

    fn script(&self, command: &str) -> Result<(), Failure> {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services/postgres.sh");
        let status = Command::new(&script)
            .arg(command)
            .env("PGPORT", self.port.to_string())
            .env("PGTUNED", "off")
            .env("PGCONF", &self.config)
            .env_remove("PGFSYNC")
            .status()?;
        if !status.success() {
            return Err(format!("{} {command} failed on port {}", script.display(), self.port).into());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.script("wipe") {
            eprintln!("{error}");
        }
    }
}
