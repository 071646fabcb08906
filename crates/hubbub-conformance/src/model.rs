//! The contract in its plainest form: lists in memory, searched from end to end.

use std::collections::BTreeMap;

use hubbub_core::store::{Access, Cursor, HistoryQuery, Member, RoomInfo, UserRoom};
use hubbub_core::{
    Change, Message, MessageType, Outcome, ReadMark, Receipt, Refusal, RoomChange, RoomId, Send, Timestamp,
    UserId,
};

/// The outcome as that of a repeat, which does not know how far the message before it is. The model knows no gaps.
pub fn without_gap(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Stored(receipt) => Outcome::Stored(Receipt { gap: 0, ..receipt }),
        other => other,
    }
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The room it goes to.
    pub room: String,
    /// The sender.
    pub user: String,
    /// The idempotency key.
    pub id: String,
    /// The sender's display name.
    pub username: Option<String>,
    /// What is said.
    pub text: String,
    /// What it stands for.
    pub kind: MessageType,
    /// The sender's clock.
    pub timestamp: Timestamp,
}

impl Post {
    /// A message by "ada" whose text follows from room and id.
    pub fn new(room: &str, id: &str) -> Self {
        Self {
            room: room.to_owned(),
            user: "ada".to_owned(),
            id: id.to_owned(),
            username: None,
            text: format!("{id} in {room}"),
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(1_600_000_000_000_000),
        }
    }

    /// The same with another text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// The same from another user.
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// The same with another type.
    pub fn kind(mut self, kind: MessageType) -> Self {
        self.kind = kind;
        self
    }

    /// The same with a display name.
    pub fn username(mut self, username: &str) -> Self {
        self.username = Some(username.to_owned());
        self
    }

    /// As a store takes it.
    pub fn as_send(&self) -> Send<'_> {
        Send {
            room: &self.room,
            user: &self.user,
            id: &self.id,
            username: self.username.as_deref(),
            text: &self.text,
            kind: self.kind,
            timestamp: self.timestamp,
        }
    }
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptMessage {
    /// Stage in the room.
    pub seq: u64,
    /// When it was numbered.
    pub received_at: Timestamp,
    /// What was sent.
    pub post: Post,
}

impl KeptMessage {
    /// A copy of what a store gave.
    pub fn of(message: &Message<'_>) -> Self {
        let sent = &message.sent;
        let post = Post {
            room: sent.room.to_owned(),
            user: sent.user.to_owned(),
            id: sent.id.to_owned(),
            username: sent.username.map(str::to_owned),
            text: sent.text.to_owned(),
            kind: sent.kind,
            timestamp: sent.timestamp,
        };
        Self { seq: message.seq, received_at: message.received_at, post }
    }

    /// As a store gives it.
    pub fn as_message(&self) -> Message<'_> {
        Message { seq: self.seq, received_at: self.received_at, sent: self.post.as_send() }
    }

    /// Number and time.
    pub fn receipt(&self) -> Receipt {
        Receipt { seq: self.seq, received_at: self.received_at, gap: 0 }
    }
}

/// Rooms and what they hold.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The messages of each room that exists, oldest first.
    pub rooms: BTreeMap<String, Vec<KeptMessage>>,
    /// What else there is to rooms, those that were deleted included.
    pub states: BTreeMap<String, RoomState>,
}

/// What there is to a room besides its messages.
#[derive(Debug, Clone, Default)]
pub struct RoomState {
    /// Highest number given.
    pub head: u64,
    /// When that was.
    pub last: Option<Timestamp>,
    /// A name for people.
    pub title: Option<String>,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// How long messages are kept, in seconds.
    pub retention_s: Option<u64>,
    /// Read marks of the members.
    pub members: BTreeMap<String, u64>,
    /// Of a room with gaps in its numbers: the newest message that preceded all kept ones when it was removed.
    pub removed: u64,
    /// Whether numbers may have gaps.
    pub is_sparse: bool,
}

impl Model {
    /// Stores what is new at the time `now`.
    pub fn apply(&mut self, posts: &[Post], now: Timestamp, autocreate: bool) -> Vec<Outcome> {
        posts.iter().map(|post| self.apply_one(post, None, now, autocreate)).collect()
    }

    /// Stores a message, if it is new, under a number; `None` = the one behind the room's head.
    pub fn apply_one(
        &mut self,
        post: &Post,
        number: Option<u64>,
        now: Timestamp,
        autocreate: bool,
    ) -> Outcome {
        if !autocreate && !self.rooms.contains_key(&post.room) {
            return Outcome::Refused(Refusal::UnknownRoom);
        }
        let state = self.states.entry(post.room.clone()).or_default();
        if state.members_only && !state.members.contains_key(&post.user) {
            return Outcome::Refused(Refusal::NotMember);
        }
        let room = self.rooms.entry(post.room.clone()).or_default();
        if let Some(first) = room.iter().find(|kept| kept.post.id == post.id) {
            return if first.post.as_send().same_content(&post.as_send()) {
                Outcome::Duplicate(first.receipt())
            } else {
                Outcome::Refused(Refusal::IdReused { seq: first.seq })
            };
        }
        let before = state.head;
        let seq = number.unwrap_or(before + 1);
        let received_at = state.last.map_or(now, |last| now.max(last));
        (state.head, state.last) = (seq, Some(received_at));
        state.is_sparse |= number.is_some();
        if let Some(mark) = state.members.get_mut(&post.user).filter(|mark| **mark == before) {
            *mark = seq;
        }
        let kept = KeptMessage { seq, received_at, post: post.clone() };
        let receipt = kept.receipt();
        room.push(kept);
        Outcome::Stored(receipt)
    }

    /// Makes a change. Of a user everything is erased at once, so `more` is never said here.
    pub fn change(&mut self, change: &Change<'_>) -> Outcome {
        let may = |state: &RoomState| change.by.is_none_or(|by| state.members.contains_key(by));
        let refused = Outcome::Refused(Refusal::NotMember);
        let changed = |changed| Outcome::Changed { changed };
        if let RoomChange::EraseUser { user } = change.what {
            return self.erase(user, |_| true);
        }
        let name = change.room().unwrap_or_default().to_owned();
        let exists = self.rooms.contains_key(&name);
        if let RoomChange::PutRoom { settings, .. } = change.what {
            let state = self.states.entry(name.clone()).or_default();
            if exists && !may(state) {
                return refused;
            }
            if let Some(title) = settings.title {
                state.title = (!title.is_empty()).then(|| title.to_owned());
            }
            state.members_only = settings.members_only.unwrap_or(state.members_only);
            if let Some(retention) = settings.retention_s {
                state.retention_s = (retention > 0).then_some(retention);
            }
            if let Some(by) = change.by.filter(|_| !exists) {
                state.members.insert(by.to_owned(), state.head);
            }
            self.rooms.entry(name).or_default();
            return Outcome::Room { created: !exists };
        }
        let Some(state) = self.states.get_mut(&name).filter(|_| exists) else {
            return Outcome::Refused(Refusal::UnknownRoom);
        };
        match change.what {
            RoomChange::AddMember { user, .. } => {
                if !may(state) && (state.members_only || change.by != Some(user)) {
                    return refused;
                }
                let head = state.head;
                let known = state.members.contains_key(user);
                state.members.entry(user.to_owned()).or_insert(head);
                changed(!known)
            }
            RoomChange::RemoveMember { user, .. } if may(state) || change.by == Some(user) => {
                changed(state.members.remove(user).is_some())
            }
            RoomChange::DeleteRoom { .. } if may(state) => {
                let (head, last, is_sparse) = (state.head, state.last, state.is_sparse);
                *state = RoomState { head, last, removed: head, is_sparse, ..RoomState::default() };
                self.rooms.remove(&name);
                changed(true)
            }
            RoomChange::MarkRead { user, seq, .. } => {
                let head = state.head;
                let Some(mark) = state.members.get_mut(user) else { return refused };
                let moved = seq.min(head) > *mark;
                *mark = (*mark).max(seq.min(head));
                let seq = *mark;
                Outcome::Read(ReadMark { seq, unread: self.unread(&name, seq), head, moved })
            }
            RoomChange::ExpireMessages { before, retention_s, is_own, .. }
                if change.by.is_none() && state.retention_s == is_own.then_some(retention_s) =>
            {
                changed(self.expire(&name, before))
            }
            RoomChange::ExpireMessages { .. } if change.by.is_none() => changed(false),
            _ => refused,
        }
    }

    /// Erases a user from some rooms.
    pub fn erase(&mut self, user: &str, is_wanted: impl Fn(&str) -> bool) -> Outcome {
        let mut messages = 0;
        for (room, state) in self.states.iter_mut().filter(|(room, _)| is_wanted(room)) {
            state.members.remove(user);
            let Some(kept) = self.rooms.get_mut(room) else { continue };
            let gone: Vec<u64> =
                kept.iter().filter(|kept| kept.post.user == user).map(|kept| kept.seq).collect();
            kept.retain(|kept| kept.post.user != user);
            messages += gone.len() as u64;
            let first = kept.first().map_or(u64::MAX, |first| first.seq);
            let before = gone.iter().rev().find(|seq| **seq < first);
            state.removed = before.map_or(state.removed, |before| state.removed.max(*before));
        }
        Outcome::Erased { messages, more: false }
    }

    /// Removes the messages of a room that were received before a time. Whether there were any.
    pub fn expire(&mut self, room: &str, before: Timestamp) -> bool {
        let (Some(kept), Some(state)) = (self.rooms.get_mut(room), self.states.get_mut(room)) else {
            return false;
        };
        let gone = kept.partition_point(|kept| kept.received_at < before);
        let last = kept.drain(..gone).next_back().map(|last| last.seq);
        let removed = if kept.is_empty() { Some(state.head) } else { last };
        if last.is_some() {
            state.removed = state.removed.max(removed.unwrap_or_default());
        }
        last.is_some()
    }

    /// Messages of a room behind a read mark.
    pub fn unread(&self, room: &str, mark: u64) -> u64 {
        self.room(room).iter().filter(|kept| kept.seq > mark).count() as u64
    }

    /// What there is to a room besides its messages.
    pub fn state(&self, room: &str) -> RoomState {
        self.states.get(room).cloned().unwrap_or_default()
    }

    /// The oldest number that may be kept: in a room without gaps that of the oldest message.
    pub fn oldest(&self, room: &str) -> u64 {
        let state = self.state(room);
        match self.room(room).first() {
            _ if state.is_sparse => state.removed + 1,
            Some(first) => first.seq,
            None => state.head + 1,
        }
    }

    /// Highest number given in a room.
    pub fn head(&self, room: &str) -> u64 {
        self.states.get(room).map_or(0, |state| state.head)
    }

    /// A room as a store describes it; `None` when there is none.
    pub fn info(&self, room: &str) -> Option<RoomInfo> {
        let (kept, state) = (self.rooms.get(room)?, self.state(room));
        Some(RoomInfo {
            room: RoomId::new(room).ok()?,
            head: state.head,
            oldest: self.oldest(room),
            messages: kept.len() as u64,
            last_received_at: state.last,
            title: state.title,
            members_only: state.members_only,
            retention_s: state.retention_s,
            members: state.members.len() as u64,
        })
    }

    /// How a user stands to a room.
    pub fn access(&self, room: &str, user: &str) -> Access {
        let state = self.state(room);
        match state.members.get(user) {
            _ if !self.rooms.contains_key(room) => Access::Unknown,
            Some(read_seq) => Access::Member { read_seq: *read_seq },
            None if state.members_only => Access::Closed,
            None => Access::Open,
        }
    }

    /// Members of a room.
    pub fn members(&self, room: &str) -> Vec<Member> {
        let member = |(user, read_seq): (String, u64)| Member { user: UserId::new(&user).unwrap(), read_seq };
        self.state(room).members.into_iter().map(member).collect()
    }

    /// Rooms of a user, and the newest message of each that has any.
    pub fn user_rooms(&self, user: &str) -> (Vec<UserRoom>, Vec<KeptMessage>) {
        let (mut rooms, mut last) = (Vec::new(), Vec::new());
        for (room, kept) in &self.rooms {
            let Access::Member { read_seq } = self.access(room, user) else { continue };
            let Some(info) = self.info(room) else { continue };
            rooms.push(UserRoom { info, read_seq, unread: self.unread(room, read_seq) });
            last.extend(kept.last().cloned());
        }
        (rooms, last)
    }

    /// What a room holds; nothing when there is none of that name.
    pub fn room(&self, room: &str) -> &[KeptMessage] {
        self.rooms.get(room).map(Vec::as_slice).unwrap_or_default()
    }

    /// Everything the window of a query holds, as if it had no limits, oldest first.
    pub fn window(&self, room: &str, query: &HistoryQuery) -> Vec<&KeptMessage> {
        let inside = |kept: &&KeptMessage| {
            let in_cursor = match query.cursor {
                Cursor::After(seq) => kept.seq > seq,
                Cursor::Before(seq) => kept.seq < seq,
            };
            in_cursor
                && query.from.is_none_or(|from| kept.received_at >= from)
                && query.to.is_none_or(|to| kept.received_at < to)
        };
        self.room(room).iter().filter(inside).collect()
    }
}
