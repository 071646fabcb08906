//! A Prometheus that scrapes a server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{Answer, Http, free_ports, or_skip, until};

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
    or_skip(is_installed, "no Prometheus here; scripts/services/install.sh installs it")
}

impl Prometheus {
    /// Scrapes `target` every second. Ready when the first scrape has succeeded.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        Self::start_all(&[target], None).await
    }

    /// The same for several targets, perhaps with a file of rules.
    pub(crate) async fn start_all(targets: &[SocketAddr], rules: Option<&Path>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
        let dir = tempfile::Builder::new().prefix("hubbub-prometheus-").tempdir().unwrap();
        let config = dir.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 2s}}\n\
             rule_files: {rules:?}\n\
             scrape_configs: [{{job_name: hubbub, static_configs: [{{targets: {targets:?}}}]}}]\n",
            rules = Vec::from_iter(rules),
            targets = targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let prometheus = Self { child, address, _dir: dir };
        until("the first scrape", async || {
            std::net::TcpStream::connect(address).is_ok()
                && prometheus.values("up").await == vec![1.0; targets.len()]
        })
        .await;
        prometheus
    }

    /// What an instant query answers, if it answers one sample; NaN is one, too.
    pub(crate) async fn value(&self, query: &str) -> Option<f64> {
        match self.values(query).await[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    /// All samples that an instant query answers.
    pub(crate) async fn values(&self, query: &str) -> Vec<f64> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}")).await;
        // Before it is ready it answers 503.
        if answer.status == 503 {
            return Vec::new();
        }
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let answer = answer.json();
        let samples = answer["data"]["result"].as_array().unwrap().iter();
        samples.filter_map(|sample| sample["value"][1].as_str()?.parse().ok()).collect()
    }

    /// Asks its API.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Http::connect(self.address).await.get(path).await
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
