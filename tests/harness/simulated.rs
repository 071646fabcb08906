//! A server inside the test, for disks that fail on demand; everything above the disk is what the binary runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hubbub_core::clock::SeededRandom;
use hubbub_core::{Clock, Store, Timestamp};
use hubbub_gateway::auth::Auth;
use hubbub_gateway::server::Listeners;
use hubbub_gateway::{ENCODE, Gateway, server};
use hubbub_pipeline::log::LogOptions;
use hubbub_pipeline::{Hub, Log, Metrics, Pipeline, PipelineOptions};
use hubbub_store::embedded::disk::Disk;
use hubbub_store::embedded::{Embedded, Engine, EngineOptions};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Http, PATIENCE, in_time};

/// The machine's clocks.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A server on a disk of the test's own, with one thread of work, on a real socket.
pub(crate) struct Simulated {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Simulated {
    /// With batches of any size the store takes; no space of the disk is kept in reserve.
    pub(crate) async fn start(disk: Arc<dyn Disk>) -> Self {
        Self::start_with(disk, 0, LogOptions::default()).await
    }

    /// With `reserve_bytes` of the disk kept in reserve.
    pub(crate) async fn start_with(disk: Arc<dyn Disk>, reserve_bytes: u64, log: LogOptions) -> Self {
        let options = EngineOptions { slot_bytes: 4 << 20, reserve_bytes, ..EngineOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
        let random = Arc::new(SeededRandom::new(1));
        let engine = Engine::open(options, disk, clock.clone(), &*random).unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::in_line(engine));
        let metrics = Arc::new(Metrics::default());
        let hub = Arc::new(Hub::new(ENCODE, 1 << 20, clock.clone(), metrics.clone()));
        let auth = Auth::open(None, None, store.clone(), clock.clone()).await.unwrap();
        let options = PipelineOptions { log, ..PipelineOptions::default() };
        let pipeline = Pipeline::start(options, store, hub, clock, random, metrics).unwrap();
        let log = Log::direct(pipeline.direct.clone());
        let gateway = Gateway::new(pipeline, log, auth);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
            PATIENCE
        };
        let serving =
            tokio::spawn(server::serve(Arc::new(gateway), Listeners { http: listener, line: None }, stopped));
        Self { address, stop, serving }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        in_time("the end of the server", self.serving).await.unwrap();
    }

    pub(crate) async fn http(&self) -> Http {
        Http::connect(self.address).await
    }

    /// All messages of room `r`.
    pub(crate) async fn history(&self) -> Vec<Value> {
        let (mut http, mut all, mut after) = (self.http().await, Vec::new(), 0);
        loop {
            let answer = http.get(&format!("/v1/rooms/r/messages?after={after}&limit=1000")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let mut page = answer.json();
            all.append(page["messages"].as_array_mut().unwrap());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => return all,
            }
        }
    }
}
