//! A database that is cut off while maintenance works, and one that only lets it wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Database, connect, eventually, relay_to, wait_for_waiters};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::StoreHealth;
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{PoolOptions, Postgres, PostgresOptions};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;

const DAY: i64 = 86_400_000_000;
/// Longest wait of a part of the work.
const PATIENCE: Duration = Duration::from_secs(1);
/// What whoever makes partitions locks, in two halves.
const PARTITIONS: (i64, i64) = (7_161_616_175 >> 32, 7_161_616_175 & 0xFFFF_FFFF);

/// A way to the database that can be cut: then nothing passes any more, and no connection is closed.
struct Way {
    url: String,
    is_cut: watch::Sender<bool>,
}

impl Way {
    async fn to(database: &Database) -> Self {
        let (listener, url, address) = relay_to(&database.url).await;
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let (address, mut cut) = (address.clone(), cut.clone());
                tokio::spawn(async move {
                    let mut there = TcpStream::connect(address).await.unwrap();
                    let cutting = async {
                        let _ = cut.wait_for(|is_cut| *is_cut).await;
                    };
                    tokio::select! {
                        biased;
                        () = cutting => std::future::pending().await,
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                    }
                });
            }
        });
        Self { url, is_cut }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_cut_off_is_told_of_at_the_first_part_that_waits() {
    let database = Database::fresh().await;
    let way = Way::to(&database).await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions {
        partition: Duration::from_secs(86_400),
        apply_timeout: PATIENCE,
        pool: PoolOptions { acquire_timeout: PATIENCE, ..PoolOptions::default() },
        ..PostgresOptions::new(&way.url)
    };
    let store = Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap();
    assert_eq!(store.health(), StoreHealth::Up);

    // Others keep its first part waiting. The database answers, so servers stay in use.
    let mut client = connect(&database.url).await;
    let watcher = connect(&database.url).await;
    let locking = client.transaction().await.unwrap();
    locking.batch_execute("select pg_advisory_xact_lock(7161616175)").await.unwrap();
    clock.advance_micros(100 * DAY);
    eventually("no alarm", async || matches!(store.health(), StoreHealth::Alarm(_))).await;
    let StoreHealth::Alarm(reason) = store.health() else { panic!("{:?}", store.health()) };
    assert!(reason.contains("no partition") && reason.contains("no answer in time"), "{reason}");
    wait_for_waiters(&watcher, PARTITIONS, 1).await;
    assert!(matches!(store.health(), StoreHealth::Alarm(_)), "{:?}", store.health());

    way.is_cut.send(true).unwrap();
    let cut = Instant::now();
    eventually("it is not told", async || matches!(store.health(), StoreHealth::Unreachable(_))).await;
    let told = cut.elapsed();
    assert!(told < 3 * PATIENCE, "{told:?}");
    store.close();
}
