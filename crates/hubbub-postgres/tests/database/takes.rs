//! What operations on queues read from the database: no more than they need, however much there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_conformance::queues::message;
use hubbub_core::clock::{ManualClock, SeededRandom, SteadyClock, TRUST_AFTER};
use hubbub_core::queue::{QueueSend, Settle, Take, TakeFilter, TakeMode};
use hubbub_core::{Clock, QueueOp, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::queues::{START, Servers, apply, done, make, servers, settle, take, taken, texts};
use crate::support::{Database, relay_to};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A store, and how many bytes the database has answered.
struct Counted {
    store: Arc<Postgres>,
    answered: Arc<AtomicU64>,
    _database: Database,
}

impl Counted {
    async fn fresh() -> Self {
        let start = Timestamp::from_micros(START);
        Self::open(Database::fresh().await, Arc::new(ManualClock::at(start))).await
    }

    async fn open(database: Database, clock: Arc<dyn Clock>) -> Self {
        let answered = Arc::new(AtomicU64::new(0));
        let url = counting(&database.url, answered.clone()).await;
        let store = Postgres::open(PostgresOptions::new(&url), clock, &SeededRandom::new(1)).await;
        Self { store: Arc::new(store.unwrap()), answered, _database: database }
    }

    /// What `work` comes to, and how many bytes were answered meanwhile.
    fn count<T>(&self, work: impl FnOnce(&Postgres) -> T) -> (T, usize) {
        let before = self.answered.load(Ordering::SeqCst);
        let done = work(&self.store);
        (done, usize::try_from(self.answered.load(Ordering::SeqCst) - before).unwrap())
    }
}

/// The URL of the same database through a relay that counts what it answers.
async fn counting(url: &str, answered: Arc<AtomicU64>) -> String {
    let (listener, url, address) = relay_to(url).await;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(database) = TcpStream::connect(&address).await else { continue };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_database, mut to_database) = database.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_database).await });
            let answered = answered.clone();
            tokio::spawn(async move {
                let mut some = vec![0; 64 * KIB];
                while let Ok(read @ 1..) = from_database.read(&mut some).await {
                    answered.fetch_add(read as u64, Ordering::SeqCst);
                    if to_client.write_all(some.get(..read).unwrap()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

/// Messages that are over, by a clock that is not proven so that nothing ends them, are not read one after another until one
/// is found that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_that_are_over_are_not_read_with_what_may_be_taken() {
    let Servers { stores, database, .. } = servers(1).await;
    make(&stores[0], "q");
    let over = QueueOp::Send(QueueSend { ttl_ms: Some(1_000), ..message("q", "over") });
    for _ in 0..6 {
        apply(&stores[0], &[over; 1_000]);
    }
    done(&stores[0], QueueOp::Send(message("q", "lives")));
    stores[0].close();

    let two_days = 2 * 24 * 3_600 * 1_000_000;
    let clock =
        SteadyClock::new(Arc::new(ManualClock::at(Timestamp::from_micros(START + two_days))), TRUST_AFTER);
    clock.begin_at(Some(Timestamp::from_micros(START)));
    let counted = Counted::open(database, Arc::new(clock)).await;
    let (all, bytes) = counted.count(|store| taken(done(store, take("q", "bob", 9, None))));
    assert_eq!(texts(&all), ["lives"]);
    assert!(bytes < 64 * KIB, "{bytes} bytes for one message");
}

/// An acknowledgement lets the next of a group pass, and does not read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_acknowledgement_reads_no_texts() {
    let counted = Counted::fresh().await;
    make(&counted.store, "q");
    let (small, large) = ("x".to_owned(), "x".repeat(256 * KIB));
    let groups: Vec<String> = (0..20).map(|group| format!("g{group}")).collect();
    for text in [&small, &large] {
        let sends = groups.iter().map(|group| QueueSend { group: Some(group), ..message("q", text) });
        apply(&counted.store, &sends.map(QueueOp::Send).collect::<Vec<_>>());
    }
    let (held, bytes) = counted.count(|store| taken(done(store, take("q", "bob", 100, Some(60_000)))));
    assert_eq!(held.len(), groups.len());
    assert!(bytes < 256 * KIB, "{bytes} bytes to take small ones");
    let acks: Vec<_> = held.iter().map(|one| settle(one, Settle::Ack)).collect();
    let (_, bytes) = counted.count(|store| apply(store, &acks));
    assert!(bytes < 256 * KIB, "{bytes} bytes to acknowledge");
    // Taken away one lets the next one pass, whose text is read then.
    let all = taken(done(&counted.store, take("q", "bob", 100, None)));
    assert!(all.len() == 16 && all.iter().all(|one| one.text == large), "4 MiB at most");
}

/// Whoever takes from all queues reads little more than what is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_take_from_all_queues_reads_texts_of_what_it_takes() {
    let counted = Counted::fresh().await;
    let large = "x".repeat(256 * KIB);
    for number in 0..15 {
        let queue = format!("q{number}");
        make(&counted.store, &queue);
        apply(&counted.store, &[QueueOp::Send(message(&queue, &large)); 12]);
    }
    let wanted = TakeFilter { queue: None, receiver: Some("bob"), sender: Some("ada"), newest_first: false };
    let takes = QueueOp::Take(Take { wanted, max: 1_000, how: TakeMode::Away, registers: true });
    let (all, bytes) = counted.count(|store| taken(done(store, takes)));
    assert_eq!((all.len(), all.iter().filter(|one| one.text == large).count()), (16, 16));
    assert!(bytes < 13 * MIB, "{bytes} bytes of 45 MiB");
}
