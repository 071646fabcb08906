//! A whole server in this process: the real gateway, log and embedded store, on a directory in memory. Inputs reach it over
//! its sockets, as those of clients do. A panic in any thread ends the fuzzer, and so does a broken invariant.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hubbub_core::clock::{Clock, SeededRandom};
use hubbub_core::invariant::broken_invariants;
use hubbub_core::{Store, Timestamp};
use hubbub_gateway::auth::Auth;
use hubbub_gateway::server::{Listeners, serve};
use hubbub_gateway::{ENCODE, Gateway, IncomingMemory, OutgoingMemory};
use hubbub_pipeline::{Hub, Log, Metrics, Pipeline, PipelineOptions, Timeline};
use hubbub_store::embedded::{Durability, Embedded, EngineOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Inputs that one server answers. Then a new one begins with nothing, so that memory stays as it is.
const INPUTS_MAX: usize = 20_000;
/// Longest wait for an answer. Some never end: streams, and requests that wait for messages.
pub const PATIENCE: Duration = Duration::from_millis(100);

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or_default())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A running server.
pub struct Server {
    pub http: SocketAddr,
    pub line: SocketAddr,
    inputs: usize,
    _runtime: Runtime,
    _data: TempDir,
}

static SERVER: Mutex<Option<Server>> = Mutex::new(None);

/// Passes the server to `use_it`, and looks what the input did to it.
pub fn with_server(use_it: impl FnOnce(&Server)) {
    let mut server: MutexGuard<'_, Option<Server>> = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if server.as_ref().is_some_and(|server| server.inputs >= INPUTS_MAX) {
        *server = None;
    }
    let server = server.get_or_insert_with(start);
    server.inputs += 1;
    use_it(server);
    assert_eq!(broken_invariants(), 0, "an invariant is broken");
}

fn start() -> Server {
    // SAFETY: nothing handles this signal. A fuzzer's main function does not ignore it, as that of a program does.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let data = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (http, line) = runtime.block_on(async {
        let listener = async || TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (http, line) = (listener().await, listener().await);
        let addresses = (http.local_addr().expect("an address"), line.local_addr().expect("an address"));
        let gateway = Arc::new(open(&data).await);
        let listeners = Listeners { http, line: Some(line) };
        tokio::spawn(serve(gateway, listeners, std::future::pending()));
        addresses
    });
    Server { http, line, inputs: 0, _runtime: runtime, _data: data }
}

async fn open(data: &TempDir) -> Gateway {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    let random = Arc::new(SeededRandom::new(7));
    let options = EngineOptions {
        durability: Durability::Os,
        slot_bytes: 4 << 20,
        reserve_bytes: 0,
        ..EngineOptions::default()
    };
    let store = Embedded::open(data.path(), options, clock.clone(), &*random).expect("a new store");
    let store: Arc<dyn Store> = Arc::new(store);
    let metrics = Arc::new(Metrics::default());
    let timeline = Timeline::new(1 << 20, clock.clone());
    let hub = Arc::new(Hub::new(ENCODE, 16 << 20, clock.clone(), metrics.clone()).with_timeline(timeline));
    let auth = Auth::open(None, None, store.clone(), clock.clone()).await.expect("no keys");
    let pipeline = Pipeline::start(PipelineOptions::default(), store, hub, clock, random, metrics.clone());
    let pipeline = pipeline.expect("a pipeline");
    let log = Log::direct(pipeline.direct.clone());
    Gateway {
        // Little, so that inputs can exceed it.
        incoming_memory: IncomingMemory::new(1 << 20, metrics.clone()),
        outgoing_memory: OutgoingMemory::new(1 << 20, metrics),
        ..Gateway::new(pipeline, log, auth)
    }
}

/// A connection that gives up reading after [`PATIENCE`].
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// How reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// What was waited for came.
    Found,
    /// The server closed the connection.
    Closed,
    /// The connection was lost.
    Lost(std::io::ErrorKind),
    /// Nothing came for [`PATIENCE`].
    Silent,
}

/// Sends `bytes`, and reads until `is_whole` says so of everything that came.
pub fn exchange(
    stream: &mut TcpStream,
    bytes: &[u8],
    mut is_whole: impl FnMut(&[u8]) -> bool,
) -> (Vec<u8>, End) {
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (received, End::Closed),
            Ok(count) => {
                received.extend_from_slice(&buffer[..count]);
                if is_whole(&received) {
                    return (received, End::Found);
                }
            }
            // The fuzzer's own timer.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                return (received, End::Silent);
            }
            Err(error) => return (received, End::Lost(error.kind())),
        }
    }
}
