//! Who changes keys, with and without conditions, and who watches them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use hyper::Method;

use super::world::{Client, World, below};
use crate::harness::{Answer, Watch};

/// The last key that is put.
pub(super) const LAST: &str = "/kv/last";

/// Revisions that were acknowledged; none twice.
#[derive(Default)]
pub(super) struct Revisions(Mutex<BTreeSet<u64>>);

impl Revisions {
    pub(super) fn add(&self, answer: &Answer) -> u64 {
        let revision = revision(answer);
        assert!(self.0.lock().unwrap().insert(revision), "revision {revision} was given twice");
        revision
    }
}

fn revision(answer: &Answer) -> u64 {
    answer.header("etag").unwrap().trim_matches('"').parse().unwrap()
}

/// Counts a key of its own up, deletes it now and then, and sees that it never goes back.
pub(super) async fn count_up(world: Arc<World>, revisions: Arc<Revisions>, key: u64) {
    let (random, mut client) = (world.random(), world.client());
    let path = format!("/kv/counter/{key}");
    // What may be there: the last that is sure, and everything tried since. 0 = not there.
    let (mut sure, mut tried, mut newest) = (0_u64, Vec::new(), 0);
    for number in 1_u64.. {
        let Some(_turn) = world.turn(&random).await else { return };
        let is_delete = below(&random, 10) == 0;
        let (method, next) = if is_delete { (Method::DELETE, 0) } else { (Method::PUT, number) };
        tried.push(next);
        if let Some(answer) = client.request(method, &path, &[], &number.to_string()).await {
            assert!(matches!(answer.status, 201 | 204 | 404), "{}", answer.text());
            if !is_delete {
                let revision = revisions.add(&answer);
                assert!(revision > newest, "revision {revision} behind {newest}");
                newest = revision;
            }
            sure = next;
            tried.clear();
        }
        let Some(answer) = client.request(Method::GET, &path, &[], "").await else { continue };
        let value = if answer.status == 404 { 0 } else { answer.text().parse().unwrap() };
        assert!(value == sure || tried.contains(&value), "{path}: {value}, not {sure} nor of {tried:?}");
        if value != 0 {
            assert!(revision(&answer) >= newest, "{path}: an older revision than {newest}");
            newest = revision(&answer);
        }
        // What is read is durable, and what was tried before it is not coming any more.
        sure = value;
        tried.clear();
    }
}

/// Adds one to a key that others add to as well; how often that was answered, and how often not.
pub(super) async fn compare_and_set(world: Arc<World>, revisions: Arc<Revisions>) -> (u64, u64) {
    let (random, mut client) = (world.random(), world.client());
    let (mut done, mut unknown) = (0, 0);
    while let Some(_turn) = world.turn(&random).await {
        let Some(answer) = client.request(Method::GET, SHARED, &[], "").await else { continue };
        let (condition, value) = if answer.status == 404 {
            (("if-none-match", "*".to_owned()), 0)
        } else {
            (("if-match", answer.header("etag").unwrap().to_owned()), number(&answer))
        };
        let headers = [(condition.0, condition.1.as_str())];
        match client.request(Method::PUT, SHARED, &headers, &(value + 1).to_string()).await {
            Some(answer) if answer.status == 412 => {}
            Some(answer) => {
                assert!(matches!(answer.status, 201 | 204), "{}", answer.text());
                revisions.add(&answer);
                done += 1;
            }
            None => unknown += u64::from(client.may_have_happened),
        }
    }
    (done, unknown)
}

const SHARED: &str = "/kv/shared";

fn number(answer: &Answer) -> u64 {
    answer.text().parse().unwrap()
}

/// The key that several added to has as much as was acknowledged, and no more than was tried.
pub(super) async fn check_shared(client: &mut Client, added: &[(u64, u64)]) {
    let value = number(&client.request_again(Method::GET, SHARED, "").await);
    let done: u64 = added.iter().map(|(done, _)| done).sum();
    let unknown: u64 = added.iter().map(|(_, unknown)| unknown).sum();
    assert!((done..=done + unknown).contains(&value), "{value}, not {done} and perhaps {unknown}");
    println!("{done} conditional changes, {unknown} unknown");
}

/// Keys that run out soon, and one that does not: what was gone once is gone.
pub(super) async fn expire(world: Arc<World>, revisions: Arc<Revisions>) {
    let (random, mut client) = (world.random(), world.client());
    let mut gone = 0;
    // `None` until it is known which revision is there.
    let mut current = None;
    while let Some(_turn) = world.turn(&random).await {
        if let Some(answer) = client.request(Method::GET, "/kv/kept", &[], "").await {
            assert_eq!(answer.status, 200, "a day is not over: {}", answer.text());
        }
        let was_proven = is_proven(&mut client).await;
        let answer = client.request(Method::GET, "/kv/brief", &[], "").await;
        let was_proven = was_proven && is_proven(&mut client).await;
        if let Some(answer) = answer {
            if answer.status == 404 {
                // What a time says that nothing proves yet may be taken back.
                gone = current.filter(|_| was_proven).unwrap_or(gone);
            } else {
                let there = revision(&answer);
                assert!(there > gone, "revision {there} is back, {gone} was gone");
                current = Some(there);
            }
        }
        if below(&random, 30) == 0 {
            let put = client.request(Method::PUT, "/kv/brief", &[("hubbub-ttl", "1")], "x").await;
            current = put.map(|answer| revisions.add(&answer));
        }
    }
}

/// Whether the server's time is one by which it deletes.
async fn is_proven(client: &mut Client) -> bool {
    let answer = client.request(Method::GET, "/health", &[], "").await;
    answer.is_some_and(|answer| answer.json()["components"]["clock"]["status"] == "UP")
}

/// Watches all keys, resuming over every lost connection, until the last one is put.
pub(super) async fn watch(world: Arc<World>) -> BTreeSet<u64> {
    let (mut seen, mut last_id): (BTreeSet<u64>, Option<String>) = (BTreeSet::new(), None);
    loop {
        let opened = Watch::try_open(world.address, "?after=0", last_id.as_deref()).await;
        let Some(mut watch) = opened else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        while let Some((id, kind, data)) = watch.next().await {
            if kind == "error" {
                break;
            }
            let revision = data["revision"].as_u64().unwrap();
            let before = seen.last().copied();
            assert!(before < Some(revision), "{kind} {data} behind {before:?}");
            seen.insert(revision);
            last_id = Some(id);
            if data["key"] == "last" {
                return seen;
            }
        }
    }
}

/// Who watched saw all that was acknowledged.
pub(super) fn check_watched(seen: &BTreeSet<u64>, revisions: &Revisions) {
    let revisions = revisions.0.lock().unwrap();
    let missed: Vec<_> = revisions.difference(seen).collect();
    assert!(missed.is_empty(), "not seen by who watches: {missed:?}");
    println!("{} revisions acknowledged, {} seen", revisions.len(), seen.len());
}
