//! What operations are known to touch before any of them is decided: what time has come for, what is settled or taken, ids
//! of senders, groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hubbub_core::QueueOp;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Audience, LeaseReceipt, TAKE_MAX};
use tokio::try_join;
use tokio_postgres::Row;

use super::enter::{enter_held, enter_known, enter_messages};
use super::pending::{Touched, make_read};
use super::places::{enter_places, places_of};
use super::{Loader, MORE};
use crate::db::DbError;
use crate::queues::sql::{self, time};
use crate::queues::working_set::{ANYBODY, GroupKey, Message, Place, WorkingSet};

/// Messages that time has come for which one batch sees to; the rest is for the next.
const DUE_MAX: i64 = 2_000;

/// Rows read of a group beforehand.
const GROUP_FIRST: i64 = 8;

/// Most rows read of one place beforehand.
const PLACE_FIRST_MAX: i64 = 5_000;

/// What operations are known to touch, by the numbers of their queues.
#[derive(Debug, Default)]
struct Wishes<'a> {
    sends: i64,
    settled: (Vec<i32>, Vec<i64>),
    /// Ids of senders.
    known: (Vec<i32>, Vec<&'a str>),
    /// Places, and how much may be taken from each.
    places: BTreeMap<Place, i64>,
    /// Queues that may become too full.
    limited: BTreeSet<i32>,
}

impl<'a> Wishes<'a> {
    fn of(set: &WorkingSet, ops: &[QueueOp<'a>]) -> Self {
        let mut wishes = Self::default();
        for op in ops {
            let queue = op.queue().and_then(|name| set.names.get(name).copied());
            match *op {
                QueueOp::Send(send) => {
                    wishes.sends += 1;
                    let Some(queue) = queue else { continue };
                    if let Some(id) = send.message_id {
                        wishes.known.0.push(queue);
                        wishes.known.1.push(id);
                    }
                    let settings = set.queues.get(&queue).map(|queue| &queue.settings);
                    if settings.is_some_and(|set| set.messages_max > 0 || set.bytes_max > 0) {
                        wishes.limited.insert(queue);
                    }
                }
                QueueOp::Settle { receipt: LeaseReceipt { id, .. }, .. } | QueueOp::Remove { id, .. } => {
                    if let (Some(queue), Ok(id)) = (queue, i64::try_from(id)) {
                        wishes.settled.0.push(queue);
                        wishes.settled.1.push(id);
                    }
                }
                QueueOp::Take(take) => {
                    let most: i64 = saturate(take.max.min(TAKE_MAX));
                    for place in places_of(set, &take, queue) {
                        let wanted = wishes.places.entry(place).or_default();
                        *wanted = (*wanted + most).min(PLACE_FIRST_MAX);
                    }
                }
                _ => {}
            }
        }
        wishes
    }
}

impl Loader<'_> {
    /// Reads what time has come for, what is settled or taken, ids of senders, and takes new ids. `due_from` is given to
    /// a batch that sweeps.
    pub(super) async fn first_messages(
        &self,
        set: &mut WorkingSet,
        ops: &[QueueOp<'_>],
        due_from: Option<i64>,
    ) -> Result<(), DbError> {
        let locked: Vec<i32> = set.queues.keys().copied().collect();
        set.queues.values_mut().for_each(|queue| queue.is_current = true);
        let seen_to = set.queues.values().map(|queue| queue.seen_to).min().unwrap_or(i64::MIN);
        // Queues are seen to by a time that may not be proven yet, but lives end by proven time: a sweep looks further back.
        let lived_from = time(due_from.unwrap_or(i64::MAX).min(seen_to).max(0));
        let (seen_to, now, proven) = (time(seen_to.max(0)), time(set.now), time(set.proven));
        let Wishes { sends, settled, known, places, limited } = Wishes::of(set, ops);
        set.sends_left = sends;
        let limited: Vec<i32> = limited.into_iter().collect();
        let due = async {
            if locked.is_empty() {
                return Ok(Vec::new());
            }
            self.tx
                .query(&sql::MESSAGES_DUE, &[&locked, &seen_to, &now, &DUE_MAX, &lived_from, &proven])
                .await
        };
        let over = async {
            if due_from.is_none() || locked.is_empty() {
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
            self.tx.query(&sql::KNOWN, &[&known.0, &known.1, &proven]).await
        };
        let ids = async { if sends == 0 { Ok(0..0) } else { self.ids(sends).await } };
        let held = async {
            if limited.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::HELD, &[&limited]).await
        };
        let touched = Touched::of(set, ops);
        let (due, over, settled_rows, known_rows, ids, held, pending, read) = try_join!(
            biased;
            due,
            over,
            settled_rows,
            known_rows,
            ids,
            held,
            Box::pin(self.read_pending(&touched, (set.now, set.proven))),
            self.read_places(&*set, &places)
        )?;
        let full = |rows: &[Row], max: i64| i64::try_from(rows.len()).unwrap_or(max) >= max;
        set.has_more_due = full(&due, DUE_MAX) || full(&over, MORE);
        enter_messages(set, &due);
        enter_messages(set, &over);
        enter_messages(set, &settled_rows);
        make_read(set, &touched, &pending);
        known_rows.iter().for_each(|row| enter_known(set, row));
        set.ids = ids;
        enter_held(set, &held);
        enter_places(set, &places, read);
        Ok(())
    }

    /// Groups that the batch touches for sure.
    pub(super) async fn first_groups(
        &self,
        set: &mut WorkingSet,
        ops: &[QueueOp<'_>],
    ) -> Result<(), DbError> {
        let mut keys: BTreeMap<(i32, i32, Arc<str>), ()> = BTreeMap::new();
        for key in set.messages.values().filter_map(Message::group_key) {
            keys.insert((key.queue, key.receiver, key.group), ());
        }
        for op in ops {
            let QueueOp::Send(send) = op else { continue };
            let receiver = match send.audience {
                Audience::Anyone => Some(ANYBODY),
                Audience::One(name) => set.client(name),
                Audience::All => None,
            };
            if let (Some(group), Some(queue), Some(receiver)) =
                (send.group, set.names.get(send.queue), receiver)
            {
                keys.insert((*queue, receiver, group.into()), ());
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<GroupKey> =
            keys.into_keys().map(|(queue, receiver, group)| GroupKey { queue, receiver, group }).collect();
        self.read_groups(set, &keys, GROUP_FIRST).await
    }
}
