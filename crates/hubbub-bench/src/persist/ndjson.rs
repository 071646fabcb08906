//! Publishing through the server itself: many messages in one request, `POST /v1/messages`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::caller::Caller;
use crate::client::Target;
use crate::client::post::read_answer;
use crate::lane::{Answer, Lane};

const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes all messages of a lane, as many in a request as it may have in flight.
pub(super) async fn publish(target: Target, mut lane: Lane) -> anyhow::Result<()> {
    let run = Arc::clone(&lane.run);
    let mut caller = Caller::open(&target, PATIENCE).await?;
    loop {
        let (mut body, mut count, mut now) = (Vec::new(), 0, Vec::new());
        let write = |job: &_| {
            if now.is_empty() {
                crate::machine::now().write(&mut now);
            }
            run.shape.write_bulk(job, &now, &mut body);
            body.push(b'\n');
            count += 1;
        };
        if !lane.filled(usize::MAX, write).await {
            break;
        }
        let heard = caller.request("POST", "/v1/messages", &body, |response| {
            (response.status, String::from_utf8_lossy(&response.whole()).into_owned())
        });
        let (status, answered) = match heard.await {
            Ok(answered) => answered,
            Err(cause) => {
                run.counts.lost(cause);
                let failures = lane.on_lost().max(1);
                tokio::time::sleep(run.rules.patience.wait_after(failures)).await;
                caller = Caller::open(&target, PATIENCE).await?;
                continue;
            }
        };
        ensure!(status == 200, "the server answered {status}: {answered}");
        let lines = answered.lines().count();
        ensure!(lines == count, "{lines} answers to {count} messages");
        lane.begin_read();
        for line in answered.lines() {
            let heard = lane.on_answer(&read_line(line));
            heard.ok().with_context(|| format!("the answer {line} is not understood"))?;
        }
    }
    lane.hand_over();
    Ok(())
}

fn read_line(line: &str) -> Answer<'_> {
    if line.contains("\"code\":") {
        return Answer::Refused { retryable: line.contains("\"code\":\"unconfirmed\"") };
    }
    read_answer(200, line.as_bytes())
}
