//! The client's side of each protocol: connect, write a message, read answers.

pub(crate) mod access;
pub(crate) mod caller;
pub(crate) mod chat;
pub(crate) mod follow;
pub(crate) mod post;
pub(crate) mod refusal;
pub(crate) mod stream;
mod target;
pub(crate) mod wire;

use std::io;

use crate::client::wire::Wire;
use crate::load::in_flight::InFlight;
use crate::load::message_plan::{Job, Shape};

pub(crate) use target::{Target, Targets};

/// Why a connection was lost, or a message was sent again; both are counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nobody listened, or the connection could not be made in time.
    Connect,
    /// The server did not agree to the protocol.
    Handshake,
    /// No answer within the send time-out.
    Timeout,
    /// The server closed in an orderly way.
    Closed,
    /// The connection broke.
    Broken,
    /// The server sent what the protocol does not allow.
    Protocol,
    /// The server asked for a retry; the connection is still there.
    Refused,
}

impl Cause {
    /// All of them, each at its own number.
    pub(crate) const ALL: [Self; 7] = [
        Self::Connect,
        Self::Handshake,
        Self::Timeout,
        Self::Closed,
        Self::Broken,
        Self::Protocol,
        Self::Refused,
    ];

    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Broken => "broken",
            Self::Protocol => "protocol",
            Self::Refused => "refused",
        }
    }
}

impl From<io::Error> for Cause {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<hubbub_ws::ProtocolError> for Cause {
    fn from(_: hubbub_ws::ProtocolError) -> Self {
        Self::Protocol
    }
}

/// A protocol in which each message sent gets one answer, in order.
pub(crate) trait Codec: Send + Sized {
    /// Whether messages carry the time they are sent.
    const HAS_TIME: bool;
    /// Whether a connection sends to one room only, so that the `seq` of its answers must grow.
    const HAS_ROOM: bool;

    /// Connects for sending to `room`.
    fn connect(
        target: &Target,
        room: &str,
        seed: u64,
    ) -> impl Future<Output = Result<(Wire, Self), Cause>> + Send;

    /// Appends a message to `out`. `now` is RFC 3339.
    fn write(&mut self, shape: &Shape, job: &Job, now: &[u8], out: &mut Vec<u8>);

    /// Appends what ends a connection in an orderly way, if the protocol has such a thing.
    fn goodbye(&mut self, out: &mut Vec<u8>);

    /// Gives each answer in `bytes` to `in_flight`.
    fn read(&mut self, bytes: &mut [u8], out: &mut Vec<u8>, in_flight: &mut InFlight) -> Result<(), Cause>;
}
