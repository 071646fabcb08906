//! Filling the image: what a batch is known to touch, in two rounds of statements, and later whatever else it turns out to
//! need.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hubbub_core::queue::{Audience, TAKE_MAX};
use hubbub_core::{Clock, QueueOp, Timestamp};
use tokio::try_join;
use tokio_postgres::Row;

use super::image::{ANYBODY, Client, Frontier, GroupKey, Image, Known, Line, Message, Need, Place, Queue};
use super::settings::rules_of;
use super::{repair, sql};
use crate::db::{Fault, PgTime, Sql, Tx};

/// Messages that time has come for which one batch sees to; the rest is for the next.
const DUE_MAX: i64 = 2_000;
/// Rows read of a place, a group or a queue when it turns out that more are needed.
const MORE: i64 = 1_000;
/// Rows read of a group beforehand.
const GROUP_FIRST: i64 = 8;
/// Most rows read of one place beforehand.
const PLACE_FIRST_MAX: i64 = 5_000;

/// Reads for one transaction.
pub(super) struct Loader<'a> {
    pub(super) tx: &'a Tx<'a>,
    pub(super) clock: &'a dyn Clock,
    /// Whether what is read is to be changed.
    pub(super) locks: bool,
}

/// A time as a parameter.
pub(super) fn time(micros: i64) -> PgTime {
    PgTime(Timestamp::from_micros(micros))
}

/// Names in a batch.
#[derive(Debug, Default)]
struct Names<'a> {
    queues: BTreeSet<&'a str>,
    clients: BTreeSet<&'a str>,
    /// Whether every queue may be touched.
    all: bool,
    sweeps: bool,
}

fn names<'a>(ops: &[QueueOp<'a>]) -> Names<'a> {
    let mut names = Names::default();
    for op in ops {
        names.queues.extend(op.queue());
        match *op {
            QueueOp::Send(send) => {
                names.clients.insert(send.sender);
                if let Audience::One(receiver) = send.audience {
                    names.clients.insert(receiver);
                }
            }
            QueueOp::Take(take) => {
                names.clients.extend(take.wanted.receiver);
                names.clients.extend(take.wanted.sender);
                names.all |= take.wanted.queue.is_none();
            }
            QueueOp::Register { client } => {
                names.clients.insert(client);
            }
            QueueOp::Unregister { client } => {
                names.clients.insert(client);
                names.all = true;
            }
            QueueOp::Redrive { .. } => names.all = true,
            QueueOp::Sweep => names.sweeps = true,
            _ => {}
        }
    }
    names
}

impl Loader<'_> {
    /// Locks what the batch touches and reads what it needs for sure. `due_from` is the time up to which a sweep need
    /// not look.
    pub(super) async fn begin(
        &self,
        image: &mut Image,
        ops: &[QueueOp<'_>],
        due_from: i64,
    ) -> Result<(), Fault> {
        let names = names(ops);
        let (queues, clients): (Vec<&str>, Vec<&str>) =
            (names.queues.iter().copied().collect(), names.clients.iter().copied().collect());
        let planning = self.tx.batch("preparing", sql::PLANNING);
        let mut due: Vec<i32> = Vec::new();
        if names.sweeps {
            let (from, until) = (time(due_from), time(self.clock.now().as_micros()));
            let rows = self.tx.query(&sql::QUEUES_DUE, &[&from, &until]).await?;
            due.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        let (_, locked, known) =
            try_join!(planning, self.queues(&queues, &due, names.all), self.clients(&clients))?;
        self.enter_names(image, &locked, &known, &queues, names.all);
        // Behind the locks: whoever had them before is done by now.
        image.now = self.clock.now().as_micros();
        if self.locks {
            repair::of_image(self.tx, image).await?;
        }
        self.first_messages(image, ops, names.sweeps).await?;
        self.first_groups(image, ops).await
    }

    async fn queues(&self, names: &[&str], numbers: &[i32], all: bool) -> Result<Vec<Row>, Fault> {
        let statement = match (all, self.locks) {
            (true, true) => return self.tx.query(&sql::LOCK_ALL, &[]).await,
            (true, false) => return self.tx.query(&sql::READ_ALL, &[]).await,
            (false, true) => &sql::LOCK_QUEUES,
            (false, false) => &sql::READ_QUEUES,
        };
        if names.is_empty() && numbers.is_empty() {
            return Ok(Vec::new());
        }
        self.tx.query(statement, &[&names, &numbers]).await
    }

    async fn clients(&self, names: &[&str]) -> Result<Vec<Row>, Fault> {
        if names.is_empty() { Ok(Vec::new()) } else { self.tx.query(&sql::READ_CLIENTS, &[&names]).await }
    }

    fn enter_names(&self, image: &mut Image, queues: &[Row], clients: &[Row], asked: &[&str], all: bool) {
        image.has_all_queues = all;
        image.asked.extend(asked.iter().map(|name| Arc::from(*name)));
        queues.iter().for_each(|row| enter_queue(image, row));
        clients.iter().for_each(|row| enter_client(image, row));
    }

    /// Reads what time has come for, what is settled or taken, ids of senders, and takes new ids.
    async fn first_messages(
        &self,
        image: &mut Image,
        ops: &[QueueOp<'_>],
        sweeps: bool,
    ) -> Result<(), Fault> {
        let locked: Vec<i32> = image.queues.keys().copied().collect();
        let seen_to = image.queues.values().map(|queue| queue.seen_to).min().unwrap_or(i64::MIN);
        let (seen_to, now) = (time(seen_to.max(0)), time(image.now));
        let mut settled: (Vec<i32>, Vec<i64>) = Default::default();
        let mut known: (Vec<i32>, Vec<&str>) = Default::default();
        let mut places: BTreeMap<Place, i64> = BTreeMap::new();
        let (mut sends, mut limited) = (0, BTreeSet::new());
        for op in ops {
            let queue = op.queue().and_then(|name| image.names.get(name).copied());
            match *op {
                QueueOp::Send(send) => {
                    sends += 1;
                    let Some(queue) = queue else { continue };
                    if let Some(id) = send.message_id {
                        known.0.push(queue);
                        known.1.push(id);
                    }
                    let settings = image.queues.get(&queue).map(|queue| &queue.settings);
                    if settings.is_some_and(|set| set.messages_max > 0 || set.bytes_max > 0) {
                        limited.insert(queue);
                    }
                }
                QueueOp::Settle { receipt: hubbub_core::queue::LeaseReceipt { id, .. }, .. }
                | QueueOp::Remove { id, .. } => {
                    if let (Some(queue), Ok(id)) = (queue, i64::try_from(id)) {
                        settled.0.push(queue);
                        settled.1.push(id);
                    }
                }
                QueueOp::Take(take) => {
                    let most = i64::try_from(take.max.min(TAKE_MAX)).unwrap_or(MORE);
                    for place in places_of(image, &take, queue) {
                        let wanted = places.entry(place).or_default();
                        *wanted = (*wanted + most).min(PLACE_FIRST_MAX);
                    }
                }
                _ => {}
            }
        }
        image.sends_left = sends;
        let limited: Vec<i32> = limited.into_iter().collect();
        let due = async {
            if locked.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::MESSAGES_DUE, &[&locked, &seen_to, &now, &DUE_MAX]).await
        };
        let over = async {
            if !sweeps || locked.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::MESSAGES_OVER, &[&locked, &MORE]).await
        };
        let settled_rows = async {
            if settled.0.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::MESSAGES_BY_ID, &[&settled.0, &settled.1]).await
        };
        let known_rows = async {
            if known.0.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::KNOWN, &[&known.0, &known.1, &now]).await
        };
        let ids = async { if sends == 0 { Ok(0..0) } else { self.ids(sends).await } };
        let held = async {
            if limited.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::HELD, &[&limited]).await
        };
        let (due, over, settled_rows, known_rows, ids, held, read) =
            try_join!(due, over, settled_rows, known_rows, ids, held, self.read_places(&*image, &places))?;
        let full = |rows: &[Row], max: i64| i64::try_from(rows.len()).unwrap_or(max) >= max;
        image.has_more_due = full(&due, DUE_MAX) || full(&over, MORE);
        enter_messages(image, &due);
        enter_messages(image, &over);
        enter_messages(image, &settled_rows);
        known_rows.iter().for_each(|row| enter_known(image, row));
        image.ids = ids;
        enter_held(image, &held);
        enter_places(image, &places, read);
        Ok(())
    }

    async fn ids(&self, count: i64) -> Result<std::ops::Range<i64>, Fault> {
        let first: i64 = self.tx.query_one(&sql::NEXT_IDS, &[&count]).await?.get(0);
        Ok(first..first.saturating_add(count))
    }

    /// Groups that the batch touches for sure.
    async fn first_groups(&self, image: &mut Image, ops: &[QueueOp<'_>]) -> Result<(), Fault> {
        let mut keys: BTreeMap<(i32, i32, Arc<str>), ()> = BTreeMap::new();
        for key in image.messages.values().filter_map(Message::group_key) {
            keys.insert((key.queue, key.receiver, key.group), ());
        }
        for op in ops {
            let QueueOp::Send(send) = op else { continue };
            let receiver = match send.audience {
                Audience::Anyone => Some(ANYBODY),
                Audience::One(name) => image.client(name),
                Audience::All => None,
            };
            if let (Some(group), Some(queue), Some(receiver)) =
                (send.group, image.names.get(send.queue), receiver)
            {
                keys.insert((*queue, receiver, group.into()), ());
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<GroupKey> =
            keys.into_keys().map(|(queue, receiver, group)| GroupKey { queue, receiver, group }).collect();
        self.read_groups(image, &keys, GROUP_FIRST).await
    }

    async fn read_groups(&self, image: &mut Image, keys: &[GroupKey], most: i64) -> Result<(), Fault> {
        let behind = |key: &GroupKey| {
            let group = image.groups.get(key).and_then(|group| group.frontier);
            group.map_or(0, |frontier| frontier.to)
        };
        let queues: Vec<i32> = keys.iter().map(|key| key.queue).collect();
        let receivers: Vec<i32> = keys.iter().map(|key| key.receiver).collect();
        let groups: Vec<&str> = keys.iter().map(|key| &*key.group).collect();
        let behinds: Vec<i64> = keys.iter().map(behind).collect();
        let mosts = vec![most; keys.len()];
        let rows = self.tx.query(&sql::GROUPS, &[&queues, &receivers, &groups, &behinds, &mosts]).await?;
        let mut read: HashMap<GroupKey, (i64, i64)> = HashMap::new();
        for row in &rows {
            let group: &str = row.get("group_id");
            let key =
                GroupKey { queue: row.get("queue"), receiver: row.get("receiver"), group: group.into() };
            let (count, last) = read.entry(key).or_default();
            (*count, *last) = (*count + 1, (*last).max(row.get("id")));
        }
        enter_messages(image, &rows);
        for (key, behind) in keys.iter().zip(behinds) {
            let (count, last) = read.get(key).copied().unwrap_or_default();
            let frontier = Frontier { to: last.max(behind), is_complete: count < most };
            image.groups.entry(key.clone()).or_default().frontier = Some(frontier);
        }
        Ok(())
    }

    async fn read_places(&self, image: &Image, places: &BTreeMap<Place, i64>) -> Result<Read, Fault> {
        let of_kind = |by_sender: bool, newest_first: bool| {
            let is_it = move |place: &Place| {
                place.sender.is_some() == by_sender && place.newest_first == newest_first
            };
            let some: Vec<(&Place, i64)> =
                places.iter().filter(|(place, _)| is_it(place)).map(|(place, most)| (place, *most)).collect();
            self.read_places_by(statement_of(by_sender, newest_first), image, some)
        };
        let lines: BTreeSet<Line> = places.keys().map(|place| (place.queue, place.receiver)).collect();
        let (queues, receivers): (Vec<i32>, Vec<i32>) = lines.into_iter().unzip();
        let lows = async {
            if queues.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::LOWS, &[&queues, &receivers]).await
        };
        let (lows, oldest, newest, oldest_of, newest_of) = try_join!(
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
        image: &Image,
        places: Vec<(&Place, i64)>,
    ) -> Result<Vec<Row>, Fault> {
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
            behinds.push(image.frontiers.get(place).map_or(start, |frontier| frontier.to));
            mosts.push(most);
        }
        self.tx.query(statement, &[&queues, &receivers, &senders, &behinds, &mosts]).await
    }

    /// Reads what judging turned out to need.
    pub(super) async fn more(&self, image: &mut Image, need: Need) -> Result<(), Fault> {
        match &need {
            Need::Queue(name) => {
                let rows = self.queues(&[name], &[], false).await?;
                rows.iter().for_each(|row| enter_queue(image, row));
                image.asked.insert(Arc::clone(name));
            }
            Need::Made(name) => super::write::make_queue(self.tx, image, name).await?,
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
                rows.iter().for_each(|row| enter_client(image, row));
                image.has_all_registered = true;
            }
            Need::Copies(client) => {
                self.hold_clients().await?;
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

    async fn hold_clients(&self) -> Result<(), Fault> {
        self.tx.query_one(&sql::HOLD_CLIENTS, &[]).await.map(drop)
    }

    async fn enter_all(
        &self,
        image: &mut Image,
        statement: &Sql,
        params: &[crate::db::Param<'_>],
    ) -> Result<(), Fault> {
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

/// What was read of places.
struct Read {
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
fn places_of(image: &Image, take: &hubbub_core::queue::Take<'_>, queue: Option<i32>) -> Vec<Place> {
    let wanted = &take.wanted;
    let sender = match wanted.sender.map(|sender| image.client(sender)) {
        Some(None) => return Vec::new(),
        Some(sender) => sender,
        None => None,
    };
    let queues: Vec<i32> = match (wanted.queue, queue) {
        (Some(_), Some(queue)) => vec![queue],
        (Some(_), None) => Vec::new(),
        (None, _) => image.names.values().copied().collect(),
    };
    let receiver = wanted.receiver.and_then(|receiver| image.client(receiver));
    let newest_first = wanted.newest_first;
    let of_queue = |queue| {
        let receivers = receiver.into_iter().chain([ANYBODY]);
        receivers.map(move |receiver| Place { queue, receiver, sender, newest_first })
    };
    queues.into_iter().flat_map(of_queue).collect()
}

fn enter_places(image: &mut Image, places: &BTreeMap<Place, i64>, read: Read) {
    for row in &read.lows {
        image.lows.insert((row.get("queue"), row.get("receiver")), row.get("low"));
    }
    for place in places.keys().filter(|place| place.sender.is_none()) {
        image.lows.entry((place.queue, place.receiver)).or_insert(0);
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
        enter_messages(image, rows);
    }
    for (place, most) in places {
        let start = if place.newest_first { i64::MAX } else { 0 };
        let before = image.frontiers.get(place).map_or(start, |frontier| frontier.to);
        let (count, bytes, last) = found.get(place).copied().unwrap_or((0, 0, before));
        let is_complete = count < *most && bytes < sql::PLACE_BYTES;
        image.frontiers.insert(*place, Frontier { to: last, is_complete });
    }
}

fn enter_messages(image: &mut Image, rows: &[Row]) {
    for row in rows {
        for (number, name) in [("sender", "sender_name"), ("receiver", "receiver_name")] {
            let name = || Arc::from(row.get::<_, &str>(name));
            image.client_names.entry(row.get(number)).or_insert_with(name);
        }
        image.enter(Message::of_row(row));
    }
}

/// Takes in a queue that is locked.
pub(super) fn enter_queue(image: &mut Image, row: &Row) {
    let (no, name): (i32, Arc<str>) = (row.get("no"), row.get::<_, &str>("id").into());
    if image.queues.contains_key(&no) {
        return;
    }
    image.names.insert(Arc::clone(&name), no);
    image.asked.insert(Arc::clone(&name));
    let queue = Queue {
        name,
        is_dead_letter: row.get("is_dead_letter"),
        settings: rules_of(row),
        seen_to: row.get::<_, PgTime>("seen_to").0.as_micros(),
        held: None,
        added: super::image::Counts::default(),
        is_changed: false,
        is_new: false,
        is_deleted: false,
    };
    image.queues.insert(no, queue);
}

fn enter_client(image: &mut Image, row: &Row) {
    let (no, name): (i32, Arc<str>) = (row.get("no"), row.get::<_, &str>("id").into());
    image.client_names.insert(no, Arc::clone(&name));
    let is_registered = row.get("registered");
    image.clients.entry(name).or_insert(Client { no, is_registered, is_changed: false });
}

fn enter_known(image: &mut Image, row: &Row) {
    let known = Known {
        first: row.get("first"),
        content: row.get("content"),
        sent_at: row.get::<_, PgTime>("sent_at").0.as_micros(),
        copies: u32::try_from(row.get::<_, i64>("copies")).unwrap_or(u32::MAX),
        is_new: false,
    };
    image.known.insert((row.get("queue"), row.get("message_id")), known);
}

fn enter_held(image: &mut Image, rows: &[Row]) {
    for row in rows {
        if let Some(queue) = image.queues.get_mut(&row.get("no")) {
            // What this batch changed is not written yet.
            queue.held = Some((row.get("messages"), row.get("bytes")));
        }
    }
}
