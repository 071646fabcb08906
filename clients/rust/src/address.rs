//! The address of a server, and connections to it, with TLS or without.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::dial::dial;
use crate::error::Error;

/// A connection, with TLS or without.
pub type Stream = Box<dyn Io>;

/// What a connection is read from and written to.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Io for T {}

/// A server's address: `localhost:8080`, `8080` alone for a port of this machine, or a URL, which may have a path before those of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    is_encrypted: bool,
    host: String,
    port: u16,
    prefix: String,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| {
            Error::new("invalid", "must be a URL such as http://127.0.0.1:8080 or https://chat.example")
        })
    }
}

fn parse(text: &str) -> Option<Address> {
    let is_port = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = if is_port { &format!("127.0.0.1:{text}") } else { text };
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = url.parse().ok()?;
    let is_encrypted = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return None,
    };
    let authority = uri.authority().filter(|authority| !authority.host().is_empty())?;
    // Without a scheme, a name alone is rather a typo than a host on port 80.
    if authority.port_u16().is_none() && (!text.contains("://") || authority.as_str().contains(':')) {
        return None;
    }
    Some(Address {
        is_encrypted,
        host: authority.host().to_owned(),
        port: authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 }),
        prefix: uri.path().trim_end_matches('/').to_owned(),
    })
}

/// The address as a URL, always with its port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

impl Address {
    /// Host and port.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same, without the port that the scheme implies: the header `Host`.
    pub fn host_header(&self) -> String {
        let implied = if self.is_encrypted { 443 } else { 80 };
        if self.port == implied { self.host.clone() } else { self.authority() }
    }

    /// Prefix of every path: empty, or starting with a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it is reached with TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Whether others may read what is sent: without TLS, and not to this machine.
    pub fn shows_secrets(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let is_here = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        !self.is_encrypted && !is_here
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `unreachable` if nobody listens there or TLS fails, `invalid` if TLS cannot be used at all. No time limit.
    pub async fn connect(&self) -> Result<Stream, Error> {
        let authority = self.authority();
        let failed = |error| {
            Error::unreachable(format!("cannot reach the server at {authority}; is it running? {error}"))
        };
        let stream = dial(&authority).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if self.is_encrypted { self.encrypt(stream).await } else { Ok(Box::new(stream)) }
    }

    /// Trusts the system's certificates, or those of the file that `SSL_CERT_FILE` names.
    #[cfg(feature = "tls")]
    async fn encrypt(&self, stream: TcpStream) -> Result<Stream, Error> {
        use std::sync::{Arc, LazyLock};

        use rustls::pki_types::ServerName;
        use rustls::{ClientConfig, RootCertStore};

        // Read once: there are hundreds.
        static CONFIG: LazyLock<Result<Arc<ClientConfig>, rustls::Error>> = LazyLock::new(|| {
            let mut roots = RootCertStore::empty();
            // Without any, the check of the server's certificate fails, and says so.
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config =
                ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
        });

        let config = CONFIG.as_ref();
        let config = config.map_err(|error| Error::new("invalid", format!("TLS cannot be used: {error}")))?;
        // In a URL, an IPv6 address stands in brackets.
        let name = self.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name)
            .map_err(|_| Error::new("invalid", format!("{} is no name", self.host)))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            Error::unreachable(format!(
                "TLS with {} failed; is it an https:// address, and its certificate trusted here? (SSL_CERT_FILE): \
                 {error}",
                self.authority()
            ))
        })?;
        Ok(Box::new(stream))
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_async, reason = "the other one waits")]
    async fn encrypt(&self, _: TcpStream) -> Result<Stream, Error> {
        Err(Error::new("invalid", "this program was built without TLS: build it with it, or use http://"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_host_and_port() {
        let url = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for (text, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("28100", "http://127.0.0.1:28100"),
            ("localhost:8080/chat/", "http://localhost:8080/chat"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("https://chat.example", "https://chat.example:443"),
            ("https://chat.example:8443/hub", "https://chat.example:8443/hub"),
            ("http://chat.example", "http://chat.example:80"),
        ] {
            assert_eq!(url(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "nonsense",
            "ftp://x",
            "http://",
            "localhost:port",
            "http://a b",
            "http://h:99999",
            ":80",
            "99999",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }
    #[test]
    fn only_plain_text_over_a_network_shows_secrets() {
        let shows = |text: &str| text.parse::<Address>().unwrap().shows_secrets();
        for text in ["localhost:1", "127.9.9.9:1", "[::1]:1", "https://chat.example", "LocalHost:8080"] {
            assert!(!shows(text), "{text}");
        }
        for text in ["http://chat.example", "10.0.0.1:8080", "localhost.example:1", "[2001:db8::1]:80"] {
            assert!(shows(text), "{text}");
        }
    }
}
