//! TLS in front of both protocols: the certificates that new connections get, and the handshakes under way.
//!
//! Invariants
//! - A replaced certificate concerns new handshakes only. Connections keep what they began with.
//! - Handshakes under way are bounded. One more waits for a place, or takes that of the oldest once it seems stalled. So a
//!   client that does not finish its handshake keeps nobody else out, and many that come at once do not end each other's.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hubbub_pipeline::Metrics;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::connection::stream::{HTTP2_ALPN, Stream};

/// A handshake that takes longer may be given up for another. On one core, some thousand can be done in that time.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// What HTTP and WebSocket negotiate by ALPN, the preferred one first. WebSockets need the second.
const HTTP_ALPN: &[&[u8]] = &[HTTP2_ALPN, b"http/1.1"];
/// What the line protocol negotiates. Clients that offer nothing are taken, too. Browsers always offer something else, so a
/// page cannot have one talk to the line protocol with the certificate of the site.
const LINE_ALPN: &[&[u8]] = &[b"hubbub-line"];

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
    /// Time for a handshake, and to wait for a place for it.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once.
    pub handshakes: usize,
}

/// The server's side of TLS.
pub struct Tls {
    options: TlsOptions,
    configs: Mutex<Configs>,
    under_way: Mutex<Handshakes>,
    has_ended: Notify,
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
        let with = |alpn: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Self { http: with(HTTP_ALPN), line: with(LINE_ALPN) }
    }
}

/// Handshakes under way by the order of their beginning. Dropping the sender gives one up.
#[derive(Default)]
struct Handshakes {
    begun: u64,
    under_way: BTreeMap<u64, Handshake>,
}

struct Handshake {
    began_at: Instant,
    _give_up: oneshot::Sender<()>,
}

impl Tls {
    /// `config` says which certificate, and whom to trust.
    pub fn new(config: ServerConfig, options: TlsOptions) -> Self {
        Self {
            options,
            configs: Mutex::new(Configs::new(config)),
            under_way: Mutex::default(),
            has_ended: Notify::new(),
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
        let handshake = async {
            let (_handshake, given_up) = self.begin().await;
            tokio::select! {
                accepted = TlsAcceptor::from(config).accept(stream) => accepted,
                _ = given_up => Err(io::Error::other("it took long, and others waited for its place")),
            }
        };
        let accepted = timeout(self.options.handshake_timeout, handshake).await;
        match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
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

    /// Registers a handshake once there is a place. The receiver resolves when it is given up.
    async fn begin(&self) -> (HandshakeUnderWay<'_>, oneshot::Receiver<()>) {
        loop {
            let retry_at = match self.try_begin(Instant::now()) {
                Ok(begun) => return begun,
                Err(retry_at) => retry_at,
            };
            // Whatever comes first: one ends, or the oldest seems stalled.
            let _ = tokio::time::timeout_at(retry_at, self.has_ended.notified()).await;
        }
    }

    /// Without a place, the error says when the oldest will seem stalled.
    fn try_begin(&self, now: Instant) -> Result<(HandshakeUnderWay<'_>, oneshot::Receiver<()>), Instant> {
        let mut handshakes = self.under_way.lock();
        if handshakes.under_way.len() >= self.options.handshakes
            && let Some(oldest) = handshakes.under_way.first_entry()
        {
            let stalled_at = oldest.get().began_at + STALLED_AFTER;
            if now < stalled_at {
                return Err(stalled_at);
            }
            oldest.remove();
        }
        let (give_up, given_up) = oneshot::channel();
        handshakes.begun += 1;
        let number = handshakes.begun;
        handshakes.under_way.insert(number, Handshake { began_at: now, _give_up: give_up });
        Ok((HandshakeUnderWay { tls: self, number }, given_up))
    }
}

/// One of the handshakes under way.
struct HandshakeUnderWay<'a> {
    tls: &'a Tls,
    number: u64,
}

impl Drop for HandshakeUnderWay<'_> {
    fn drop(&mut self) {
        self.tls.under_way.lock().under_way.remove(&self.number);
        self.tls.has_ended.notify_one();
    }
}
