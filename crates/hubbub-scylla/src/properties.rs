//! What is true of the whole store: the name of its history (the epoch), and the log that is attached.
//!
//! Each is set once, by whoever needs it first, with plain writes: ScyllaDB before 2025.4 refuses lightweight transactions in
//! keyspaces with tablets. Of plain writes the one with the latest timestamp wins. So:
//!
//! - **A value that is there is never replaced.** Whoever finds one takes it and writes nothing. Older versions set values by
//!   lightweight transactions; no row is written in both ways.
//! - **Who finds none writes one, waits for [`SETTLING`], and takes what is there then.** Servers that do so at the same time
//!   all take the value that was written last, if each wrote its own within that time of finding none.
//! - **A slower write may replace what another server has taken.** So all servers look again in each round of background work
//!   ([`look_again`]). With another epoch they go on; clients that resume start again. Servers of one log write the same
//!   text. If two logs are attached at the same time, which is a mistake, the servers of one of them change nothing more.
//! - **The database gives the timestamps.** Decreasing ones, by which the first write would win, are not possible: the deletion
//!   of an epoch, which belongs to restoring a snapshot, would hide them for ever; and ScyllaDB refuses those of the future.

use std::time::Duration;

use crate::db::{Db, DbError, Result};
use crate::log::Attachment;
use crate::store::Context;

/// The name of the log among the store's properties.
pub(crate) const LOG: &str = "log";
/// That of the history.
pub(crate) const EPOCH: &str = "epoch";

/// Time between a write and the look at which one has won.
const SETTLING: Duration = Duration::from_millis(500);

/// A property of the store.
pub(crate) async fn property(db: &Db, name: &str) -> Result<Option<String>> {
    let row = db.row::<(String,)>("reading a property", &db.statements.property, (name,)).await?;
    Ok(row.map(|(value,)| value))
}

/// The value of a property, which is set if there is none.
pub(crate) async fn set_once(db: &Db, name: &'static str, value: &str) -> Result<String> {
    if let Some(found) = property(db, name).await? {
        return Ok(found);
    }
    db.write("setting a property", &db.statements.set_property, (name, value)).await?;
    tokio::time::sleep(SETTLING).await;
    let reason = || {
        format!(
            "{name} was set, and is not there: it was deleted with a later timestamp than now; are the clocks right?"
        )
    };
    property(db, name).await?.ok_or_else(|| DbError::new("setting a property", reason()))
}

/// Follows a slower server that named the history later. Stops changing anything if another log is attached instead.
pub(crate) async fn look_again(context: &Context) -> Result<()> {
    if let Some(epoch) = property(&context.db, EPOCH).await? {
        context.set_epoch(&epoch);
    }
    context.look_where_it_is().await;
    let (Some(known), Some(found)) = (context.log.get(), Attachment::read(&context.db).await?) else {
        return Ok(());
    };
    if *known != found {
        context.status.set_outdated(&format!(
            "the store takes its rooms from another log now ({}, {} partitions), not from {} ({} partitions): correct \
             log.url or kafka.topic_prefix, or use another store, and restart the server",
            found.identity.id, found.identity.partitions, known.identity.id, known.identity.partitions
        ));
    }
    Ok(())
}
