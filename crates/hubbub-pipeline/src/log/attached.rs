//! A store that has a log attached takes its rooms from there and from nowhere else, for ever. A server without that log would
//! be refused each change of a room, so it says so from the start.

use hubbub_core::Store;
use hubbub_core::store::ReadError;

/// Why the store takes no rooms from a server without Kafka; `None` = it does.
pub(super) async fn refusal(store: &dyn Store) -> Result<Option<String>, ReadError> {
    let Some(log) = store.log() else { return Ok(None) };
    let attached = log.attached().await?;
    Ok(attached.map(|attached| {
        format!(
            "the store takes its rooms from a log that is attached to it ({}, {} partitions), and from nowhere else: set log.url \
             to that Kafka; without it, rooms can only be read, also for an export (docs/kafka.md)",
            attached.id, attached.partitions
        )
    }))
}
