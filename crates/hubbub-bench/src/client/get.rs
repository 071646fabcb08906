//! Plain GET requests, one connection each: for counters and history.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Target;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The body at `path`; any status but 200 is an error.
pub(crate) async fn get(target: &Target, path: &str) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(TIMEOUT, exchange(target, path)).await;
    let answer = answer.with_context(|| format!("no answer from {} in time", target.host))??;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("GET {path} was answered with status {status}");
    }
    Ok(body.to_owned())
}

async fn exchange(target: &Target, path: &str) -> anyhow::Result<String> {
    let mut wire = target.open().await?;
    // HTTP/1.0: the body ends with the connection.
    let request =
        format!("GET {}{path} HTTP/1.0\r\nHost: {}\r\nAccept: */*\r\n\r\n", target.prefix, target.host);
    wire.stream().write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    wire.stream().read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer)?)
}
