//! Reading: the lock is held to find what is asked for, and not while payloads are read.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::{
    DeadLetter, Delivery, MessageState, QueueInfo, TAKE_BYTES_MAX, TAKE_MAX, TakeFilter, Waiting,
};
use hubbub_core::store::{Read, ReadError, StoreFigures};
use hubbub_core::{ClientId, QueueId, QueueStore, Timestamp};

use super::entry::{Entry, NEVER, State};
use super::settled::IdRun;
use super::source::{Medium, split_payload};
use super::table::Queue;
use super::time::Now;
use super::{QueueShared, Queues, ROUNDS_MAX};
use crate::embedded::error::MaintainError;
use crate::embedded::service::Embedded;
use crate::embedded::shared::Shared;

/// Queues looked at by one hold of the lock.
const STEP: usize = 1_000;

/// Pages of which nothing can be read that one read passes over at most.
const UNREADABLE_PAGES_MAX: usize = 16;

fn too_many_unreadable() -> ReadError {
    let reason = "the texts of many messages cannot be read; `/health` names the files".to_owned();
    ReadError::Damaged { reason, resume_at: None }
}

/// A message without its payload, and where that stands.
struct Found {
    message: Waiting,
    entry: Entry,
    medium: Option<Medium>,
}

impl Found {
    fn read(mut self) -> Result<Waiting, MaintainError> {
        let path = self.medium.as_ref().map(Medium::path).unwrap_or_default();
        let damaged = || MaintainError::Damaged { path, offset: self.entry.offset.into() };
        let Some(medium) = &self.medium else { return Err(damaged()) };
        let payload = split_payload(&self.entry, self.entry.bytes_in(medium)?);
        (self.message.delivery.group, self.message.delivery.text) = payload.ok_or_else(damaged)?;
        Ok(self.message)
    }
}

impl Queues {
    /// A message as it is delivered, not on lease.
    pub(super) fn delivery(&self, entry: &Entry, group: Option<Arc<str>>, text: String) -> Delivery {
        let dead = self.dead.get(&entry.id).map(|dead| DeadLetter {
            origin: Arc::clone(&dead.origin),
            reason: dead.reason,
            deliveries: dead.deliveries,
        });
        let queue = self.queues.get(&entry.queue);
        Delivery {
            id: entry.id,
            queue: queue.map_or_else(|| Arc::from(""), |queue| Arc::clone(&queue.name)),
            sender: self.client_name(entry.sender),
            receiver: (entry.receiver != 0).then(|| self.client_name(entry.receiver)),
            text,
            group,
            sent_at: Timestamp::from_micros(entry.sent_at),
            deliveries: entry.deliveries,
            receipt: None,
            leased_until: None,
            dead,
        }
    }

    fn found(&self, entry: &Entry, now: Now) -> Found {
        let time = |at: i64| Timestamp::from_micros(now.wall_of(at));
        let mut delivery = self.delivery(entry, None, String::new());
        let state = match entry.state {
            // Nobody has come to it yet.
            _ if entry.at <= now.at => MessageState::Ready,
            State::Delayed => MessageState::Delayed(time(entry.at)),
            State::Expired if entry.at != NEVER => MessageState::Delayed(time(entry.at)),
            State::Leased => MessageState::Leased(time(entry.at)),
            _ => MessageState::Ready,
        };
        if let MessageState::Leased(until) = state {
            delivery.leased_until = Some(until);
        }
        let expires_at = (entry.expires != NEVER).then(|| time(entry.expires));
        let medium = self.sources.get(entry.source).map(|source| source.medium.clone());
        Found { message: Waiting { delivery, state, expires_at }, entry: *entry, medium }
    }

    fn info(&self, queue: &Queue) -> QueueInfo {
        let counts = &queue.counts;
        let oldest = queue.all.min().and_then(|id| self.entry_of(id));
        QueueInfo {
            queue: Arc::clone(&queue.name),
            settings: queue.settings.clone(),
            ready: counts.ready,
            delayed: counts.delayed,
            leased: counts.leased,
            bytes: counts.bytes,
            oldest_sent_at: oldest.map(|entry| Timestamp::from_micros(entry.sent_at)),
            sent: counts.sent,
            done: counts.done,
            dropped: counts.dropped,
            dead: counts.dead,
            is_dead_letter: queue.is_dead_letter || counts.dead_letters > 0,
        }
    }

    fn visible_queue(&self, name: &str) -> Option<&Queue> {
        self.queue_named(name).filter(|queue| queue.number <= self.visible.queue)
    }

    /// Up to [`STEP`] of the queues behind `after` that readers may see.
    fn visible_queues(&self, after: Option<&str>) -> impl Iterator<Item = &Queue> {
        self.queue_names(after).filter_map(|name| self.visible_queue(name)).take(STEP)
    }
}

/// What payloads may be read of a list: the first, and more until they are too large.
fn within_bytes(bytes: &mut u64, entry: &Entry, is_first: bool) -> bool {
    *bytes += entry.payload_bytes();
    is_first || *bytes <= TAKE_BYTES_MAX as u64
}

impl QueueStore for Embedded {
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        self.blocking(move |engine| {
            engine.shared.count_due();
            Ok(engine.shared.queue(queue.as_str()))
        })
    }

    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>> {
        let info = |queues: &Queues, queue: &Queue, _| Some(queues.info(queue));
        self.blocking(move |engine| {
            engine.shared.count_due();
            Ok(engine.shared.page_of((after, limit), |_| {}, info))
        })
    }

    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        self.blocking(move |engine| {
            let receiver = receiver.as_str();
            let holds = |queues: &Queues, queue: &Queue, now: Now| {
                let receiver = queues.client_number(receiver).unwrap_or(0);
                let holds = queues.holds_for(queue.number, receiver, queues.visible.id, now.at);
                holds.then(|| Arc::clone(&queue.name))
            };
            let prepare = |queues: &mut Queues| queues.make_copies_for_name(Some(receiver));
            Ok(engine.shared.page_of((after, limit), prepare, holds))
        })
    }

    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>> {
        let names = self.engine().shared.queues.clients(after.as_ref().map(ClientId::as_str), limit);
        // Whoever registered was checked then.
        let clients = names.iter().filter_map(|name| ClientId::new(name).ok()).collect();
        Box::pin(ready(Ok(clients)))
    }

    fn is_client(&self, client: &str) -> bool {
        self.engine().shared.queues.is_client(client)
    }

    fn peek(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let (queue, receiver) = (owned(wanted.queue), owned(wanted.receiver));
        let (sender, newest_first) = (owned(wanted.sender), wanted.newest_first);
        self.blocking(move |engine| {
            let (queue, receiver) = (queue.as_deref(), receiver.as_deref());
            let wanted = TakeFilter { queue, receiver, sender: sender.as_deref(), newest_first };
            engine.shared.peek(&wanted, max)
        })
    }

    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        self.blocking(move |engine| engine.shared.waiting(queue.as_str(), after, limit))
    }

    fn queue_due_in(&self) -> Option<Duration> {
        let shared = &self.engine().shared;
        shared.queues.due_in(&*shared.clock)
    }
}

impl Shared {
    /// Brings all that is due by now to where it is, in short holds of the lock, so that counts are as of now however much came
    /// due at once.
    fn count_due(&self) {
        let mut until = None;
        while self.queues.with(&*self.clock, |queues, now| queues.is_due_by(*until.get_or_insert(now.at))) {}
    }

    pub(super) fn queue(&self, name: &str) -> Option<QueueInfo> {
        self.queues.with(&*self.clock, |queues, _| Some(queues.info(queues.visible_queue(name)?)))
    }

    /// What `pick` takes of queues in the order of their names, beginning behind `after`, in short holds of the lock, each
    /// beginning with `prepare`.
    fn page_of<T>(
        &self,
        (after, limit): (Option<QueueId>, usize),
        prepare: impl Fn(&mut Queues),
        pick: impl Fn(&Queues, &Queue, Now) -> Option<T>,
    ) -> Vec<T> {
        let mut page: Vec<T> = Vec::new();
        let mut after: Option<Arc<str>> = after.map(|after| Arc::from(after.as_str()));
        while page.len() < limit {
            let (mut looked_at, mut last) = (0, None);
            self.queues.with(&*self.clock, |queues, now| {
                prepare(queues);
                for queue in queues.visible_queues(after.as_deref()) {
                    looked_at += 1;
                    last = Some(Arc::clone(&queue.name));
                    page.extend(pick(queues, queue, now));
                    if page.len() >= limit {
                        break;
                    }
                }
            });
            if looked_at < STEP {
                break;
            }
            after = last;
        }
        page
    }

    pub(super) fn peek(
        &self,
        wanted: &TakeFilter<'_>,
        max: usize,
    ) -> Result<Option<Vec<Delivery>>, ReadError> {
        for _ in 0..UNREADABLE_PAGES_MAX {
            let Some(found) = self.find_wanted(wanted, max) else { return Ok(None) };
            let (mut read, mut unreadable) = (Vec::new(), Vec::<Entry>::new());
            for found in found {
                let entry = found.entry;
                if unreadable.iter().any(|before| entry.is_grouped_with(before)) {
                    continue;
                }
                match found.read() {
                    Ok(waiting) => read.push(waiting.delivery),
                    Err(error) => {
                        self.status.damage.note(&error);
                        unreadable.push(entry);
                    }
                }
            }
            if !unreadable.is_empty() {
                self.queues.with(&*self.clock, |queues, _| queues.set_aside(&unreadable));
            }
            if !read.is_empty() || unreadable.is_empty() {
                return Ok(Some(read));
            }
        }
        Err(too_many_unreadable())
    }

    /// What may be had now. `None` when there is no such queue.
    fn find_wanted(&self, wanted: &TakeFilter<'_>, max: usize) -> Option<Vec<Found>> {
        self.queues.with(&*self.clock, |queues, now| {
            let queue = match wanted.queue {
                Some(name) => Some(queues.visible_queue(name)?.number),
                None => None,
            };
            queues.make_copies_for_name(wanted.receiver);
            let bounds = (max.min(TAKE_MAX), TAKE_BYTES_MAX as u64);
            let selection = queues.selection(wanted, queue, bounds, true);
            let Some(selection) = selection else { return Some(Vec::new()) };
            let chosen = queues.choose(&selection, (queues.visible.id, now.at), &mut { ROUNDS_MAX });
            Some(chosen.iter().map(|message| queues.found(&message.handle, now)).collect::<Vec<_>>())
        })
    }

    /// A page of all that waits in a queue, without what cannot be read.
    pub(super) fn waiting(
        &self,
        queue: &str,
        mut after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Waiting>>, ReadError> {
        for _ in 0..UNREADABLE_PAGES_MAX {
            let Some(found) = self.find_waiting(queue, after, limit) else { return Ok(None) };
            let Some(last) = found.last().map(|found| found.entry.id) else { return Ok(Some(Vec::new())) };
            let read = found.into_iter().map(Found::read);
            let read: Vec<Waiting> =
                read.filter_map(|read| read.map_err(|error| self.status.damage.note(&error)).ok()).collect();
            if !read.is_empty() {
                return Ok(Some(read));
            }
            after = last;
        }
        Err(too_many_unreadable())
    }

    fn find_waiting(&self, queue: &str, after: u64, limit: usize) -> Option<Vec<Found>> {
        self.queues.with(&*self.clock, |queues, now| {
            let queue = queues.visible_queue(queue)?;
            let mut ids = queue.all.iter();
            ids.advance_to(after.saturating_add(1));
            let ids = ids.skip_while(|id| *id <= after).take_while(|id| *id <= queues.visible.id);
            let entries = ids.filter_map(|id| queues.entry_of(id)).take(limit);
            let mut bytes = 0;
            let entries = (0_usize..).zip(entries);
            let entries = entries.take_while(|(place, entry)| within_bytes(&mut bytes, entry, *place == 0));
            Some(entries.map(|(_, entry)| queues.found(&entry, now)).collect::<Vec<_>>())
        })
    }
}

impl QueueShared {
    pub(crate) fn figures(&self, clock: &dyn hubbub_core::Clock, figures: &mut StoreFigures) {
        self.with(clock, |queues, _| {
            (figures.queue_dead, figures.queue_dropped) = (queues.given_up, queues.dropped);
            figures.queues = queues.queues.len() as u64;
            figures.clients = queues.registered.len();
            for queue in queues.queues.values() {
                figures.queue_messages += queue.counts.messages();
                figures.queue_bytes += queue.counts.bytes;
            }
            figures.disk_bytes += queues.sources.files().map(|file| file.bytes).sum::<u64>();
            figures.disk_bytes += queues.settled.runs.iter().map(IdRun::bytes).sum::<u64>();
        });
    }
}
