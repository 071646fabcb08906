//! The certificate's files: read at the start, at SIGHUP, and whenever they change.
//!
//! Files that cannot be used leave the certificate in use as it is; the log and `/health` say why. They are tried again
//! until they can be used, since whoever replaces two files does so one after the other.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use hubbub_gateway::{Tls, TlsOptions};
use hubbub_pipeline::Metrics;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{ClientAuth, Config, ConfigError};

/// Interval in which the files are compared with what they were.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where the certificate is, and whom to trust.
#[derive(Debug, Clone)]
struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<(PathBuf, ClientAuth)>,
}

/// What tells a file from a changed one: its time of change, length and inode. `None` = it is not there.
type Stamp = Option<(SystemTime, u64, u64)>;

/// TLS as configured, and the task that keeps its certificate current. `None` without a certificate.
pub(crate) async fn start(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some(files) = TlsFiles::of(config) else { return Ok(None) };
    let options = TlsOptions {
        with_line: *config.tls_line,
        handshake_timeout: *config.tls_handshake_timeout,
        handshakes: *config.tls_handshakes,
    };
    let stamps = files.stamps();
    let tls = Arc::new(Tls::new(files.load()?, options));
    let hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    tokio::spawn(keep_current(files, stamps, hangup, tls.clone(), metrics.clone()));
    Ok(Some(tls))
}

/// Whether the files can be used, if there are any.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    TlsFiles::of(config).map_or(Ok(()), |files| files.load_as_configured().map(drop))
}

async fn keep_current(
    files: TlsFiles,
    mut stamps: Vec<Stamp>,
    mut hangup: tokio::signal::unix::Signal,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
) {
    let mut is_current = true;
    loop {
        let is_requested = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let (files, before) = (files.clone(), std::mem::take(&mut stamps));
        let read = tokio::task::spawn_blocking(move || {
            // Before reading: what changes meanwhile is read once more.
            let stamps = files.stamps();
            let is_due = is_requested || !is_current || stamps != before;
            (stamps, is_due.then(|| files.load()))
        });
        let Ok((now, loaded)) = read.await else { continue };
        stamps = now;
        match loaded {
            None => {}
            Some(Ok(config)) => {
                tls.replace(config);
                is_current = true;
                tracing::info!("the TLS certificate was read again; new connections use it");
            }
            Some(Err(error)) => {
                is_current = false;
                let fault = format!("{error:#}");
                if tls.set_fault(fault.clone()) {
                    metrics.tls_reloads_failed.inc();
                    tracing::error!(
                        "keeping the old TLS certificate, since the new one cannot be used: {fault}"
                    );
                }
            }
        }
    }
}

impl TlsFiles {
    fn of(config: &Config) -> Option<Self> {
        let client_ca = config.tls_client_ca.as_ref();
        Some(Self {
            cert: config.tls_cert.as_ref()?.into(),
            key: config.tls_key.as_ref()?.into(),
            client_ca: client_ca.map(|path| (path.into(), *config.tls_client_auth)),
        })
    }

    fn stamps(&self) -> Vec<Stamp> {
        let client_ca = self.client_ca.iter().map(|(path, _)| path);
        let files = [&self.cert, &self.key].into_iter().chain(client_ca);
        files
            .map(|path| {
                let metadata = std::fs::metadata(path).ok()?;
                Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
            })
            .collect()
    }

    /// Of files that cannot be used, a check of the configuration says so. To a start they are no wrong configuration: somebody may be
    /// replacing them, or their volume comes late, and another start mends it.
    fn load_as_configured(&self) -> Result<ServerConfig, ConfigError> {
        self.load().map_err(|error| ConfigError(vec![format!("{error:#}")]))
    }

    fn load(&self) -> anyhow::Result<ServerConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates("tls.cert", &self.cert)?;
        let key = open("tls.key", &self.key)?;
        let key = PrivateKeyDer::from_pem_reader(key)
            .with_context(|| format!("tls.key: {} holds no private key in PEM", self.key.display()))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .context("choosing the versions of TLS")?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some((path, auth)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("tls.client_ca", path)? {
                    roots.add(certificate).with_context(|| {
                        format!("tls.client_ca: {} holds a certificate that cannot be used", path.display())
                    })?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match auth {
                    ClientAuth::Required => verifier,
                    ClientAuth::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().context("tls.client_ca")?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).with_context(|| {
            format!("tls.cert: {} and tls.key: {}", self.cert.display(), self.key.display())
        })?;
        // Sessions are resumed by tickets, which cost no memory; a new configuration takes none of an older one.
        config.ticketer = aws_lc_rs::Ticketer::new().context("making the key of session tickets")?;
        Ok(config)
    }
}

fn certificates(key: &str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_reader_iter(open(key, path)?).collect::<Result<Vec<_>, _>>();
    let found = found.with_context(|| format!("{key}: {} is not valid PEM", path.display()))?;
    if found.is_empty() {
        bail!("{key}: {} holds no certificate in PEM", path.display());
    }
    Ok(found)
}

fn open(key: &str, path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("{key}: cannot read {}", path.display()))?;
    Ok(BufReader::new(file))
}
