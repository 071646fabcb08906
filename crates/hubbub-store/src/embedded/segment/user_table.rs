//! The table of users as it is written: who wrote, and where each user's messages stand.

use std::io;

use hashbrown::HashMap;
use hubbub_core::Message;
use hubbub_core::invariant::cast;

use super::block::name_bytes;
use super::format::{SectionEntry, section};
use super::paged::PagedWriter;
use super::postings::{Posting, PostingEncoder};
use crate::embedded::file::Output;
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;

/// Users between two fences: so many are read to find one.
const FENCE_USERS: u64 = 64;

/// Takes users in the order of their names, each with its postings, and appends them to the file.
///
/// Postings stream out; 20 to 30 bytes of memory per user are kept until the end.
pub(super) struct UserTableWriter {
    postings: PagedWriter,
    /// Time to which all times of the table are differences.
    base: i64,
    users: Vec<u8>,
    count: u64,
    messages: u64,
    fences: Vec<u8>,
    fence_count: u64,
    list: Vec<u8>,
}

/// The three sections of a finished table, the last one with its bytes, which are still to be written.
pub(super) struct UserSections {
    pub(super) postings: SectionEntry,
    pub(super) users: SectionEntry,
    pub(super) fences: Vec<u8>,
    pub(super) fence_count: u64,
}

impl UserTableWriter {
    pub(super) fn begin(output: &Output, base: i64) -> Self {
        Self {
            postings: PagedWriter::begin(output),
            base,
            users: Vec::new(),
            count: 0,
            messages: 0,
            fences: Vec::new(),
            fence_count: 0,
            list: Vec::new(),
        }
    }

    /// Adds a user whose name comes behind all before, with postings in the order of their ordinals. Without any
    /// posting nothing is added.
    pub(super) fn push<E: From<io::Error>>(
        &mut self,
        name: &str,
        mut next: impl FnMut() -> Result<Option<Posting>, E>,
        output: &mut Output,
    ) -> Result<(), E> {
        let begin = self.postings.bytes;
        let mut encoder = PostingEncoder::new(self.base);
        let (mut count, mut first, mut last) = (0_u64, i64::MAX, i64::MIN);
        while let Some(posting) = next()? {
            encoder.write(&posting, &mut self.list);
            count += 1;
            first = first.min(posting.received);
            last = last.max(posting.received);
            if self.list.len() >= 4096 {
                self.postings.write(&self.list, output)?;
                self.list.clear();
            }
        }
        if count == 0 {
            return Ok(());
        }
        self.postings.write(&self.list, output)?;
        self.list.clear();
        if self.count.is_multiple_of(FENCE_USERS) {
            put_name(&mut self.fences, name)?;
            varint::write(self.users.len() as u64, &mut self.fences);
            varint::write(begin, &mut self.fences);
            self.fence_count += 1;
        }
        put_name(&mut self.users, name)?;
        varint::write(count, &mut self.users);
        varint::write(self.postings.bytes - begin, &mut self.users);
        varint::write_zigzag(first.wrapping_sub(self.base), &mut self.users);
        varint::write_zigzag(last.wrapping_sub(first), &mut self.users);
        self.count += 1;
        self.messages += count;
        Ok(())
    }

    /// Writes what is left but the fences.
    pub(super) fn finish(self, output: &mut Output) -> io::Result<UserSections> {
        let postings = self.postings.finish(section::POSTINGS, self.messages, output)?;
        let mut users = PagedWriter::begin(output);
        users.write(&self.users, output)?;
        let users = users.finish(section::USERS, self.count, output)?;
        Ok(UserSections { postings, users, fences: self.fences, fence_count: self.fence_count })
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) -> io::Result<()> {
    out.push(name_bytes(name)?);
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

/// The users of messages that come in the order of their ordinals. Takes 12 bytes of memory per message.
#[derive(Debug, Default)]
pub(super) struct UserCollector {
    numbers: HashMap<Box<str>, u32>,
    /// User and time of each message.
    users: Vec<u32>,
    times: Vec<i64>,
}

impl UserCollector {
    #[inline]
    pub(super) fn push(&mut self, message: &Message<'_>) -> io::Result<()> {
        let user = match self.numbers.get(message.sent.user) {
            Some(user) => *user,
            None => {
                let user =
                    cast(self.numbers.len(), "a segment has fewer users than messages, of which 2^32 - 1")
                        .map_err(io::Error::other)?;
                self.numbers.insert(message.sent.user.into(), user);
                user
            }
        };
        self.users.push(user);
        // Times fit 58 bits, so the type has room beside them.
        self.times.push(message.received_at.as_micros() << 2 | i64::from(message.sent.kind as u8));
        Ok(())
    }

    pub(super) fn write(self, table: &mut UserTableWriter, output: &mut Output) -> io::Result<()> {
        let mut names: Vec<(Box<str>, u32)> = self.numbers.into_iter().collect();
        names.sort_unstable();
        // Ordinals grouped by user: first how many each has, then one after another in its group.
        let mut ends = vec![0_u32; names.len()];
        for user in &self.users {
            if let Some(end) = ends.get_mut(index(*user)) {
                *end += 1;
            }
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum - *end;
        }
        let mut grouped = vec![0_u32; self.users.len()];
        for (user, ordinal) in self.users.iter().zip(0..) {
            if let Some(end) = ends.get_mut(index(*user)) {
                if let Some(place) = grouped.get_mut(index(*end)) {
                    *place = ordinal;
                }
                *end += 1;
            }
        }
        for (name, user) in names {
            let begin = user.checked_sub(1).and_then(|before| ends.get(index(before)).copied()).unwrap_or(0);
            let end = ends.get(index(user)).copied().unwrap_or(begin);
            let ordinals = grouped.get(index(begin)..index(end)).unwrap_or_default();
            let mut postings = ordinals.iter().map(|ordinal| {
                let time = self.times.get(index(*ordinal)).copied().unwrap_or_default();
                Posting::unpack(*ordinal, time)
            });
            table.push(&name, || Ok::<_, io::Error>(postings.next()), output)?;
        }
        Ok(())
    }
}
