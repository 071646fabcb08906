//! A commit whose answer is lost: whether it was done is not known, and it is neither repeated nor called undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::queues::{START, info, make, send, take};
use crate::support::{Database, relay_to};
use hubbub_conformance::queues::message;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::ApplyError;
use hubbub_core::{Op, OpBatch, Outcome, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Who takes. Nothing else that is committed meanwhile has this name in it.
const RECEIVER: &str = "bob";

/// A way to the database on which the answer to the commit of a take can be lost, with its connection.
async fn lossy_way(database: &Database, loses: Arc<AtomicBool>) -> String {
    let (listener, url, address) = relay_to(&database.url).await;
    tokio::spawn(async move {
        while let Ok((here, _)) = listener.accept().await {
            let there = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(pass_on(here, there, loses.clone()));
        }
    });
    url
}

async fn pass_on(mut here: TcpStream, mut there: TcpStream, loses: Arc<AtomicBool>) {
    let (mut from_here, mut from_there) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let has = |sent: &[u8], wanted: &[u8]| sent.windows(wanted.len()).any(|part| part == wanted);
    let mut is_take = false;
    loop {
        tokio::select! {
            read = here.read(&mut from_here) => {
                let Ok(count @ 1..) = read else { return };
                let sent = from_here.get(..count).unwrap();
                there.write_all(sent).await.unwrap();
                // A query of its own, which the server sends when it has the answers to all before.
                is_take |= has(sent, RECEIVER.as_bytes());
                if has(sent, b"commit\0") && std::mem::take(&mut is_take) && loses.swap(false, Ordering::SeqCst) {
                    // The database has committed when it answers.
                    let _ = there.read(&mut from_there).await;
                    return;
                }
            }
            read = there.read(&mut from_there) => {
                let Ok(count @ 1..) = read else { return };
                if here.write_all(from_there.get(..count).unwrap()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Taken twice, the first message would be gone for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_whose_commit_is_not_answered_is_not_repeated() {
    let (database, loses) = (Database::fresh().await, Arc::new(AtomicBool::new(false)));
    let url = lossy_way(&database, loses.clone()).await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
    let store = Postgres::open(PostgresOptions::new(&url), clock, &SeededRandom::new(3)).await.unwrap();
    make(&store, "q");
    for text in ["first", "second"] {
        send(&store, message("q", text));
    }
    let mut batch = OpBatch::default();
    batch.push(&Op::Queue(take("q", RECEIVER, 1, None)));
    loses.store(true, Ordering::SeqCst);
    let outcome = match store.apply(&batch) {
        Ok(mut outcomes) => outcomes.remove(0),
        Err(error) => Outcome::Failed(Box::new(error)),
    };
    assert!(!loses.load(Ordering::SeqCst), "a commit was lost");
    let is_unknown =
        matches!(&outcome, Outcome::Failed(error) if matches!(**error, ApplyError::Unconfirmed { .. }));
    assert!(is_unknown, "{outcome:?}");
    assert_eq!(info(&store, "q").await.messages(), 1);
}
