//! A Prometheus that scrapes a server.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{Http, free_ports, until};

/// Ended and removed with this.
pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

/// Whether its programs are installed. Under `CI=true` they must be.
pub(crate) fn has_prometheus() -> bool {
    let is_there = |name| Command::new(name).arg("--version").output().is_ok_and(|ran| ran.status.success());
    let is_installed = is_there("prometheus") && is_there("promtool");
    if !is_installed {
        let missing = "no Prometheus here; scripts/services/install.sh installs it";
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
        println!("SKIPPED: {missing}");
    }
    is_installed
}

impl Prometheus {
    /// Scrapes `target` every second. Ready when the first scrape has succeeded.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
        let dir = tempfile::Builder::new().prefix("hubbub-prometheus-").tempdir().unwrap();
        let config = dir.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: hubbub, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let prometheus = Self { child, address, _dir: dir };
        until("the first scrape", async || {
            std::net::TcpStream::connect(address).is_ok() && prometheus.value("up").await == Some(1.0)
        })
        .await;
        prometheus
    }

    /// What an instant query answers, if it answers one sample; NaN is one, too.
    pub(crate) async fn value(&self, query: &str) -> Option<f64> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = Http::connect(self.address).await.get(&format!("/api/v1/query?query={query}")).await;
        // Before it is ready it answers 503.
        if answer.status != 200 {
            return None;
        }
        let Value::Array(samples) = &answer.json()["data"]["result"] else { return None };
        match samples.as_slice() {
            [sample] => sample["value"][1].as_str()?.parse().ok(),
            _ => None,
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
