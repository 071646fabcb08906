//! Reads what operations are known to touch before any of them is decided: what time has come for, what is settled or taken,
//! ids of senders, groups.

use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::QueueOp;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Audience, LeaseReceipt, TAKE_MAX};
use tokio::try_join;
use tokio_postgres::Row;

use super::insert::{insert_held, insert_known, insert_messages, insert_pending};
use super::pending::CopyFilter;
use super::places::{PLACE_TEXTS, insert_places};
use super::{Loader, MORE};
use crate::db::{Param, Result};
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
struct Touched<'a> {
    sends: i64,
    takes: i64,
    settled: (Vec<i32>, Vec<i64>),
    known: (Vec<i32>, Vec<&'a str>),
    /// Places, and how much may be taken from each.
    places: BTreeMap<Place, i64>,
    /// Queues that may become too full.
    limited: BTreeSet<i32>,
    copies: CopyFilter,
}

impl<'a> Touched<'a> {
    fn of(set: &WorkingSet, ops: &[QueueOp<'a>]) -> Self {
        let copies = CopyFilter { queues: set.queues.keys().copied().collect(), ..CopyFilter::default() };
        let mut touched = Self { copies, ..Self::default() };
        for op in ops {
            let queue = op.queue().and_then(|name| set.names.get(name).copied());
            match *op {
                QueueOp::Send(send) => {
                    touched.sends += 1;
                    let Some(queue) = queue else { continue };
                    if let Some(id) = send.message_id {
                        touched.known.0.push(queue);
                        touched.known.1.push(id);
                    }
                    let settings = set.queues.get(&queue).map(|queue| &queue.settings);
                    if settings.is_some_and(|set| set.messages_max > 0 || set.bytes_max > 0) {
                        touched.limited.insert(queue);
                    }
                }
                QueueOp::Settle { receipt: LeaseReceipt { id, .. }, .. } | QueueOp::Remove { id, .. } => {
                    let (Some(queue), Ok(id)) = (queue, i64::try_from(id)) else { continue };
                    touched.settled.0.push(queue);
                    touched.settled.1.push(id);
                    if matches!(op, QueueOp::Remove { .. }) {
                        touched.copies.removed.0.push(queue);
                        touched.copies.removed.1.push(id);
                    }
                }
                QueueOp::Take(take) => {
                    touched.takes += 1;
                    let most: i64 = saturate(take.max.min(TAKE_MAX));
                    for place in set.places_of(&take.wanted, queue) {
                        let wanted = touched.places.entry(place).or_default();
                        *wanted = (*wanted + most).min(PLACE_FIRST_MAX);
                    }
                    let receiver = take.wanted.receiver.and_then(|receiver| set.client(receiver));
                    touched.copies.clients.extend(receiver.filter(|receiver| *receiver > ANYBODY));
                }
                _ => {}
            }
        }
        touched
    }

    /// Bytes of texts that takes may want: as much as one takes may be in the place for anybody or in the receiver's, and there may
    /// be those of many queues. Texts beyond what is read are read once it is known which are taken.
    fn text_bytes(&self) -> u64 {
        self.takes.unsigned_abs().saturating_mul(PLACE_TEXTS)
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
    ) -> Result<()> {
        let locked: Vec<i32> = set.queues.keys().copied().collect();
        set.queues.values_mut().for_each(|queue| queue.is_current = true);
        let seen_to = set.queues.values().map(|queue| queue.seen_to).min().unwrap_or(i64::MIN);
        // Queues are seen to by a time that may not be proven yet, but lives end by proven time: a sweep looks further back.
        let lived_from = time(due_from.unwrap_or(i64::MAX).min(seen_to).max(0));
        let (seen_to, now, proven) = (time(seen_to.max(0)), time(set.now), time(set.proven));
        let touched = Touched::of(set, ops);
        let text_bytes = set.begin_texts(touched.text_bytes());
        let Touched { sends, takes: _, settled, known, places, limited, copies } = touched;
        set.sends_left = sends;
        let (limited, none): (Vec<i32>, Vec<i32>) = (limited.into_iter().collect(), Vec::new());
        let due: [Param<'_>; 6] = [&locked, &seen_to, &now, &DUE_MAX, &lived_from, &proven];
        let over: [Param<'_>; 2] = [if due_from.is_some() { &locked } else { &none }, &MORE];
        let settled: [Param<'_>; 2] = [&settled.0, &settled.1];
        let known: [Param<'_>; 3] = [&known.0, &known.1, &proven];
        let held: [Param<'_>; 1] = [&limited];
        let pending: [Param<'_>; 3] = [if self.locks { &locked } else { &none }, &now, &proven];
        let (due, over, settled, known, ids, held, pending, copied, read) = try_join!(
            biased;
            self.tx.query_for(&sql::MESSAGES_DUE, &due),
            self.tx.query_for(&sql::MESSAGES_OVER, &over),
            self.tx.query_for(&sql::MESSAGES_BY_ID, &settled),
            self.tx.query_for(&sql::KNOWN, &known),
            async { if sends == 0 { Ok(0..0) } else { self.ids(sends).await } },
            self.tx.query_for(&sql::HELD, &held),
            self.tx.query_for(&sql::PENDING_DUE, &pending),
            Box::pin(self.read_copies(&copies)),
            self.read_places(&*set, &places, text_bytes)
        )?;
        let is_full = |rows: &[Row], most: i64| saturate::<_, i64>(rows.len()) >= most;
        set.has_more_due = is_full(&due, DUE_MAX) || is_full(&over, MORE);
        [due, over, settled].iter().try_for_each(|rows| insert_messages(set, rows))?;
        insert_pending(set, &pending)?;
        copies.create(set, &copied)?;
        known.iter().for_each(|row| insert_known(set, row));
        set.ids = ids;
        insert_held(set, &held);
        insert_places(set, &places, read)
    }

    /// Reads groups that the batch touches for sure.
    pub(super) async fn first_groups(&self, set: &mut WorkingSet, ops: &[QueueOp<'_>]) -> Result<()> {
        let mut keys: BTreeSet<GroupKey> = set.messages.values().filter_map(Message::group_key).collect();
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
                keys.insert(GroupKey { queue: *queue, receiver, group: group.into() });
            }
        }
        self.read_groups(set, &keys.into_iter().collect::<Vec<_>>(), GROUP_FIRST).await
    }
}
