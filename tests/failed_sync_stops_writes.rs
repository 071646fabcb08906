//! When a sync fails nobody knows what the disk has: the batch is `unconfirmed`, nothing is written any more, reads go
//! on, and a restart finds what was acknowledged. On a simulated disk, since no real one fails on demand; everything
//! above the disk is what the binary runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hubbub_core::clock::SeededRandom;
use hubbub_core::limits::Limits;
use hubbub_core::{Clock, Store, Timestamp};
use hubbub_gateway::server::Listeners;
use hubbub_gateway::{ENCODE, Gateway, MetricsDefault, ServerLimits, Statistics, server};
use hubbub_pipeline::hub::OutboxLimits;
use hubbub_pipeline::kv::CacheLimits;
use hubbub_pipeline::log::LogOptions;
use hubbub_pipeline::{DirectLog, Hub, Keys, Log, Members, Metrics};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Embedded, Engine, EngineOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::{Follower, Http, PATIENCE, Ws, chat_message, in_time, texts};

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

/// A server on a simulated disk, on a real socket.
struct Simulated {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Simulated {
    async fn start(disk: &SimDisk) -> Self {
        let options = EngineOptions { slot_bytes: 4 << 20, reserve_bytes: 0, ..EngineOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
        let random = Arc::new(SeededRandom::new(1));
        let engine = Engine::open(options, Arc::new(disk.clone()), clock.clone(), &*random).unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::in_line(engine));
        let metrics = Arc::new(Metrics::default());
        let hub = Arc::new(Hub::new(ENCODE, 1 << 20, metrics.clone()));
        let members =
            Arc::new(Members::new(store.clone(), clock.clone(), metrics.clone(), Duration::from_secs(10)));
        let cache = CacheLimits { bytes: 1 << 20, entries: 1_000, value_bytes: 1_000 };
        let keys = Arc::new(Keys::new(store.clone(), clock.clone(), metrics.clone(), cache));
        let log = DirectLog::start(
            LogOptions::default(),
            store.clone(),
            hub.clone(),
            members.clone(),
            keys.clone(),
            clock.clone(),
            metrics.clone(),
        );
        let gateway = Gateway {
            log: Arc::new(Log::direct(Arc::new(log.unwrap()))),
            store,
            hub,
            members,
            keys,
            metrics,
            limits: Limits::default(),
            outbox: OutboxLimits::default(),
            server: ServerLimits::default(),
            allowed_origins: Vec::new(),
            statistics: Statistics::new(MetricsDefault::Prometheus, clock.monotonic()),
            clock,
            random,
            documents: hubbub_gateway::Documents::default(),
        };
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

    async fn stop(self) {
        self.stop.send(()).unwrap();
        in_time("the end of the server", self.serving).await.unwrap();
    }

    async fn http(&self) -> Http {
        Http::connect(self.address).await
    }

    async fn history(&self) -> Vec<Value> {
        let answer = self.http().await.get("/v1/rooms/r/messages?after=0&limit=1000").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["messages"].as_array().unwrap().clone()
    }
}

fn message(id: &str) -> String {
    json!({"userId": "ada", "message": id, "messageId": id}).to_string()
}

const PATH: &str = "/v1/rooms/r/messages";

#[derive(Debug, Clone, Copy)]
enum Failure {
    Sync,
    Write,
}

async fn fails(failure: Failure) {
    let disk = SimDisk::new();
    let server = Simulated::start(&disk).await;
    let mut http = server.http().await;
    let mut chat = Ws::open(server.address, "/chat/r").await;
    let mut socket = Ws::open(server.address, "/v1/ws").await;
    let mut follower = Follower::new("r");
    assert!(follower.resume(server.address).await);
    for id in ["1", "2", "3"] {
        assert_eq!(http.post(PATH, message(id)).await.status, 201);
    }
    follower.read_to(3).await;

    match failure {
        Failure::Sync => disk.fail_sync_in(1),
        Failure::Write => disk.fail_write_in(1),
    }
    let problem =
        http.post(PATH, r#"{"userId":"ada","message":"doubtful"}"#).await.problem(504, "unconfirmed");
    assert_eq!(problem["retryable"], true);
    let doubtful = problem["messageId"].as_str().expect("the id, also one the server made").to_owned();

    // Whether the disk works again or not: nothing is written before a restart has looked.
    for id in ["4", "5"] {
        let answer = http.post(PATH, message(id)).await;
        answer.problem(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
        let answer = chat.ask(&chat_message(id, id)).await;
        assert_eq!(
            (&answer["status"], &answer["code"]),
            (&json!("error"), &json!("unavailable")),
            "{answer}"
        );
        let frame = json!({"type": "send", "roomId": "r", "userId": "ada", "message": id, "messageId": id});
        let answer = socket.ask(&frame).await;
        assert_eq!((&answer["code"], &answer["messageId"]), (&json!("unavailable"), &json!(id)), "{answer}");
    }
    let health = http.get("/health").await;
    assert_eq!((health.status, &health.json()["components"]["store"]["status"]), (503, &json!("DOWN")));
    assert!(
        health.json()["components"]["store"]["reason"].as_str().unwrap().contains("restart"),
        "{health:?}"
    );
    assert!(http.get("/metrics").await.text().contains("hubbub_store_up 0\n"));

    // Reads go on, and show what was acknowledged, not what is in doubt.
    assert_eq!(texts(&server.history().await), ["1", "2", "3"]);
    let mut late = Follower::new("r");
    assert!(late.resume(server.address).await);
    late.read_to(3).await;
    assert_eq!(http.get("/health/live").await.status, 200);
    drop((http, chat, socket, follower, late));
    server.stop().await;

    // Any state the power failure may leave: the acknowledged messages are there, the doubtful one is or is not.
    for seed in 0..20 {
        let disk = if seed == 0 {
            disk.kill();
            disk.clone()
        } else {
            disk.crash(seed);
            disk.clone()
        };
        let server = Simulated::start(&disk).await;
        let history = server.history().await;
        assert_eq!(texts(&history[..3]), ["1", "2", "3"], "seed {seed}");
        // Whoever repeats it under its id gets it stored once.
        let mut http = server.http().await;
        let body = json!({"userId": "ada", "message": "doubtful", "messageId": doubtful}).to_string();
        let receipt = http.post(PATH, body).await;
        assert!(matches!(receipt.status, 200 | 201), "{receipt:?}");
        assert_eq!(receipt.json()["seq"], 4, "seed {seed}");
        assert_eq!(server.history().await.len(), 4, "seed {seed}");
        assert_eq!(http.get("/health").await.status, 200);
        drop(http);
        server.stop().await;
    }
}

#[tokio::test]
async fn failed_sync_stops_writes() {
    fails(Failure::Sync).await;
}

#[tokio::test]
async fn failed_write_stops_writes() {
    fails(Failure::Write).await;
}
