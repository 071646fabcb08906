//! The row about messages to everybody: what they cost those who have nothing to do with them.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::people::make;
use super::queues::Speaking;
use super::{Bench, Fresh, Row, rounds};
use crate::client::Target;
use crate::limits::median;

/// Clients that each message is for.
const RECEIVERS: u32 = 200_000;
const RECEIVERS_QUICK: u32 = 20_000;

/// Others, who send and take at a steady rate.
const OTHERS: [&str; 12] =
    ["--ask", "0", "--refresh", "0", "--send", "1", "--take", "1", "--clients", "20", "--think", "5ms"];

const BETWEEN: Duration = Duration::from_secs(1);

/// Gone after two seconds, so that messages to be cleared away are part of it, and memory does not grow.
const MESSAGE: &str = r#"{"sender":"announcer","message":"to all","audience":"all","ttlMs":2000}"#;

impl Bench {
    /// The 99th percentile of sends and takes of others, without and with a message to 200,000 clients each second.
    pub(super) async fn broadcast(&self) -> anyhow::Result<Row> {
        let receivers = if self.args.quick { RECEIVERS_QUICK } else { RECEIVERS };
        let Speaking { fresh: Fresh { server, _data }, line } = self.speaking().await?;
        let target = Target::parse(&server.url)?;
        make(&target, vec![("PUT", "/v1/queues/news".to_owned(), "{}")]).await?;
        let clients = (1..=receivers).map(|client| ("PUT", format!("/v1/clients/receiver{client}"), ""));
        make(&target, clients.collect()).await?;
        let (mut quiet, mut busy) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            quiet.push(self.queue(&server, &line, &OTHERS).await?.latency.p99_ms);
            let sending = announce(&target);
            let measured = self.queue(&server, &line, &OTHERS).await;
            anyhow::ensure!(!sending.is_finished(), "a message to everybody was not accepted");
            sending.abort();
            busy.push(measured?.latency.p99_ms);
        }
        server.kill().await?;
        let (without, with) = (median(&quiet), median(&busy));
        let ratio = with / without.max(0.001);
        let ms = |all: &[f64]| rounds(all, |ms| format!("{ms:.2}"));
        let what = format!("p99 of send and get beside a message to {receivers} clients each second");
        let met = with <= 5.0 || ratio <= 2.0;
        let row = Row::new(what, format!("{with:.2} ms"), "≤ 5 ms, or 2 × without", met);
        Ok(row.against(format!("{without:.2} ms without"), format!("{ratio:.1} ×")).noting(format!(
            "rounds {} against {}",
            ms(&busy),
            ms(&quiet)
        )))
    }
}

/// Sends messages to everybody until aborted, or until one is not accepted.
fn announce(target: &Target) -> JoinHandle<()> {
    let target = target.clone();
    tokio::spawn(async move {
        let post = || vec![("POST", "/v1/queues/news/messages".to_owned(), MESSAGE)];
        while make(&target, post()).await.is_ok() {
            tokio::time::sleep(BETWEEN).await;
        }
    })
}
