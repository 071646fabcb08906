//! The address of a server, and connections to it, with TLS or without.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use hyper::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::connection::{TIMEOUT, in_time};
use crate::output::notice;

/// The variable with a token.
const TOKEN: &str = "HUBBUB_TOKEN";

/// A connection.
pub(crate) type Stream = Box<dyn Io>;

/// What a connection is read from and written to.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A server's address, as `--server` names it: `localhost:8080`, or a URL.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    is_encrypted: bool,
    host: String,
    port: u16,
    /// Prefix of every path: empty, or starting with a slash.
    pub(crate) prefix: String,
    authorization: Option<Authorization>,
}

/// The value of the header, which is not to be shown.
#[derive(Clone)]
struct Authorization(String);

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const RULE: &str = "must be a URL such as http://127.0.0.1:8080 or https://chat.example";
        let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = url.parse().map_err(|_| RULE.to_owned())?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(RULE.to_owned()),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| RULE.to_owned())?;
        // Without a scheme, a name alone is rather a typo than a host on port 80.
        if authority.port_u16().is_none() && (!text.contains("://") || authority.as_str().contains(':')) {
            return Err(RULE.to_owned());
        }
        Ok(Self {
            is_encrypted,
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 }),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            authorization: None,
        })
    }
}

impl Server {
    /// Calls the server with the token of a file, else of the environment, if there is one.
    pub(crate) fn with_token(self, file: Option<&Path>) -> anyhow::Result<Self> {
        let authorization = token(file)?.map(|token| Authorization(format!("Bearer {token}")));
        if authorization.is_some() && self.shows_secrets() {
            notice(&format!(
                "the token goes to {} without encryption: everybody on the way can read and use it; use https://",
                self.url()
            ));
        }
        Ok(Self { authorization, ..self })
    }

    /// Whether others may read what is sent: without TLS, and not to this machine.
    fn shows_secrets(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let is_here = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        !self.is_encrypted && !is_here
    }

    /// The value of `Authorization`, if there is a token.
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.authorization.as_ref().map(|authorization| authorization.0.as_str())
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same, without the port that the scheme implies.
    pub(crate) fn host_header(&self) -> String {
        let implied = if self.is_encrypted { 443 } else { 80 };
        if self.port == implied { self.host.clone() } else { self.authority() }
    }

    /// The address as a URL.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.prefix)
    }

    pub(crate) async fn connect_stream(&self) -> anyhow::Result<Stream> {
        let authority = self.authority();
        let stream = in_time(TIMEOUT, TcpStream::connect(&authority)).await.with_context(|| {
            format!("cannot reach the server at {authority}; is it running? (hubbub serve, --server)")
        })?;
        stream.set_nodelay(true)?;
        if !self.is_encrypted {
            return Ok(Box::new(stream));
        }
        self.encrypt(stream).await
    }

    /// Trusts the system's certificates, or those of the file that `SSL_CERT_FILE` names.
    #[cfg(feature = "https")]
    async fn encrypt(&self, stream: TcpStream) -> anyhow::Result<Stream> {
        use std::sync::Arc;

        use rustls::pki_types::ServerName;
        use rustls::{ClientConfig, RootCertStore};

        let mut roots = RootCertStore::empty();
        // Without any, the check of the server's certificate fails, and says so.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("TLS cannot be used")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // In a URL, an IPv6 address stands in brackets.
        let name = self.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).with_context(|| format!("{} is no name", self.host))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = in_time(TIMEOUT, connector.connect(name, stream)).await.with_context(|| {
            format!(
                "TLS with {} failed; is it an https:// address, and its certificate trusted here? (SSL_CERT_FILE)",
                self.authority()
            )
        })?;
        Ok(Box::new(stream))
    }

    #[cfg(not(feature = "https"))]
    #[allow(clippy::unused_async, reason = "the other one waits")]
    async fn encrypt(&self, _: TcpStream) -> anyhow::Result<Stream> {
        anyhow::bail!("this hubbub was built without TLS: build it with the feature https, or use http://")
    }
}

/// The token of a file, else of the environment.
fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let token = match file {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?,
        None => std::env::var(TOKEN).unwrap_or_default(),
    };
    let token = token.trim();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("--token-file or {TOKEN}: a token has no spaces and nothing beyond ASCII");
    }
    Ok(Some(token).filter(|token| !token.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_host_and_port() {
        let url = |text: &str| text.parse::<Server>().map(|server| server.url());
        for (text, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("localhost:8080/chat/", "http://localhost:8080/chat"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("https://chat.example", "https://chat.example:443"),
            ("https://chat.example:8443/hub", "https://chat.example:8443/hub"),
            ("http://chat.example", "http://chat.example:80"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
        for text in
            ["", "nonsense", "ftp://x", "http://", "localhost:port", "http://a b", "http://h:99999", ":80"]
        {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_plain_text_over_a_network_shows_secrets() {
        let shows = |text: &str| text.parse::<Server>().unwrap().shows_secrets();
        for text in [
            "localhost:1",
            "127.0.0.1:1",
            "http://127.9.9.9:1",
            "[::1]:1",
            "https://chat.example",
            "LocalHost:8080",
        ] {
            assert!(!shows(text), "{text}");
        }
        for text in ["http://chat.example", "10.0.0.1:8080", "localhost.example:1", "[2001:db8::1]:80"] {
            assert!(shows(text), "{text}");
        }
    }
}
