//! TLS of a client of a database: which authorities it trusts, and the certificate it shows, from PEM files.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Why TLS cannot be used. It names the setting and the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// Files of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates to trust; `None` = the system's.
    pub ca: Option<PathBuf>,
    /// The client's own certificate, with those between it and the authority; needs `key`.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads the files. `prefix` begins the names of their settings, as in `store.postgres`.
    pub fn client(&self, prefix: &str) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(format!("TLS cannot be used: {error}")))?
            .with_root_certificates(self.roots(prefix)?);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(cert).map_err(|error| broken(prefix, "cert", cert, &error))?;
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|error| broken(prefix, "key", key, &error))?;
        builder.with_client_auth_cert(chain, private).map_err(|error| broken(prefix, "cert", cert, &error))
    }

    fn roots(&self, prefix: &str) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            // If the system has none, the check of the server's certificate fails.
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        let trusted = certificates(path).map_err(|error| broken(prefix, "ca", path, &error))?;
        for certificate in trusted {
            roots.add(certificate).map_err(|error| broken(prefix, "ca", path, &error))?;
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if all.is_empty() { Err("it contains no PEM certificate".to_owned()) } else { Ok(all) }
}

fn broken(prefix: &str, setting: &str, path: &Path, error: &dyn Display) -> TlsError {
    let what = if setting == "key" { "private key" } else { "certificates" };
    TlsError(format!("the {what} of {prefix}.{setting} ({}) cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_setting_and_file() {
        let none = TlsFiles::default();
        assert!(none.client("store.x").is_ok());
        let here = Some(PathBuf::from(file!()));
        for (files, setting) in [
            (TlsFiles { ca: Some("/no/such".into()), ..TlsFiles::default() }, "store.x.ca (/no/such)"),
            (TlsFiles { cert: here.clone(), key: here, ..TlsFiles::default() }, "store.x.cert ("),
        ] {
            let error = files.client("store.x").err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(setting)), "{error:?}");
        }
    }
}
