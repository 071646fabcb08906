//! Publishing through the server itself: many messages in one request, `POST /v1/messages`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::caller::Caller;
use crate::client::post::read_answer;
use crate::client::{Cause, Target};
use crate::lane::{Answer, Lane};

const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes all messages of a lane, as many in a request as it may have in flight.
pub(super) async fn publish(target: Target, mut lane: Lane) -> anyhow::Result<()> {
    let run = Arc::clone(&lane.run);
    let mut caller = Caller::open(&target, PATIENCE).await?;
    loop {
        let (mut body, mut count, mut now) = (Vec::new(), 0, Vec::new());
        let due = lane.deadline().filter(|_| lane.has_delayed());
        let write = |job: &_| {
            if now.is_empty() {
                crate::machine::now().write(&mut now);
            }
            run.shape.write_bulk(job, &now, &mut body);
            body.push(b'\n');
            count += 1;
        };
        let filling = lane.filled(usize::MAX, write);
        let is_filled = match due {
            // Nobody else wakes it when what is sent again has its time.
            Some(due) => tokio::time::timeout_at(due.into(), filling).await,
            None => Ok(filling.await),
        };
        match is_filled {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => continue,
        }
        let heard = caller.request("POST", "/v1/messages", &body, |response| {
            (response.status, String::from_utf8_lossy(&response.whole()).into_owned())
        });
        let answered = match heard.await {
            Ok((200, answered)) => answered,
            // What the server could not take now, it may take later.
            Ok((429 | 500.., _)) => {
                give_up(&mut lane, Cause::Refused).await;
                continue;
            }
            Ok((status, answered)) => bail!("the server answered {status}: {answered}"),
            Err(cause) => {
                run.counts.lost(cause);
                give_up(&mut lane, cause).await;
                caller = Caller::open(&target, PATIENCE).await?;
                continue;
            }
        };
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

/// Counts what was sent as unconfirmed, and waits before more is sent.
async fn give_up(lane: &mut Lane, cause: Cause) {
    let failures = lane.on_lost(cause).max(1);
    tokio::time::sleep(lane.run.rules.patience.wait_after(failures)).await;
}

fn read_line(line: &str) -> Answer<'_> {
    if line.contains("\"code\":") {
        return Answer::Refused { retryable: line.contains("\"retryable\":true") };
    }
    read_answer(200, line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_could_not_take_now_is_sent_again() {
        let overloaded =
            r#"{"code":"overloaded","title":"overloaded","status":503,"retryable":true,"detail":"later"}"#;
        assert_eq!(read_line(overloaded), Answer::Refused { retryable: true });
        let invalid =
            r#"{"code":"invalid","title":"invalid","status":422,"retryable":false,"detail":"too long"}"#;
        assert_eq!(read_line(invalid), Answer::Refused { retryable: false });
        let stored = r#"{"messageId":"a-1","seq":7}"#;
        assert_eq!(read_line(stored), Answer::Accepted { id: b"a-1", seq: 7, duplicate: false });
    }
}
