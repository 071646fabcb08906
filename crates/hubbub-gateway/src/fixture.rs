//! A server for tests, without sockets: its store is in memory.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, Op, OpBatch, Store, Timestamp};
use hubbub_pipeline::{Hub, Log, Metrics, Pipeline, PipelineOptions};
use hubbub_store::embedded::sim::SimDisk;
use hubbub_store::embedded::{Embedded, Engine, EngineOptions};
use serde_json::Value;

use crate::auth::caller::{Caller, Identity};
use crate::auth::{Auth, Claims, TokenRules, Verifier, mint};
use crate::{ENCODE, Gateway};

const SECRET: &str = "a secret of the tests, which is long enough";

/// Longest lifetime of tokens, in days.
pub(crate) const LIFETIME_DAYS: i64 = 30;

/// A day in microseconds.
pub(crate) const DAY: i64 = 86_400_000_000;

/// When tests begin.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(20_000 * DAY)
}

/// What takes the tokens of [`token`].
pub(crate) fn verifier() -> Verifier {
    verifier_with(Duration::ZERO)
}

/// The same by clocks that differ.
pub(crate) fn verifier_with(leeway: Duration) -> Verifier {
    let max_lifetime = Duration::from_micros(LIFETIME_DAYS.unsigned_abs() * DAY.unsigned_abs());
    let rules = TokenRules { audience: None, issuer: None, leeway, max_lifetime };
    Verifier::new(rules, Some(SECRET), None, false).unwrap()
}

/// A token with these claims, issued at the beginning for a day, unless they say otherwise.
pub(crate) fn token(mut claims: Value) -> String {
    for (claim, days) in [("iat", 0), ("exp", 1)] {
        if claims.get(claim).is_none() {
            claims[claim] = ((now().as_micros() + days * DAY) / 1_000_000).into();
        }
    }
    let claims: Claims = serde_json::from_value(claims).unwrap();
    mint(&claims, SECRET).unwrap()
}

/// Whoever calls with such a token.
pub(crate) fn caller(gateway: &Gateway, claims: Value) -> Caller {
    Caller::unnamed(Identity::Somebody(gateway.auth.verify(&token(claims)).unwrap())).unwrap()
}

/// A store on this disk.
pub(crate) fn store(disk: &SimDisk, clock: &Arc<dyn Clock>) -> Arc<dyn Store> {
    let options = EngineOptions { slot_bytes: 4 << 20, reserve_bytes: 0, ..EngineOptions::default() };
    let engine = Engine::open(options, Arc::new(disk.clone()), clock.clone(), &SeededRandom::new(1));
    Arc::new(Embedded::in_line(engine.unwrap()))
}

/// Sets a key past everything that is above the store.
pub(crate) fn put(store: &dyn Store, key: &[u8], value: &str, ttl_ms: u64) {
    let mut ops = OpBatch::default();
    let (value, ttl_ms, condition) = (value.as_bytes(), Some(ttl_ms), Condition::Always);
    ops.push(&Op::Kv(KvOp::Put { key, value, ttl_ms, condition }));
    store.apply(&ops).unwrap();
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

/// A server that asks for tokens, on a new disk.
pub(crate) async fn gateway(clock: Arc<dyn Clock>) -> Arc<Gateway> {
    gateway_with(clock, verifier()).await
}

/// The same with other rules for tokens.
pub(crate) async fn gateway_with(clock: Arc<dyn Clock>, verifier: Verifier) -> Arc<Gateway> {
    let store = store(&SimDisk::new(), &clock);
    let (metrics, random) = (Arc::new(Metrics::default()), Arc::new(SeededRandom::new(1)));
    let hub = Arc::new(Hub::new(ENCODE, 1 << 20, clock.clone(), metrics.clone()));
    let auth = Auth::open(Some(verifier), None, store.clone(), clock.clone()).await.unwrap();
    let options = PipelineOptions::default();
    let pipeline = Pipeline::start(options, store, hub, clock, random, metrics).unwrap();
    let log = Log::direct(pipeline.direct.clone());
    Arc::new(Gateway::new(pipeline, log, auth))
}
