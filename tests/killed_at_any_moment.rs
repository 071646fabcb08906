//! `kill -9` at random moments under load, again and again on one data directory: what was acknowledged is stored,
//! once, in the order it was sent, and whoever follows sees the same.

use std::time::Duration;

use hubbub_core::RandomSource;

use crate::harness::{Dialect, Kind, Load, Server, rounds};

const ROUNDS: u64 = 30;
const ROOMS: usize = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 2_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment() {
    let (rounds, random) = rounds(ROUNDS);
    let mut server = Server::start();
    let kinds = [
        Kind { name: "chat", dialect: Dialect::Chat, window: 100, outlives_outages: false },
        Kind { name: "api", dialect: Dialect::Api, window: 30, outlives_outages: false },
    ];
    let load = Load::start(&[server.address()], ROOMS, &kinds);
    for _ in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        server.kill();
        // Sometimes also while it starts.
        while random.next_u64().is_multiple_of(4) {
            server.kill_while_starting(Duration::from_micros(random.next_u64() % 60_000));
        }
        server.restart();
    }
    load.finish(&mut server).await;
}
