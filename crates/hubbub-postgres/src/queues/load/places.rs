//! Reading what may be taken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hubbub_core::queue::Take;
use tokio::try_join;
use tokio_postgres::Row;

use super::Loader;
use super::enter::enter_messages;
use crate::db::{DbError, Sql};
use crate::queues::sql;
use crate::queues::working_set::{ANYBODY, Frontier, Place, ReceiverQueue, WorkingSet};

/// What was read of places.
pub(super) struct Read {
    lows: Vec<Row>,
    kinds: [Vec<Row>; 4],
}

fn statement_of(by_sender: bool, newest_first: bool) -> &'static Sql {
    match (by_sender, newest_first) {
        (false, false) => &sql::OLDEST_FIRST,
        (false, true) => &sql::NEWEST_FIRST,
        (true, false) => &sql::OLDEST_OF_SENDER,
        (true, true) => &sql::NEWEST_OF_SENDER,
    }
}

/// Where what a take wants may stand in the database.
pub(super) fn places_of(set: &WorkingSet, take: &Take<'_>, queue: Option<i32>) -> Vec<Place> {
    let wanted = &take.wanted;
    let sender = match wanted.sender.map(|sender| set.client(sender)) {
        Some(None) => return Vec::new(),
        Some(sender) => sender,
        None => None,
    };
    let queues: Vec<i32> = match (wanted.queue, queue) {
        (Some(_), Some(queue)) => vec![queue],
        (Some(_), None) => Vec::new(),
        (None, _) => set.names.values().copied().collect(),
    };
    let receiver = wanted.receiver.and_then(|receiver| set.client(receiver));
    let newest_first = wanted.newest_first;
    let of_queue = |queue| {
        let receivers = receiver.into_iter().chain([ANYBODY]);
        receivers.map(move |receiver| Place { queue, receiver, sender, newest_first })
    };
    queues.into_iter().flat_map(of_queue).collect()
}

impl Loader<'_> {
    pub(super) async fn read_places(
        &self,
        set: &WorkingSet,
        places: &BTreeMap<Place, i64>,
    ) -> Result<Read, DbError> {
        let of_kind = |by_sender: bool, newest_first: bool| {
            let is_it = move |place: &Place| {
                place.sender.is_some() == by_sender && place.newest_first == newest_first
            };
            let some: Vec<(&Place, i64)> =
                places.iter().filter(|(place, _)| is_it(place)).map(|(place, most)| (place, *most)).collect();
            self.read_places_by(statement_of(by_sender, newest_first), set, some)
        };
        let lines: BTreeSet<ReceiverQueue> =
            places.keys().map(|place| (place.queue, place.receiver)).collect();
        let (queues, receivers): (Vec<i32>, Vec<i32>) = lines.into_iter().unzip();
        let lows = async {
            if queues.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::LOWS, &[&queues, &receivers]).await
        };
        let (lows, oldest, newest, oldest_of, newest_of) = try_join!(
            biased;
            lows,
            of_kind(false, false),
            of_kind(false, true),
            of_kind(true, false),
            of_kind(true, true)
        )?;
        Ok(Read { lows, kinds: [oldest, newest, oldest_of, newest_of] })
    }

    async fn read_places_by(
        &self,
        statement: &Sql,
        set: &WorkingSet,
        places: Vec<(&Place, i64)>,
    ) -> Result<Vec<Row>, DbError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let (mut queues, mut receivers, mut senders) = (Vec::new(), Vec::new(), Vec::new());
        let (mut behinds, mut mosts) = (Vec::new(), Vec::new());
        for (place, most) in places {
            queues.push(place.queue);
            receivers.push(place.receiver);
            senders.push(place.sender.unwrap_or(0));
            let start = if place.newest_first { i64::MAX } else { 0 };
            behinds.push(set.frontiers.get(place).map_or(start, |frontier| frontier.to));
            mosts.push(most);
        }
        self.tx.query(statement, &[&queues, &receivers, &senders, &behinds, &mosts]).await
    }
}

pub(super) fn enter_places(set: &mut WorkingSet, places: &BTreeMap<Place, i64>, read: Read) {
    for row in &read.lows {
        set.low_water_marks.insert((row.get("queue"), row.get("receiver")), row.get("low"));
    }
    for place in places.keys().filter(|place| place.sender.is_none()) {
        set.low_water_marks.entry((place.queue, place.receiver)).or_insert(0);
    }
    // How many rows and bytes each place gave, and the last id.
    let mut found: HashMap<Place, (i64, i64, i64)> = HashMap::new();
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    for (rows, (by_sender, newest_first)) in read.kinds.iter().zip(kinds) {
        for row in rows {
            let sender = by_sender.then(|| row.get("sender"));
            let place =
                Place { queue: row.get("queue"), receiver: row.get("receiver"), sender, newest_first };
            let id: i64 = row.get("id");
            let (count, bytes, last) = found.entry(place).or_insert((0, 0, id));
            *count += 1;
            *bytes += row.get::<_, i64>("bytes");
            *last = if newest_first { (*last).min(id) } else { (*last).max(id) };
        }
        enter_messages(set, rows);
    }
    for (place, most) in places {
        let start = if place.newest_first { i64::MAX } else { 0 };
        let before = set.frontiers.get(place).map_or(start, |frontier| frontier.to);
        let (count, bytes, last) = found.get(place).copied().unwrap_or((0, 0, before));
        let is_complete = count < *most && bytes < sql::PLACE_BYTES;
        set.frontiers.insert(*place, Frontier { to: last, is_complete });
    }
}
