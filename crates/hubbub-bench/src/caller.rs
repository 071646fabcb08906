//! One connection that asks one thing at a time, for workloads whose next step follows from the answer to the last.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::client::{Cause, Target};
use crate::wire::Wire;

/// A connection. What it is to say is appended to [`Caller::out`], then [`Caller::answer`] waits for what comes back.
pub(crate) struct Caller {
    wire: Wire,
    /// The beginning of an answer.
    held: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl Caller {
    /// Connects; each answer may then take `timeout`.
    pub(crate) async fn connect(target: &Target, timeout: Duration) -> Result<Self, Cause> {
        let wire = target.connect().await?;
        Ok(Self { wire, held: Vec::new(), timer: Box::pin(sleep(timeout)), timeout })
    }

    /// What is sent next.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.wire.out
    }

    /// Sends, and waits until `read` makes an answer of what came: what it says, and how many bytes it has. `read` says
    /// `None` while it is not whole. Nothing may follow it. After an error the connection is of no use any more.
    pub(crate) async fn answer<R>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<Option<(R, usize)>, Cause>,
    ) -> Result<R, Cause> {
        let Self { wire, held, timer, timeout } = self;
        let asked = Instant::now();
        poll_fn(|cx| {
            while wire.poll_flush(cx)?.is_ready() {
                let part = wire.poll_read(cx, |bytes, _| {
                    let whole = if held.is_empty() {
                        &*bytes
                    } else {
                        held.extend_from_slice(bytes);
                        held.as_slice()
                    };
                    match read(whole)? {
                        Some((answer, used)) if used == whole.len() => {
                            held.clear();
                            Ok(Some(answer))
                        }
                        Some(_) => Err(Cause::Protocol),
                        None => {
                            if held.is_empty() {
                                held.extend_from_slice(bytes);
                            }
                            Ok(None)
                        }
                    }
                });
                match part {
                    Poll::Ready(Ok(Ok(None))) => {}
                    Poll::Ready(Ok(Ok(Some(answer)))) => return Poll::Ready(Ok(answer)),
                    Poll::Ready(Ok(Err(cause))) => return Poll::Ready(Err(cause)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => break,
                }
            }
            // The timer is left running from answer to answer and looked at only when it ends: setting it anew each
            // time would cost more than the rest.
            while timer.as_mut().poll(cx).is_ready() {
                if asked.elapsed() >= *timeout {
                    return Poll::Ready(Err(Cause::Timeout));
                }
                timer.as_mut().reset(asked + *timeout);
            }
            Poll::Pending
        })
        .await
    }
}
