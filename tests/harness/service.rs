//! A service that its script in `scripts/services` starts: the one that runs for all tests, or one of a test's own.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::{MAKE_CERTIFICATES, free_ports};

/// What the script of a service is called, and the variable that tells it its port.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) port: &'static str,
}

/// A service; one's own is ended and removed with this.
pub(crate) struct Service {
    script: Script,
    port: u16,
    home: Option<TempDir>,
    settings: Vec<(&'static str, String)>,
}

impl Service {
    /// The one for all tests: at the port that ends the value of `variable`, or `default`.
    pub(crate) fn shared(script: Script, variable: &str, default: &str) -> Self {
        let address = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        let port = address.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("{variable} {address} names no port"));
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            panic!("nothing on port {port} for {}; start it with scripts/services/start.sh", script.name);
        }
        Self { script, port, home: None, settings: Vec::new() }
    }

    /// One's own, with so many ports in a row; not started.
    pub(crate) fn own(script: Script, ports: u16) -> Self {
        let home = tempfile::Builder::new().prefix("hubbub-svc-").tempdir().unwrap();
        Self { script, port: free_ports(ports), home: Some(home), settings: Vec::new() }
    }

    /// Sets a variable of its script.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.settings.push((name, value.into()));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.home.is_none()
    }

    /// Where its own things are.
    pub(crate) fn home(&self) -> &Path {
        self.home.as_ref().expect("a service of one's own").path()
    }

    /// Makes certificates in its home for these names.
    pub(crate) fn make_certificates(&self, names: &str) {
        let mut command = Command::new("bash");
        command.args(["-ec", MAKE_CERTIFICATES]).env("NAMES", names).current_dir(self.home());
        let made = command.output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    /// Runs its script, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) {
        self.try_run(arguments).unwrap_or_else(|said| panic!("{} {arguments:?}: {said}", self.script.name));
    }

    pub(crate) fn try_run(&self, arguments: &[&str]) -> Result<(), String> {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services");
        let mut command = Command::new(Path::new(scripts).join(self.script.name));
        command.args(arguments).env(self.script.port, self.port.to_string());
        if let Some(home) = &self.home {
            command.env("SVC_HOME", home.path());
        }
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.is_shared() {
            // What is left is in the way of nobody.
            let _ = self.try_run(&["wipe"]);
        }
    }
}

/// A name that no other test has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
