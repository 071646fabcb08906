//! Drives one connection: read what came, refill the window, write; reconnect when it breaks.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::wire::Wire;
use crate::client::{Cause, Codec};
use crate::load::in_flight::InFlight;
use crate::load::run::Counts;

/// Sends all messages that `in_flight` takes over connections to `room` at its server, one after another when they break.
pub(crate) async fn drive<C: Codec>(mut in_flight: InFlight, room: String, seed: u64) {
    let target = in_flight.target();
    let mut failed_in_a_row = 0_u8;
    let mut connections = 0_u64;
    while !in_flight.is_finished() {
        connections += 1;
        let connected = C::connect(&target, &room, seed.wrapping_add(connections << 32)).await;
        let cause = match connected {
            Ok((wire, codec)) => {
                Counts::add(&in_flight.run.counts.opened, 1);
                failed_in_a_row = 0;
                let timer = Box::pin(sleep_until(Instant::now() + IDLE));
                let mut session = Session { wire, codec, timer, now: Vec::new(), done: false };
                match poll_fn(|cx| session.poll(cx, &mut in_flight)).await {
                    Ok(()) => break,
                    Err(cause) => cause,
                }
            }
            Err(cause) => {
                failed_in_a_row = failed_in_a_row.saturating_add(1);
                in_flight.take_one();
                cause
            }
        };
        in_flight.run.counts.lost(cause);
        let failures = in_flight.on_lost(cause).max(failed_in_a_row).max(1);
        tokio::time::sleep(in_flight.run.rules.patience.wait_after(failures)).await;
    }
    in_flight.end_thinking();
    in_flight.hand_over();
}

struct Session<C> {
    wire: Wire,
    codec: C,
    timer: Pin<Box<Sleep>>,
    now: Vec<u8>,
    /// All is answered; the goodbye is on its way.
    done: bool,
}

/// The timer of a connection with nothing to wait for.
const IDLE: Duration = Duration::from_secs(1);

impl<C: Codec> Session<C> {
    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight) -> Poll<Result<(), Cause>> {
        loop {
            let codec = &mut self.codec;
            let read = self.wire.poll_read(cx, |bytes, out| {
                in_flight.begin_read();
                codec.read(bytes, out, in_flight)
            });
            let mut moved = read.is_ready();
            if let Poll::Ready(result) = read? {
                result?;
            }
            moved |= self.fill(cx, in_flight);
            if in_flight.is_finished() && !std::mem::replace(&mut self.done, true) {
                self.codec.goodbye(&mut self.wire.out);
            }
            let is_flushed = self.wire.poll_flush(cx)?.is_ready();
            if self.done && is_flushed {
                return Poll::Ready(Ok(()));
            }
            if !moved && !self.poll_timer(cx, in_flight)? {
                return Poll::Pending;
            }
        }
    }

    fn fill(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight) -> bool {
        let Self { wire, codec, now, .. } = self;
        let run = std::sync::Arc::clone(&in_flight.run);
        now.clear();
        in_flight.fill(usize::MAX, cx.waker(), |job| {
            if C::HAS_TIME && now.is_empty() {
                crate::host::machine::now().write(now);
            }
            codec.write(&run.shape, job, now, &mut wire.out);
        })
    }

    /// Whether the time came for something. The timer is set late rather than for each message: a time-out shows when
    /// it fires.
    fn poll_timer(&mut self, cx: &mut Context<'_>, in_flight: &InFlight) -> Result<bool, Cause> {
        let wanted = in_flight.deadline().map_or_else(|| Instant::now() + IDLE, Instant::from_std);
        if in_flight.has_delayed() && wanted < self.timer.deadline() {
            self.timer.as_mut().reset(wanted);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        if in_flight.is_timed_out() {
            return Err(Cause::Timeout);
        }
        self.timer.as_mut().reset(wanted.max(Instant::now() + Duration::from_millis(1)));
        Ok(true)
    }
}
