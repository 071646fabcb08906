//! Where sockets begin.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::Media;
use super::super::schemas::one_of;
use super::Operation;

pub(super) const TAG: &str = "WebSocket";

pub(in crate::http) fn api(_: &Limits) -> Operation {
    Operation::new("openSocket", TAG, "Many rooms over one socket")
        .about("JSON frames with a `type`: subscribe, send, typing; see the channel `api`.")
        .caller()
        .gives(101, Media::None, "Speak WebSocket (RFC 6455).")
        .refuses(&[E::Malformed, E::Invalid, E::Forbidden])
}

pub(in crate::http) fn chat(_: &Limits) -> Operation {
    let switch = || one_of(&["1", "true", ""]);
    Operation::new("openChat", TAG, "One room, for simple clients")
        .about(
            "Each text frame is a message, each is answered in order once durable; see the channel `chat`. Any path \
             prefix may stand before `/chat`.",
        )
        .caller()
        .query("echo", switch(), "Answers carry `originalMessage`.")
        .query("live", switch(), "The room's messages are sent too.")
        .query(
            "pad",
            json!({"type": "string", "enum": ["0", "1"]}),
            "With `0`, answers may cross a multiple of 16,384 bytes of the stream.",
        )
        .gives(101, Media::None, "Speak WebSocket (RFC 6455).")
        .refuses(&[E::Malformed, E::Invalid, E::Forbidden])
}
