//! Rows with tokens and with TLS, each beside the same without: at servers of their own, in turn in each round.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use super::paired::{Side, paired};
use super::{Bench, Row, SECRET, rounds};
use crate::client::Target;
use crate::client::access::AccessArgs;
use crate::experiments::limits::ENDLESS;
use crate::host::background_load::median_share;
use crate::host::children::tied;
use crate::host::machine::scratch;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::chat::ChatArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;

/// What the name of such a row ends with.
pub(super) const SUFFIX: &str = "-secured";

/// Share of the rate without that is left with tokens.
const SHARE_MIN: f64 = 0.95;

/// What a server asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Nothing,
    Tokens,
    Tls,
}

const GUARDS: [Guard; 3] = [Guard::Nothing, Guard::Tokens, Guard::Tls];

/// The files of a server that speaks TLS, and of the clients that know its secret.
struct Files {
    dir: TempDir,
}

impl Files {
    /// # Errors
    /// There is no `openssl`, which makes the certificate.
    async fn make(dir: &Path) -> anyhow::Result<Self> {
        let files = Self { dir: scratch("secured-", dir)? };
        std::fs::write(files.path("secret"), SECRET)?;
        let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
        let mut making = Command::new("openssl");
        making
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", names])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(files.path("key.pem"))
            .arg("-out")
            .arg(files.path("cert.pem"));
        let made = tied(&mut making)
            .output()
            .await
            .context("openssl, which makes the certificate, cannot be started")?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "openssl made no certificate: {}", said.trim());
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// What was measured at the servers of one kind.
#[derive(Default)]
struct Measured {
    side: Side,
    /// Processor time of the server for each message or operation, in microseconds.
    cpu_us: Vec<f64>,
}

impl Measured {
    fn add(&mut self, report: &Report) {
        let busy = report.cpu.as_ref().and_then(|cpu| cpu.server).unwrap_or_default();
        self.cpu_us.push(1e6 * busy / report.rate().max(1.0));
        self.side.add(report);
    }

    /// A row of it beside what was measured without.
    fn row(&self, what: String, unit: &str, without: &Self, least: Option<f64>) -> Row {
        let share = paired(&self.side.rates, &without.side.rates);
        let cpu = paired(&self.cpu_us, &without.cpu_us);
        let shown =
            |one: &Self| format!("{} {unit}, {:.2} µs each", grouped(one.side.median()), median(&one.cpu_us));
        let Side { rates, faults, noise, .. } = &self.side;
        let met = faults.is_empty() && least.is_none_or(|least| share >= least);
        let target = if least.is_some() { "≥ 95 % of without" } else { "shown" };
        let (of_rates, of_cpu) =
            (rounds(rates, |rate| grouped(*rate)), rounds(&self.cpu_us, |us| format!("{us:.2}")));
        let of_limit = without.side.faults.iter().map(|fault| format!("without: {fault}"));
        Row::new(what, shown(self), target, met)
            .against(shown(without), format!("{:.0} %", 100.0 * share))
            .noting(format!(
                "processor time of the server {:.0} % of without; rounds {of_rates} and {of_cpu} µs",
                100.0 * cpu
            ))
            .beside(&[median_share(noise), median_share(&without.side.noise)])
            .with_faults(faults.iter().cloned().chain(of_limit).collect())
    }
}

impl Bench {
    /// The row `name` at servers that ask for nothing, for tokens, and for TLS.
    pub(super) async fn secured(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        let files = Files::make(self.dir.path()).await?;
        if name == "idle" {
            return Ok(vec![self.idle_encrypted(&files).await?]);
        }
        let mut sides = GUARDS.map(|guard| (guard, Measured::default()));
        for round in 0..self.args.rounds {
            // Whoever comes first in one round comes last in another.
            sides.rotate_left(usize::from(round > 0));
            for (guard, side) in &mut sides {
                side.add(&self.guarded(name, *guard, &files).await?);
            }
        }
        sides.sort_by_key(|(guard, _)| GUARDS.iter().position(|one| one == guard));
        let [(_, without), (_, tokens), (_, tls)] = &sides;
        let unit = if name == "kv-get" { "gets/s" } else { "messages/s" };
        Ok(vec![
            tokens.row(format!("`{name}` with HS256 tokens"), unit, without, Some(SHARE_MIN)),
            tls.row(format!("`{name}` with TLS 1.3"), unit, without, None),
        ])
    }

    async fn idle_encrypted(&self, files: &Files) -> anyhow::Result<Row> {
        let (cert, key) = (files.text("cert.pem"), files.text("key.pem"));
        let server = self.fresh(&[("HUBBUB_TLS_CERT", &cert), ("HUBBUB_TLS_KEY", &key)]).await?;
        let trusting = AccessArgs { ca: Some(files.path("cert.pem")), ..AccessArgs::default() };
        let target = Target::with(&server.url, &trusting.credentials()?)?;
        self.idle_at(server, &target, "an idle WebSocket with TLS", (25.0, "≤ 25 KiB")).await
    }

    async fn guarded(&self, name: &str, guard: Guard, files: &Files) -> anyhow::Result<Report> {
        let (cert, key, secret) = (files.text("cert.pem"), files.text("key.pem"), files.text("secret"));
        let (env, access): (&[_], &[&str]) = match guard {
            Guard::Nothing => (&[], &[]),
            Guard::Tokens => (&[("HUBBUB_AUTH_SECRET", SECRET)], &["--secret-file", &secret]),
            Guard::Tls => (&[("HUBBUB_TLS_CERT", &cert), ("HUBBUB_TLS_KEY", &key)], &["--ca", &cert]),
        };
        // The same users in all of them.
        let chat = ["--own-users", "-n", ENDLESS, "--in-flight"];
        let measuring = async |server: &Server| match name {
            "chat" => self.load::<ChatArgs>(server, &[&chat[..], &["1"], access].concat()).await,
            "chat-64" => self.load::<ChatArgs>(server, &[&chat[..], &["64"], access].concat()).await,
            "http" => self.load::<HttpArgs>(server, &[&["--own-users", "--closed"], access].concat()).await,
            _ => self.load::<KvArgs>(server, &[&["get-all"], access].concat()).await,
        };
        self.fresh(env).await?.during(measuring).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds() {
        assert_eq!(paired(&[50.0, 90.0, 10.0], &[100.0, 100.0, 10.0]), 0.9);
        let side = |rates: &[f64], faults: &[&str]| {
            let mut side = Side::default();
            side.noise.push(Some(0.0));
            rates.iter().for_each(|rate| side.add_rate(*rate));
            side.faults.extend(faults.iter().map(|fault| (*fault).to_owned()));
            Measured { side, cpu_us: rates.iter().map(|rate| 1e6 / rate).collect() }
        };
        let without = side(&[100.0], &[]);
        let ok = |rate, faults: &[&str], least| {
            side(&[rate], faults).row("x".to_owned(), "gets/s", &without, least).ok
        };
        assert!(ok(95.0, &[], Some(SHARE_MIN)) && !ok(94.0, &[], Some(SHARE_MIN)));
        assert!(ok(50.0, &[], None) && !ok(50.0, &["1 refused"], None));
    }
}
