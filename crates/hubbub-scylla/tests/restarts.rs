//! A CQL server that hangs, is killed, and comes back: nothing that was confirmed is lost, nothing is stored twice, and the
//! store goes on by itself.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::log_position::Attached;
use hubbub_core::store::{ApplyError, Cursor, HistoryQuery, ReadError, StoreHealth};
use hubbub_core::{
    LogIdentity, LogStore, MessageType, Op, OpBatch, Outcome, RoomId, RoomStore, Send, StatsStore, Store,
    Timestamp,
};
use hubbub_scylla::{Scylla, ScyllaOptions};
use support::{Positions, START};

/// A server of its own, wiped with this value.
struct Server {
    port: u16,
    home: std::path::PathBuf,
}

impl Server {
    fn start() -> Self {
        // Three ports in a row of thousands, below those that the system gives to outgoing connections.
        let port = 25_000 + u16::try_from(std::process::id() % 900).unwrap();
        let home = std::env::temp_dir().join(format!("hubbub-cql-{}", std::process::id()));
        let server = Self { port, home };
        server.script(&["start"]);
        server
    }

    fn script(&self, arguments: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/cassandra.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("CQL_PORT", self.port.to_string()).env("SVC_HOME", &self.home);
        let output = command.env("CASS_FAST", "1").env("CASS_HEAP", "384m").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "cassandra.sh {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn signal(&self, signal: &str) {
        let process = self.script(&["pid"]);
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.script(&["wipe"])));
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// Sends batch after batch until it is told to stop, and repeats what is not confirmed, as a committer does.
fn write_on(store: &Arc<Scylla>, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<(u64, u64)> {
    let (store, stop, runtime) = (store.clone(), stop.clone(), tokio::runtime::Handle::current());
    std::thread::spawn(move || {
        let _entered = runtime.enter();
        let mut positions = Positions::of(2);
        let (mut sent, mut failures) = (0_u64, 0);
        'batches: while !stop.load(Ordering::Relaxed) || is_behind(&store, &runtime, &positions) {
            let mut batch = OpBatch::default();
            for n in sent..sent + 20 {
                let (room, id) = (format!("r{}", n % 5), format!("m{n}"));
                let (user, text) = ("ada", "text");
                let timestamp = Timestamp::from_micros(START);
                let kind = MessageType::Text;
                let send = Send { room: &room, user, id: &id, username: None, text, kind, timestamp };
                positions.push(&mut batch, &Op::Send(send), Timestamp::from_micros(START));
            }
            loop {
                match store.apply(&batch) {
                    Ok(outcomes) => {
                        let is_done =
                            |outcome: &Outcome| matches!(outcome, Outcome::Stored(_) | Outcome::Accepted);
                        assert!(outcomes.iter().all(is_done), "{outcomes:?}");
                        break;
                    }
                    Err(ApplyError::Unconfirmed { .. } | ApplyError::Unavailable { .. }) => failures += 1,
                    // The server confirms before its disk has it. What it lost is read from the log again.
                    Err(ApplyError::Unattached { .. }) => {
                        if runtime.block_on(attach(&store)).is_ok() {
                            (positions, sent) = (Positions::of(2), 0);
                            continue 'batches;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            sent += 20;
        }
        (sent, failures)
    })
}

async fn attach(store: &Scylla) -> Result<Attached, ReadError> {
    store.attach(LogIdentity { id: "cluster/topic".into(), partitions: 2 }).await
}

/// Whether the store lost what it confirmed, and nobody noticed yet.
fn is_behind(store: &Scylla, runtime: &tokio::runtime::Handle, positions: &Positions) -> bool {
    let next = runtime.block_on(store.next_offsets()).ok().map(|next| next.into_iter().collect());
    next != Some(Ok(positions.next.clone()))
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1_200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_restart_is_ridden_out() {
    let server = Server::start();
    let options = ScyllaOptions {
        replication: "{'class': 'SimpleStrategy', 'replication_factor': 1}".into(),
        statement_timeout: Duration::from_secs(5),
        ..ScyllaOptions::new(format!("scylla://127.0.0.1:{}/hubbub", server.port))
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
    let store = Arc::new(Scylla::open(options, clock, &SeededRandom::new(3)).await.unwrap());
    assert_eq!(attach(&store).await, Ok(Attached::New));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write_on(&store, &stop);
    let head =
        async || store.room(RoomId::new("r0").unwrap()).await.ok().flatten().map_or(0, |room| room.head);
    let goes_on = async |what: &str| {
        let mut before = 0;
        until(what, async || {
            before = head().await;
            before > 0
        })
        .await;
        until(what, async || head().await > before).await;
        until("health", async || store.health() == StoreHealth::Up).await;
    };
    goes_on("the first batches").await;

    // It hangs: statements time out, and health says so.
    server.signal("-STOP");
    until("a failure", async || matches!(store.health(), StoreHealth::Unreachable(_))).await;
    server.signal("-CONT");
    goes_on("going on after a hang").await;

    // It dies in the middle of writing, and comes back with what it confirmed.
    server.script(&["stop", "KILL"]);
    until("a failure", async || matches!(store.health(), StoreHealth::Unreachable(_))).await;
    assert!(store.history(RoomId::new("r0").unwrap(), everything()).await.is_err());
    server.script(&["start"]);
    goes_on("going on after a restart").await;

    stop.store(true, Ordering::Relaxed);
    let (sent, failures) = tokio::task::spawn_blocking(|| writer.join().unwrap()).await.unwrap();
    assert!(failures > 0);
    for room in 0..5 {
        let page = store.history(RoomId::new(&format!("r{room}")).unwrap(), everything()).await.unwrap();
        let ids: Vec<String> = page.messages.iter().map(|message| message.sent.id.to_owned()).collect();
        let wanted: Vec<String> = (room..sent).step_by(5).map(|n| format!("m{n}")).collect();
        let missing: Vec<_> = wanted.iter().filter(|id| !ids.contains(id)).collect();
        assert!(ids == wanted, "r{room}: {} messages, not {}: {missing:?}", ids.len(), wanted.len());
    }
    let audit = store.audit().await.unwrap().value;
    assert_eq!((audit.messages, audit.differences), (sent, Vec::new()));
    store.close();
}

fn everything() -> HistoryQuery {
    HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: usize::MAX, bytes_max: usize::MAX }
}
