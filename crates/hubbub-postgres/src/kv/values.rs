//! Values of single keys, asked for by one query for all who wait ([`crate::db::query_batcher`]).

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::kv::{KvEntry, has_expired};
use hubbub_core::store::ReadError;

use super::lists::revision;
use super::position::KeyPosition;
use crate::db::query_batcher::BatchQuery;
use crate::db::{PgTime, Sql};
use crate::store::Context;

const READ: Sql = Sql {
    what: "reading values of keys",
    text: "select head, k.key, k.value, k.revision, k.expires_at \
           from (select coalesce(max(revision), 0) as head from kv_changes) h left join kv k on k.key = any($1)",
};

/// What is asked for keys.
pub(super) struct Values {
    pub(super) context: Arc<Context>,
    pub(super) position: Arc<KeyPosition>,
}

impl BatchQuery for Values {
    type Key = Vec<u8>;
    type Value = KvEntry;

    const SUBJECT: &'static str = "keys";
    // Few, because their values are in memory together.
    const KEYS_MAX: usize = 128;

    async fn query(&self, keys: &[Vec<u8>]) -> Result<HashMap<Vec<u8>, KvEntry>, ReadError> {
        let rows = self.context.db.read(&READ, &[&keys]).await?;
        if let Some(row) = rows.first() {
            self.position.observe(revision(row.get(0)));
        }
        let now = self.context.clock.now();
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let (Some(key), Some(value)) = (row.get::<_, Option<&[u8]>>(1), row.get::<_, Option<&[u8]>>(2))
            else {
                continue;
            };
            let expires_at = row.get::<_, Option<PgTime>>(4).map(|at| at.0);
            if !has_expired(expires_at, now) {
                let entry = KvEntry { value: value.into(), revision: revision(row.get(3)), expires_at };
                found.insert(key.to_vec(), entry);
            }
        }
        Ok(found)
    }
}
