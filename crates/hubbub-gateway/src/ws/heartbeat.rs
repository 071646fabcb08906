//! Where a connection stands between two pings, and when no pong is a reason to give it up.

use crate::connection::socket::Socket;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    /// The timer ends the time until the next ping.
    Quiet,
    /// The timer ends the time for the pong.
    Pinged(Ping),
    /// The pong came before the timer.
    Answered,
}

/// A ping without a pong yet. Behind what waits for a slow peer it goes out late, and with too much waiting its pong is not read: a
/// peer that takes something all the while is there. So is, for some time, one that sends something: its pong may stand behind
/// that. How long a single message may take is limited elsewhere, whatever comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ping {
    /// The position in the connection's stream behind it.
    ends_at: u64,
    /// How far the peer had taken the stream at the last timer, and whether something held the ping or its pong up then.
    taken_to: u64,
    was_held_up: bool,
    /// Whether something came since the last timer.
    has_come: bool,
    /// How often that may still be taken for life.
    turns: u32,
}

/// A client that never answers pings has to end some time: rooms that refuse its messages open with a pong only.
const TURNS_MAX: u32 = 30;

impl Heartbeat {
    /// Sends a ping.
    pub(super) fn ping(socket: &mut Socket, payload: &[u8]) -> Self {
        let (taken_to, was_held_up) = (socket.taken_to(), socket.backlog_bytes() > 0);
        hubbub_ws::write::write_ping(socket.out(), payload);
        Self::Pinged(Ping {
            ends_at: socket.ends_at(),
            taken_to,
            was_held_up,
            has_come: false,
            turns: TURNS_MAX,
        })
    }

    /// Something came, be it a part of a frame.
    pub(super) fn on_input(&mut self) {
        if let Self::Pinged(ping) = self {
            ping.has_come = true;
        }
    }

    pub(super) fn on_pong(&mut self) {
        if matches!(self, Self::Pinged(_)) {
            *self = Self::Answered;
        }
    }
}

impl Ping {
    /// At the end of the time for the pong: whether it gets as much again.
    pub(super) fn may_wait(&mut self, socket: &Socket) -> bool {
        let taken_to = socket.taken_to();
        let is_held_up = taken_to < self.ends_at || socket.is_full();
        // Had it left just after the last timer, the pong had all of the time.
        let has_taken = taken_to > self.taken_to && (is_held_up || self.was_held_up);
        let has_come = std::mem::take(&mut self.has_come) && self.turns > 0;
        self.turns -= u32::from(has_come);
        let may_wait = has_come || has_taken;
        (self.taken_to, self.was_held_up) = (taken_to, is_held_up);
        may_wait
    }
}

#[cfg(test)]
#[path = "heartbeat_tests.rs"]
mod tests;
