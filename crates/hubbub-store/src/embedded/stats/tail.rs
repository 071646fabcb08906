//! What is counted of a tail, and where the messages of each of its users stand.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::invariant::saturate;

use super::source::{each_message, is_hidden};
use super::summary::{Run, Summary, UserNumber};
use crate::embedded::error::MaintainError;
use crate::embedded::file::cursor::index;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;
use crate::embedded::tail::hash::MixState;

/// One message of a user in a tail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    pub(super) room: RoomNumber,
    /// Where its record begins.
    pub(super) offset: u32,
    pub(super) seq: u64,
    pub(super) received: i64,
    /// Index of the user's post before this one, plus one; 0 when there is none.
    before: u32,
}

/// The counted part of a tail: everything up to a position. 32 bytes of memory per message.
#[derive(Debug, Default)]
pub(super) struct TailPart {
    /// The journal counted.
    pub(super) journal: u64,
    /// Where the first block begins that is not counted.
    pub(super) position: u64,
    posts: Vec<Post>,
    /// Index of each user's last post, plus one.
    newest: HashMap<UserNumber, u32, MixState>,
}

impl TailPart {
    /// Nothing of a tail.
    pub(super) fn new(journal: u64) -> Self {
        Self { journal, ..Self::default() }
    }

    /// Whether everything readers can see is counted.
    pub(super) fn is_complete(&self, tail: &Tail) -> bool {
        self.position >= tail.end()
    }

    /// Counts what was published since. With an error some of it is counted.
    pub(super) fn catch_up(
        &mut self,
        shared: &Shared,
        tail: &Tail,
        summary: &mut Summary,
    ) -> Result<(), MaintainError> {
        let end = tail.end();
        // The same rooms come again and again.
        let mut rooms: HashMap<Box<str>, (RoomNumber, Arc<str>)> = HashMap::new();
        let position = self.position;
        self.position = each_message(shared, tail, position, end, |offset, message| {
            let sent = &message.sent;
            let (room, name) = match rooms.get(sent.room) {
                Some((room, name)) => (*room, Arc::clone(name)),
                None => {
                    let known = shared.rooms.read();
                    let Some(number) = known.number(sent.room) else { return };
                    let Some(room) = known.get(number) else { return };
                    rooms.insert(sent.room.into(), (number, Arc::clone(&room.name)));
                    (number, Arc::clone(&room.name))
                }
            };
            if is_hidden(shared, room, message.seq) {
                return;
            }
            let (user, received) = (summary.intern(sent.user), message.received_at.as_micros());
            summary.add(&Run::of(user, room, received, sent.kind), &name);
            self.push(user, Post { room, offset, seq: message.seq, received, before: 0 });
        })?;
        Ok(())
    }

    fn push(&mut self, user: UserNumber, mut post: Post) {
        let newest = self.newest.entry(user).or_default();
        post.before = *newest;
        self.posts.push(post);
        *newest = saturate(self.posts.len());
    }

    /// A user's messages, newest first.
    pub(super) fn posts(&self, user: UserNumber) -> impl Iterator<Item = &Post> {
        let mut next = self.newest.get(&user).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            let post = self.posts.get(index(next).checked_sub(1)?)?;
            next = post.before;
            Some(post)
        })
    }
}
