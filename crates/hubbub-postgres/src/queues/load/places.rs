//! Reads what may be taken, and groups of messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::future::try_join_all;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{PAYLOADS_MAX, TAKE_BYTES_MAX};
use tokio::try_join;
use tokio_postgres::Row;

use super::Loader;
use super::insert::insert_messages;
use crate::db::{Param, Result, column};
use crate::queues::sql::{self, time};
use crate::queues::working_set::{Frontier, GroupKey, Place, ReceiverQueue, WorkingSet};

/// Bytes of texts read with a place: twice what one take gives.
pub(super) const PLACE_TEXTS: u64 = 2 * TAKE_BYTES_MAX as u64;

/// Low-water marks, and messages by kinds of places.
type PlaceRows = (Vec<Row>, Vec<Vec<Row>>);

impl Loader<'_> {
    /// Reads as many further messages of each place, with up to `text_bytes` of their texts: of each place in proportion to how
    /// many may be taken from it.
    pub(super) async fn read_places(
        &self,
        set: &WorkingSet,
        places: &BTreeMap<Place, i64>,
        text_bytes: i64,
    ) -> Result<PlaceRows> {
        let now = time(set.now);
        let all_most = places.values().sum::<i64>().max(1);
        let share = |most: i64| text_bytes.saturating_mul(most) / all_most;
        let lines: BTreeSet<ReceiverQueue> =
            places.keys().map(|place| (place.queue, place.receiver)).collect();
        let (queues, receivers): (Vec<i32>, Vec<i32>) = lines.into_iter().unzip();
        let marks: [Param<'_>; 2] = [&queues, &receivers];
        let kinds = sql::PLACES.iter().map(async |(by_sender, newest_first, statement)| {
            let is_it =
                |place: &Place| place.sender.is_some() == *by_sender && place.newest_first == *newest_first;
            let some: Vec<(&Place, &i64)> = places.iter().filter(|(place, _)| is_it(place)).collect();
            let params: [Param<'_>; 7] = [
                &column(&some, |(place, _)| place.queue),
                &column(&some, |(place, _)| place.receiver),
                &column(&some, |(place, _)| place.sender.unwrap_or(0)),
                &column(&some, |(place, _)| set.loaded_to(place)),
                &column(&some, |(_, most)| **most),
                &now,
                &column(&some, |(_, most)| share(**most)),
            ];
            self.tx.query_for(statement, &params).await
        });
        try_join!(biased; self.tx.query_for(&sql::LOW_WATER_MARKS, &marks), try_join_all(kinds))
    }

    /// Reads up to `most` further messages of each group.
    pub(super) async fn read_groups(&self, set: &mut WorkingSet, keys: &[GroupKey], most: i64) -> Result<()> {
        let loaded_to = |key: &GroupKey| {
            let group = set.groups.get(key).and_then(|group| group.frontier);
            group.map_or(0, |frontier| frontier.to)
        };
        let behinds = column(keys, loaded_to);
        let params: [Param<'_>; 5] = [
            &column(keys, |key| key.queue),
            &column(keys, |key| key.receiver),
            &column(keys, |key| &*key.group),
            &behinds,
            &vec![most; keys.len()],
        ];
        let rows = self.tx.query_for(&sql::GROUPS, &params).await?;
        let mut read: HashMap<GroupKey, (i64, i64)> = HashMap::new();
        for row in &rows {
            let group = row.get::<_, &str>("group_id").into();
            let key = GroupKey { queue: row.get("queue"), receiver: row.get("receiver"), group };
            let (count, last) = read.entry(key).or_default();
            (*count, *last) = (*count + 1, (*last).max(row.get("id")));
        }
        insert_messages(set, &rows)?;
        for (key, behind) in keys.iter().zip(behinds) {
            let (count, last) = read.get(key).copied().unwrap_or_default();
            let frontier = Frontier { to: last.max(behind), is_complete: count < most };
            set.groups.entry(key.clone()).or_default().frontier = Some(frontier);
        }
        Ok(())
    }
}

impl WorkingSet {
    /// How many bytes of texts may be read with places, of those that are wanted: a batch has one budget for all.
    pub(super) fn begin_texts(&mut self, wanted: u64) -> i64 {
        let granted = wanted.min(PAYLOADS_MAX.saturating_sub(self.texts_read));
        self.texts_read += granted;
        saturate(granted)
    }
}

pub(super) fn insert_places(
    set: &mut WorkingSet,
    places: &BTreeMap<Place, i64>,
    (marks, kinds): PlaceRows,
) -> Result<()> {
    for row in &marks {
        set.low_water_marks.insert((row.get("queue"), row.get("receiver")), row.get("low"));
    }
    for place in places.keys().filter(|place| place.sender.is_none()) {
        set.low_water_marks.entry((place.queue, place.receiver)).or_insert(0);
    }
    // How many rows each place gave, and the last id.
    let mut found: HashMap<Place, (i64, i64)> = HashMap::new();
    for (rows, (by_sender, newest_first, _)) in kinds.iter().zip(&sql::PLACES) {
        for row in rows {
            let sender = by_sender.then(|| row.get("sender"));
            let (queue, receiver) = (row.get("queue"), row.get("receiver"));
            let place = Place { queue, receiver, sender, newest_first: *newest_first };
            let id: i64 = row.get("id");
            let (count, last) = found.entry(place).or_insert((0, id));
            *count += 1;
            *last = if *newest_first { (*last).min(id) } else { (*last).max(id) };
        }
        insert_messages(set, rows)?;
    }
    for (place, most) in places {
        let (count, to) = found.get(place).copied().unwrap_or((0, set.loaded_to(place)));
        set.frontiers.insert(*place, Frontier { to, is_complete: count < *most });
    }
    Ok(())
}
