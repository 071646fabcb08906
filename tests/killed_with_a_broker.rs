//! The server, the broker or PostgreSQL killed, several of them in any order, or connections cut, at random moments under
//! load: what was acknowledged is stored, once, who sends one message after another finds them in that order, and
//! whoever follows sees the same.

use hubbub_core::RandomSource;

use crate::harness::{Broker, Dialect, Kind, Load, Postgres, Server, Setup, rounds, until};

const ROUNDS: u64 = 10;
const ROOMS: usize = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 1_500;

/// What befalls them in a round.
const BLOWS: [&str; 7] = [
    "the server",
    "PostgreSQL",
    "the broker",
    "the connections",
    "both, and the broker comes back first",
    "both, and PostgreSQL comes back first",
    "all",
];

fn strike(blow: usize, server: &mut Server, broker: &Broker, postgres: &Postgres) {
    match blow {
        0 => server.restart(),
        1 => {
            postgres.crash();
            postgres.restart();
        }
        2 => {
            broker.kill();
            broker.restart();
        }
        3 => broker.cut_connections(),
        4 => {
            postgres.crash();
            broker.kill();
            broker.restart();
            postgres.restart();
        }
        5 => {
            broker.kill();
            postgres.crash();
            postgres.restart();
            broker.restart();
        }
        _ => {
            postgres.crash();
            broker.kill();
            server.kill();
            postgres.restart();
            broker.restart();
            server.restart();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_a_broker() {
    let (rounds, random) = rounds(ROUNDS);
    let (broker, postgres) = (Broker::start(), Postgres::start(""));
    let mut server = Setup::new().store(&postgres.url("postgres")).set(&broker.setting()).start();
    let kinds = [
        Kind { name: "chat", dialect: Dialect::Chat, window: 1, outlives_outages: true },
        Kind { name: "api", dialect: Dialect::Api, window: 1, outlives_outages: true },
        Kind { name: "many", dialect: Dialect::Chat, window: 100, outlives_outages: true },
    ];
    let load = Load::start(&[server.address()], ROOMS, &kinds);
    for round in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        // Each at least once, then as it comes.
        let number = if round < BLOWS.len() as u64 { round } else { random.next_u64() % BLOWS.len() as u64 };
        let blow = usize::try_from(number).unwrap();
        println!("round {round}: {}", BLOWS[blow]);
        strike(blow, &mut server, &broker, &postgres);
    }
    load.finish(&mut server).await;
    until("the broker hears of all", async || server.metric("log_unacked").await == 0).await;
    let client = broker.client().await;
    for queue in ["hubbub.dead", "hubbub.room.0"] {
        assert!(client.take(queue).await.is_none(), "something is left in {queue}");
    }
}
