//! What clients of two servers on one database see of a key is one order of operations, although both servers keep values in
//! memory: with conditions and expiry, evictions, lost connections to the database, and behind a pooler.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::harness::{
    Action, Answer, Event, Http, Pooler, Postgres, Server, Setup, Told, in_time, unexplained, until,
};

const KEYS: u64 = 5;
/// Only put with a time to live, and seldom, so that they run out in between.
const EXPIRING: u64 = 2;
const CLIENTS: u64 = 10;
const OPERATIONS: u64 = 300;
const TTL: Duration = Duration::from_millis(800);

type Events = HashMap<u64, Vec<Event>>;

#[derive(Debug, Clone, Copy)]
enum Answered {
    Told(Told),
    Unknown,
}

impl Answered {
    const fn is_known(self) -> bool {
        matches!(self, Self::Told(_))
    }

    /// What to try where it is not known. It may also not have been done.
    const fn told(self) -> Told {
        match self {
            Self::Told(told) => told,
            Self::Unknown => Told::Done,
        }
    }
}

struct Client {
    http: Http,
    number: u64,
    random: u64,
    began: Instant,
    /// The value last seen of each key, with its tag.
    seen: HashMap<u64, (u64, String)>,
    events: Events,
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").unwrap().to_owned()
}

impl Client {
    async fn new(number: u64, server: &Server, began: Instant) -> Self {
        let (http, random) = (server.http().await, number + 1);
        Self { http, number, random, began, seen: HashMap::new(), events: HashMap::new() }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// `None` = nothing was done.
    async fn put(&mut self, key: u64, headers: &[(&str, &str)], value: u64) -> Option<Answered> {
        let answer = self.http.request(Method::PUT, &format!("/kv/k{key}"), headers, value.to_string()).await;
        match answer.status {
            201 | 204 => {
                self.seen.insert(key, (value, tag(&answer)));
                Some(Answered::Told(Told::Done))
            }
            412 => Some(Answered::Told(Told::Refused)),
            503 => None,
            504 => Some(Answered::Unknown),
            _ => panic!("{answer:?}"),
        }
    }

    /// The outer `None` = it was not answered.
    async fn get(&mut self, key: u64) -> Option<Option<u64>> {
        if self.random(8) == 0 {
            let answer = self.http.post("/v1/kv", json!({"get": [format!("k{key}")]}).to_string()).await;
            let found = answer.json()["get"][0]["value"].as_str().map(|value| value.parse().unwrap());
            return (answer.status == 200).then_some(found);
        }
        let answer = self.http.get(&format!("/kv/k{key}")).await;
        match answer.status {
            200 => {
                let value = answer.text().parse().unwrap();
                self.seen.insert(key, (value, tag(&answer)));
                Some(Some(value))
            }
            404 => Some(None),
            503 => None,
            _ => panic!("{answer:?}"),
        }
    }

    /// Returns whether it was answered.
    async fn step(&mut self, step: u64) -> bool {
        let key = self.random(KEYS);
        let value = (self.number + 1) * 1_000_000 + step;
        let begin = self.began.elapsed();
        let done = self.act(key, value).await;
        let Some((action, is_known)) = done else { return false };
        let end = is_known.then(|| self.began.elapsed());
        self.events.entry(key).or_default().push(Event { action, begin, end });
        true
    }

    /// What was done, and whether that is known; `None` = nothing.
    async fn act(&mut self, key: u64, value: u64) -> Option<(Action, bool)> {
        let kind = self.random(if key < EXPIRING { 400 } else { 100 });
        let seen = self.seen.get(&key).cloned();
        Some(match (kind, seen) {
            (0..10, _) if key < EXPIRING => {
                let ttl = TTL.as_secs_f64().to_string();
                let answered = self.put(key, &[("hubbub-ttl", &ttl)], value).await?;
                (Action::Put(value, Some(TTL)), answered.is_known())
            }
            (0..14, _) => {
                let answered = self.put(key, &[], value).await?;
                (Action::Put(value, None), answered.is_known())
            }
            (14..24, _) => {
                let answered = self.put(key, &[("if-none-match", "*")], value).await?;
                (Action::PutAbsent(value, answered.told()), answered.is_known())
            }
            (24..36, Some((wanted, tag))) => {
                let answered = self.put(key, &[("if-match", &tag)], value).await?;
                (Action::PutIf(value, wanted, answered.told()), answered.is_known())
            }
            (36..46, _) => {
                let answer = self.http.request(Method::DELETE, &format!("/kv/k{key}"), &[], "").await;
                match answer.status {
                    204 => (Action::Delete(Told::Done), true),
                    404 => (Action::Delete(Told::Refused), true),
                    503 => return None,
                    504 => (Action::Delete(Told::Done), false),
                    _ => panic!("{answer:?}"),
                }
            }
            _ => (Action::Get(self.get(key).await?), true),
        })
    }
}

/// Clients of both servers; `disturb` happens in the middle.
async fn race(servers: &[Server; 2], disturb: impl AsyncFn()) -> Events {
    let began = Instant::now();
    let clients =
        join_all((0..CLIENTS).map(|number| Client::new(number, &servers[number as usize % 2], began)));
    let running: Vec<_> = clients
        .await
        .into_iter()
        .map(|mut client| {
            tokio::spawn(async move {
                for step in 0..OPERATIONS {
                    client.step(step).await;
                }
                client.events
            })
        })
        .collect();
    disturb().await;
    gather(join_all(running).await.into_iter().map(Result::unwrap))
}

fn gather(all: impl Iterator<Item = Events>) -> Events {
    let mut events = Events::new();
    for (key, more) in all.flatten() {
        events.entry(key).or_default().extend(more);
    }
    events
}

/// Clients of one server, until they are told to stop.
struct Crowd {
    is_over: Arc<AtomicBool>,
    running: Vec<JoinHandle<Events>>,
}

/// Keeps what the check has to try small.
const PAUSE: Duration = Duration::from_millis(3);
/// Who is told that nothing was done comes back later.
const OUTAGE_PAUSE: Duration = Duration::from_millis(50);

impl Crowd {
    /// Begins at once, with connections of before.
    fn of(clients: Vec<Client>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let running = clients.into_iter().map(|mut client| {
            let is_over = is_over.clone();
            tokio::spawn(async move {
                for step in 0..1_000_000 {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let was_answered = client.step(step).await;
                    tokio::time::sleep(if was_answered { PAUSE } else { OUTAGE_PAUSE }).await;
                }
                client.events
            })
        });
        Self { running: running.collect(), is_over }
    }

    async fn at(server: &Server, numbers: std::ops::Range<u64>, began: Instant) -> Self {
        Self::of(clients(server, numbers, began).await)
    }

    async fn leave(self) -> Events {
        self.is_over.store(true, Ordering::SeqCst);
        gather(join_all(self.running).await.into_iter().map(Result::unwrap))
    }
}

async fn clients(server: &Server, numbers: std::ops::Range<u64>, began: Instant) -> Vec<Client> {
    join_all(numbers.map(|number| Client::new(number, server, began))).await
}

async fn until_alone(server: &Server) {
    until("it is the only one", async || server.metric("kv_exclusive").await == 1).await;
}

/// Until the server's clients have done something more.
async fn until_more(server: &Server) {
    for name in ["kv_cache_hits_total", "kv_changes_total"] {
        let before = server.metric(name).await;
        until("more is done", async || server.metric(name).await > before + 30).await;
    }
}

fn check(events: &Events) {
    for (key, events) in events {
        let unexplained = unexplained(events.clone());
        assert!(unexplained.is_none(), "key {key}: no order explains {unexplained:#?}");
    }
}

/// That the check would notice: the last reader of each key gets a value that was replaced long before.
fn check_finds_a_planted_fault(events: &Events) {
    for (key, events) in events.iter().filter(|(key, _)| **key >= EXPIRING) {
        let mut events = events.clone();
        events.sort_by_key(|event| event.begin);
        let first = events.iter().find_map(|event| match event.action {
            Action::Put(value, None) => event.end.map(|_| value),
            _ => None,
        });
        let last =
            events.iter_mut().rev().find(|event| matches!(event.action, Action::Get(Some(_)))).unwrap();
        last.action = Action::Get(first);
        assert!(unexplained(events).is_some(), "key {key}: a value of long ago is not noticed");
    }
}

async fn both_answered_from_memory(servers: &[Server; 2]) {
    for server in servers {
        for metric in ["kv_cache_hits_total", "kv_cache_validations_total", "kv_cache_misses_total"] {
            assert!(server.metric(metric).await > 50, "{metric}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kv_is_linearizable_on_two_servers() {
    let postgres = Postgres::start("");
    let setup = || Setup::new().store(&postgres.url("postgres"));
    // One of them evicts all the time.
    let servers = [setup().start(), setup().set("kv.cache_entries=3").start()];
    let events = in_time("the clients", race(&servers, async || ())).await;
    check(&events);
    check_finds_a_planted_fault(&events);
    both_answered_from_memory(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_linearizable_while_connections_are_lost() {
    let postgres = Postgres::start("");
    let pooler = Pooler::start(&postgres);
    let through = || {
        let migrate = format!("store.postgres.migrate_url={}", postgres.url("postgres"));
        let setup = Setup::new().store(&pooler.url("postgres")).set("store.postgres.pooler=transaction");
        setup.set(&migrate).start()
    };
    let servers = [Setup::new().store(&postgres.url("postgres")).start(), through()];
    let disturb = async || {
        for _ in 0..5 {
            let hits = servers[0].metric("kv_cache_hits_total").await;
            until("more is read", async || servers[0].metric("kv_cache_hits_total").await > hits + 20).await;
            postgres
                .run("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
                .await;
        }
    };
    let events = in_time("the clients", race(&servers, disturb)).await;
    check(&events);
    both_answered_from_memory(&servers).await;
}

/// One server is the only one, and answers from memory; others come, are paused or die while they are, and lose their
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_linearizable_while_the_only_server_changes() {
    let postgres = Postgres::start("");
    let setup = || Setup::new().store(&postgres.url("postgres"));
    let began = Instant::now();
    let (first, mut all) = (setup().start(), Vec::new());
    let at_first = Crowd::at(&first, 0..4, began).await;
    until_alone(&first).await;
    until_more(&first).await;
    let late = clients(&first, 4..8, began).await;

    // Another one comes while the first stands still with the lease, and is the only one then.
    first.pause();
    let mut second = setup().start();
    let at_second = Crowd::at(&second, 8..12, began).await;
    until_alone(&second).await;
    until_more(&second).await;
    // They ask as the first goes on, and know what the second was told meanwhile.
    let late = Crowd::of(late);
    first.resume();
    until_more(&first).await;
    until_more(&second).await;

    // The second dies. Its lease, if it has it, runs out.
    all.push(at_second.leave().await);
    second.kill();
    until_alone(&first).await;

    // Connections of the only one are lost.
    for _ in 0..3 {
        postgres
            .run("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
            .await;
        until_more(&first).await;
    }
    until_alone(&first).await;

    // One comes through a pooler, and goes.
    let pooler = Pooler::start(&postgres);
    let migrate = format!("store.postgres.migrate_url={}", postgres.url("postgres"));
    let third = Setup::new().store(&pooler.url("postgres")).set("store.postgres.pooler=transaction");
    let mut third = third.set(&migrate).start();
    let at_third = Crowd::at(&third, 12..16, began).await;
    until_more(&third).await;
    all.push(at_third.leave().await);
    third.stop().await;
    until_alone(&first).await;
    until_more(&first).await;

    all.extend([at_first.leave().await, late.leave().await]);
    let events = gather(all.into_iter());
    check(&events);
    check_finds_a_planted_fault(&events);
}

/// The primary dies while a server is the only one. The replica has all that anybody was told, and begins another history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_linearizable_while_a_replica_takes_over() {
    let primary = Postgres::start("");
    let replica = Postgres::replica_of(&primary);
    primary.run("alter system set synchronous_standby_names = '*'").await;
    primary.run("select pg_reload_conf()").await;
    let waiting = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    until("the primary waits for it", async || primary.query("postgres", waiting).await == "1").await;
    let both = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port, replica.port);
    let setup = || Setup::new().store(&both);
    let began = Instant::now();
    let first = setup().start();
    let at_first = Crowd::at(&first, 0..4, began).await;
    until_alone(&first).await;
    until_more(&first).await;

    primary.crash();
    replica.script(&["promote"]);
    let second = setup().start();
    let at_second = Crowd::at(&second, 4..8, began).await;
    until_more(&first).await;
    until_more(&second).await;
    let events = gather([at_first.leave().await, at_second.leave().await].into_iter());
    check(&events);
    check_finds_a_planted_fault(&events);
}
