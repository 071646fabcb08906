//! When a sync fails nobody knows what the disk has: the batch is `unconfirmed`, nothing is written any more, reads go
//! on, and a restart finds what was acknowledged. On a simulated disk, since no real one fails on demand; everything
//! above the disk is what the binary runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hubbub_core::clock::SeededRandom;
use hubbub_core::limits::Limits;
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, HoursPage, HoursQuery, RoomStats, Totals, UserHistoryPage,
    UserHistoryQuery, UserRoomsPage, UserStats,
};
use hubbub_core::store::{
    ApplyError, BatchCap, HistoryPage, HistoryQuery, Read, RoomInfo, StoreFigures, StoreHealth,
};
use hubbub_core::{Clock, OpBatch, Outcome, RoomId, RoomStore, StatsStore, Store, Timestamp, UserId};
use hubbub_gateway::{ENCODE, Gateway, ServerLimits, server};
use hubbub_pipeline::hub::OutboxLimits;
use hubbub_pipeline::log::LogOptions;
use hubbub_pipeline::{DirectLog, Hub, Metrics};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Engine, EngineOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::{Follower, Http, Ws, chat_message, in_time, texts};

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

/// The engine as a store; its journal is large enough to need no background work.
struct Sim(Engine);

impl Store for Sim {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        self.0.apply(batch)
    }
    fn batch_cap(&self) -> BatchCap {
        self.0.batch_cap()
    }
    fn health(&self) -> StoreHealth {
        self.0.health()
    }
    fn figures(&self) -> StoreFigures {
        self.0.figures()
    }
    fn close(&self) {
        self.0.close().unwrap();
    }
}

impl RoomStore for Sim {
    fn epoch(&self) -> Arc<str> {
        self.0.epoch()
    }
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(std::future::ready(self.0.history(room.as_str(), &query)))
    }
    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(std::future::ready(Ok(self.0.room(room.as_str()))))
    }
    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(std::future::ready(Ok(self.0.rooms(after.as_ref().map(RoomId::as_str), limit))))
    }
}

impl StatsStore for Sim {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        Box::pin(std::future::ready(self.0.totals()))
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        Box::pin(std::future::ready(self.0.room_stats(room.as_str())))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        Box::pin(std::future::ready(self.0.top_rooms(limit)))
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        Box::pin(std::future::ready(self.0.user_stats(user.as_str())))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        Box::pin(std::future::ready(self.0.top_users(limit)))
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        Box::pin(std::future::ready(self.0.hours(&query)))
    }

    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        Box::pin(std::future::ready(self.0.active_users(&query)))
    }

    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<UserRoomsPage>> {
        let after = after.as_ref().map(RoomId::as_str);
        Box::pin(std::future::ready(self.0.user_rooms(user.as_str(), after, limit)))
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        Box::pin(std::future::ready(self.0.user_history(user.as_str(), &query)))
    }

    fn audit(&self) -> Read<'_, Counted<Audit>> {
        Box::pin(std::future::ready(self.0.audit()))
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
        let store: Arc<dyn Store> = Arc::new(Sim(engine));
        let metrics = Arc::new(Metrics::default());
        let hub = Arc::new(Hub::new(ENCODE, metrics.clone()));
        let log = DirectLog::start(
            LogOptions::default(),
            store.clone(),
            hub.clone(),
            clock.clone(),
            metrics.clone(),
        );
        let gateway = Gateway {
            log: Arc::new(log.unwrap()),
            store,
            hub,
            metrics,
            limits: Limits::default(),
            outbox: OutboxLimits::default(),
            server: ServerLimits::default(),
            allowed_origins: Vec::new(),
            clock,
            random,
            documents: hubbub_gateway::Documents::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(server::serve(Arc::new(gateway), listener, stopped));
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
