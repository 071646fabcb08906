//! Messages and their receipts. Both are written by hand and read by `MessageDraft`; these are their schemas.

use hubbub_core::change::TITLE_BYTES_MAX;
use schemars::JsonSchema;

use super::super::super::types::{AnyId, AnyTime, Epoch, Id, MessageType, OrNull, Seq, Time};
use super::LineProblem;

/// A message as it is sent.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Draft {
    /// The text: at most {message_bytes} bytes, anything but U+0000.
    #[schemars(length(min = 1))]
    message: String,
    /// The sender; may be left out when the caller is known, and must otherwise be the caller.
    user_id: Option<AnyId>,
    /// The sender's idempotency key; made by the server unless given.
    message_id: Option<AnyId>,
    /// The sender's name as it is shown.
    #[schemars(length(min = 1, max = 255))]
    username: Option<String>,
    /// In any case; `TEXT` unless said.
    message_type: Option<MessageType>,
    /// The sender's clock; now unless given.
    timestamp: Option<AnyTime>,
}

/// A message as it is sent, where no path names the room.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct DraftWithRoom {
    #[serde(flatten)]
    draft: Draft,
    room_id: AnyId,
}

/// A message as it is kept.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Message {
    message_id: Id,
    room_id: Id,
    user_id: Id,
    message: String,
    message_type: MessageType,
    /// The sender's clock: kept, never used for order.
    timestamp: Time,
    seq: Seq,
    /// The server's clock; never decreases within a room.
    received_at: Time,
    username: Option<String>,
}

/// The message is on disk.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt {
    message_id: Id,
    seq: Seq,
    epoch: Epoch,
    received_at: Time,
    /// The id was stored before; `seq` is the first one's.
    duplicate: bool,
}

/// The message is on the disk of a broker. What number it gets, and whether its id was there before, is decided when it
/// is stored.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Accepted {
    message_id: Id,
    /// Not in this answer: the message gets it when it is stored. A client reads the same member of every answer.
    seq: Option<Seq>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
pub(super) enum LineAnswer {
    Receipt(Receipt),
    Accepted(Accepted),
    Problem(LineProblem),
}

#[derive(JsonSchema)]
pub(super) struct HistoryPage {
    /// Newest last.
    messages: Vec<Message>,
    epoch: Epoch,
    oldest: u64,
    head: u64,
    /// The `after` or `before` of the next page; `null` at the end.
    next: OrNull<u64>,
}

#[derive(JsonSchema)]
pub(super) struct UserMessages {
    /// Newest last.
    messages: Vec<Message>,
    epoch: Epoch,
    /// The `before` of the page with older ones; `null` at the end.
    next: OrNull<String>,
}

/// A room as one of its members sees it.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserRoom {
    room_id: Id,
    /// A name for people; `null` = none.
    #[schemars(length(max = TITLE_BYTES_MAX))]
    title: OrNull<String>,
    /// Whether only members may read and write.
    members_only: bool,
    head: u64,
    oldest: u64,
    messages: u64,
    /// Everything up to here is read.
    read_seq: u64,
    /// Messages that are kept and lie behind it.
    unread: u64,
    /// The newest one that is kept.
    last_message: OrNull<Message>,
}

#[derive(JsonSchema)]
pub(super) struct UserRoomList {
    rooms: Vec<UserRoom>,
    epoch: Epoch,
    /// The `after` of the next page; `null` at the end.
    next: OrNull<String>,
}
