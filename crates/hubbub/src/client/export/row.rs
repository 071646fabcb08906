//! A message as the columns of a file.

use std::borrow::Cow;

use serde::Deserialize;

/// Names of the columns of a file, for exports and imports.
pub(in crate::client) const COLUMNS: [&str; 9] =
    ["roomId", "seq", "messageId", "userId", "username", "messageType", "timestamp", "receivedAt", "message"];

/// A message as the API shows it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::client) struct Row<'a> {
    #[serde(borrow)]
    pub(in crate::client) room_id: Cow<'a, str>,
    pub(in crate::client) seq: u64,
    #[serde(borrow)]
    pub(in crate::client) message_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::client) user_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::client) username: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(in crate::client) message_type: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::client) timestamp: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::client) received_at: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::client) message: Cow<'a, str>,
}
