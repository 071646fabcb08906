//! A message as the columns of a file.

use anyhow::bail;
use serde_json::{Map, Value};

/// Names of the columns of a file, for exports and imports.
pub(in crate::client) const COLUMNS: [&str; 9] =
    ["roomId", "seq", "messageId", "userId", "username", "messageType", "timestamp", "receivedAt", "message"];

/// The columns of a message as the API shows it. Only its user name may be missing.
pub(in crate::client) fn cells(
    message: &Map<String, Value>,
) -> impl Iterator<Item = anyhow::Result<(&'static str, Option<&Value>)>> {
    COLUMNS.into_iter().map(|name| match message.get(name) {
        None if name != "username" => bail!("a message lacks the field {name}"),
        value => Ok((name, value)),
    })
}
