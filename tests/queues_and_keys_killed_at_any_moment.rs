//! `kill -9` at random moments while queues and keys are in use: what was taken in is delivered, what was acknowledged
//! never comes again, what was taken away comes once at most, and a key never has an older value than acknowledged.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::RandomSource;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Http, Server, in_time, rounds, until};

const ROUNDS: u64 = 12;
const PRODUCERS: u64 = 3;
/// Most answers in one round.
const ANSWERS_MAX: u64 = 600;

struct Shared {
    address: SocketAddr,
    answers: AtomicU64,
    /// Nothing new is made any more.
    stop: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// A client that connects again when the connection is lost.
struct Client {
    shared: Arc<Shared>,
    http: Option<Http>,
}

impl Client {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), http: None }
    }

    /// The answer, or `None` when nobody knows what became of the request.
    async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> Option<(u16, Value, Option<String>)> {
        if self.http.is_none() {
            self.http = Http::try_connect(self.shared.address).await;
        }
        let answer = match &mut self.http {
            Some(http) => http.try_request(method, path, &[], body).await,
            None => None,
        };
        let Some(answer) = answer else {
            self.http = None;
            tokio::time::sleep(Duration::from_millis(1)).await;
            return None;
        };
        self.shared.answers.fetch_add(1, Ordering::SeqCst);
        let etag = answer.header("etag").map(str::to_owned);
        let json = if answer.body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&answer.body).unwrap_or_default()
        };
        Some((answer.status, json, etag))
    }

    async fn request_again(&mut self, method: Method, path: &str) -> (u16, Value, Option<String>) {
        loop {
            if let Some(answer) = self.request(method.clone(), path, String::new()).await {
                return answer;
            }
        }
    }

    async fn post(&mut self, path: &str, body: Value) -> Option<Value> {
        let (status, answer, _) = self.request(Method::POST, path, body.to_string()).await?;
        if status == 503 || status == 504 {
            return None;
        }
        assert!((200..300).contains(&status), "{path} {body}: {status} {answer}");
        Some(answer)
    }
}

/// Sends numbers, each under its own id until it is taken in. Says how many.
async fn produce(shared: Arc<Shared>, producer: u64, queue: &'static str) -> u64 {
    let mut client = Client::new(&shared);
    let path = format!("/v1/queues/{queue}/messages");
    for number in 0.. {
        if shared.is_over() {
            return number;
        }
        let text = format!("{producer}-{number}");
        let body = json!({"sender": format!("p{producer}"), "message": text, "messageId": text});
        while client.post(&path, body.clone()).await.is_none() {}
    }
    0
}

/// What a consumer saw.
#[derive(Default)]
struct Seen {
    done: HashSet<String>,
    /// Texts as they came, repeats included.
    taken: Vec<String>,
    /// Takes and acknowledgements whose answer was lost.
    unanswered: u64,
}

/// Takes on lease and acknowledges until the queue is empty for good.
async fn work(shared: Arc<Shared>, name: &'static str) -> Seen {
    let (mut client, mut seen) = (Client::new(&shared), Seen::default());
    loop {
        let was_over = shared.is_over();
        let body = json!({"receiver": name, "max": 5, "leaseMs": 1_500});
        let Some(answer) = client.post("/v1/queues/leased/lease", body).await else { continue };
        let messages = answer["messages"].as_array().unwrap();
        if messages.is_empty() {
            let info = client.request(Method::GET, "/v1/queues/leased", String::new()).await;
            let is_empty = info.is_some_and(|(_, info, _)| {
                ["ready", "delayed", "leased"].iter().all(|state| info[state] == 0)
            });
            if was_over && is_empty {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for message in messages {
            let (text, id) =
                (message["message"].as_str().unwrap().to_owned(), message["id"].as_str().unwrap());
            assert!(!seen.done.contains(&text), "{text} came again after it was acknowledged");
            seen.taken.push(text.clone());
            let path = format!("/v1/queues/leased/messages/{id}/ack");
            let body = json!({"receipt": message["receipt"]}).to_string();
            match client.request(Method::POST, &path, body).await {
                Some((200..300, ..)) => {
                    seen.done.insert(text);
                }
                // The lease ran out meanwhile, or the acknowledgement before was heard though its answer was lost.
                Some((409, ..)) => {}
                Some((503 | 504, ..)) | None => {
                    seen.unanswered += 1;
                }
                Some((status, answer, _)) => panic!("{path}: {status} {answer}"),
            }
        }
    }
}

/// Takes away until the queue is empty for good.
async fn take(shared: Arc<Shared>) -> Seen {
    let (mut client, mut seen) = (Client::new(&shared), Seen::default());
    loop {
        let was_over = shared.is_over();
        let body = json!({"receiver": "taker", "max": 3, "waitMs": 50});
        let Some(answer) = client.post("/v1/queues/taken/get", body).await else {
            seen.unanswered += 1;
            continue;
        };
        let messages = answer["messages"].as_array().unwrap();
        if was_over && messages.is_empty() {
            return seen;
        }
        for message in messages {
            let text = message["message"].as_str().unwrap().to_owned();
            assert!(seen.done.insert(text.clone()), "{text} was taken twice");
            seen.taken.push(text);
        }
    }
}

/// Counts a key up, and sees that it never goes back.
async fn count_up(shared: Arc<Shared>, key: u64) -> u64 {
    let mut client = Client::new(&shared);
    let path = format!("/kv/counter/{key}");
    let (mut acked, mut tried, mut revision) = (0, 0, 0);
    while !shared.is_over() {
        tried += 1;
        let put = client.request(Method::PUT, &path, tried.to_string()).await;
        if let Some((status, answer, etag)) = put
            && status != 503
            && status != 504
        {
            assert!(matches!(status, 201 | 204), "{status} {answer}");
            acked = tried;
            let now: u64 = etag.unwrap().trim_matches('"').parse().unwrap();
            assert!(now > revision, "revision {now} behind {revision}");
            revision = now;
        }
        if let Some((200, value, etag)) = client.request(Method::GET, &path, String::new()).await {
            let value = value.as_u64().unwrap();
            assert!(
                (acked..=tried).contains(&value),
                "{path}: read {value}, acknowledged {acked}, tried {tried}"
            );
            // What is read is durable: nobody sees less from now on.
            acked = value;
            let now: u64 = etag.unwrap().trim_matches('"').parse().unwrap();
            assert!(now >= revision, "revision {now} behind {revision}");
            revision = now;
        }
    }
    acked
}

/// Of each producer, numbers come in the order they were sent.
fn assert_in_order(taken: &[String]) {
    for producer in 0..PRODUCERS {
        let prefix = format!("{producer}-");
        let numbers: Vec<u64> =
            taken.iter().filter_map(|text| text.strip_prefix(&prefix)?.parse().ok()).collect();
        assert!(numbers.is_sorted(), "producer {producer}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_and_keys_killed_at_any_moment() {
    let (rounds, random) = rounds(ROUNDS);
    let mut server = Server::start();
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = Arc::new(Shared { address: server.address(), answers, stop });
    let mut client = Client::new(&shared);
    for queue in ["leased", "taken"] {
        let made = client.request(Method::PUT, &format!("/v1/queues/{queue}"), "{}".into()).await.unwrap();
        assert_eq!(made.0, 201, "{}", made.1);
    }
    let producers = |queue| {
        let each = (0..PRODUCERS).map(|producer| tokio::spawn(produce(shared.clone(), producer, queue)));
        each.collect::<Vec<_>>()
    };
    let (leased, taken) = (producers("leased"), producers("taken"));
    let workers = ["w1", "w2"].map(|name| tokio::spawn(work(shared.clone(), name)));
    let taker = tokio::spawn(take(shared.clone()));
    let counters: Vec<_> = (0..3).map(|key| tokio::spawn(count_up(shared.clone(), key))).collect();

    for round in 0..rounds {
        let wanted = shared.answers.load(Ordering::SeqCst) + random.next_u64() % ANSWERS_MAX;
        until("load", async || {
            let tasks = leased.iter().chain(&taken).chain(&counters);
            assert!(
                !tasks.into_iter().any(|task| task.is_finished()),
                "round {round}: somebody met what must not be"
            );
            assert!(
                !workers.iter().any(|task| task.is_finished()),
                "round {round}: a worker met what must not be"
            );
            shared.answers.load(Ordering::SeqCst) >= wanted
        })
        .await;
        tokio::time::sleep(Duration::from_micros(random.next_u64() % 20_000)).await;
        server.kill();
        while random.next_u64().is_multiple_of(4) {
            server.kill_while_starting(Duration::from_micros(random.next_u64() % 60_000));
        }
        server.restart();
    }

    shared.stop.store(true, Ordering::SeqCst);
    let mut sent = Vec::new();
    for producer in leased.into_iter().chain(taken) {
        sent.push(in_time("the producers", producer).await.unwrap());
    }
    let (to_lease, to_take) = sent.split_at(usize::try_from(PRODUCERS).unwrap());
    let all = |counts: &[u64]| -> HashSet<String> {
        let each = (0..)
            .zip(counts)
            .flat_map(|(producer, count)| (0..*count).map(move |n| format!("{producer}-{n}")));
        each.collect()
    };
    let (mut came, mut done) = (HashSet::new(), HashSet::new());
    for worker in workers {
        let seen = in_time("the workers", worker).await.unwrap();
        came.extend(seen.taken);
        let twice: Vec<&String> = done.intersection(&seen.done).collect();
        assert!(twice.is_empty(), "acknowledged by both: {twice:?}");
        done.extend(seen.done);
    }
    assert_eq!(came, all(to_lease), "everything taken in is delivered, and nothing else");
    let seen = in_time("the taker", taker).await.unwrap();
    assert_in_order(&seen.taken);
    let expected = all(to_take);
    assert!(seen.done.is_subset(&expected));
    let missing = (expected.len() - seen.done.len()) as u64;
    assert!(
        missing <= 3 * seen.unanswered,
        "{missing} are missing, {} takes were not answered",
        seen.unanswered
    );

    // Once more from the disk alone.
    let mut counted = Vec::new();
    for counter in counters {
        counted.push(in_time("the counters", counter).await.unwrap());
    }
    server.restart();
    for (key, value) in counted.iter().enumerate() {
        let (_, found, _) = client.request_again(Method::GET, &format!("/kv/counter/{key}")).await;
        assert!(found.as_u64().unwrap() >= *value, "counter {key}: {found} behind {value}");
    }
    println!(
        "{rounds} rounds, {} messages, {} answers",
        came.len() + seen.done.len(),
        shared.answers.load(Ordering::SeqCst)
    );
}
