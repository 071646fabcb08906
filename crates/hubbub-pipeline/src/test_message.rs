//! A message for tests, of which only the room, the id and the text matter.

use hubbub_core::{MessageType, Op, Send, Timestamp};

pub(crate) fn message<'a>(room: &'a str, id: &'a str, text: &'a str) -> Op<'a> {
    let (kind, timestamp) = (MessageType::Text, Timestamp::default());
    Op::Send(Send { room, user: "u", id, username: None, text, kind, timestamp })
}
