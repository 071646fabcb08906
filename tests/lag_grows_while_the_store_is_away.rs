//! Messages wait in RabbitMQ while the store is away: the server that has them in hand tells how old they are, and nobody else.

use crate::harness::{Broker, Postgres, Server, Setup, texts, until};

/// More than a server takes from the broker before they are stored.
const MESSAGES: usize = 9;

async fn send(server: &Server, id: &str) {
    until("it is taken", async || server.send_as("r", id, id).await.status == 202).await;
}

async fn lag_ms(server: &Server) -> u64 {
    server.get("/health").await.json()["components"]["log"]["lagMs"].as_u64().unwrap()
}

#[tokio::test]
async fn lag_grows_while_the_store_is_away() {
    let (broker, postgres) = (Broker::shared(), Postgres::start(""));
    let setup = Setup::new().store(&postgres.url("postgres")).set(&broker.setting()).set("amqp.prefetch=3");
    let [first, second] = ["a", "b"].map(|name| setup.clone().on(name).start());
    send(&first, "0").await;
    until("it is stored", async || first.history("r").await.len() == 1).await;
    until("nothing lags", async || lag_ms(&first).await == 0).await;

    postgres.crash();
    for number in 1..MESSAGES {
        send(&first, &number.to_string()).await;
    }
    until("it lags", async || lag_ms(&first).await >= 3_000).await;
    assert_eq!((first.metric("log_unacked").await, lag_ms(&second).await), (3, 0));

    // The other one takes over what waits.
    first.pause();
    broker.cut_connections();
    until("the other one lags", async || lag_ms(&second).await >= 3_000).await;
    first.resume();
    until("the first one does not any more", async || lag_ms(&first).await == 0).await;
    assert_eq!((first.metric("log_unacked").await, second.metric("log_unacked").await), (0, 3));
    assert!(first.metric("log_depth").await > 0, "they wait as before");

    postgres.restart();
    until("the store is back", async || second.get("/health").await.json()["status"] == "UP").await;
    until("all are stored", async || second.history("r").await.len() == MESSAGES).await;
    let sent: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    assert_eq!(texts(&second.history("r").await), sent);
    until("nothing lags", async || lag_ms(&second).await == 0).await;
    let (mut timed, mut seconds) = (0, 0.0);
    for server in [&first, &second] {
        timed += server.metric("log_end_to_end_seconds_count").await;
        seconds += server.metric_text("hubbub_log_end_to_end_seconds_sum").await.parse::<f64>().unwrap();
    }
    assert_eq!(timed, MESSAGES as u64, "each message once, however many were stored together");
    assert!(seconds > 3.0 * (MESSAGES - 1) as f64, "{seconds}");
}
