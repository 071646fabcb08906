//! Rules of rooms: who may do what, numbers and times of messages, repeated ids, memberships and read marks.
//!
//! A message is decided by [`decide_send`]. A change takes two steps: [`decide_change`] says whether it may be made;
//! [`apply_change`] applies it to a room and says what became of it. The embedded store applies changes once their records
//! are durable, and again at a start, so a start comes to the same state.
//!
//! Erasing a user's messages belongs to no single room. How many go at once depends on the store, which decides it. The same
//! holds for removing expired messages by an operation; stores that remove them by themselves refuse it here.

use crate::change::{Change, ReadMark, RoomChange, RoomSettings};
use crate::invariant::{BrokenInvariant, broken};
use crate::message::Send;
use crate::op::{Outcome, Receipt, Refusal};
use crate::time::Timestamp;

/// A room, as far as decisions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomState {
    /// Whether it is there for anybody to see. A deleted room keeps its head and time.
    pub exists: bool,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// The highest number given; 0 = none.
    pub head: u64,
    /// When that was; [`Timestamp::MIN`] = never.
    pub last_received: Timestamp,
}

impl RoomState {
    /// Number and time of the next message. Numbers have no gaps, and times never decrease, whatever the clock does.
    pub fn next(&self, now: Timestamp) -> Receipt {
        Receipt { seq: self.head + 1, received_at: self.last_received.max(now), gap: 0 }
    }
}

/// What decisions about one operation read. It reflects every operation that was decided before.
pub trait View {
    /// The operation's room; `None` = the store never had one of that name.
    fn room(&self) -> Option<RoomState>;

    /// Whether the caller, the sender or the subject of the operation is a member of its room.
    fn is_member(&self, user: &str) -> bool;

    /// Number and time of the next message of `room`. Numbers have no gaps, unless the store takes them from elsewhere.
    #[inline]
    fn next(&self, room: &RoomState, now: Timestamp) -> Receipt {
        room.next(now)
    }
}

/// The kept message of a room that has the id of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdHolder {
    /// Its number and time.
    pub receipt: Receipt,
    /// Whether user, text and type agree.
    pub is_same: bool,
}

/// What decisions about a message read.
pub trait SendView: View {
    /// Why the id cannot be looked up.
    type LoadRequest;

    /// The kept message of the room that has the id, those decided before included.
    /// The error is what is needed first, or what is damaged.
    fn id_holder(&self, send: &Send<'_>) -> Result<Option<IdHolder>, Self::LoadRequest>;
}

/// What becomes of a message. Small and free to copy: it is returned once for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendDecision {
    /// It is to be stored with this number and time.
    Store(Receipt),
    /// It is stored already; it uses no number.
    Duplicate(Receipt),
    /// It is not to be stored.
    Refuse(Refusal),
}

impl From<SendDecision> for Outcome {
    fn from(decision: SendDecision) -> Self {
        match decision {
            SendDecision::Store(receipt) => Self::Stored(receipt),
            SendDecision::Duplicate(receipt) => Self::Duplicate(receipt),
            SendDecision::Refuse(refusal) => Self::Refused(refusal),
        }
    }
}

/// Decides about a message. `autocreate` makes the room if it is missing.
/// The error is what the view needs first, or what is damaged. Nothing is to be stored then.
#[inline]
pub fn decide_send<V: SendView>(
    view: &V,
    send: &Send<'_>,
    now: Timestamp,
    autocreate: bool,
) -> Result<SendDecision, V::LoadRequest> {
    let Some(room) = view.room().filter(|room| room.exists || autocreate) else {
        return Ok(SendDecision::Refuse(Refusal::UnknownRoom));
    };
    if room.members_only && !view.is_member(send.user) {
        return Ok(SendDecision::Refuse(Refusal::NotMember));
    }
    Ok(match view.id_holder(send)? {
        None => SendDecision::Store(view.next(&room, now)),
        Some(IdHolder { receipt, is_same: true }) => SendDecision::Duplicate(receipt),
        Some(holder) => SendDecision::Refuse(Refusal::IdReused { seq: holder.receipt.seq }),
    })
}

/// Whether a member with this read mark has read everything up to the head. If so, a message that the member sends is
/// read, too: the mark moves on with the head.
#[inline]
pub fn is_caught_up(mark: u64, head: u64) -> bool {
    mark == head
}

/// Decides whether a change may be made. An administrator may do everything, a member most of it, and everybody may
/// make rooms, leave, and join open rooms.
pub fn decide_change(view: &impl View, change: &Change<'_>) -> Result<(), Refusal> {
    let state = view.room().filter(|state| state.exists);
    let may = || change.by.is_none_or(|by| view.is_member(by));
    let is_allowed = match (change.what, state) {
        (RoomChange::PutRoom { .. }, state) => state.is_none() || may(),
        (RoomChange::EraseUser { .. }, _) => return Err(erasure().into()),
        (_, None) => return Err(Refusal::UnknownRoom),
        (RoomChange::ExpireMessages { .. }, _) => false,
        (RoomChange::DeleteRoom { .. }, _) => may(),
        (RoomChange::AddMember { user, .. }, Some(state)) => {
            (change.by == Some(user) && !state.members_only) || may()
        }
        (RoomChange::RemoveMember { user, .. }, _) => change.by == Some(user) || may(),
        (RoomChange::MarkRead { user, .. }, _) => view.is_member(user),
    };
    if is_allowed { Ok(()) } else { Err(Refusal::NotMember) }
}

fn erasure() -> BrokenInvariant {
    broken("an erasure belongs to no single room")
}

/// A room that a change is applied to.
pub trait RoomMut {
    /// The room as it stands.
    fn state(&self) -> RoomState;

    /// The read mark of a member; `None` = no member.
    fn mark(&self, user: &str) -> Option<u64>;

    /// Sets a member's read mark; `None` ends the membership.
    /// Fails when the store has no number for a user of the change.
    fn set_mark(&mut self, user: &str, mark: Option<u64>) -> Result<(), BrokenInvariant>;

    /// How many kept messages are behind a read mark.
    fn unread(&mut self, mark: u64) -> u64;

    /// Makes the room if it is missing, and sets what is given.
    fn put(&mut self, settings: &RoomSettings<'_>);

    /// Deletes messages, members and settings. Head and time stay, so that no number is given twice.
    fn clear(&mut self);
}

/// Applies a change that may be made, and says what became of it. The author matters for a new room only, whose first
/// member it becomes.
/// Fails when an invariant does not hold; nothing was changed then.
pub fn apply_change(room: &mut impl RoomMut, change: &Change<'_>) -> Result<Outcome, BrokenInvariant> {
    let exists = room.state().exists;
    Ok(match change.what {
        RoomChange::PutRoom { settings, .. } => {
            if !exists && let Some(founder) = change.by {
                join(room, founder)?;
            }
            room.put(&settings);
            Outcome::Room { created: !exists }
        }
        RoomChange::DeleteRoom { .. } => {
            if exists {
                room.clear();
            }
            Outcome::Changed { changed: exists }
        }
        RoomChange::AddMember { user, .. } => Outcome::Changed { changed: join(room, user)? },
        RoomChange::RemoveMember { user, .. } => {
            let is_member = room.mark(user).is_some();
            if is_member {
                room.set_mark(user, None)?;
            }
            Outcome::Changed { changed: is_member }
        }
        RoomChange::MarkRead { user, seq, .. } => Outcome::Read(mark_read(room, user, seq)?),
        RoomChange::EraseUser { .. } => return Err(erasure()),
        RoomChange::ExpireMessages { .. } => return Err(broken("messages expire past the rules of rooms")),
    })
}

/// Makes somebody a member who has read everything up to the head. Whether that is new.
fn join(room: &mut impl RoomMut, user: &str) -> Result<bool, BrokenInvariant> {
    if room.mark(user).is_some() {
        return Ok(false);
    }
    room.set_mark(user, Some(room.state().head))?;
    Ok(true)
}

/// Moves a read mark forward, to the head at most. It never goes back.
fn mark_read(room: &mut impl RoomMut, user: &str, seq: u64) -> Result<ReadMark, BrokenInvariant> {
    let head = room.state().head;
    let Some(before) = room.mark(user) else {
        return Ok(ReadMark { seq: 0, unread: 0, head, moved: false });
    };
    let seq = before.max(seq.min(head));
    let moved = seq > before;
    if moved {
        room.set_mark(user, Some(seq))?;
    }
    Ok(ReadMark { seq, unread: room.unread(seq), head, moved })
}

#[cfg(test)]
#[path = "rooms_tests.rs"]
mod tests;
