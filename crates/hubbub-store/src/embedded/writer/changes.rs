//! Judging changes of rooms and members, and entering them once they are durable.

use std::sync::Arc;

use hubbub_core::{Change, Op, OpBatch, Outcome, Refusal, What};

use super::evaluate::is_member;
use super::{Head, Scratch, Writer, erasure_max};
use crate::embedded::error::MaintainError;
use crate::embedded::record::{self, Logged, Record};
use crate::embedded::rooms::{RoomNumber, Rooms};
use crate::embedded::shared::Shared;

/// What an accepted change is answered with until it is entered, which tells the rest.
const JUDGED: Outcome = Outcome::Changed { changed: false };

impl Writer {
    /// Decides about a change and encodes it if it is to be entered.
    pub(super) fn judge(
        &self,
        shared: &Shared,
        change: &Change<'_>,
        (index, room): (usize, Option<RoomNumber>),
        scratch: &mut Scratch,
    ) -> Outcome {
        let begin = scratch.block.len();
        if let What::EraseUser { user } = change.what {
            if let Err(error) = write_erasure(shared, user, &mut scratch.block) {
                shared.status.damage.note(&error);
                return Outcome::Refused(Refusal::Unreadable);
            }
        } else {
            match self.judge_in_room(shared, change, room, scratch) {
                Ok(logged) => logged.write(&mut scratch.block),
                Err(refusal) => return Outcome::Refused(refusal),
            }
        }
        scratch.records += 1;
        scratch.changes.push((index, begin));
        JUDGED
    }

    fn judge_in_room<'a>(
        &self,
        shared: &Shared,
        change: &Change<'a>,
        number: Option<RoomNumber>,
        scratch: &mut Scratch,
    ) -> Result<Logged<'a>, Refusal> {
        let found = number.and_then(|number| Some((number, self.head(number).filter(|head| head.exists)?)));
        let may = |number: RoomNumber, scratch: &Scratch| match change.by {
            Some(by) if !is_member(shared, scratch, number, by) => Err(Refusal::NotMember),
            _ => Ok(()),
        };
        if let What::PutRoom { room, settings } = change.what {
            if let Some((number, _)) = found {
                may(number, scratch)?;
            }
            return Ok(Logged::PutRoom {
                room,
                founder: change.by,
                title: settings.title,
                members_only: settings.members_only,
                retention_s: settings.retention_s,
            });
        }
        let (number, head) = found.ok_or(Refusal::UnknownRoom)?;
        Ok(match change.what {
            What::AddMember { room, user } => {
                if head.members_only || change.by != Some(user) {
                    may(number, scratch)?;
                }
                scratch.joined.insert((number, user.to_owned()), true);
                Logged::AddMember { room, user }
            }
            What::RemoveMember { room, user } => {
                if change.by != Some(user) {
                    may(number, scratch)?;
                }
                scratch.joined.insert((number, user.to_owned()), false);
                Logged::RemoveMember { room, user }
            }
            What::MarkRead { room, user, seq } => {
                if !is_member(shared, scratch, number, user) {
                    return Err(Refusal::NotMember);
                }
                Logged::MarkRead { room, user, seq }
            }
            What::DeleteRoom { room } => {
                may(number, scratch)?;
                Logged::DeleteRoom { room }
            }
            What::PutRoom { .. } | What::EraseUser { .. } => return Err(Refusal::UnknownRoom),
        })
    }

    /// Enters what is durable operation by operation, where the order decides who has read what.
    pub(super) fn enter_in_order(
        &mut self,
        rooms: &mut Rooms,
        batch: &OpBatch,
        scratch: &Scratch,
        outcomes: &mut [Outcome],
    ) {
        let mut changes = scratch.changes.iter().copied().peekable();
        let mut enter_changes = |rooms: &mut Rooms, before: usize| {
            while let Some((index, begin)) = changes.next_if(|(index, _)| *index < before) {
                // What is entered is what was written, so that a start comes to the same.
                let mut written = scratch.block.get(begin..).unwrap_or_default();
                if let (Some(Record::Change(logged)), Some(outcome)) =
                    (record::read(&mut written), outcomes.get_mut(index))
                {
                    *outcome = rooms.change(&logged);
                }
            }
        };
        for ((number, place), index) in scratch.places.iter().zip(&scratch.stored) {
            enter_changes(rooms, *index);
            rooms.store(*number, place.seq, place.received, || match batch.get(*index) {
                Some(Op::Send(send)) => Some(send.user),
                _ => None,
            });
        }
        enter_changes(rooms, usize::MAX);
        // What messages are judged by is changed only by what stands alone in its batch.
        if batch.is_exclusive()
            && let Some(number) = scratch.rooms.first().copied().flatten()
            && let (Some(head), Some(room)) = (self.head_mut(number), rooms.get(number))
        {
            *head = Head::of(room);
        }
    }
}

/// Appends the record that erases the next messages of a user.
fn write_erasure(shared: &Shared, user: &str, block: &mut Vec<u8>) -> Result<(), MaintainError> {
    let most = erasure_max(shared.options.slot_bytes);
    let mut places = shared.user_places(user, most + 1)?;
    let is_last = places.len() <= most;
    places.truncate(most);
    places.sort_unstable();
    let names: Vec<(Arc<str>, Vec<u64>)> = {
        let rooms = shared.rooms.read();
        let of_one_room = places.chunk_by(|a, b| a.0 == b.0);
        let named = of_one_room.filter_map(|places| {
            let room = rooms.get(places.first()?.0)?;
            Some((Arc::clone(&room.name), places.iter().map(|(_, seq)| *seq).collect()))
        });
        named.collect()
    };
    let seqs = names.iter().map(|(room, seqs)| (&**room, seqs.clone())).collect();
    Logged::Erase { user, is_last, seqs }.write(block);
    Ok(())
}
