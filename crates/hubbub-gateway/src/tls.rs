//! TLS in front of both protocols: the certificates that new connections get, and the handshakes under way.
//!
//! Invariants
//! - A replaced certificate concerns new handshakes only. Connections keep what they began with.
//! - Handshakes end: by themselves, after a time-out, or because too many newer ones are under way. A client that does not
//!   finish its handshake keeps nobody else out.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hubbub_pipeline::Metrics;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::connection::stream::Stream;

/// What HTTP and WebSocket negotiate by ALPN.
const HTTP_ALPN: &[u8] = b"http/1.1";
/// What the line protocol negotiates. Clients that offer nothing are taken, too. Browsers always offer something else, so a
/// page cannot have one talk to the line protocol with the certificate of the site.
const LINE_ALPN: &[u8] = b"hubbub-line";

/// What connections begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http,
    Line,
}

/// Limits of handshakes, and what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether the line protocol is encrypted, too.
    pub with_line: bool,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; the oldest is given up for one more.
    pub handshakes: usize,
}

/// The server's side of TLS.
pub struct Tls {
    options: TlsOptions,
    configs: Mutex<Configs>,
    under_way: Mutex<Handshakes>,
    /// Why the files are not in use as they are now.
    fault: Mutex<Option<String>>,
}

#[derive(Clone)]
struct Configs {
    http: Arc<ServerConfig>,
    line: Arc<ServerConfig>,
}

impl Configs {
    fn new(config: ServerConfig) -> Self {
        let with = |alpn: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![alpn.to_vec()];
            Arc::new(config)
        };
        Self { http: with(HTTP_ALPN), line: with(LINE_ALPN) }
    }
}

/// Handshakes under way by the order of their beginning. Dropping the sender gives one up.
#[derive(Default)]
struct Handshakes {
    begun: u64,
    under_way: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Tls {
    /// `config` says which certificate, and whom to trust.
    pub fn new(config: ServerConfig, options: TlsOptions) -> Self {
        Self {
            options,
            configs: Mutex::new(Configs::new(config)),
            under_way: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    /// Uses another certificate from the next handshake on.
    pub fn replace(&self, config: ServerConfig) {
        *self.configs.lock() = Configs::new(config);
        *self.fault.lock() = None;
    }

    /// Notes why the certificate could not be replaced. Returns whether this was not known yet.
    pub fn set_fault(&self, fault: String) -> bool {
        let mut current = self.fault.lock();
        let is_new = current.as_ref() != Some(&fault);
        *current = Some(fault);
        is_new
    }

    /// Why the certificate in use is not that of the files.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(crate) fn covers(&self, spoken: Spoken) -> bool {
        spoken == Spoken::Http || self.options.with_line
    }

    /// The encrypted connection; an error when there is none.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        spoken: Spoken,
        metrics: &Metrics,
    ) -> io::Result<Stream> {
        let configs = self.configs.lock().clone();
        let config = match spoken {
            Spoken::Http => configs.http,
            Spoken::Line => configs.line,
        };
        let (place, given_up) = self.begin();
        let handshake = TlsAcceptor::from(config).accept(stream);
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(self.options.handshake_timeout, handshake) => {
                accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            _ = given_up => Err(io::Error::other("too many handshakes are under way")),
        };
        drop(place);
        match accepted {
            Ok(stream) => {
                metrics.tls_handshakes.inc();
                Ok(Stream::Tls(Box::new(stream)))
            }
            Err(error) => {
                metrics.tls_handshakes_failed.inc();
                Err(error)
            }
        }
    }

    /// Registers a handshake, for which the oldest may be given up. The receiver resolves when this one is.
    fn begin(&self) -> (Place<'_>, oneshot::Receiver<()>) {
        let (sender, given_up) = oneshot::channel();
        let mut handshakes = self.under_way.lock();
        if handshakes.under_way.len() >= self.options.handshakes {
            handshakes.under_way.pop_first();
        }
        handshakes.begun += 1;
        let number = handshakes.begun;
        handshakes.under_way.insert(number, sender);
        (Place { tls: self, number }, given_up)
    }
}

/// One of the handshakes under way.
struct Place<'a> {
    tls: &'a Tls,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.tls.under_way.lock().under_way.remove(&self.number);
    }
}
