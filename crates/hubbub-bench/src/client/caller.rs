//! One connection that asks one thing at a time, for workloads whose next step follows from the answer to the last, and
//! for whatever else is asked of a server.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, Sleep, sleep};

use crate::client::post::{Response, split_response};
use crate::client::stream::Stream;
use crate::client::wire::{Wire, take_whole};
use crate::client::{Cause, Target};

/// More than this is no answer to anything that is asked.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long the answer to [`get`] may take.
const GET_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection. What it is to say is appended to [`Caller::out`], then [`Caller::answer`] waits for what comes back.
pub(crate) struct Caller {
    wire: Wire,
    target: Target,
    /// The beginning of an answer.
    held: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl Caller {
    /// Connects; each answer may then take `timeout`.
    pub(crate) async fn open(target: &Target, timeout: Duration) -> anyhow::Result<Self> {
        let (wire, timer) = (target.open().await?, Box::pin(sleep(timeout)));
        let mut caller = Self { wire, target: target.clone(), held: Vec::new(), timer, timeout };
        if let Some(greeting) = target.greeting() {
            caller.greet(&greeting).await?;
        }
        Ok(caller)
    }

    /// Shows the token over the line protocol.
    async fn greet(&mut self, greeting: &str) -> anyhow::Result<()> {
        self.wire.out.extend_from_slice(greeting.as_bytes());
        let answered = self.answer(|bytes| {
            let line = memchr::memchr(b'\n', bytes).and_then(|end| Some((bytes.get(..end)?, end + 1)));
            Ok(line.map(|(line, used)| (String::from_utf8_lossy(line).into_owned(), used)))
        });
        let answer =
            answered.await.map_err(|cause| anyhow::anyhow!("no answer to auth: {}", cause.name()))?;
        ensure!(answer == "OK", "the token was answered with {answer}");
        Ok(())
    }

    /// Ends the connection at once, so that the system keeps nothing of it.
    pub(crate) fn reset(mut self) {
        if let Stream::Left(stream) = self.wire.stream() {
            // What cannot be reset is closed.
            let _ = stream.set_zero_linger();
        }
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.wire.out
    }

    /// Sends, and waits until `read` makes an answer of what came: what it says, and how many bytes it has. `read` says
    /// `None` while it is not whole. Nothing may follow it. After an error the connection is of no use any more.
    pub(crate) async fn answer<R>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<Option<(R, usize)>, Cause>,
    ) -> Result<R, Cause> {
        let asked = Instant::now();
        poll_fn(|cx| {
            if let Poll::Ready(answer) = self.poll_answer(cx, &mut read) {
                return Poll::Ready(answer);
            }
            // The timer is left running from answer to answer and looked at only when it ends: setting it anew each
            // time would cost more than the rest.
            while self.timer.as_mut().poll(cx).is_ready() {
                if asked.elapsed() >= self.timeout {
                    return Poll::Ready(Err(Cause::Timeout));
                }
                self.timer.as_mut().reset(asked + self.timeout);
            }
            Poll::Pending
        })
        .await
    }

    fn poll_answer<R>(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut impl FnMut(&[u8]) -> Result<Option<(R, usize)>, Cause>,
    ) -> Poll<Result<R, Cause>> {
        let Self { wire, held, .. } = self;
        loop {
            // What comes is heard even while what is to be sent waits.
            if let Poll::Ready(flushed) = wire.poll_flush(cx) {
                flushed?;
            }
            let part = ready!(wire.poll_read(cx, |bytes, _| read_part(held, bytes, read)))?;
            if let Some(answer) = part? {
                return Poll::Ready(Ok(answer));
            }
        }
    }

    /// Makes an HTTP request; `hear` is shown the response.
    pub(crate) async fn request<R>(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        mut hear: impl FnMut(&Response<'_>) -> R,
    ) -> Result<R, Cause> {
        let Target { prefix, host, headers, .. } = &self.target;
        let (headers, kind, length): (&str, _, _) = (headers, "application/json", body.len());
        let head = format!(
            "{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.wire.out.extend_from_slice(head.as_bytes());
        self.wire.out.extend_from_slice(body);
        self.answer(|bytes| {
            let Some((response, rest)) = split_response(bytes)? else { return Ok(None) };
            Ok(Some((hear(&response), bytes.len() - rest.len())))
        })
        .await
    }
}

/// Adds what came to what is held, and gives the answer once it is whole.
fn read_part<R>(
    held: &mut Vec<u8>,
    bytes: &[u8],
    read: &mut impl FnMut(&[u8]) -> Result<Option<(R, usize)>, Cause>,
) -> Result<Option<R>, Cause> {
    let mut answer = None;
    take_whole(held, bytes, |whole| match read(whole)? {
        Some((read, used)) if used == whole.len() => {
            answer = Some(read);
            Ok(used)
        }
        None if whole.len() <= ANSWER_BYTES_MAX => Ok(0),
        _ => Err(Cause::Protocol),
    })?;
    Ok(answer)
}

/// The body at `path`, over a connection of its own; any status but 200 is an error.
pub(crate) async fn get(target: &Target, path: &str) -> anyhow::Result<String> {
    let mut caller = Caller::open(target, GET_TIMEOUT).await?;
    let heard = caller.request("GET", path, b"", |response| (response.status, response.body.to_vec())).await;
    let (status, body) =
        heard.map_err(|cause| anyhow::anyhow!("no answer from {}: {}", target.host, cause.name()))?;
    ensure!(status == 200, "GET {path} was answered with status {status}");
    Ok(String::from_utf8(body)?)
}
