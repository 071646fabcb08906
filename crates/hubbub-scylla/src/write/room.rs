//! Decides about the records of a room in their order, in memory, by [`hubbub_core::rules::rooms`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;

use hubbub_core::invariant::{BrokenInvariant, broken, saturate};
use hubbub_core::rules::rooms;
use hubbub_core::rules::rooms::{
    IdHolder, RoomMut, SendDecision, SendView, View, apply_change, decide_change, decide_send, is_caught_up,
};
use hubbub_core::{Outcome, Receipt, RoomOp, RoomSettings, Send, Timestamp};

pub(super) use super::entry::{Bucket, HourUser, NewMessage, Place, RoomEntry};
use super::ids::{Digest, UsedIds, digest};
use super::{Done, Failure, Part, Record, load};
use crate::state::{Counts, FIRST_MESSAGES, Mark, RoomState, hour_of, slot_of};
use crate::store::Context;

/// A room that is being changed.
pub(super) struct Work<'a> {
    pub(super) room: &'a str,
    pub(super) entry: RoomEntry,
    /// The head, and how many messages were kept, before.
    pub(super) old_head: i64,
    old_kept: i64,
    pub(super) used_ids: UsedIds,
    /// Kept messages up to the numbers that marks are to be set to.
    pub(super) ranks: HashMap<i64, i64>,
    new_ids: HashMap<&'a str, usize>,
    pub(super) stored: Vec<NewMessage<'a>>,
    pub(super) changed_members: BTreeMap<String, Option<Mark>>,
    pub(super) new_members: BTreeSet<String>,
    pub(super) changed_senders: BTreeMap<String, Counts>,
    pub(super) changed_hour_users: BTreeMap<(i64, String), HourUser>,
    pub(super) changed_buckets: BTreeMap<i64, Bucket>,
    pub(super) new_hours: Vec<i64>,
    pub(super) is_new: bool,
    pub(super) is_cleared: bool,
    pub(super) is_changed: bool,
    /// The record under decision.
    seq: i64,
}

/// Decides about records of a room, and writes nothing.
pub(super) async fn decide<'a>(
    context: &Context,
    part: Part,
    room: &'a str,
    records: &[&Record<'a>],
    entry: Option<RoomEntry>,
) -> Result<(Work<'a>, Done), Failure> {
    let mut work = load::load(context, part, room, records, entry).await?;
    let mut done = Done::with_capacity(records.len());
    let mut last = 0;
    for record in records {
        if record.seq <= work.entry.state.applied {
            done.push((record.index, Outcome::Accepted));
            continue;
        }
        last = record.seq;
        done.push((record.index, work.decide(context, record)?));
    }
    if work.is_changed {
        work.entry.state.applied = last;
    }
    Ok((work, done))
}

impl<'a> Work<'a> {
    pub(super) fn new(room: &'a str, entry: RoomEntry) -> Self {
        Self {
            room,
            old_head: entry.state.head,
            old_kept: entry.state.kept,
            is_new: !entry.state.present,
            entry,
            used_ids: UsedIds::default(),
            ranks: HashMap::new(),
            new_ids: HashMap::new(),
            stored: Vec::new(),
            changed_members: BTreeMap::new(),
            new_members: BTreeSet::new(),
            changed_senders: BTreeMap::new(),
            changed_hour_users: BTreeMap::new(),
            changed_buckets: BTreeMap::new(),
            new_hours: Vec::new(),
            is_cleared: false,
            is_changed: false,
            seq: 0,
        }
    }

    /// Counts what is written in the totals, and returns the room as it is then.
    pub(super) fn finish(self, context: &Context) -> RoomEntry {
        let Self { mut entry, changed_buckets, is_new, .. } = self;
        let state = &entry.state;
        if self.is_changed {
            context.totals.add(state.kept - self.old_kept, i64::from(state.present) - i64::from(!is_new));
        }
        let (hour, name) = (state.hour, state.bucket);
        let new_ids = self.stored.iter().map(|message| message.send.id);
        entry.ids = entry.ids.take().and_then(|mut ids| ids.insert(new_ids).then_some(ids));
        entry.bucket = changed_buckets.get(&name).map(|bucket| (name, *bucket)).or(entry.bucket);
        entry.hour_users.retain(|(of, _), _| Some(*of) == hour);
        entry
    }

    fn decide(&mut self, context: &Context, record: &Record<'a>) -> Result<Outcome, Failure> {
        self.seq = record.seq;
        match &record.op {
            RoomOp::Send(send) => {
                let digest = digest(send);
                let view = OpView { work: self, digest };
                let Ok(decision) =
                    decide_send(&view, send, record.position.appended_at, context.options.autocreate);
                if let SendDecision::Store(receipt) = decision {
                    self.store(context, *send, digest, receipt)?;
                }
                Ok(decision.into())
            }
            RoomOp::Change(change) => {
                let view = OpView { work: self, digest: Digest::default() };
                if let Err(refusal) = decide_change(&view, change) {
                    return Ok(Outcome::Refused(refusal));
                }
                Ok(apply_change(self, change)?)
            }
        }
    }

    fn store(
        &mut self,
        context: &Context,
        send: Send<'a>,
        digest: Digest,
        receipt: Receipt,
    ) -> Result<(), Failure> {
        let (seq, at) = (self.seq, receipt.received_at.as_micros());
        let state = &mut self.entry.state;
        let before = state.head;
        if state.kept == 0 {
            state.first_at = Some(at);
        }
        state.present = true;
        (state.head, state.last_received, state.last_at) = (seq, Some(at), Some(at));
        state.kept += 1;
        let limits = context.options.bucket;
        if state.bucket == 0 || state.bucket_messages >= limits.messages || state.bucket_bytes >= limits.bytes
        {
            (state.bucket, state.bucket_messages, state.bucket_bytes) = (seq, 0, 0);
            self.changed_buckets.insert(seq, Bucket { kept: 0, first_at: at });
        }
        let bytes: i64 = saturate(send.text.len() + send.id.len() + send.user.len());
        state.bucket_messages += 1;
        state.bucket_bytes += bytes;
        let (bucket, kept) = (state.bucket, state.kept);
        let shard = state.place_id(send.id, limits.first_ids);
        let hour = hour_of(at);
        if state.hour != Some(hour) {
            state.hour = Some(hour);
            self.new_hours.push(hour);
        }
        self.count_in_bucket()?;
        let place = self.count(&send, at, hour)?;
        if let Some(Some(mark)) = self.entry.members.get(send.user).copied()
            && is_caught_up(mark.seq.unsigned_abs(), before.unsigned_abs())
        {
            self.put_mark(send.user, Some(Mark { seq, rank: kept + self.entry.state.expired }));
        }
        self.new_ids.insert(send.id, self.stored.len());
        self.is_changed = true;
        self.stored.push(NewMessage { seq, bucket, received_at: at, send, digest, shard, place, kept });
        Ok(())
    }

    /// Counts a message in the bucket that is being filled.
    fn count_in_bucket(&mut self) -> Result<(), BrokenInvariant> {
        let name = self.entry.state.bucket;
        let bucket = self.changed_buckets.get_mut(&name);
        let bucket = bucket.ok_or_else(|| broken("the bucket that is being filled was loaded"))?;
        bucket.kept += 1;
        Ok(())
    }

    /// Counts a message for its sender.
    fn count(&mut self, send: &Send<'_>, at: i64, hour: i64) -> Result<Place, BrokenInvariant> {
        let sender = self.entry.senders.get_mut(send.user);
        let sender = sender.ok_or_else(|| broken("the senders of a batch were loaded"))?;
        let is_first = sender.is_none();
        let counts = sender.get_or_insert_with(|| Counts::none(at));
        let before = (counts.total(), counts.last_at);
        counts.add(send.kind, at);
        // Not where messages expire: few are kept there, however many come.
        let place = if before.0 < FIRST_MESSAGES && self.entry.state.expired == 0 {
            Place::First
        } else {
            // Up to there all messages may be among the first ones: neither the room is listed, nor the span of time.
            let is_room_new = before.0 <= FIRST_MESSAGES;
            Place::Slot { is_room_new, is_slot_new: is_room_new || slot_of(before.1) != slot_of(at) }
        };
        self.changed_senders.insert(send.user.to_owned(), *counts);
        if is_first {
            self.entry.state.senders += 1;
            self.entry.senders_known += 1;
        }
        let key = (hour, send.user.to_owned());
        let of_hour = self.entry.hour_users.entry(key.clone()).or_default();
        let of_hour = of_hour.get_or_insert_with(|| HourUser { counts: Counts::none(at), seq: 0 });
        // What is stored may be of a later record.
        if self.seq > of_hour.seq {
            of_hour.counts.add(send.kind, at);
            of_hour.seq = self.seq;
        }
        // Also what is there already: a write that was not confirmed may be on one replica.
        self.changed_hour_users.insert(key, *of_hour);
        Ok(place)
    }

    fn put_mark(&mut self, user: &str, mark: Option<Mark>) {
        self.entry.members.insert(user.to_owned(), mark);
        self.changed_members.insert(user.to_owned(), mark);
        self.is_changed = true;
    }

    /// Kept messages up to a number.
    fn kept_until(&self, seq: i64) -> Result<i64, BrokenInvariant> {
        let state = &self.entry.state;
        if seq >= state.head {
            return Ok(state.kept);
        }
        if seq <= state.removed {
            return Ok(0);
        }
        if seq >= self.old_head {
            let before = self.stored.partition_point(|message| message.seq <= seq);
            let last = before.checked_sub(1).and_then(|last| self.stored.get(last));
            let stored: i64 = saturate(self.stored.len());
            return Ok(last.map_or(state.kept - stored, |last| last.kept));
        }
        self.ranks.get(&seq).copied().ok_or_else(|| broken("the ranks of marks were loaded"))
    }
}

struct OpView<'w, 'a> {
    work: &'w Work<'a>,
    digest: Digest,
}

impl View for OpView<'_, '_> {
    fn room(&self) -> Option<rooms::RoomState> {
        Some(self.work.entry.state.as_rule())
    }

    fn is_member(&self, user: &str) -> bool {
        matches!(self.work.entry.members.get(user), Some(Some(_)))
    }

    fn next(&self, room: &rooms::RoomState, now: Timestamp) -> Receipt {
        let seq = self.work.seq.unsigned_abs();
        let gap = seq.saturating_sub(room.head).saturating_sub(1);
        Receipt { seq, received_at: room.last_received.max(now), gap }
    }
}

impl SendView for OpView<'_, '_> {
    type LoadRequest = Infallible;

    fn id_holder(&self, send: &Send<'_>) -> Result<Option<IdHolder>, Infallible> {
        let work = self.work;
        if let Some(message) = work.new_ids.get(send.id).and_then(|place| work.stored.get(*place)) {
            let received_at = Timestamp::from_micros(message.received_at);
            let receipt = Receipt { seq: message.seq.unsigned_abs(), received_at, gap: 0 };
            return Ok(Some(IdHolder { receipt, is_same: message.digest == self.digest }));
        }
        // An id beyond what is committed is that of the message itself, or of one that is still to be decided.
        let used = work.used_ids.get(send.id).filter(|used| {
            used.seq > work.entry.state.removed && used.seq <= work.old_head && used.seq < work.seq
        });
        Ok(used.map(|used| IdHolder {
            receipt: Receipt {
                seq: used.seq.unsigned_abs(),
                received_at: Timestamp::from_micros(used.received_at),
                gap: 0,
            },
            is_same: used.digest == self.digest,
        }))
    }
}

impl RoomMut for Work<'_> {
    fn state(&self) -> rooms::RoomState {
        self.entry.state.as_rule()
    }

    fn mark(&self, user: &str) -> Option<u64> {
        Some(self.entry.members.get(user).copied().flatten()?.seq.unsigned_abs())
    }

    fn set_mark(&mut self, user: &str, mark: Option<u64>) -> Result<(), BrokenInvariant> {
        let was_member = matches!(self.entry.members.get(user), Some(Some(_)));
        let mark = match mark {
            None => None,
            Some(seq) => {
                let seq: i64 = saturate(seq);
                Some(Mark { seq, rank: self.kept_until(seq)? + self.entry.state.expired })
            }
        };
        self.entry.state.members += i64::from(mark.is_some()) - i64::from(was_member);
        if was_member != mark.is_some() {
            self.entry.state.changes += 1;
        }
        if !was_member && mark.is_some() {
            self.new_members.insert(user.to_owned());
        }
        self.put_mark(user, mark);
        Ok(())
    }

    fn unread(&mut self, mark: u64) -> u64 {
        let mark: i64 = saturate(mark);
        // Where nothing moved, the mark is the one that is there, and its rank was loaded with it.
        let read = self.kept_until(mark).unwrap_or(self.entry.state.kept);
        (self.entry.state.kept - read).max(0).unsigned_abs()
    }

    fn put(&mut self, settings: &RoomSettings<'_>) {
        let state = &mut self.entry.state;
        state.present = true;
        if let Some(title) = settings.title {
            state.title = (!title.is_empty()).then(|| title.to_owned());
        }
        state.members_only = settings.members_only.unwrap_or(state.members_only);
        if let Some(retention) = settings.retention_s {
            state.retention_s = (retention > 0).then(|| saturate(retention));
        }
        state.changes += 1;
        self.is_changed = true;
    }

    fn clear(&mut self) {
        let state = &self.entry.state;
        let cleared = RoomState {
            head: state.head,
            last_received: state.last_received,
            floor: state.head,
            removed: state.head,
            changes: state.changes + 1,
            applied: state.applied,
            ..RoomState::unknown(state.part)
        };
        self.entry = RoomEntry::empty(cleared);
        self.is_cleared = true;
        self.is_changed = true;
    }
}
