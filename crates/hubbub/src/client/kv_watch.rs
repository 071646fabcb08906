//! `hubbub kv watch`: follows changes of keys. After a lost connection it continues behind the last change.

use anyhow::bail;
use hubbub_client::{KeyEvent, Start};
use serde_json::json;

use super::connection::refused;
use super::follow::Attention;
use super::session::Session;
use super::show;

pub(super) async fn watch(
    session: Session,
    prefix: String,
    after: Option<u64>,
    count: Option<u64>,
) -> anyhow::Result<()> {
    let start = after.map_or(Start::Now, Start::after);
    // As the server writes keys, so that what is listed can be watched.
    let prefix: Vec<u8> = percent_encoding::percent_decode_str(&prefix).collect();
    let mut changes = session.connection.client().keys().watch(prefix, start);
    let mut attention = Attention::new(changes.connection());
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        let Some(event) = attention.until(changes.next()).await? else { break };
        match event.map_err(|error| refused(&error))? {
            KeyEvent::Ready { .. } => {}
            KeyEvent::Change(change) => {
                shown += 1;
                let (kind, key, revision) = (&change.kind, &change.escaped, change.revision);
                let value = json!({"event": kind, "key": key, "revision": revision});
                show(session.is_json, &value, |_| format!("{revision:>10}  {kind:<6}  {key}\n"))?;
            }
            KeyEvent::Reset(reset) if reset.history_replaced => {
                bail!("the server's history was replaced; list the keys anew");
            }
            KeyEvent::Reset(reset) if after.is_some_and(|after| after > reset.head) => bail!(
                "revision {} lies ahead: the newest is {} (compacted); list the keys anew",
                after.unwrap_or_default(),
                reset.head
            ),
            KeyEvent::Reset(reset) => bail!(
                "the server cannot continue there: it keeps the changes from {} to {} (compacted); list the keys anew",
                reset.oldest,
                reset.head
            ),
        }
    }
    Ok(())
}
