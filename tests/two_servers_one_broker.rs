//! Two servers on one broker and one database: both publish, one of them stores, and when that one is killed the other
//! does.

use crate::harness::{Broker, Dialect, Kind, Load, Postgres, Server, Setup, rounds, texts, until};

const ROUNDS: u64 = 4;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 600;

/// Sends until the broker has it.
async fn send_at_last(server: &Server, room: &str, id: &str) {
    until("a message is taken", async || server.send_as(room, id, id).await.status == 202).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_one_broker() {
    let (rounds, random) = rounds(ROUNDS);
    let (broker, postgres) = (Broker::shared(), Postgres::start(""));
    let start = || Setup::new().store(&postgres.url("postgres")).set(&broker.setting()).start();
    let mut servers = [start(), start()];
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let kinds = [
        Kind { name: "one", dialect: Dialect::Api, window: 1, outlives_outages: true },
        Kind { name: "many", dialect: Dialect::Chat, window: 40, outlives_outages: true },
    ];
    let load = Load::start(&addresses, 2, &kinds);
    load.go_on(&random, MESSAGES_MAX).await;
    until("some are stored", async || servers[0].metric("log_messages_consumed_total").await > 0).await;
    assert_eq!(servers[1].metric("log_messages_consumed_total").await, 0, "the second one waits");

    let mut alone = Vec::new();
    for round in 0..rounds {
        // First the one that stores, then the one that took over.
        let [killed, other] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        load.go_on(&random, MESSAGES_MAX).await;
        servers[killed].kill();
        let id = format!("round-{round}");
        send_at_last(&servers[other], "alone", &id).await;
        alone.push(id);
        until("the other stores it", async || servers[other].history("alone").await.len() == alone.len())
            .await;
        assert_eq!(texts(&servers[other].history("alone").await), alone);
        servers[killed].restart();
    }
    load.go_on(&random, MESSAGES_MAX).await;
    load.finish(&mut servers[0]).await;
    assert_eq!(servers[0].history("room-0").await, servers[1].history("room-0").await);
}
