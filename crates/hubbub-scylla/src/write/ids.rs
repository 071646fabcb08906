//! Ids of messages: which are used, and for what.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use hubbub_core::Send;
use sha2::{Digest as _, Sha256};

use crate::db::{Db, Result};
use crate::state::id_shard;

/// What makes two messages the same: a digest of user, type and text.
pub(super) type Digest = [u8; 16];

/// Most ids of one statement. ScyllaDB allows 100.
const IDS_PER_READ: usize = 90;

/// The message that has an id.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedId {
    pub(super) seq: i64,
    pub(super) received_at: i64,
    pub(super) digest: Digest,
}

/// Used ids, of those that were looked up.
pub(super) type UsedIds = HashMap<String, UsedId>;

/// The digest of a message.
pub(super) fn digest(send: &Send<'_>) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(send.user.as_bytes());
    hasher.update([0, send.kind as u8]);
    hasher.update(send.text.as_bytes());
    let mut short = Digest::default();
    short.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
    short
}

/// The number that the id of a message leads to, whether the message is kept or not.
pub(crate) async fn seq_of(db: &Db, room: &str, id: &str) -> Result<Option<u64>> {
    let used = look_up(db, room, std::iter::once(id)).await?;
    Ok(used.get(id).map(|used| used.seq.unsigned_abs()))
}

/// Looks up ids of a room.
pub(super) async fn look_up(db: &Db, room: &str, ids: impl Iterator<Item = &str>) -> Result<UsedIds> {
    let mut shards: HashMap<i16, Vec<&str>> = HashMap::new();
    ids.for_each(|id| shards.entry(id_shard(id)).or_default().push(id));
    let reads = shards.iter().flat_map(|(shard, ids)| ids.chunks(IDS_PER_READ).map(move |ids| (shard, ids)));
    let reads = reads.map(async |(shard, ids)| {
        db.rows::<(String, i64, i64, Vec<u8>)>("looking up ids", &db.statements.ids, (room, shard, ids)).await
    });
    let mut used = UsedIds::new();
    for (id, seq, received_at, stored) in try_join_all(reads).await?.into_iter().flatten() {
        // Another length is that of no message: it equals none.
        let digest = Digest::try_from(stored.as_slice()).unwrap_or_default();
        used.insert(id, UsedId { seq, received_at, digest });
    }
    Ok(used)
}
