//! `hubbub serve`: wires all parts. Opens the store, starts the message log, listens, and stops everything in reverse
//! order.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use hubbub_core::clock::SteadyClock;
use hubbub_core::essential::{self, supervise};
use hubbub_core::invariant::saturate;
use hubbub_core::limits::Limits;
use hubbub_core::{Clock, Essential, RandomSource, Store};
use hubbub_gateway::auth::{Auth, KeySetSource};
use hubbub_gateway::server::{self, Listeners};
use hubbub_gateway::{
    ENCODE, Gateway, IncomingMemory, OutgoingMemory, Rate, RateLimits, Rates, ServerLimits, Statistics,
};
use hubbub_pipeline::batcher::QueueLimits;
use hubbub_pipeline::hub::OutboxLimits;
use hubbub_pipeline::kv::CacheLimits;
use hubbub_pipeline::log::{DirectLog, Log, LogOptions};
use hubbub_pipeline::metrics::Program;
use hubbub_pipeline::{Hub, Metrics, Pipeline, PipelineOptions, Timeline};
use hubbub_store::embedded::READS_AT_ONCE;
use tokio::net::TcpSocket;

use crate::cli::ServeArgs;
use crate::config::{self, Bytes, Config, ConfigError, Environment};
use crate::listening::{self, bind, listen};
#[cfg(feature = "otlp")]
use crate::otlp;
use crate::system::{KeyedRandom, SystemClock};
use crate::{build, logging, memory, process, stores, supervision, tls};

/// Limit of the threads that may block: those that read the embedded store, and a few for what must not wait behind them
/// (passwords, records of messages, names of hosts). Each keeps some 2 MiB of freed memory while it lives, and the
/// library's default of 512 threads was reached in part by bursts of short reads (measured: 247 threads, 550 MiB).
const BLOCKING_THREADS: usize = READS_AT_ONCE + 4;
/// Idle time after which such a thread ends, and its memory can be returned.
const BLOCKING_THREAD_IDLE_TIME: Duration = Duration::from_secs(2);
/// Time that work in the background has at the end, when all that was accepted is stored.
const CUT_OFF_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let config = config::load(args, &Environment::of_process()?)?;
    config.check_server()?;
    logging::start(*config.log_level, *config.log_format);
    supervision::start();
    memory::refuse_huge_pages();
    raise_file_limit();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if *config.threads > 0 {
        builder.worker_threads(*config.threads);
    }
    builder.max_blocking_threads(BLOCKING_THREADS).thread_keep_alive(BLOCKING_THREAD_IDLE_TIME);
    let runtime = builder.enable_all().build().context("starting the runtime")?;
    let served = runtime.block_on(serve(&config));
    // A recovery, or a look-up of a name, that was under way when the server was stopped bears to be cut off.
    runtime.shutdown_timeout(CUT_OFF_AFTER);
    served
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let stop = Box::pin(stop(*config.drain_timeout)?);
    // Before the store is opened: where somebody listens on the port already, that is told before a long recovery.
    let (http, address) = bind(config, "server.listen", &config.listen).await?;
    let line = match config.line.as_deref() {
        Some(line) => {
            let (line, line_address) = bind(config, "server.line", line).await?;
            listening::refuse_shared(address, line_address)?;
            Some(line)
        }
        None => None,
    };
    let to_close = ToClose::default();
    let served = open_and_serve(config, (http, line), address, stop, &to_close).await;
    let closed = to_close.close().await;
    served.and(closed)?;
    tracing::info!("stopped");
    supervision::result()
}

/// Returns when the server has stopped, or could not start. What it opened is `to_close` then.
async fn open_and_serve(
    config: &Config,
    (http, line): (TcpSocket, Option<TcpSocket>),
    address: SocketAddr,
    mut stop: impl Future<Output = Duration> + Send + Unpin + 'static,
    to_close: &ToClose,
) -> anyhow::Result<()> {
    // Both may take long, on a database that does not answer, or has much to migrate.
    let opened = tokio::select! {
        opened = open(config, server_name(config, address), to_close) => opened?,
        _ = &mut stop => return Ok(()),
    };
    let gateway = opened.gateway;
    let auth = gateway.auth.clone();
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    // Only now: whoever connected before would wait for an answer instead of asking another server.
    let (listeners, key_set) = begin(config, http, line, &format!("{scheme}://{address}"))?;
    let serving = server::serve(Arc::new(gateway), listeners, stop);
    tokio::spawn(supervise(Essential::new("authentication"), auth.run(key_set)));
    let serving = tokio::spawn(supervise(Essential::new("listeners"), serving));
    let served = tokio::select! {
        served = serving => served,
        never = memory::release_when_idle() => match never {},
    };
    #[cfg(feature = "otlp")]
    if let Some(exporting) = opened.exporting {
        exporting.close().await;
    }
    served.context("serving clients")
}

/// What a start has opened so far. However the server ends, what commits is closed, and then the store: one that is not closed
/// must take it that something may be lost, and holds what other servers wait for.
#[derive(Default)]
struct ToClose {
    store: OnceLock<Arc<dyn Store>>,
    direct: OnceLock<Arc<DirectLog>>,
    log: OnceLock<Arc<Log>>,
}

impl ToClose {
    async fn close(&self) -> anyhow::Result<()> {
        // What ends now is not the cause.
        essential::begin_shutdown();
        match (self.log.get(), self.direct.get()) {
            // It closes the direct one.
            (Some(log), _) => log.close().await,
            (None, Some(direct)) => direct.close().await,
            (None, None) => {}
        }
        if let Some(store) = self.store.get().cloned() {
            tokio::task::spawn_blocking(move || store.close()).await.context("closing the store")?;
        }
        Ok(())
    }
}

/// Listens, and says so: the last of what may fail before clients are served.
fn begin(
    config: &Config,
    http: TcpSocket,
    line: Option<TcpSocket>,
    url: &str,
) -> anyhow::Result<(Listeners, Option<KeySetSource>)> {
    let key_set = config.auth_key_set().map_err(|error| ConfigError(vec![error]))?;
    let http = listen(http, "server.listen")?;
    let line = line.map(|line| listen(line, "server.line")).transpose()?;
    if let Some(line) = &line {
        tracing::info!(address = %line.local_addr()?, "listening for the line protocol");
    }
    let (data, durability) = config.data_and_durability();
    tracing::info!(data, durability, "hubbub {} on {url}", build::VERSION_AND_COMMIT);
    announce(url, config.has_auth());
    Ok((Listeners { http, line }, key_set))
}

struct Opened {
    gateway: Gateway,
    #[cfg(feature = "otlp")]
    exporting: Option<otlp::Exporting>,
}

/// Opens the store and what stands on it, up to the gateway, which listens to nobody yet.
async fn open(config: &Config, name: String, to_close: &ToClose) -> anyhow::Result<Opened> {
    let steady = SteadyClock::new(Arc::new(SystemClock::new()), *config.clock_trust_after);
    let (clock, random): (Arc<dyn Clock>, Arc<dyn RandomSource>) =
        (Arc::new(steady), Arc::new(KeyedRandom::new()));
    let started = clock.monotonic();
    let metrics = Arc::new(Metrics::default());
    let tls = tls::start(config, &metrics).await?;
    let timeline = Timeline::new(config.timeline_memory.0, clock.clone());
    #[cfg(feature = "otlp")]
    let (timeline, traced) = match otlp::tracer(config, clock.clone(), random.clone(), metrics.clone()) {
        Some((tracer, traced)) => (timeline.with_tracer(tracer), Some(traced)),
        None => (timeline, None),
    };
    let hub = Hub::new(ENCODE, config.live_memory.0, clock.clone(), metrics.clone());
    let hub = Arc::new(hub.with_timeline(timeline));
    let on_new_history = {
        let hub = hub.clone();
        Arc::new(move || hub.reset())
    };
    let store = stores::open(config, clock.clone(), random.clone(), on_new_history).await?;
    let _ = to_close.store.set(store.clone());
    tokio::spawn(report_clock_anomalies(clock.clone(), store.clone()));
    // Before anything essential runs, whose end would be told instead of what is wrong.
    let auth = open_auth(config, store.clone(), clock.clone()).await?;
    let pipeline = Pipeline::start(pipeline_options(config), store, hub, clock, random, metrics)?;
    let _ = to_close.direct.set(pipeline.direct.clone());
    let log = Arc::new(stores::open_log(config, pipeline.clone()).await?);
    let _ = to_close.log.set(log.clone());
    #[cfg(feature = "otlp")]
    let exporting = match traced {
        Some(traced) => otlp::Exporting::start(config, traced, &name, &pipeline)?,
        None => None,
    };
    let metrics = pipeline.metrics.clone();
    let gateway = Gateway {
        name,
        program: Program { version: build::VERSION, revision: build::COMMIT, figures: process::figures },
        limits: limits(config),
        outbox: outbox_limits(config),
        server: server_limits(config),
        incoming_memory: IncomingMemory::new(config.unfinished_bytes.0, metrics.clone()),
        outgoing_memory: OutgoingMemory::new(config.unread_bytes.0, metrics),
        rates: Rates::new(rate_limits(config)),
        tls,
        allowed_origins: config.allowed_origins.0.clone(),
        checks_hosts: !config.has_auth() && (!*config.insecure || !config.allowed_origins.0.is_empty()),
        statistics: Statistics::new(*config.metrics_default, started),
        compat: *config.compat,
        serves_clients: *config.role != config::Role::Committer,
        ..Gateway::new(pipeline, log, auth)
    };
    Ok(Opened {
        gateway,
        #[cfg(feature = "otlp")]
        exporting,
    })
}

/// What people who have several servers know this one by.
fn server_name(config: &Config, address: SocketAddr) -> String {
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    (*config.name).clone().unwrap_or_else(|| format!("{}:{}", machine(), address.port()))
}

/// Interval in which the wall clock is checked even if the server is idle.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Logs when the wall clock is not trusted, and when it is trusted again.
async fn report_clock_anomalies(clock: Arc<dyn Clock>, store: Arc<dyn Store>) {
    let mut before = None;
    loop {
        let anomaly = clock.anomaly().or_else(|| store.clock_anomaly());
        if anomaly.as_ref().map(std::mem::discriminant) != before.as_ref().map(std::mem::discriminant) {
            match &anomaly {
                Some(anomaly) => tracing::warn!("{anomaly}"),
                None => tracing::info!("the wall clock is trusted again"),
            }
            before = anomaly;
        }
        tokio::time::sleep(CLOCK_CHECK_INTERVAL).await;
    }
}

/// Decides who calls, and says at each start what the choice means.
async fn open_auth(config: &Config, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> anyhow::Result<Auth> {
    let verifier = config.verifier().map_err(|error| ConfigError(vec![error]))?;
    if verifier.is_none() && *config.insecure {
        tracing::warn!(
            "server.insecure: everybody who can reach this server is its administrator: may read, send and delete \
             everything, in anybody's name; set auth.secret to ask for tokens"
        );
    }
    let auth = Auth::open(verifier, config.account_rules(), store, clock).await;
    auth.context("reading API keys, revoked tokens and accounts")
}

pub(crate) fn log_options(config: &Config) -> LogOptions {
    let ops_max = if *config.batch_max == 0 { usize::MAX } else { *config.batch_max };
    LogOptions {
        queue: QueueLimits { ops: *config.queue_operations, bytes: config.queue_bytes.0 },
        linger: *config.linger,
        ops_max,
    }
}

fn pipeline_options(config: &Config) -> PipelineOptions {
    PipelineOptions {
        log: log_options(config),
        members_ttl: *config.members_cache_ttl,
        keys: CacheLimits {
            bytes: config.kv_cache.0 as u64,
            entries: *config.kv_cache_entries,
            value_bytes: config.value_bytes.0 as u64,
        },
    }
}

pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        message_bytes: config.message_bytes.0,
        body_bytes: config.body_bytes.0,
        subscriptions: *config.subscriptions,
        all_rooms: *config.all_rooms,
        page_messages: *config.page_messages,
        queue_message_bytes: config.queue_message_bytes.0,
        value_bytes: config.value_bytes.0,
    }
}

fn outbox_limits(config: &Config) -> OutboxLimits {
    OutboxLimits { messages: *config.outbox_messages, bytes: config.outbox_bytes.0 }
}

fn rate_limits(config: &Config) -> RateLimits {
    let rate = |requests, bytes: Option<Bytes>| Rate { requests, bytes: bytes.map(|bytes| bytes.0) };
    RateLimits {
        user: rate(*config.user_requests, *config.user_bytes),
        address: rate(*config.address_requests, *config.address_bytes),
        connections: *config.address_connections,
        under_way: *config.requests,
        waiting: *config.waiting,
        user_rooms: *config.user_rooms,
        trusted_proxies: config.trusted_proxies.0.clone(),
    }
}

fn server_limits(config: &Config) -> ServerLimits {
    ServerLimits {
        connections: connections(config),
        header_timeout: *config.header_timeout,
        body_timeout: *config.body_timeout,
        write_timeout: *config.write_timeout,
        ping_interval: *config.ping_interval,
        pong_timeout: *config.pong_timeout,
        terms_timeout: *config.terms_timeout,
        drain_timeout: *config.drain_timeout,
        reconnect_spread: *config.reconnect_spread,
    }
}

/// Prints the ready line on standard output, for scripts that wait for it, and an example on standard error, if it needs no token.
/// Whoever cannot be told is no reason to stop: standard output may be a file on a full disk.
fn announce(url: &str, has_auth: bool) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = writeln!(stdout, "ready {url}").and_then(|()| stdout.flush()) {
        tracing::warn!("the ready line could not be printed: {error}");
    }
    if has_auth {
        return;
    }
    // A closed standard error is no reason to stop.
    let _ = writeln!(
        io::stderr(),
        "try:  curl -d '{{\"userId\":\"ada\",\"message\":\"hello\"}}' {url}/v1/rooms/lobby/messages"
    );
}

/// Completes at SIGTERM, at SIGINT, or after the death of an essential task. Returns the time for connections to finish.
fn stop(drain_timeout: Duration) -> anyhow::Result<impl Future<Output = Duration>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = supervision::death() => return supervision::DRAIN_TIMEOUT,
        }
        essential::begin_shutdown();
        tracing::info!("stopping: finishing accepted operations");
        drain_timeout
    })
}

/// Raises the soft limit of open files, usually 1,024, to the hard limit: each connection needs a file descriptor.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files; fewer connections will be possible");
    }
}

/// File descriptors that connections leave for files of the store, databases and brokers: a store that cannot open a file takes
/// no writes.
const FILES_KEPT: usize = 1_000;

/// Connections possible within a limit of open files.
fn connections_within(files: usize, wanted: usize) -> usize {
    wanted.min(files - FILES_KEPT.min(files / 2))
}

/// The most connections: as configured, or as many as the limit of open files has space for.
fn connections(config: &Config) -> usize {
    let files = process::figures().max_fds.map_or(usize::MAX, saturate);
    let possible = connections_within(files, *config.connections);
    if possible < *config.connections {
        tracing::info!(
            "at most {possible} connections, not {}: {files} files may be open (ulimit -Hn, or LimitNOFILE= of systemd)",
            *config.connections
        );
    }
    possible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_store() {
        assert_eq!(connections_within(1_048_576, 50_000), 50_000);
        assert_eq!(connections_within(20_000, 50_000), 19_000);
        assert_eq!(connections_within(1_024, 50_000), 512);
        assert_eq!(connections_within(1_024, 100), 100);
        assert_eq!(connections_within(1, 50_000), 1);
    }

    #[test]
    fn defaults_of_settings_are_those_of_the_parts() {
        let config = Config::of_defaults();
        assert_eq!(limits(&config), Limits::default());
        assert_eq!(pipeline_options(&config), PipelineOptions::default());
        assert_eq!(outbox_limits(&config), OutboxLimits::default());
        let limits = ServerLimits { connections: *config.connections, ..server_limits(&config) };
        assert_eq!(limits, ServerLimits::default());
        assert_eq!(config.unfinished_bytes.0, IncomingMemory::DEFAULT_BYTES);
        assert_eq!(config.unread_bytes.0, OutgoingMemory::DEFAULT_BYTES);
    }
}
