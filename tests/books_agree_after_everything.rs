//! Everything at once, and again and again: messages by all dialects, readers of all kinds, queues, keys and members,
//! while servers, brokers and clocks do what they do. After each blow, and in the end, the books agree.
//!
//! `ENDURANCE_SECONDS=900` runs each variant for so long, `CRASH_SEED=17` makes the same choices again.

mod blows;
mod books;
mod keys;
mod people;
mod queues;
mod readers;
mod world;
mod writers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hubbub_core::clock::SeededRandom;
use hyper::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::harness::{Dialect, Server, Setup, hubbub_aside, in_time, number, until};
use blows::{BLOWS, strike};
use books::Book;
use keys::Revisions;
use people::Members;
use queues::{Jobs, Letters, RECEIVERS};
use readers::{Pace, Reader};
use world::{Client, World, below};
use writers::Ledger;

/// Rooms from which nothing is deleted; the second has a retention that is never over.
const ROOMS: [&str; 3] = ["plain", "retained", BIG];
/// With texts of which few are on their way to who does not read.
const BIG: &str = "big";
const BIG_BYTES: usize = 30_000;
/// Where messages are gone after a moment.
const BRIEF: &str = "brief";

/// Everybody who does something.
struct Crowd {
    world: Arc<World>,
    ledger: Arc<Ledger>,
    jobs: Arc<Jobs>,
    letters: Arc<Letters>,
    revisions: Arc<Revisions>,
    members: Arc<Members>,
    /// Who ends when all is over, with nothing to say.
    others: Vec<JoinHandle<()>>,
    adding: Vec<JoinHandle<(u64, u64)>>,
    receivers: Vec<JoinHandle<queues::Received>>,
    readers: Vec<JoinHandle<Reader>>,
    watch: JoinHandle<std::collections::BTreeSet<u64>>,
    books: Vec<Book>,
    client: Client,
}

/// Rooms, queues, clients and keys that are there from the beginning.
async fn prepare(server: &Server) {
    server.put_room("retained", json!({"retention": "30d"})).await;
    server.put_room(BRIEF, json!({"retention": 3})).await;
    for room in [ROOMS[0], BIG] {
        server.put_room(room, json!({})).await;
    }
    server.put_queue("jobs", json!({"maxDeliveries": 3})).await;
    for queue in ["letters", "news"] {
        server.put_queue(queue, json!({})).await;
    }
    server.register(&RECEIVERS).await;
    let day = [("hubbub-ttl", "86400")];
    let put = server.http().await.request(Method::PUT, "/kv/kept", &day, "x").await;
    assert_eq!(put.status, 201, "{}", put.text());
}

impl Crowd {
    fn start(world: Arc<World>) -> Self {
        let (ledger, jobs, letters) =
            (Arc::<Ledger>::default(), Arc::<Jobs>::default(), Arc::<Letters>::default());
        let (revisions, members) = (Arc::<Revisions>::default(), Arc::<Members>::default());
        let mut others = Vec::new();
        for room in [ROOMS[0], ROOMS[1]] {
            for (dialect, window) in [(Dialect::Chat, 20), (Dialect::Api, 1)] {
                others.push(tokio::spawn(writers::write(
                    world.clone(),
                    ledger.clone(),
                    room,
                    dialect,
                    window,
                )));
            }
        }
        for (room, bytes) in [(ROOMS[0], 10), (BIG, BIG_BYTES), (BRIEF, 10)] {
            others.push(tokio::spawn(writers::post(world.clone(), ledger.clone(), room, bytes)));
        }
        for producer in 0..2 {
            let (world, jobs, letters) = (world.clone(), jobs.clone(), letters.clone());
            others.push(tokio::spawn(queues::produce(world, jobs, letters, producer)));
        }
        for name in ["w0", "w1"] {
            others.push(tokio::spawn(queues::work(world.clone(), jobs.clone(), name)));
        }
        for key in 0..2 {
            others.push(tokio::spawn(keys::count_up(world.clone(), revisions.clone(), key)));
        }
        others.push(tokio::spawn(keys::expire(world.clone(), revisions.clone())));
        others.push(tokio::spawn(people::come_and_go(world.clone(), members.clone())));
        let add = || tokio::spawn(keys::compare_and_set(world.clone(), revisions.clone()));
        let follow = |(room, pace)| tokio::spawn(readers::follow(Reader::new(&world, room, 0), pace));
        let kinds = [(ROOMS[0], Pace::Live), (ROOMS[1], Pace::Live), (BIG, Pace::Live), (BRIEF, Pace::Live)];
        let slow =
            [(ROOMS[0], Pace::Slow), (BIG, Pace::Stops), (ROOMS[1], Pace::Stops), (BRIEF, Pace::Stops)];
        Self {
            adding: vec![add(), add()],
            receivers: RECEIVERS.map(|name| tokio::spawn(queues::receive(world.clone(), name))).into(),
            readers: kinds.into_iter().chain(slow).map(follow).collect(),
            watch: tokio::spawn(keys::watch(world.clone())),
            books: ROOMS.map(Book::new).into(),
            client: world.client(),
            world,
            ledger,
            jobs,
            letters,
            revisions,
            members,
            others,
        }
    }

    /// Whether somebody met what must not be.
    fn died(&self) -> bool {
        self.others.iter().any(JoinHandle::is_finished)
            || self.adding.iter().any(JoinHandle::is_finished)
            || self.receivers.iter().any(JoinHandle::is_finished)
            || self.readers.iter().any(JoinHandle::is_finished)
            || self.watch.is_finished()
    }

    /// Lets everybody do some more.
    async fn go_on(&self, steps: u64) {
        let wanted = self.world.steps() + steps;
        until("load", async || {
            assert!(!self.died(), "somebody met what must not be");
            self.world.steps() >= wanted
        })
        .await;
    }

    /// Stops everybody for a moment and compares.
    async fn compare(&mut self) {
        let _quiet = self.world.quiet().await;
        books::agree(&mut self.books, &mut self.client, &self.ledger).await;
        people::check(&self.members, &mut self.client, &self.books).await;
        assert!(!self.died(), "somebody met what must not be");
    }

    async fn finish(mut self) {
        {
            let _quiet = self.world.quiet().await;
            self.world.end();
        }
        for other in self.others {
            in_time("the others", other).await.unwrap();
        }
        books::close(&mut self.books, &mut self.client, &self.ledger).await;
        people::check(&self.members, &mut self.client, &self.books).await;
        for reader in self.readers {
            let reader = in_time("the readers", reader).await.unwrap();
            match self.books.iter().find(|book| book.room == reader.room) {
                Some(book) => book.check(&reader),
                None => reader.check_with_gaps(),
            }
        }
        let mut added = Vec::new();
        for adding in self.adding {
            added.push(in_time("those who add", adding).await.unwrap());
        }
        keys::check_shared(&mut self.client, &added).await;
        for receiver in self.receivers {
            in_time("the receivers", receiver).await.unwrap().check(&self.letters);
        }
        in_time("the last jobs", self.jobs.drain(&mut self.client)).await;
        self.jobs.check();
        let last = self.client.request_again(Method::PUT, keys::LAST, "x").await;
        self.revisions.add(&last);
        keys::check_watched(&in_time("who watches", self.watch).await.unwrap(), &self.revisions);
        let stored: usize = self.books.iter().map(|book| book.entries.len()).sum();
        let cut = readers::CUT.load(Ordering::SeqCst);
        println!("{stored} messages in the books, {cut} readers cut off");
    }
}

/// Runs everything; `blows` is how many `strike_else` knows, which come first, besides those for any server.
async fn endure(
    setup: Setup,
    has_broker: bool,
    rounds: u64,
    blows: u64,
    mut strike_else: impl AsyncFnMut(u64, &Server),
) -> Server {
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the same choices again: CRASH_SEED={seed}");
    let random = SeededRandom::new(seed);
    let (seconds, begun) = (number("ENDURANCE_SECONDS"), Instant::now());
    let setup = setup.set("limits.outbox_messages=50").set("clock.trust_after=5s");
    setup.set_clock(0);
    let mut server = setup.start();
    prepare(&server).await;
    let mut crowd = Crowd::start(World::new(server.address(), has_broker, seed));
    let mut late: Vec<JoinHandle<()>> = Vec::new();
    for round in 0.. {
        let is_enough = seconds.map_or(round >= rounds, |seconds| begun.elapsed().as_secs() >= seconds);
        if is_enough {
            break;
        }
        crowd.go_on(below(&random, 800)).await;
        for one in late.extract_if(.., |one| one.is_finished()) {
            one.await.unwrap();
        }
        for room in ROOMS {
            late.push(tokio::spawn(readers::join_late(crowd.world.clone(), room)));
        }
        // Each at least once, then as it comes.
        let blow = if round < blows + BLOWS { round } else { below(&random, blows + BLOWS) };
        println!("{:?}: round {round}, blow {blow}", begun.elapsed());
        match blow.checked_sub(blows) {
            Some(blow) => strike(blow, &mut server, &random).await,
            None => strike_else(blow, &server).await,
        }
        crowd.go_on(50).await;
        crowd.compare().await;
    }
    crowd.finish().await;
    for one in late {
        in_time("who came late", one).await.unwrap();
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn books_agree_after_everything() {
    let setup = Setup::new();
    let backups = setup.beside("backups").display().to_string();
    let mut server = endure(setup, false, 6, 1, async |_, server| {
        let said = server.run(&["backup", &backups, "--json"], "").await.success();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let path = said["backup"].as_str().unwrap().to_owned();
        hubbub_aside(vec!["verify".into(), path], String::new()).await.success();
    })
    .await;
    server.stop().await;
    let data = server.data().display().to_string();
    hubbub_aside(vec!["verify".into(), data], String::new()).await.success();
}

#[cfg(feature = "amqp")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn books_agree_after_everything_with_a_broker() {
    use crate::harness::{Broker, Postgres, hubbub_at_length};
    let (broker, postgres) = (Broker::start(), Postgres::start(""));
    let setup = Setup::new().store(&postgres.url("postgres")).set(&broker.setting());
    let exported = setup.beside("exported").display().to_string();
    let server = endure(setup, true, 7, 4, async |blow, server| match blow {
        0 => {
            broker.kill();
            broker.restart();
        }
        1 => broker.cut_connections(),
        2 => {
            postgres.crash();
            postgres.restart();
        }
        _ => {
            let arguments = ["export", "--out", &exported, "--server", &server.url()].map(str::to_owned);
            hubbub_at_length(arguments.to_vec()).await.success();
        }
    })
    .await;
    until("the broker hears of all", async || server.metric("log_unacked").await == 0).await;
    let client = broker.client().await;
    for queue in ["hubbub.dead", "hubbub.room.0"] {
        assert!(client.take(queue).await.is_none(), "something is left in {queue}");
    }
}
