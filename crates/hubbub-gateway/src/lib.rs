//! The protocols of clients: HTTP, WebSocket and the line protocol.
//!
//! [`server::serve`] accepts connections and passes each request to [`http::route`], the table of all paths. Two of the
//! paths become WebSockets ([`ws`]). Connections to the other port speak the line protocol ([`line`]). Both are protocols
//! of [`connection`], which reads, writes and closes. Whatever a client sends is checked here by the rules of
//! `hubbub-core`. Writes go to the log, reads to the store, and live messages come from the hub.
//! Who calls, and whether that is allowed, is for [`auth`].
//!
//! Not here: stores and the forming of batches. The gateway knows no driver.

pub mod auth;
mod connection;
pub mod fetch;
#[cfg(test)]
mod fixture;
mod follow;
mod http;
mod http2;
mod incoming_memory;
mod json;
mod line;
mod outgoing_memory;
mod problem;
mod rates;
mod room_limit;
pub mod server;
mod submit;
mod tls;
mod trends;
mod ws;

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::limits::Limits;
use hubbub_core::{Clock, RandomSource, Store, Timestamp};
use hubbub_pipeline::hub::OutboxLimits;
use hubbub_pipeline::metrics::{ProcessFigures, Program};
use hubbub_pipeline::{AccessCache, Hub, Keys, Log, Metrics, Pipeline};

use auth::Auth;
pub use http::{Documents, MetricsDefault, Statistics};
pub use incoming_memory::IncomingMemory;
pub use outgoing_memory::OutgoingMemory;
pub use rates::{Rate, RateLimits, Rates};
pub use tls::{Tls, TlsOptions};
pub use ws::ENCODE;

/// What one server process is made of; shared by all its connections. Fields of a server's own are set where it is made:
/// `Gateway { name, ..Gateway::new(pipeline, log, auth) }`.
pub struct Gateway {
    /// Names this server, for people who have several.
    pub name: String,
    /// Where messages go.
    pub log: Arc<Log>,
    /// Where they are read from.
    pub store: Arc<dyn Store>,
    /// Who calls, and what they may.
    pub auth: Arc<Auth>,
    /// Live delivery.
    pub hub: Arc<Hub>,
    /// Who may read what.
    pub members: Arc<AccessCache>,
    /// Values of keys, in memory and from the store.
    pub keys: Arc<Keys>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The program itself, in `/metrics`.
    pub program: Program,
    /// What clients may send.
    pub limits: Limits,
    /// How far a subscriber may lag behind.
    pub outbox: OutboxLimits,
    /// Time-outs and numbers of connections.
    pub server: ServerLimits,
    /// What all connections hold of what has not arrived whole.
    pub incoming_memory: Arc<IncomingMemory>,
    /// What clients have not taken, of all connections.
    pub outgoing_memory: Arc<OutgoingMemory>,
    /// How much each user and address may ask for.
    pub rates: Rates,
    /// What encrypts connections, if anything does.
    pub tls: Option<Arc<Tls>>,
    /// Sites whose pages may act here, besides the server's own: `https://chat.example`.
    pub allowed_origins: Vec<String>,
    /// Whether requests to names of sites that are not listed are refused: where no token is asked for, unless anybody may call.
    pub checks_hosts: bool,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For ids the server makes.
    pub random: Arc<dyn RandomSource>,
    /// Rates, and what statistics answer by default.
    pub statistics: Statistics,
    /// What is served besides the API.
    pub compat: Option<Compat>,
    /// Whether there is anything for clients; otherwise only for those who watch the server.
    pub serves_clients: bool,
    /// The API described, once somebody asked.
    pub documents: Documents,
}

/// An interface of another kind, for clients that were written for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// Users, chats and messages as HTML forms.
    Chats,
}

/// Limits on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections open at once.
    pub connections: usize,
    /// Time for a request's header to arrive, and for an idle keep-alive connection's next one.
    pub header_timeout: Duration,
    /// Time for a request's body to arrive, and for a message of a WebSocket.
    pub body_timeout: Duration,
    /// Time until a client takes more of an answer over HTTP/1.1.
    pub write_timeout: Duration,
    /// Time between pings on a WebSocket.
    pub ping_interval: Duration,
    /// Time for the pong.
    pub pong_timeout: Duration,
    /// Time for the terms of a command of the line protocol to follow it.
    pub terms_timeout: Duration,
    /// Time for connections to finish at shutdown.
    pub drain_timeout: Duration,
    /// At shutdown, clients are told to reconnect after a random part of it.
    pub reconnect_spread: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 50_000,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(25),
            pong_timeout: Duration::from_secs(10),
            terms_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            reconnect_spread: Duration::from_secs(5),
        }
    }
}

impl Gateway {
    /// A server that begins now, has no name, and is limited as by the default settings.
    pub fn new(pipeline: Pipeline, log: impl Into<Arc<Log>>, auth: Auth) -> Self {
        let Pipeline { store, hub, members, keys, clock, random, metrics, .. } = pipeline;
        Self {
            name: String::new(),
            log: log.into(),
            store,
            auth: Arc::new(auth),
            hub,
            members,
            keys,
            program: Program { version: "", revision: "", figures: ProcessFigures::default },
            limits: Limits::default(),
            outbox: OutboxLimits::default(),
            server: ServerLimits::default(),
            incoming_memory: IncomingMemory::new(IncomingMemory::DEFAULT_BYTES, metrics.clone()),
            outgoing_memory: OutgoingMemory::new(OutgoingMemory::DEFAULT_BYTES, metrics.clone()),
            metrics,
            rates: Rates::default(),
            tls: None,
            allowed_origins: Vec::new(),
            checks_hosts: false,
            statistics: Statistics::new(MetricsDefault::Prometheus, clock.monotonic()),
            clock,
            random,
            compat: None,
            serves_clients: true,
            documents: Documents::default(),
        }
    }

    /// When a client that is sent away by a shutdown is to reconnect, in milliseconds from then: a random part of the spread,
    /// so that clients do not reach the other servers all at once.
    pub(crate) fn reconnect_after_ms(&self) -> u64 {
        let spread: u64 = hubbub_core::invariant::saturate(self.server.reconnect_spread.as_millis());
        self.random.next_u64() % spread.saturating_add(1).max(1)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A message id for a sender that gave none.
    fn make_id(&self, now: Timestamp) -> String {
        let mut id = String::with_capacity(36);
        hubbub_core::id::write_uuid_v7(now, &*self.random, &mut id);
        id
    }
}
