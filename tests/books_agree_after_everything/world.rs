//! What all clients share: where the server is, when they rest, and a connection that comes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;
use hyper::Method;
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::harness::{Answer, Http, in_time};

/// Pause after an answer that says nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest rest of a client between two things it does. The load shall be steady, not the most there can be.
const REST_MS: u64 = 30;

pub(super) struct World {
    pub(super) address: SocketAddr,
    /// Whether a broker is the log: receipts have no `seq` then.
    pub(super) has_broker: bool,
    seed: u64,
    /// Who changes something holds this for reading; who compares the books holds it for writing.
    gate: RwLock<()>,
    stop: AtomicBool,
    /// Steps that were taken.
    steps: AtomicU64,
    clients: AtomicU64,
}

impl World {
    pub(super) fn new(address: SocketAddr, has_broker: bool, seed: u64) -> Arc<Self> {
        let (stop, steps, clients) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { address, has_broker, seed, gate: RwLock::new(()), stop, steps, clients })
    }

    /// The right to do one thing; `None` when it is all over.
    pub(super) async fn turn(&self, random: &SeededRandom) -> Option<RwLockReadGuard<'_, ()>> {
        tokio::time::sleep(Duration::from_millis(random.next_u64() % REST_MS)).await;
        let turn = self.gate.read().await;
        self.steps.fetch_add(1, Ordering::SeqCst);
        (!self.is_over()).then_some(turn)
    }

    /// Waits until nobody is in the middle of anything, and holds everybody there.
    pub(super) async fn quiet(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        in_time("everybody rests", self.gate.write()).await
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Random numbers for one more client.
    pub(super) fn random(&self) -> SeededRandom {
        SeededRandom::new(self.seed ^ (self.clients.fetch_add(1, Ordering::SeqCst) << 32))
    }

    pub(super) fn client(self: &Arc<Self>) -> Client {
        Client { world: self.clone(), http: None, may_have_happened: false }
    }
}

/// A number below `end`.
pub(super) fn below(random: &SeededRandom, end: u64) -> u64 {
    random.next_u64() % end
}

/// A client that connects again when the connection is lost.
pub(super) struct Client {
    world: Arc<World>,
    http: Option<Http>,
    /// Whether the last request without an answer may have been carried out.
    pub(super) may_have_happened: bool,
}

impl Client {
    /// The answer, or `None` when nobody knows what became of the request, or it was refused for now.
    pub(super) async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Answer> {
        if self.http.is_none() {
            self.http = Http::try_connect(self.world.address).await;
        }
        let answer = match &mut self.http {
            Some(http) => http.try_request(method, path, headers, body.to_owned()).await,
            None => None,
        };
        self.may_have_happened = match &answer {
            Some(answer) => answer.status == 504,
            None => self.http.take().is_some(),
        };
        let answer = answer.filter(|answer| answer.status != 503 && answer.status != 504);
        if answer.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        answer
    }

    /// Asks until somebody answers; for what may be repeated.
    pub(super) async fn request_again(&mut self, method: Method, path: &str, body: &str) -> Answer {
        loop {
            if let Some(answer) = self.request(method.clone(), path, &[], body).await {
                return answer;
            }
        }
    }

    pub(super) async fn get(&mut self, path: &str) -> Value {
        let answer = self.request_again(Method::GET, path, "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// Once; must be taken if it is answered.
    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Option<Value> {
        let answer = self.request(Method::POST, path, &[], &body.to_string()).await?;
        assert!((200..300).contains(&answer.status), "{path} {body}: {} {}", answer.status, answer.text());
        Some(answer.json())
    }
}
