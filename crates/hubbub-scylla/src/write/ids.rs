//! Ids of messages: which are used, and for what.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;
use hubbub_core::Send;
use hubbub_core::invariant::saturate;
use sha2::{Digest as _, Sha256};

use crate::db::Result;
use crate::state::{self, FIRST_SHARD, RoomState, id_hash};
use crate::store::Context;

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

/// Most ids of a room that are kept in memory, and most that are read for that at once.
const KNOWN_MAX: usize = 100_000;
const READ_MAX: i64 = 1_000;
/// Ids that take as much memory as the name of a member.
const IDS_PER_NAME: usize = 8;

/// Hashes of all ids of a room: what is not among them is new. So the store is asked for few ids, or for none.
#[derive(Debug, Default)]
pub(super) struct KnownIds(HashSet<u64>);

impl KnownIds {
    pub(super) fn may_have(&self, id: &str) -> bool {
        self.0.contains(&id_hash(id))
    }

    /// Adds ids. Returns false if there are too many now.
    pub(super) fn insert<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> bool {
        self.0.extend(ids.map(id_hash));
        self.0.len() <= KNOWN_MAX
    }

    /// In names of members.
    pub(super) fn size(&self) -> usize {
        self.0.len() / IDS_PER_NAME
    }

    /// Reads those of a room that has few. What deleted messages left is among them, until it is removed.
    pub(super) async fn read(context: &Context, room: &str, state: &RoomState) -> Result<Option<Self>> {
        let few = READ_MAX.min(context.options.bucket.first_ids.saturating_sub(1));
        if state.ids.is_none_or(|count| count > few) {
            return Ok(None);
        }
        let (db, limit) = (&context.db, saturate::<_, i32>(2 * READ_MAX));
        let values = (room, FIRST_SHARD, limit);
        let rows = db.rows::<(String,)>("reading ids", &db.statements.first_ids, values).await?;
        let is_all = rows.len() < limit.unsigned_abs() as usize;
        Ok(is_all.then(|| Self(rows.iter().map(|(id,)| id_hash(id)).collect())))
    }
}

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
pub(crate) async fn seq_of(context: &Context, room: &str, id: &str) -> Result<Option<u64>> {
    let Some(state) = state::read(&context.db, room).await? else { return Ok(None) };
    let used = look_up(context, room, &state, std::iter::once(id)).await?;
    Ok(used.get(id).map(|used| used.seq.unsigned_abs()))
}

/// Looks up ids of a room, as of its state. An id that is in two shards leads to its newest message.
pub(super) async fn look_up(
    context: &Context,
    room: &str,
    state: &RoomState,
    ids: impl Iterator<Item = &str>,
) -> Result<UsedIds> {
    let (db, first_ids) = (&context.db, context.options.bucket.first_ids);
    let mut shards: HashMap<i16, Vec<&str>> = HashMap::new();
    for id in ids {
        state.shards_of(id, first_ids).for_each(|shard| shards.entry(shard).or_default().push(id));
    }
    let reads = shards.iter().flat_map(|(shard, ids)| ids.chunks(IDS_PER_READ).map(move |ids| (shard, ids)));
    let reads = reads.map(async |(shard, ids)| {
        db.rows::<(String, i64, i64, Vec<u8>)>("looking up ids", &db.statements.ids, (room, shard, ids)).await
    });
    let mut used = UsedIds::new();
    for (id, seq, received_at, stored) in try_join_all(reads).await?.into_iter().flatten() {
        // Another length is that of no message: it equals none.
        let digest = Digest::try_from(stored.as_slice()).unwrap_or_default();
        let found = UsedId { seq, received_at, digest };
        if seq <= state.head && used.get(&id).is_none_or(|known| known.seq < seq) {
            used.insert(id, found);
        }
    }
    Ok(used)
}
