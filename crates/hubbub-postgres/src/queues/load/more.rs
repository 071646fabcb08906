//! Reads what a decision turned out to need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hubbub_core::QueueRules;
use hubbub_core::invariant::saturate;
use tokio_postgres::Row;

use super::insert::{insert_held, insert_messages, insert_queue};
use super::names::insert_queues;
use super::places::{PLACE_TEXTS, insert_places};
use super::{Loader, MORE};
use crate::db::{DbError, Param, Result, Sql};

use crate::queues::sql::{self, queue_columns, time};
use crate::queues::working_set::{Frontier, LoadRequest, WorkingSet, signed};
use crate::queues::write::delete_queues;

const CREATE_QUEUE: Sql = Sql {
    what: "making a queue",
    text: concat!(
        "with made as ( \
             insert into queues (id, is_dead_letter, lease_ms, deliveries_max, dead_letter, ttl_ms, messages_max, \
               bytes_max, drops_oldest, backoff_ms, backoff_max_ms) \
             values ($1, false, $2, 0, '', 0, 0, 0, false, 0, $3) \
             on conflict (id) where not deleted do nothing returning *), \
           counting as (insert into queue_totals (queue, seen_to) select no, $4 from made) \
           select ",
        queue_columns!(),
        " from made q"
    ),
};

impl Loader<'_> {
    pub(in crate::queues) async fn more(&self, set: &mut WorkingSet, need: LoadRequest) -> Result<()> {
        match &need {
            LoadRequest::Queue(name) => {
                insert_queues(set, &self.queues(&[name], &[], false).await?);
                set.queried_names.insert(Arc::clone(name));
            }
            LoadRequest::NewQueue(name) => self.create_queue(set, name).await?,
            LoadRequest::Counts(queue) => {
                insert_held(set, &self.tx.query(&sql::HELD, &[&vec![*queue]]).await?);
            }
            LoadRequest::Place(place) => {
                let places = BTreeMap::from([(*place, MORE)]);
                let text_bytes = set.begin_texts(PLACE_TEXTS);
                let read = self.read_places(set, &places, text_bytes).await?;
                insert_places(set, &places, read)?;
            }
            LoadRequest::Group(key) => self.read_groups(set, std::slice::from_ref(key), MORE).await?,
            LoadRequest::Oldest(queue) => self.oldest(set, *queue).await?,
            LoadRequest::Texts(ids) => self.texts(set, ids).await?,
            LoadRequest::Ids(count) => set.ids = self.ids(*count).await?,
            LoadRequest::Registered => self.registered(set).await?,
            LoadRequest::ClientCount => set.client_count = Some(self.hold_clients().await?.get("clients")),
            LoadRequest::Copies(client) => {
                self.hold_clients().await?;
                // A queue may have been made, and got copies, while the lock was waited for.
                let queues = self.queues(&[], &[], true).await?;
                let is_new = |row: &Row| !set.queues.contains_key(&row.get("no"));
                if set.has_all_queues && queues.0.iter().any(is_new) {
                    return Err(DbError::Again { what: "reading queues" });
                }
                insert_queues(set, &queues);
                self.copies_for(set, *client).await?;
                self.messages(set, &sql::COPIES, &[client]).await?;
            }
            LoadRequest::Returned(queue) => self.messages(set, &sql::RETURNED, &[queue]).await?,
            LoadRequest::DeadLetters(queue, id) => self.dead_letters(set, *queue, *id).await?,
            LoadRequest::HighestNamed => {
                set.highest_named = Some(self.tx.query_one(&sql::HIGHEST_NAMED, &[]).await?.get(0));
            }
        }
        set.loaded.insert(need);
        Ok(())
    }

    pub(super) async fn hold_clients(&self) -> Result<Row> {
        self.tx.query_one(&sql::HOLD_CLIENTS, &[]).await
    }

    async fn messages(&self, set: &mut WorkingSet, statement: &Sql, params: &[Param<'_>]) -> Result<()> {
        insert_messages(set, &self.tx.query(statement, params).await?)
    }

    /// The dead letter of an id, or more of those that may go back, of which one operation moves fewer.
    async fn dead_letters(&self, set: &mut WorkingSet, queue: i32, id: Option<i64>) -> Result<()> {
        // Nothing goes back to a queue that this batch deleted.
        delete_queues(self.tx, set).await?;
        let behind = set.dead_letters.get(&queue).map_or(0, |frontier| frontier.to);
        let (from, to) = id.map_or((behind.saturating_add(1), i64::MAX), |id| (id, id));
        let most = MORE + 1;
        let rows = self.tx.query(&sql::DEAD_LETTERS, &[&queue, &from, &to, &most]).await?;
        insert_messages(set, &rows)?;
        if id.is_none() {
            let to = rows.iter().map(|row| row.get("id")).max().unwrap_or(behind);
            let is_complete = saturate::<_, i64>(rows.len()) < most;
            set.dead_letters.insert(queue, Frontier { to, is_complete });
        }
        Ok(())
    }

    /// Creates a queue in the middle of a batch if there is none of that name, and locks it: what follows refers to its
    /// number.
    async fn create_queue(&self, set: &mut WorkingSet, name: &str) -> Result<()> {
        // The name may be that of one that this batch deleted.
        delete_queues(self.tx, set).await?;
        let QueueRules { lease_ms, backoff_max_ms, .. } = QueueRules::default();
        let params: [Param<'_>; 4] = [&name, &signed(lease_ms), &signed(backoff_max_ms), &time(set.now)];
        let Some(row) = self.tx.query_opt(&CREATE_QUEUE, &params).await? else {
            // Somebody else was faster. What this batch has read of the queue, and the numbers it took for messages, are older
            // than a lock of it would be.
            return Err(DbError::Again { what: CREATE_QUEUE.what });
        };
        insert_queue(set, &row, set.now);
        // Those of another one of its name may go back now.
        set.dead_letters.clear();
        if let Some(queue) = set.queues.get_mut(&row.get("no")) {
            (queue.is_new, queue.is_current, queue.held) = (true, true, Some((0, 0)));
        }
        Ok(())
    }

    async fn texts(&self, set: &mut WorkingSet, ids: &[i64]) -> Result<()> {
        let stored = ids.iter().filter_map(|id| Some((set.messages.get(id)?.stored_in?, *id)));
        let (queues, stored): (Vec<i32>, Vec<i64>) = stored.unzip();
        let copied = ids.iter().filter_map(|id| set.messages.get(id)?.copy_of);
        let copied: Vec<i64> = copied.collect::<BTreeSet<_>>().into_iter().collect();
        let rows = self.tx.query_for(&sql::PENDING_TEXTS, &[&copied]).await?;
        let texts: BTreeMap<i64, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for id in ids {
            let Some(message) = set.messages.get_mut(id) else { continue };
            let text = message.copy_of.and_then(|first| texts.get(&first));
            message.text = text.cloned().or_else(|| message.text.take());
        }
        for row in self.tx.query_for(&sql::TEXTS, &[&queues, &stored]).await? {
            if let Some(message) = set.messages.get_mut(&row.get("id")) {
                message.text = Some(row.get("body"));
            }
        }
        Ok(())
    }
}
