//! How many keys a second can be put: with one upsert for each request, and through the store, which puts the requests
//! that wait together into one transaction. Both over pools of the same size, with the same number of callers, of whom
//! each waits for its answer.
//!
//! `cargo run --release -p hubbub-postgres --example kv_rate -- postgres://…/database [seconds] [callers]`; the database
//! must be one that may be written to.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use hubbub_core::clock::{ManualClock, RandomSource, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, Op, OpBatch, Outcome, Store, Timestamp};
use hubbub_postgres::{PoolOptions, Postgres, PostgresOptions};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

const KEYS: u64 = 100_000;
const VALUE: [u8; 120] = [b'v'; 120];

const TABLE: &str = "create table if not exists kv_rate (key bytea primary key, value bytea not null, \
                     revision bigint not null, expires_at timestamptz) with (fillfactor = 80)";
const UPSERT: &str = "insert into kv_rate (key, value, revision, expires_at) values ($1, $2, $3, null) \
                      on conflict (key) do update \
                      set value = excluded.value, revision = excluded.revision, expires_at = excluded.expires_at";

/// Calls `put` from all callers until the time is over, and answers puts a second.
async fn rate<F>(callers: u64, time: Duration, put: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let put = Arc::new(put);
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let mut calling = JoinSet::new();
    for caller in 0..callers {
        let (put, is_over, count) = (put.clone(), is_over.clone(), count.clone());
        let random = SeededRandom::new(caller);
        calling.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                put(format!("key/{}", random.next_u64() % KEYS).into_bytes()).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(time).await;
    is_over.store(true, Ordering::Relaxed);
    calling.join_all().await;
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

type Put = (Vec<u8>, oneshot::Sender<()>);

/// Applies whatever waits, again and again.
fn commit(store: &dyn Store, puts: &mpsc::Receiver<Put>) {
    while let Ok(first) = puts.recv() {
        let all: Vec<Put> = std::iter::once(first).chain(puts.try_iter().take(4_999)).collect();
        let mut batch = OpBatch::default();
        for (key, _) in &all {
            batch.push(&Op::Kv(KvOp::Put { key, value: &VALUE, ttl_ms: None, condition: Condition::Always }));
        }
        let outcomes = store.apply(&batch).unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Kv(_))));
        for (_, answer) in all {
            answer.send(()).unwrap();
        }
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap();
    let seconds = args.next().map_or(5, |seconds| seconds.parse().unwrap());
    let callers = args.next().map_or(50, |callers| callers.parse().unwrap());
    let time = Duration::from_secs(seconds);

    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse().unwrap(), NoTls, manager);
    let pool = Pool::builder(manager).max_size(PoolOptions::default().max).build().unwrap();
    pool.get().await.unwrap().batch_execute(TABLE).await.unwrap();
    let one_by_one = async || {
        let pool = pool.clone();
        rate(callers, time, move |key| {
            let pool = pool.clone();
            async move {
                let client = pool.get().await.unwrap();
                let upsert = client.prepare_cached(UPSERT).await.unwrap();
                client.execute(&upsert, &[&key, &VALUE.as_slice(), &1_i64]).await.unwrap();
            }
        })
        .await
    };

    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let store = Postgres::open(PostgresOptions::new(&url), clock, &SeededRandom::new(1)).await.unwrap();
    let store = Arc::new(store);
    let (sender, puts) = mpsc::channel::<Put>();
    std::thread::spawn({
        let store = store.clone();
        move || commit(&*store, &puts)
    });
    let together = async || {
        let sender = sender.clone();
        rate(callers, time, move |key| {
            let sender = sender.clone();
            async move {
                let (done, answer) = oneshot::channel();
                sender.send((key, done)).unwrap();
                answer.await.unwrap();
            }
        })
        .await
    };

    // The first round fills the tables.
    for round in 0..4 {
        let (plain, batched) = (one_by_one().await, together().await);
        println!(
            "round {round}: one upsert a request {plain:.0}/s, store {batched:.0}/s, {:.2} times",
            batched / plain
        );
    }
    store.close();
}
