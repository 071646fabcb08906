//! Publishing through the server itself: many messages in one request, `POST /v1/messages`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::client::caller::Caller;
use crate::client::post::read_answer;
use crate::client::refusal::is_retryable;
use crate::client::{Cause, Target};
use crate::load::in_flight::{Answer, InFlight};
use crate::load::run::{Counts, Run};

const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes all messages that `in_flight` takes, as many in a request as it may have in flight.
pub(super) async fn publish(target: Target, mut in_flight: InFlight) -> anyhow::Result<()> {
    let run = Arc::clone(&in_flight.run);
    let mut caller = open(&target, &run).await?;
    loop {
        let (mut body, mut count, mut now) = (Vec::new(), 0, Vec::new());
        let due = in_flight.deadline().filter(|_| in_flight.has_delayed());
        let write = |job: &_| {
            if now.is_empty() {
                crate::host::machine::now().write(&mut now);
            }
            run.shape.write_bulk(job, &now, &mut body);
            body.push(b'\n');
            count += 1;
        };
        let filling = in_flight.filled(usize::MAX, write);
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
            Ok((status, answered)) if is_retryable(status, answered.as_bytes()) => {
                give_up(&mut in_flight, Cause::Refused).await;
                continue;
            }
            Ok((status, answered)) => bail!("the server answered {status}: {answered}"),
            Err(cause) => {
                run.counts.lost(cause);
                give_up(&mut in_flight, cause).await;
                caller = open(&target, &run).await?;
                continue;
            }
        };
        let lines = answered.lines().count();
        ensure!(lines == count, "{lines} answers to {count} messages");
        in_flight.begin_read();
        for line in answered.lines() {
            let heard = in_flight.on_answer(&read_line(line));
            heard.ok().with_context(|| format!("the answer {line} is not understood"))?;
        }
    }
    in_flight.hand_over();
    Ok(())
}

async fn open(target: &Target, run: &Run) -> anyhow::Result<Caller> {
    let caller = Caller::open(target, PATIENCE).await?;
    Counts::add(&run.counts.opened, 1);
    Ok(caller)
}

/// Counts what was sent as unconfirmed, and waits before more is sent.
async fn give_up(in_flight: &mut InFlight, cause: Cause) {
    let failures = in_flight.on_lost(cause).max(1);
    tokio::time::sleep(in_flight.run.rules.patience.wait_after(failures)).await;
}

fn read_line(line: &str) -> Answer<'_> {
    if line.contains("\"code\":") {
        return Answer::Refused { retryable: is_retryable(200, line.as_bytes()) };
    }
    read_answer(200, line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::Ordering;

    use hubbub_core::clock::SeededRandom;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::load::feed::Feed;
    use crate::load::message_plan::Shape;
    use crate::options::arguments;
    use crate::workloads::persist::PersistArgs;

    const OVERLOADED: &str =
        r#"{"code":"overloaded","title":"overloaded","status":503,"retryable":true,"detail":"later"}"#;

    /// The lines of the next request; none when there is no further one.
    async fn request(stream: &mut TcpStream) -> Vec<String> {
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let head = text.split_once("\r\n\r\n");
            let length = head.and_then(|(head, _)| head.split_once("content-length: ")?.1.lines().next());
            if let Some(((_, body), length)) = head.zip(length)
                && body.len() == length.parse::<usize>().unwrap()
            {
                return body.lines().map(str::to_owned).collect();
            }
            if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                return Vec::new();
            }
        }
    }

    /// Answers each line with a receipt, but refuses the first message of all once.
    async fn overloaded_once(mut stream: TcpStream, requests: Arc<Mutex<Vec<HashSet<String>>>>) {
        loop {
            let lines = request(&mut stream).await;
            let id = |line: &String| {
                line.split_once("\"messageid\":\"").unwrap().1.split_once('"').unwrap().0.to_owned()
            };
            if lines.is_empty() {
                return;
            }
            let is_first = requests.lock().is_empty();
            let answers = lines.iter().enumerate().map(|(index, line)| match index {
                0 if is_first => format!("{OVERLOADED}\n"),
                _ => format!("{{\"messageId\":\"{}\",\"seq\":{}}}\n", id(line), index + 1),
            });
            let answers: String = answers.collect();
            requests.lock().push(lines.iter().map(id).collect());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answers.len());
            stream.write_all((head + &answers).as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_the_server_could_not_take_now_is_sent_again() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&server.local_addr().unwrap().to_string()).unwrap();
        let requests = Arc::<Mutex<Vec<HashSet<String>>>>::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move { overloaded_once(server.accept().await.unwrap().0, seen).await });
        let args: PersistArgs = arguments("persist", &[]).unwrap();
        let shape = Shape::new(1, 10, None, "");
        let job = |index| shape.draw(&SeededRandom::new(index), index, 1);
        let mut jobs: Vec<_> = (0..3).map(job).collect();
        let run = Arc::new(Run::new(target.clone(), shape, args.rules().unwrap()));
        let feed = Feed::new(10);
        feed.push(&mut jobs);
        feed.end();
        publish(target, InFlight::new(Arc::clone(&run), feed, 0, None)).await.unwrap();
        assert_eq!(run.counts.totals(), [3, 3, 0, 0], "sent, accepted, rejected, unconfirmed");
        assert_eq!((run.counts.retries.sum(), run.counts.opened.load(Ordering::Relaxed)), (1, 1));
        let requests = requests.lock();
        assert_eq!(requests.iter().map(HashSet::len).collect::<Vec<_>>(), [3, 1]);
        assert!(requests[1].is_subset(&requests[0]), "the same id: {requests:?}");
    }

    #[test]
    fn lines_are_receipts_or_refusals() {
        assert_eq!(read_line(OVERLOADED), Answer::Refused { retryable: true });
        let invalid =
            r#"{"code":"invalid","title":"invalid","status":422,"retryable":false,"detail":"too long"}"#;
        assert_eq!(read_line(invalid), Answer::Refused { retryable: false });
        let stored = r#"{"messageId":"a-1","seq":7}"#;
        assert_eq!(read_line(stored), Answer::Accepted { id: b"a-1", seq: 7, duplicate: false });
    }
}
