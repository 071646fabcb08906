//! The store as a server has it: a directory, a lock, threads.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{MessageType, Op, OpBatch, RoomId, RoomStore, Send, Store, Timestamp};

use crate::embedded::{Embedded, EngineOptions, OpenError, READS_AT_ONCE};

fn open(dir: &Path) -> Result<Embedded, OpenError> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let options = EngineOptions { slot_bytes: 64 * 1024, reserve_bytes: 0, ..EngineOptions::default() };
    Embedded::open(dir, options, clock, &SeededRandom::new(3))
}

fn send(store: &Embedded, id: u32) -> bool {
    let mut batch = OpBatch::default();
    let (id, text) = (id.to_string(), "x".repeat(500));
    batch.push(&Op::Send(Send {
        room: "lobby",
        user: "ada",
        id: &id,
        username: None,
        text: &text,
        kind: MessageType::Text,
        timestamp: Timestamp::from_micros(7),
    }));
    store.apply(&batch).is_ok()
}

#[test]
fn a_directory_is_for_one_process() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("new/data");
    let store = open(&dir).unwrap();
    let Err(OpenError::Locked { owner, .. }) = open(&dir) else { panic!("opened twice") };
    assert_eq!(owner, format!("process {}", std::process::id()));
    // Also when the file that says so is removed.
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let Err(OpenError::Locked { owner, .. }) = open(&dir) else { panic!("opened twice") };
    assert_eq!(owner, "another process");
    let verified = crate::embedded::verify(&dir, &mut |fault| panic!("{fault:?}"), &|_| ());
    assert!(matches!(verified, Err(OpenError::Locked { .. })), "{verified:?}");
    store.close();
    open(&dir).unwrap();
}

#[test]
fn a_newer_or_broken_directory_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().close();
    std::fs::write(dir.path().join("FORMAT"), "hubbub data format 2\n").unwrap();
    let error = open(dir.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "data directory has format 2, this version reads up to 1; start the version that wrote it"
    );
    std::fs::write(dir.path().join("FORMAT"), "something else").unwrap();
    assert!(matches!(open(dir.path()), Err(OpenError::Damaged { file, .. }) if file == "FORMAT"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = open(&file).unwrap_err();
    assert!(matches!(error, OpenError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn threads_seal_while_messages_come_and_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = open(dir.path()).unwrap();
    for id in 0..2_000 {
        while !send(&store, id) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let room = || RoomId::new("lobby").unwrap();
    let query =
        HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 10_000, bytes_max: usize::MAX };
    let page = runtime.block_on(store.history(room(), query)).unwrap();
    assert_eq!((page.messages.len(), page.head, page.oldest, page.more), (2_000, 2_000, 1, false));
    assert!(store.figures().segments > 0);
    store.close();
    drop(store);
    let store = open(dir.path()).unwrap();
    let again = runtime.block_on(store.history(room(), query)).unwrap();
    assert!(again.messages.iter().eq(page.messages.iter()));
    let info = runtime.block_on(store.room(room())).unwrap().unwrap();
    assert_eq!(runtime.block_on(store.rooms(None, 10)).unwrap(), [info]);
}

/// Requests whose clients hung up behind slow reads must leave nothing that the next one waits for.
#[tokio::test]
async fn reads_whose_callers_went_away_before_their_turn_are_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(parking_lot::Mutex::new(ended));
    let slow = |_| {
        let (begun, ended) = (begun.clone(), ended.clone());
        store.blocking(move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            // Until the sender is gone.
            let _ = ended.lock().recv();
            Ok(())
        })
    };
    let mut slow: Vec<_> = (0..READS_AT_ONCE).map(slow).collect();
    for read in &mut slow {
        assert!(poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await.is_pending());
    }
    for _ in 0..1_000 {
        let begun = begun.clone();
        let mut read = store.blocking(move |_| Ok(begun.fetch_add(1, Ordering::SeqCst)));
        assert!(poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await.is_pending());
    }
    let mut next = store.rooms(None, 1);
    assert!(poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await.is_pending());
    drop(end);
    assert_eq!(next.await.unwrap(), []);
    for read in slow {
        read.await.unwrap();
    }
    assert_eq!(begun.load(Ordering::SeqCst), READS_AT_ONCE);
}
