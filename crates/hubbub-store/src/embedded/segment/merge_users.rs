//! The tables of users of many segments into one, without memory per message.

use super::merge::{MergeError, Moves};
use super::open::Segment;
use super::postings::{Posting, PostingDecoder};
use super::user_table::UserTableWriter;
use super::users::{UserPart, UserScan};
use crate::embedded::file::{FileError, Output};

/// Writes the users of the messages that were kept, with their new ordinals.
pub(super) fn merge_users(
    sources: &[Segment],
    moves: &[Moves],
    table: &mut UserTableWriter,
    output: &mut Output,
) -> Result<(), MergeError> {
    let mut all = Vec::with_capacity(sources.len());
    for (source, moves) in sources.iter().zip(moves) {
        let mut users = KeptUsers { scan: source.users(), moves, part: None, decoder: None, current: None };
        users.advance()?;
        all.push(users);
    }
    let mut name = String::new();
    loop {
        name.clear();
        let waiting = all.iter().filter(|users| users.part.is_some()).map(|users| users.scan.name.as_str());
        let Some(first) = waiting.min() else { return Ok(()) };
        name.push_str(first);
        for users in &mut all {
            users.begin(&name)?;
        }
        let next = || -> Result<Option<Posting>, MergeError> {
            let lists = all.iter_mut().filter(|users| users.current.is_some());
            let Some(first) = lists.min_by_key(|users| users.current.map(|posting| posting.ordinal)) else {
                return Ok(None);
            };
            let posting = first.current;
            first.advance_posting()?;
            Ok(posting)
        };
        table.push(&name, next, output)?;
        for users in &mut all {
            users.end()?;
        }
    }
}

/// The users of one source, one after another, with what was kept of their messages.
struct KeptUsers<'a> {
    scan: UserScan,
    moves: &'a Moves,
    part: Option<UserPart>,
    /// Set while that user is being copied.
    decoder: Option<PostingDecoder>,
    current: Option<Posting>,
}

impl KeptUsers<'_> {
    fn advance(&mut self) -> Result<(), FileError> {
        self.part = self.scan.next()?.map(|(_, part)| part);
        Ok(())
    }

    /// Begins the messages of this user, if the scan stands at it.
    fn begin(&mut self, name: &str) -> Result<(), FileError> {
        if let Some(part) = self.part.as_ref().filter(|_| self.scan.name == name) {
            self.decoder = Some(self.scan.begin_postings(part));
            self.advance_posting()?;
        }
        Ok(())
    }

    fn advance_posting(&mut self) -> Result<(), FileError> {
        self.current = None;
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        while let Some(posting) = self.scan.next_posting(decoder)? {
            if let Some(ordinal) = self.moves.find(posting.ordinal) {
                self.current = Some(Posting { ordinal, ..posting });
                break;
            }
        }
        Ok(())
    }

    /// Goes on to the next user if this one was copied.
    fn end(&mut self) -> Result<(), FileError> {
        if self.decoder.take().is_some() { self.advance() } else { Ok(()) }
    }
}
