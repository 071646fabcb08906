//! Reading what a decision turned out to need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::try_join;

use super::enter::{enter_held, enter_messages};
use super::make::make_queue;
use super::names::{enter_queue, seen};
use super::places::enter_places;
use super::{Loader, MORE};
use crate::db::{DbError, Param, Sql};
use crate::queues::sql;
use crate::queues::working_set::{Need, WorkingSet};

impl Loader<'_> {
    /// Reads what a decision turned out to need.
    pub(in crate::queues) async fn more(&self, set: &mut WorkingSet, need: Need) -> Result<(), DbError> {
        match &need {
            Need::Queue(name) => {
                let names: [&str; 1] = [name];
                let (rows, seen_to) =
                    try_join!(biased; self.queues(&names, &[], false), self.seen(&names, &[], false))?;
                let seen_to = seen(&seen_to);
                rows.iter().for_each(|row| enter_queue(set, row, &seen_to));
                set.asked.insert(Arc::clone(name));
            }
            Need::Made(name) => make_queue(self.tx, set, name).await?,
            Need::Counts(queue) => {
                let rows = self.tx.query(&sql::HELD, &[&vec![*queue]]).await?;
                enter_held(set, &rows);
            }
            Need::Place(place) => {
                let places = BTreeMap::from([(*place, MORE)]);
                let read = self.read_places(set, &places).await?;
                enter_places(set, &places, read);
            }
            Need::Group(key) => self.read_groups(set, std::slice::from_ref(key), MORE).await?,
            Need::Oldest(queue) => self.oldest(set, *queue).await?,
            Need::Texts(ids) => self.texts(set, ids).await?,
            Need::Ids(count) => set.ids = self.ids(*count).await?,
            Need::Registered => self.registered(set).await?,
            Need::ClientCount => {
                let before: i64 = self.hold_clients().await?.get("clients");
                set.client_count = Some(before);
            }
            Need::Copies(client) => {
                self.hold_clients().await?;
                // A queue may have been made, and got copies, while the lock was waited for.
                let (queues, seen_to) =
                    try_join!(biased; self.queues(&[], &[], true), self.seen(&[], &[], true))?;
                let seen_to = seen(&seen_to);
                queues.iter().for_each(|row| enter_queue(set, row, &seen_to));
                self.copies_for(set, *client).await?;
                self.enter_all(set, &sql::COPIES, &[client]).await?;
            }
            Need::Returned(queue) => self.enter_all(set, &sql::RETURNED, &[queue]).await?,
            Need::DeadLetters(queue, id) => {
                self.enter_all(set, &sql::DEAD_LETTERS, &[queue, id, &(MORE + 1)]).await?;
            }
            Need::HighestNamed => {
                let row = self.tx.query_one(&sql::HIGHEST_NAMED, &[]).await?;
                set.highest_named = Some(row.get(0));
            }
        }
        set.loaded.insert(need);
        Ok(())
    }

    pub(super) async fn hold_clients(&self) -> Result<tokio_postgres::Row, DbError> {
        self.tx.query_one(&sql::HOLD_CLIENTS, &[]).await
    }

    async fn enter_all(
        &self,
        set: &mut WorkingSet,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<(), DbError> {
        let rows = self.tx.query(statement, params).await?;
        enter_messages(set, &rows);
        Ok(())
    }

    async fn texts(&self, set: &mut WorkingSet, ids: &[i64]) -> Result<(), DbError> {
        let stored = ids.iter().filter_map(|id| Some((set.messages.get(id)?.stored_in?, *id)));
        let (queues, stored): (Vec<i32>, Vec<i64>) = stored.unzip();
        let copied = ids.iter().filter_map(|id| set.messages.get(id)?.copy_of);
        let copied: Vec<i64> = copied.collect::<BTreeSet<_>>().into_iter().collect();
        if !copied.is_empty() {
            let rows = self.tx.query(&sql::PENDING_TEXTS, &[&copied]).await?;
            let texts: BTreeMap<i64, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            for id in ids {
                let Some(message) = set.messages.get_mut(id) else { continue };
                let text = message.copy_of.and_then(|first| texts.get(&first));
                message.text = text.cloned().or_else(|| message.text.take());
            }
        }
        if stored.is_empty() {
            return Ok(());
        }
        let rows = self.tx.query(&sql::TEXTS, &[&queues, &stored]).await?;
        for row in &rows {
            if let Some(message) = set.messages.get_mut(&row.get("id")) {
                message.text = Some(row.get("body"));
            }
        }
        Ok(())
    }
}
