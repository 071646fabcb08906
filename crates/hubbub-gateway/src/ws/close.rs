//! Close codes of WebSockets.

use hubbub_core::ErrorCode;

use crate::auth::session::Ended;

pub(super) const NORMAL: u16 = 1000;
/// The server shuts down. The reason says after how many milliseconds to reconnect, another number for each client.
pub(super) const GOING_AWAY: u16 = 1001;
/// The server cannot verify tokens now, or holds too much that has not arrived whole (RFC 6455's registry: try again later).
pub(super) const TRY_LATER: u16 = 1013;
pub(super) const BINARY: u16 = 4400;
/// There is no valid token, or it has ended.
pub(super) const UNAUTHORIZED: u16 = 4401;
/// The token is for somebody else.
pub(super) const FORBIDDEN: u16 = 4403;
/// No pong, or not the rest of a message, came in time.
pub(super) const TIMEOUT: u16 = 4408;
/// The administrator closed the connection.
const CLOSED: u16 = 4410;
/// The peer goes on sending although it is refused for its rate, or to more rooms than can be remembered as refusing.
pub(super) const FLOODING: u16 = 4429;
/// The peer reads too slowly; resume from the last seq.
pub(super) const TOO_SLOW: u16 = 4409;

/// The code after a first frame that was refused. At [`UNAUTHORIZED`] clients forget their token, so what passes is not
/// closed with it.
pub(super) fn of_first_frame(refused: ErrorCode) -> u16 {
    match refused {
        ErrorCode::TooManyRequests => FLOODING,
        other if other.is_retryable() => TRY_LATER,
        _ => UNAUTHORIZED,
    }
}

/// The code when what was open ends by itself, or is closed.
pub(super) fn of_session(ended: Ended) -> u16 {
    match ended {
        Ended::Expired | Ended::Revoked => UNAUTHORIZED,
        Ended::Closed => CLOSED,
    }
}

pub(crate) struct CloseCode {
    pub(crate) code: u16,
    pub(crate) meaning: &'static str,
    pub(crate) reconnect: &'static str,
}

/// Every code the server closes with; those of the protocol itself are `hubbub_ws::ProtocolError::close_code`.
pub(crate) const CLOSE_CODES: &[CloseCode] = &[
    CloseCode { code: NORMAL, meaning: "the answer to the client's close", reconnect: "as you like" },
    CloseCode {
        code: GOING_AWAY,
        meaning: "the server shuts down",
        reconnect: "yes, after the milliseconds in the reason",
    },
    CloseCode { code: 1002, meaning: "not WebSocket", reconnect: "after mending the client" },
    CloseCode { code: 1007, meaning: "a text that is not UTF-8", reconnect: "after mending the client" },
    CloseCode { code: 1009, meaning: "a frame too big", reconnect: "with smaller ones" },
    CloseCode {
        code: TRY_LATER,
        meaning: "the server cannot verify tokens yet, or too much is arriving at it",
        reconnect: "later",
    },
    CloseCode { code: BINARY, meaning: "a binary frame", reconnect: "after mending the client" },
    CloseCode {
        code: UNAUTHORIZED,
        meaning: "no valid token came, or it has expired or was revoked",
        reconnect: "with another token, from the last `seq`",
    },
    CloseCode {
        code: FORBIDDEN,
        meaning: "a token for somebody else",
        reconnect: "with the caller's own token",
    },
    CloseCode {
        code: TIMEOUT,
        meaning: "no pong, or not the rest of a frame, came in time",
        reconnect: "yes, from the last `seq`",
    },
    CloseCode {
        code: TOO_SLOW,
        meaning: "read too slowly, the backlog was full",
        reconnect: "yes, from the last `seq`",
    },
    CloseCode {
        code: CLOSED,
        meaning: "the administrator closed the connection",
        reconnect: "yes, from the last `seq`",
    },
    CloseCode {
        code: FLOODING,
        meaning: "the first token, or too many requests in a row, were refused for their rate; or messages of more than 1,000 rooms \
                  were refused at once",
        reconnect: "later, and sending less",
    },
];
