//! Three nodes on Kafka and Cassandra, of which one dies again and again. Clients go to another one, and lose, repeat and
//! reorder nothing. After each death all of them catch up, and it prints how late what was.
//!
//! `NODE_DEATHS_SECONDS=120` runs it long: 200 rooms, and a death each 10 seconds.
//! `NODE_DEATHS_SESSION_SECONDS=6` sets `kafka.session_timeout`, which is 3 s otherwise.

use std::time::{Duration, Instant};

use hubbub_core::RandomSource;

use crate::harness::{Cassandra, Dialect, Kafka, Kind, Load, Server, number, rounds};

const NODES: usize = 3;
const ROOMS: usize = 6;
/// Most messages acknowledged between two deaths.
const MESSAGES_MAX: u64 = 300;
/// The long run: rooms, the time from one death to the next, and each writer's pause between ten messages.
const ROOMS_LONG: usize = 200;
const INTERVAL: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(3);

/// Kafka takes what it is given as long as it is there: nothing is refused, so the order is strict.
const KINDS: [Kind; 1] = [Kind { name: "w", dialect: Dialect::Api, window: 20, outlives_outages: false }];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_die_in_turn() {
    let long = number("NODE_DEATHS_SECONDS").map(Duration::from_secs);
    let (deaths, random) = rounds(long.map_or(2, |long| long.as_secs() / INTERVAL.as_secs()));
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let session = number("NODE_DEATHS_SESSION_SECONDS").unwrap_or(3);
    let setup = kafka.setup(&cassandra.url(), 12).set(&format!("kafka.session_timeout={session}s"));
    let setup = Cassandra::replicated(setup);
    let mut servers: [Server; NODES] = ["a", "b", "c"].map(|name| setup.clone().on(name).start());
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let load = match long {
        None => Load::roaming(&addresses, ROOMS, &KINDS, None),
        Some(_) => Load::roaming(&addresses, ROOMS_LONG, &KINDS, Some(PAUSE)),
    };
    load.go_on(&random, MESSAGES_MAX).await;
    let (began, acked) = (Instant::now(), load.acked());
    for death in 0..deaths {
        let next = Instant::now() + INTERVAL;
        let killed = usize::try_from(random.next_u64() % NODES as u64).unwrap();
        load.take_lateness();
        servers[killed].kill();
        tokio::task::block_in_place(|| servers[killed].restart());
        load.go_on(&random, MESSAGES_MAX).await;
        // The others have its partitions after the session timeout. The patience of tests is twenty times that.
        let took = load.catch_up().await;
        if long.is_some() {
            tokio::time::sleep_until(next.into()).await;
        }
        let (worst, median) = load.take_lateness();
        println!(
            "death {death} of {killed}: all have caught up {took:.2?} later; latest delivery {worst:.2?} after the receipt, \
             to half of the followers {median:.2?}"
        );
    }
    let rate = (load.acked() - acked) as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} messages acknowledged a second");
    let [server, ..] = &mut servers;
    load.finish(server).await;
    assert!(kafka.dead_letters().is_empty());
}
