//! However changes, evictions and loads meet, nobody reads a value older than one that somebody was told of before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hyper::Method;

use crate::harness::{Answer, Http, Server, Setup};

const KEYS: usize = 24;
const ROUNDS: u64 = 150;

/// A key as its writer and its readers know it. One writer each, so that revisions tell in which order its states were.
#[derive(Default)]
struct Known {
    /// Revision of the newest state that anybody was told of.
    told: AtomicU64,
    /// Revision of the value that was there before its last deletion was asked for. The deletion's own is greater.
    deleting: AtomicU64,
}

struct Shared {
    keys: Vec<Known>,
    is_over: AtomicBool,
    gets: AtomicU64,
}

fn revision(tag: Option<&str>) -> u64 {
    tag.unwrap().trim_matches('"').parse().unwrap()
}

/// Values of all sizes: most fit the cache, some are too large to be copied into it when they are put.
fn value(key: usize, round: u64) -> Vec<u8> {
    let bytes = [20, 300, 2_000, 9_000, 30_000][((key as u64 + round) % 5) as usize];
    vec![b'a' + (round % 26) as u8; bytes]
}

/// Writes, again and again where the disk is behind: what is refused as overloaded did not happen.
async fn change(http: &mut Http, method: Method, path: &str, body: Vec<u8>) -> Answer {
    loop {
        let answer = http.request(method.clone(), path, &[], body.clone()).await;
        if answer.status != 503 {
            return answer;
        }
        answer.problem(503, "overloaded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn write(server: Arc<Server>, shared: Arc<Shared>, mine: std::ops::Range<usize>) {
    let mut http = Http::connect(server.address()).await;
    for round in 0..ROUNDS {
        for key in mine.clone() {
            let (path, known) = (format!("/kv/key/{key}"), &shared.keys[key]);
            if (round + key as u64).is_multiple_of(7) {
                // From here on a reader may find nothing, or the value before.
                let last = known.told.load(Ordering::SeqCst);
                known.deleting.store(last, Ordering::SeqCst);
                let answer = change(&mut http, Method::DELETE, &path, Vec::new()).await;
                match answer.status {
                    204 => _ = known.told.fetch_max(last + 1, Ordering::SeqCst),
                    status => assert_eq!((status, round), (404, 0), "{answer:?}"),
                }
                continue;
            }
            let answer = change(&mut http, Method::PUT, &path, value(key, round)).await;
            assert!(matches!(answer.status, 201 | 204), "{answer:?}");
            known.told.fetch_max(revision(answer.header("etag")), Ordering::SeqCst);
        }
    }
}

async fn read(server: Arc<Server>, shared: Arc<Shared>, seed: u64) {
    let mut http = Http::connect(server.address()).await;
    let mut random = seed;
    while !shared.is_over.load(Ordering::SeqCst) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (random >> 33) as usize % KEYS;
        let known = &shared.keys[key];
        let floor = known.told.load(Ordering::SeqCst);
        let answer = http.get(&format!("/kv/key/{key}")).await;
        shared.gets.fetch_add(1, Ordering::SeqCst);
        if answer.status == 404 {
            // Gone only if a deletion of what was told of, or of something later, was asked for.
            let deleting = known.deleting.load(Ordering::SeqCst);
            assert!(floor <= deleting + 1, "key {key}: gone, although {floor} was told of");
            continue;
        }
        let found = revision(answer.header("etag"));
        let cache = answer.header("hubbub-cache");
        assert!(found >= floor, "key {key}: revision {found} ({cache:?}), although {floor} was told of");
        known.told.fetch_max(found, Ordering::SeqCst);
    }
}

async fn race(setup: Setup, has_cache: bool) {
    let server = Arc::new(setup.start());
    let keys = (0..KEYS).map(|_| Known::default()).collect();
    let shared = Arc::new(Shared { keys, is_over: AtomicBool::new(false), gets: AtomicU64::new(0) });
    let readers: Vec<_> =
        (0..6).map(|seed| tokio::spawn(read(server.clone(), shared.clone(), seed))).collect();
    let writers: Vec<_> = (0..3)
        .map(|part| {
            let mine = part * KEYS / 3..(part + 1) * KEYS / 3;
            tokio::spawn(write(server.clone(), shared.clone(), mine))
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    shared.is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(shared.gets.load(Ordering::SeqCst) > 1_000);
    if !has_cache {
        return;
    }
    for metric in ["kv_cache_hits_total", "kv_cache_misses_total", "kv_cache_evictions_total"] {
        assert!(server.metric(metric).await > 100, "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kv_no_stale_read() {
    // What the store itself says.
    race(Setup::new().set("kv.cache_bytes=0B"), false).await;
    // Room for a few values: most reads meet an eviction or a load.
    race(Setup::new().set("kv.cache_bytes=32KiB"), true).await;
    // Room for a few keys of any size.
    race(Setup::new().set("kv.cache_bytes=1MiB").set("kv.cache_entries=6"), true).await;
}
