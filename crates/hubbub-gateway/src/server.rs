//! Accepting connections, and letting them finish at shutdown.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::LogLimit;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::auth::LastToken;
use crate::connection::patient::PatientStream;
use crate::connection::stream::Stream;
use crate::http::SAMPLE_INTERVAL;
use crate::outgoing_memory::Reader;
use crate::rates::OpenConnection;
use crate::tls::Spoken;
use crate::{Gateway, http, http2, line};

/// Pause after a failed accept, as when file descriptors run out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Most bytes of a request's header.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Signals the shutdown to connections, and to the server that the last of them has ended.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    stop: watch::Receiver<bool>,
    /// Never sent on: when the last clone is dropped, the last connection has ended.
    _alive: mpsc::Sender<()>,
}

pub(crate) struct Stopper {
    stop: watch::Sender<bool>,
    alive: mpsc::Receiver<()>,
}

impl Stopper {
    pub(crate) fn stop(&self) {
        // Receivers may all be gone, when there is no connection.
        let _ = self.stop.send(true);
    }

    async fn all_gone(&mut self) {
        let _ = self.alive.recv().await;
    }
}

impl Shutdown {
    pub(crate) fn new() -> (Stopper, Self) {
        let (stopper, stop) = watch::channel(false);
        let (alive, receiver) = mpsc::channel(1);
        (Stopper { stop: stopper, alive: receiver }, Self { stop, _alive: alive })
    }

    /// Whether the server shuts down. Cheap: the value never changes for another reason.
    pub(crate) fn is_requested(&self) -> bool {
        self.stop.has_changed().unwrap_or(true)
    }

    pub(crate) async fn requested(&mut self) {
        // An error means that the server is gone already.
        let _ = self.stop.wait_for(|stop| *stop).await;
    }
}

/// One TCP connection, for as long as anything of it is alive: its HTTP requests, then perhaps its WebSocket.
pub(crate) struct Peer {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) shutdown: Shutdown,
    /// Where it comes from: the client, or a proxy before it.
    pub(crate) address: IpAddr,
    pub(crate) last_token: LastToken,
    /// The client, as the one who takes what it is sent.
    pub(crate) reader: Arc<Reader>,
    /// One of the connections of its address.
    _open: OpenConnection,
    /// One of the connections that may be open at once.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.gateway.metrics.connections.dec();
    }
}

/// Where clients connect.
#[derive(Debug)]
pub struct Listeners {
    /// HTTP and WebSocket.
    pub http: TcpListener,
    /// The line protocol, if it is wanted.
    pub line: Option<TcpListener>,
}

impl Listeners {
    /// The next connection. Nothing is lost when the wait is given up.
    async fn accept(&self) -> io::Result<((TcpStream, SocketAddr), Spoken)> {
        let line = async {
            match &self.line {
                Some(line) => line.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.http.accept() => accepted.map(|accepted| (accepted, Spoken::Http)),
            accepted = line => accepted.map(|accepted| (accepted, Spoken::Line)),
        }
    }
}

/// Serves until `stop` resolves to how long connections may take to finish what they had begun; then the log commits it.
///
/// After it returned nothing refers to the listeners any more, everything accepted is durable and answered, and
/// WebSockets are closed with 1001. Connections that do not finish in time are dropped.
pub async fn serve(gateway: Arc<Gateway>, listeners: Listeners, stop: impl Future<Output = Duration>) {
    let (mut stopper, shutdown) = Shutdown::new();
    let permits = Arc::new(Semaphore::new(gateway.server.connections));
    tokio::pin!(stop);
    let mut sampling = tokio::time::interval(SAMPLE_INTERVAL);
    sampling.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let drain_timeout = loop {
        let ((stream, address), spoken) = tokio::select! {
            drain_timeout = &mut stop => break drain_timeout,
            _ = sampling.tick() => {
                gateway.statistics.sample(&gateway.metrics, gateway.clock.monotonic());
                gateway.statistics.trends.sample(&gateway);
                continue;
            }
            accepted = listeners.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tell_not_accepted(&error, gateway.clock.monotonic());
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            },
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            gateway.metrics.connections_refused.inc();
            continue;
        };
        let address = address.ip();
        let Some(open) = gateway.rates.connect(address, gateway.clock.monotonic()) else {
            gateway.metrics.connections_refused_by_address.inc();
            continue;
        };
        gateway.metrics.connections.inc();
        let (gateway, shutdown) = (gateway.clone(), shutdown.clone());
        let last_token = LastToken::default();
        let reader = Reader::new(&gateway.outgoing_memory);
        let peer = Peer { gateway, shutdown, address, last_token, reader, _open: open, _permit: permit };
        match spoken {
            Spoken::Http => tokio::spawn(serve_http(Arc::new(peer), stream)),
            Spoken::Line => tokio::spawn(serve_line(peer, stream)),
        };
    };
    drop(listeners);
    drop(shutdown);
    stopper.stop();
    if tokio::time::timeout(drain_timeout, stopper.all_gone()).await.is_err() {
        tracing::warn!("some connections did not finish in time and are dropped");
    }
    gateway.log.close().await;
}

fn tell_not_accepted(error: &io::Error, now: Duration) {
    static LINES: LogLimit = LogLimit::new();
    if let Some(left_out) = LINES.next(now) {
        let pause = ACCEPT_BACKOFF.as_millis();
        tracing::warn!(%error, left_out, "accepting a connection failed; trying again in {pause} ms");
    }
}

/// The stream of a connection that was accepted: encrypted if it is to be. `None` when the handshake failed, or at shutdown.
async fn open(peer: &Peer, stream: TcpStream, spoken: Spoken) -> Option<Stream> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = peer.gateway.tls.as_ref().filter(|tls| tls.covers(spoken)) else {
        return Some(stream.into());
    };
    let mut shutdown = peer.shutdown.clone();
    // Boxed, so that connections without TLS do not reserve room for a handshake.
    let handshake = Box::pin(tls.accept(stream, spoken, &peer.gateway.metrics));
    tokio::select! {
        accepted = handshake => match accepted {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
        },
        () = shutdown.requested() => None,
    }
}

async fn serve_line(peer: Peer, stream: TcpStream) {
    if let Some(stream) = open(&peer, stream, Spoken::Line).await {
        line::serve(&peer, stream).await;
    }
}

async fn serve_http(peer: Arc<Peer>, stream: TcpStream) {
    let Some(stream) = open(&peer, stream, Spoken::Http).await else { return };
    let gateway = peer.gateway.clone();
    let result = if stream.is_http2() {
        // Boxed, so that other connections do not reserve room for it.
        Box::pin(http2::serve(peer, stream)).await
    } else {
        serve_http1(peer, stream).await
    };
    if let Err(error) = result {
        gateway.metrics.connections_timed_out.inc_by(u64::from(is_timeout(&error)));
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether the client took too long: to send a header, or to take its answer.
fn is_timeout(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.is_timeout() || source.is_some_and(|source| source.kind() == io::ErrorKind::TimedOut)
}

async fn serve_http1(peer: Arc<Peer>, stream: Stream) -> hyper::Result<()> {
    let mut shutdown = peer.shutdown.clone();
    let gateway = peer.gateway.clone();
    let stream = PatientStream::new(stream, gateway.server.write_timeout, peer.reader.clone());
    let service = service_fn(move |request| {
        let peer = peer.clone();
        async move { Ok::<_, Infallible>(http::route(&peer, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(gateway.server.header_timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(serving);
    tokio::select! {
        result = serving.as_mut() => result,
        () = shutdown.requested() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    }
}
