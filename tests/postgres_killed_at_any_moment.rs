//! The server is killed, PostgreSQL ends as in a power failure, or both, in the middle of load, again and again: what was
//! acknowledged is stored, once, under its number; what was not, at most once; who sends one message after another finds
//! them in that order; and whoever follows sees the same.

use std::time::Duration;

use hubbub_core::RandomSource;

use crate::harness::{Dialect, Kind, Load, Postgres, Setup, rounds};

const ROUNDS: u64 = 12;
const ROOMS: usize = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_at_any_moment() {
    let (rounds, random) = rounds(ROUNDS);
    let postgres = Postgres::start("");
    let mut server = Setup::new().store(&postgres.url("postgres")).start();
    let kinds = [
        Kind { name: "chat", dialect: Dialect::Chat, window: 1, outlives_outages: true },
        Kind { name: "api", dialect: Dialect::Api, window: 1, outlives_outages: true },
        Kind { name: "many", dialect: Dialect::Api, window: 30, outlives_outages: true },
    ];
    let load = Load::start(&[server.address()], ROOMS, &kinds);
    for round in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        let (kills_server, crashes_database) =
            [(true, false), (false, true), (true, true)][round as usize % 3];
        if crashes_database {
            postgres.crash();
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 500)).await;
        }
        if kills_server {
            server.kill();
        }
        if crashes_database {
            postgres.restart();
        }
        if kills_server {
            server.restart();
        }
    }
    load.finish(&mut server).await;
}
