//! Format of the records between servers, as JSON.

use std::borrow::Cow;

use hubbub_core::ReadMark;
use serde::{Deserialize, Serialize};

/// A record of one server in one partition. Without rooms it is a heartbeat.
#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    pub(super) node: u64,
    /// One more than in the server's record before it in this partition; otherwise something was lost.
    pub(super) n: u64,
    /// The server stops, and its users are gone.
    #[serde(default)]
    pub(super) bye: bool,
    #[serde(default, borrow)]
    pub(super) rooms: Vec<Entry<'a>>,
}

/// A user that became a member of the room, and the read mark with which, if it is known.
pub(super) type JoinedUser<'a> = (Cow<'a, str>, Option<u64>);

/// A read mark that moved: user, number, messages behind it, and the room's newest message then.
pub(super) type MovedMark<'a> = (Cow<'a, str>, u64, u64, u64);

/// What happened in a room on the server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry<'a> {
    #[serde(borrow)]
    pub(super) room: Cow<'a, str>,
    /// `on` has all users that are there: which part of them, and of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) full: Option<(usize, usize)>,
    /// Users that came, and that left.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) on: Vec<Cow<'a, str>>,
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) off: Vec<Cow<'a, str>>,
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) typing: Vec<Cow<'a, str>>,
    /// Read marks that moved.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) marks: Vec<MovedMark<'a>>,
    /// Users that were removed from the room, before some of them joined again.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<Cow<'a, str>>,
    /// Users that became members of the room.
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    pub(super) joined: Vec<JoinedUser<'a>>,
    /// Joins were dropped. There is no room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost_joins: bool,
    /// Requests a snapshot from all servers with users in the room. These must answer even if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ask: Option<Vec<u64>>,
}

impl<'a> Entry<'a> {
    pub(super) fn of(room: &'a str) -> Self {
        Self { room: Cow::Borrowed(room), ..Self::default() }
    }

    pub(super) fn to_json(&self) -> String {
        // Writing into memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn mark(user: &str, mark: ReadMark) -> MovedMark<'_> {
        (Cow::Borrowed(user), mark.seq, mark.unread, mark.head)
    }
}

/// The text of a record with these entries.
pub(super) fn write(node: u64, n: u64, is_bye: bool, entries: &[String]) -> String {
    let bye = if is_bye { r#","bye":true"# } else { "" };
    let mut text = format!(r#"{{"node":{node},"n":{n}{bye},"rooms":["#);
    for (index, entry) in entries.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(entry);
    }
    text.push_str("]}");
    text
}

/// Bytes of a record besides its entries, at most.
pub(super) const ENVELOPE_BYTES: usize = 100;
