//! A TCP connection, with or without TLS. The state of TLS is behind a pointer.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// The left one is plain.
pub(crate) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// What encrypts the connections to a server.
#[derive(Debug, Clone)]
pub(crate) struct Encryption {
    pub(crate) config: Arc<ClientConfig>,
    /// Whose certificate it must be.
    pub(crate) name: ServerName<'static>,
}

/// Encrypts a connection, if `encryption` says so.
pub(crate) async fn encrypted(stream: TcpStream, encryption: Option<&Encryption>) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    let Some(Encryption { config, name }) = encryption else { return Ok(Either::Left(stream)) };
    let connected = TlsConnector::from(config.clone()).connect(name.clone(), stream).await?;
    Ok(Either::Right(Box::new(connected)))
}
