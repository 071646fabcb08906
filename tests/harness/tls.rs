//! A server that speaks TLS, and clients that do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::server::LINE_PORT;
use super::{Answer, Http, MAKE_CERTIFICATES, Server, Setup, Ws, in_time};

/// A folder of `ca.pem`, `server.crt` and `server.key`.
pub(crate) struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    /// Makes new ones beside the data directory of `setup`.
    pub(crate) fn make(setup: &Setup, name: &str) -> Self {
        Self::make_for(setup, name, "DNS:localhost")
    }

    /// The same for a server with other names: `IP:127.0.0.1`.
    pub(crate) fn make_for(setup: &Setup, name: &str, names: &str) -> Self {
        let dir = setup.beside(name);
        std::fs::create_dir(&dir).unwrap();
        let mut command = Command::new("bash");
        command.args(["-ec", MAKE_CERTIFICATES]).env("NAMES", names).current_dir(&dir);
        let made = command.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self { dir }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.dir.join(file).display().to_string()
    }

    /// The server's certificate.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.dir.join("server.crt")).unwrap()
    }

    /// Puts those of `other` in the place of these, as somebody does who renews them.
    pub(crate) fn replace_with(&self, other: &Self) {
        for file in ["server.crt", "server.key"] {
            let next = self.dir.join("next");
            std::fs::copy(other.dir.join(file), &next).unwrap();
            std::fs::rename(next, self.dir.join(file)).unwrap();
        }
    }

    /// The settings of a server that has them.
    pub(crate) fn serve(&self, setup: Setup) -> Setup {
        let setup = setup.set(&format!("tls.cert={}", self.path("server.crt")));
        setup.set(&format!("tls.key={}", self.path("server.key")))
    }
}

/// Clients that trust some authorities.
#[derive(Clone)]
pub(crate) struct TlsClient {
    connector: TlsConnector,
}

impl TlsClient {
    /// Trusts all of these.
    pub(crate) fn trusting(authorities: &[&Certificates]) -> Self {
        Self::with(authorities, None)
    }

    /// The same with a certificate of its own.
    pub(crate) fn with(authorities: &[&Certificates], own: Option<&Certificates>) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from_pem_file(authority.dir.join("ca.pem")).unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_file(own.dir.join("server.key")).unwrap();
                builder.with_client_auth_cert(vec![own.der()], key).unwrap()
            }
        };
        // Each connection sees the certificate the server has then.
        config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    pub(crate) async fn connect(&self, server: &Server) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_to(server.address()).await
    }

    /// To the port of the line protocol.
    pub(crate) async fn connect_line(&self, server: &Server) -> TlsStream<TcpStream> {
        self.connect_to(SocketAddr::new(server.address().ip(), LINE_PORT)).await.unwrap()
    }

    /// To whoever is there, who must be `localhost`.
    pub(crate) async fn connect_to(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = "localhost".try_into().unwrap();
        in_time("a TLS handshake", self.connector.connect(name, stream)).await
    }

    /// The same that chooses HTTP/2.
    pub(crate) fn with_http2(&self) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    pub(crate) async fn http(&self, server: &Server) -> Http {
        self.try_http(server).await.unwrap()
    }

    pub(crate) async fn try_http(&self, server: &Server) -> Option<Http> {
        Http::over(self.connect(server).await.ok()?, server.address()).await
    }

    pub(crate) async fn get(&self, server: &Server, path: &str) -> Answer {
        self.http(server).await.get(path).await
    }

    pub(crate) async fn ws(&self, server: &Server, path: &str) -> Ws {
        let stream = self.connect(server).await.unwrap();
        Ws::over(stream, server.address(), path).await.unwrap()
    }

    /// The certificate that a new connection gets.
    pub(crate) async fn certificate(&self, server: &Server) -> CertificateDer<'static> {
        let stream = self.connect(server).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }
}
