//! Publishing through the server itself: many messages in one request, `POST /v1/messages`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::ledger::PublishLedger;
use crate::client::Target;
use crate::run::Counts;

const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes until the ledger has given out every number, up to `chunk` messages in a request.
pub(crate) async fn publish(target: Target, chunk: u64, ledger: Arc<PublishLedger>) -> anyhow::Result<()> {
    let mut sender = connect(&target).await?;
    loop {
        let numbers = ledger.take(chunk);
        if numbers.is_empty() {
            return Ok(());
        }
        // A chunk is due with its last message: before, that one did not exist.
        let due = ledger.due(numbers.end.saturating_sub(1)).await;
        let timestamp = crate::machine::now().to_string();
        let mut body = Vec::new();
        for index in numbers.clone() {
            body.extend_from_slice(&ledger.texts.body(index, &timestamp));
            body.push(b'\n');
        }
        let count = numbers.end - numbers.start;
        Counts::add(&ledger.counts.sent, count);
        let answer = tokio::time::timeout(PATIENCE, post(&mut sender, &target, body)).await;
        let Ok(answered) = answer.context("no answer in time")? else {
            ledger.answered(&ledger.counts.unconfirmed, due, count);
            sender = connect(&target).await?;
            continue;
        };
        let lines: Vec<&str> = answered.lines().collect();
        let with = |code: &str| lines.iter().filter(|line| line.contains(code)).count() as u64;
        let unconfirmed = with("\"code\":\"unconfirmed\"");
        let refused = with("\"code\":") - unconfirmed;
        ensure!(lines.len() as u64 == count, "{} answers to {count} messages", lines.len());
        ledger.answered(&ledger.counts.accepted, due, count - refused - unconfirmed);
        Counts::add(&ledger.counts.rejected, refused);
        Counts::add(&ledger.counts.unconfirmed, unconfirmed);
    }
}

async fn connect(target: &Target) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(&target.host));
    let stream =
        connecting.await.context("the server does not answer")?.context("connecting to the server")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    target: &Target,
    body: Vec<u8>,
) -> anyhow::Result<String> {
    let request = Request::post(format!("{}/v1/messages", target.prefix))
        .header("host", &target.host)
        .header("content-type", "application/x-ndjson")
        .body(Full::new(Bytes::from(body)))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    let body = String::from_utf8(body.to_vec()).context("the answer is no text")?;
    ensure!(status.is_success(), "the server answered {status}: {body}");
    Ok(body)
}
