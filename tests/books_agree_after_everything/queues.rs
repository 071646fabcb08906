//! Who sends to queues and takes from them, and what must be true of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::Method;
use serde_json::{Value, json};

use super::world::{Client, World, below};

pub(super) const RECEIVERS: [&str; 3] = ["c0", "c1", "c2"];
/// Most messages of one `get`.
const GET_MAX: u64 = 3;

/// What is known of a message that is taken on lease.
#[derive(Default)]
struct Job {
    /// When the acknowledgement was answered.
    finished: Option<u64>,
    /// Whether an acknowledgement was not answered.
    may_be_finished: bool,
    /// When the newest request that was answered with it began.
    asked: u64,
}

#[derive(Default)]
pub(super) struct Jobs {
    sent: Mutex<HashSet<String>>,
    known: Mutex<HashMap<String, Job>>,
    /// Orders what happened to jobs.
    ticks: AtomicU64,
}

impl Jobs {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    /// A request that began at `asked` was answered with this.
    fn came(&self, id: &str, asked: u64) {
        let mut known = self.known.lock().unwrap();
        let job = known.entry(id.to_owned()).or_default();
        let is_again = job.finished.is_some_and(|finished| finished < asked);
        assert!(!is_again, "{id} came again after it was acknowledged");
        job.asked = job.asked.max(asked);
    }

    /// Acknowledges with a receipt that came at `came`.
    async fn acknowledge(&self, client: &mut Client, id: &str, receipt: &Value, came: u64) {
        let is_old = self.known.lock().unwrap()[id].asked > came;
        let path = format!("/v1/queues/jobs/messages/{id}/ack");
        let answer = client.request(Method::POST, &path, &[], &json!({"receipt": receipt}).to_string()).await;
        let finished = self.tick();
        let mut known = self.known.lock().unwrap();
        let job = known.get_mut(id).unwrap();
        match answer {
            Some(answer) if answer.status == 204 => {
                assert!(!is_old, "{id} was acknowledged with the receipt of an earlier delivery");
                assert!(job.finished.is_none(), "{id} was acknowledged twice");
                job.finished = Some(finished);
            }
            Some(answer) => assert!(matches!(answer.status, 404 | 409), "{}", answer.text()),
            None => job.may_be_finished |= client.may_have_happened,
        }
    }

    /// Takes whatever is left.
    pub(super) async fn drain(&self, client: &mut Client) {
        loop {
            client.request_again(Method::POST, "/v1/queues/jobs.dead/redrive", "{}").await;
            let asked = self.tick();
            let body = json!({"receiver": "w0", "max": 100, "leaseMs": 600_000});
            let taken = client.post("/v1/queues/jobs/lease", &body).await.expect("the server is there");
            for message in taken["messages"].as_array().unwrap() {
                let id = message["id"].as_str().unwrap();
                self.came(id, asked);
                self.acknowledge(client, id, &message["receipt"], self.tick()).await;
            }
            let mut left = 0;
            for queue in ["jobs", "jobs.dead"] {
                left += client.get(&format!("/v1/queues/{queue}")).await["messages"].as_u64().unwrap();
            }
            if left == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub(super) fn check(&self) {
        let (sent, known) = (self.sent.lock().unwrap(), self.known.lock().unwrap());
        for id in known.keys() {
            assert!(sent.contains(id), "nobody was told that {id} was sent");
        }
        let mut unknown = 0;
        for id in sent.iter() {
            let job = known.get(id).unwrap_or_else(|| panic!("{id} was never delivered"));
            unknown += u64::from(job.finished.is_none());
            assert!(job.finished.is_some() || job.may_be_finished, "{id} is lost");
        }
        println!("{} jobs, {unknown} of them with an acknowledgement that was not answered", sent.len());
    }
}

/// Takes on lease, and acknowledges, gives back, forgets, or comes back with an old receipt.
pub(super) async fn work(world: Arc<World>, jobs: Arc<Jobs>, name: &'static str) {
    let (random, mut client) = (world.random(), world.client());
    let mut held: Vec<(String, Value, u64)> = Vec::new();
    while let Some(_turn) = world.turn(&random).await {
        if below(&random, 20) == 0 {
            client.request(Method::POST, "/v1/queues/jobs.dead/redrive", &[], "{}").await;
        }
        if !held.is_empty() && below(&random, 20) == 0 {
            let (id, receipt, came) = held.swap_remove(0);
            jobs.acknowledge(&mut client, &id, &receipt, came).await;
        }
        let asked = jobs.tick();
        let body = json!({"receiver": name, "max": 5, "leaseMs": 1_500});
        let Some(taken) = client.post("/v1/queues/jobs/lease", &body).await else { continue };
        for message in taken["messages"].as_array().unwrap() {
            let (id, receipt) = (message["id"].as_str().unwrap(), &message["receipt"]);
            jobs.came(id, asked);
            assert!((1..=3).contains(&message["deliveries"].as_u64().unwrap()), "{message}");
            let came = jobs.tick();
            let path = format!("/v1/queues/jobs/messages/{id}");
            let said = json!({"receipt": receipt}).to_string();
            match below(&random, 10) {
                0 => {
                    client.request(Method::POST, &format!("{path}/nack"), &[], &said).await;
                    held.push((id.to_owned(), receipt.clone(), came));
                }
                1 => held.push((id.to_owned(), receipt.clone(), came)),
                how => {
                    if how == 2 {
                        client.request(Method::POST, &format!("{path}/extend"), &[], &said).await;
                    }
                    jobs.acknowledge(&mut client, id, receipt, came).await;
                }
            }
        }
    }
}

/// How many were sent to each receiver, or to everybody, by whom.
#[derive(Default)]
pub(super) struct Letters(Mutex<BTreeMap<(String, u64), u64>>);

/// Sends to queues, each message until it is taken in, and often once more.
pub(super) async fn produce(world: Arc<World>, jobs: Arc<Jobs>, letters: Arc<Letters>, producer: u64) {
    let (random, mut client) = (world.random(), world.client());
    for number in 0_u64.. {
        let Some(_turn) = world.turn(&random).await else { return };
        let kind = below(&random, 12);
        let receiver = RECEIVERS[usize::try_from(kind % 3).unwrap()];
        let mut body = json!({"sender": format!("p{producer}"), "message": format!("{producer}-{number}"), "messageId": format!("{producer}-{number}")});
        let queue = match kind {
            0..8 => "jobs",
            8..11 => {
                body["receiver"] = receiver.into();
                "letters"
            }
            _ => {
                body["audience"] = "all".into();
                "news"
            }
        };
        if kind == 0 {
            body["groupId"] = "g".into();
        }
        let path = format!("/v1/queues/{queue}/messages");
        let answer = client.request_again(Method::POST, &path, &body.to_string()).await;
        assert!(matches!(answer.status, 200 | 201), "{body}: {}", answer.text());
        let sent = answer.json();
        if below(&random, 4) == 0 {
            let again = client.request_again(Method::POST, &path, &body.to_string()).await;
            assert_eq!((again.status, &again.json()["id"]), (200, &sent["id"]), "{body}");
        }
        match queue {
            "jobs" => {
                let is_new = jobs.sent.lock().unwrap().insert(sent["id"].as_str().unwrap().to_owned());
                assert!(is_new, "{sent} has an id that was given before");
            }
            "letters" => *letters.0.lock().unwrap().entry((receiver.to_owned(), producer)).or_default() += 1,
            _ => {
                for receiver in RECEIVERS {
                    *letters.0.lock().unwrap().entry((receiver.to_owned(), producer)).or_default() += 1;
                }
            }
        }
    }
}

/// Takes away what is for one receiver, and in the end whatever is left; each message once at most, in order.
pub(super) async fn receive(world: Arc<World>, name: &'static str) -> Received {
    let (random, mut client) = (world.random(), world.client());
    let mut received = Received { name, ..Received::default() };
    let mut last: HashMap<(&str, String), u64> = HashMap::new();
    loop {
        let turn = world.turn(&random).await;
        let mut came = 0;
        for queue in ["letters", "news"] {
            let body = json!({"receiver": name, "max": GET_MAX, "waitMs": 20 * below(&random, 2)});
            let Some(taken) = client.post(&format!("/v1/queues/{queue}/get"), &body).await else {
                received.may_be_lost += GET_MAX * u64::from(client.may_have_happened);
                came += 1;
                continue;
            };
            for message in taken["messages"].as_array().unwrap() {
                let (producer, number) = message["message"].as_str().unwrap().split_once('-').unwrap();
                let number: u64 = number.parse().unwrap();
                let before = last.insert((queue, producer.to_owned()), number);
                assert!(before < Some(number), "{name}: {queue} {message} behind {before:?}");
                *received.counts.entry(producer.parse().unwrap()).or_default() += 1;
                came += 1;
            }
        }
        if turn.is_none() && came == 0 {
            return received;
        }
    }
}

#[derive(Default)]
pub(super) struct Received {
    name: &'static str,
    counts: BTreeMap<u64, u64>,
    /// How many were at most in answers that were lost.
    may_be_lost: u64,
}

impl Received {
    pub(super) fn check(&self, letters: &Letters) {
        let letters = letters.0.lock().unwrap();
        let (mut sent, mut received) = (0, 0);
        for ((_, producer), count) in letters.iter().filter(|((name, _), _)| name == self.name) {
            let came = self.counts.get(producer).copied().unwrap_or_default();
            assert!(came <= *count, "{}: {came} of {count} from {producer}", self.name);
            sent += count;
            received += came;
        }
        assert!(sent - received <= self.may_be_lost, "{}: {received} of {sent} came", self.name);
        println!("{}: {received} of {sent} letters, {} may be lost", self.name, self.may_be_lost);
    }
}
