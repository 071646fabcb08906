//! Reading what judging turned out to need.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::try_join;

use super::enter::{enter_client, enter_held, enter_messages};
use super::make::make_queue;
use super::names::{enter_queue, seen};
use super::places::enter_places;
use super::{Loader, MORE};
use crate::db::{Fault, Param, Sql};
use crate::queues::image::{Frontier, Image, Need};
use crate::queues::sql;

impl Loader<'_> {
    /// Reads what judging turned out to need.
    pub(in crate::queues) async fn more(&self, image: &mut Image, need: Need) -> Result<(), Fault> {
        match &need {
            Need::Queue(name) => {
                let names: [&str; 1] = [name];
                let (rows, seen_to) =
                    try_join!(biased; self.queues(&names, &[], false), self.seen(&names, &[], false))?;
                let seen_to = seen(&seen_to);
                rows.iter().for_each(|row| enter_queue(image, row, &seen_to));
                image.asked.insert(Arc::clone(name));
            }
            Need::Made(name) => make_queue(self.tx, image, name).await?,
            Need::Counts(queue) => {
                let rows = self.tx.query(&sql::HELD, &[&vec![*queue]]).await?;
                enter_held(image, &rows);
            }
            Need::Place(place) => {
                let places = BTreeMap::from([(*place, MORE)]);
                let read = self.read_places(image, &places).await?;
                enter_places(image, &places, read);
            }
            Need::Group(key) => self.read_groups(image, std::slice::from_ref(key), MORE).await?,
            Need::Oldest(queue) => {
                let behind = image.oldest.get(queue).map_or(0, |frontier| frontier.to);
                let rows = self.tx.query(&sql::OLDEST, &[queue, &behind, &MORE]).await?;
                let to = rows.iter().map(|row| row.get::<_, i64>("id")).max().unwrap_or(behind);
                let is_complete = i64::try_from(rows.len()).is_ok_and(|count| count < MORE);
                enter_messages(image, &rows);
                image.oldest.insert(*queue, Frontier { to, is_complete });
            }
            Need::Texts(ids) => self.texts(image, ids).await?,
            Need::Ids(count) => image.ids = self.ids(*count).await?,
            Need::Registered => {
                self.hold_clients().await?;
                let rows = self.tx.query(&sql::ALL_REGISTERED, &[]).await?;
                let unchanged = image.clients.values_mut().filter(|client| !client.is_changed);
                unchanged.for_each(|client| client.is_registered = false);
                rows.iter().for_each(|row| enter_client(image, row));
                image.has_all_registered = true;
            }
            Need::ClientCount => {
                let before: i64 = self.hold_clients().await?.get("clients");
                image.client_count = Some(before);
            }
            Need::Copies(client) => {
                self.hold_clients().await?;
                // A queue may have been made, and got copies, while the lock was waited for.
                let (queues, seen_to) =
                    try_join!(biased; self.queues(&[], &[], true), self.seen(&[], &[], true))?;
                let seen_to = seen(&seen_to);
                queues.iter().for_each(|row| enter_queue(image, row, &seen_to));
                self.enter_all(image, &sql::COPIES, &[client]).await?;
            }
            Need::Returned(queue) => self.enter_all(image, &sql::RETURNED, &[queue]).await?,
            Need::DeadLetters(queue, id) => {
                self.enter_all(image, &sql::DEAD_LETTERS, &[queue, id, &(MORE + 1)]).await?;
            }
            Need::HighestNamed => {
                let row = self.tx.query_one(&sql::HIGHEST_NAMED, &[]).await?;
                image.highest_named = Some(row.get(0));
            }
        }
        image.loaded.insert(need);
        Ok(())
    }

    async fn hold_clients(&self) -> Result<tokio_postgres::Row, Fault> {
        self.tx.query_one(&sql::HOLD_CLIENTS, &[]).await
    }

    async fn enter_all(&self, image: &mut Image, statement: &Sql, params: &[Param<'_>]) -> Result<(), Fault> {
        let rows = self.tx.query(statement, params).await?;
        enter_messages(image, &rows);
        Ok(())
    }

    async fn texts(&self, image: &mut Image, ids: &[i64]) -> Result<(), Fault> {
        let stored = ids.iter().filter_map(|id| Some((image.messages.get(id)?.stored_in?, *id)));
        let (queues, ids): (Vec<i32>, Vec<i64>) = stored.unzip();
        let rows = self.tx.query(&sql::TEXTS, &[&queues, &ids]).await?;
        for row in &rows {
            if let Some(message) = image.messages.get_mut(&row.get("id")) {
                message.text = Some(row.get("body"));
            }
        }
        Ok(())
    }
}
