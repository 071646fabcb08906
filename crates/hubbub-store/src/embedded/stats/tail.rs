//! What is counted of a tail, and where the messages of each of its users stand.

use std::collections::HashMap;

use hubbub_core::invariant::saturate;

use super::source::each_message;
use super::summary::{KnownRooms, Summary, UserNumber};
use crate::embedded::error::MaintainError;
use crate::embedded::file::cursor::index;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;
use crate::embedded::tail::hash::MixState;

#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    pub(super) room: RoomNumber,
    pub(super) offset: u32,
    pub(super) seq: u64,
    pub(super) received: i64,
    /// Index of the user's post before this one, plus one; 0 when there is none.
    before: u32,
}

/// The counted part of a tail: everything up to a position. 32 bytes of memory per message.
#[derive(Debug, Default)]
pub(super) struct TailPart {
    pub(super) journal: u64,
    /// Where the first block begins that is not counted.
    pub(super) position: u64,
    posts: Vec<Post>,
    /// Index of each user's last post, plus one.
    newest: HashMap<UserNumber, u32, MixState>,
}

impl TailPart {
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
        let (mut rooms, position) = (KnownRooms::new(), self.position);
        self.position = each_message(shared, tail, position, tail.end(), |offset, message| {
            if let Some((user, room)) = summary.add_message(shared, &mut rooms, message) {
                let (seq, received) = (message.seq, message.received_at.as_micros());
                self.push(user, Post { room, offset, seq, received, before: 0 });
            }
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
