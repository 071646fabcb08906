//! The table of users as it is read: one user by name, or all from end to end.

use std::ops::Range;

use super::open::Segment;
use super::paged::PagedReader;
use super::postings::{Posting, PostingDecoder};
use crate::embedded::file::cursor::index;
use crate::embedded::file::{Cursor, FileError};

/// More than any entry takes: a name and four numbers.
const USER_BYTES_MAX: usize = 1 + 255 + 4 * 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserPart {
    /// Messages, at least one.
    pub(crate) count: u64,
    /// When the oldest was received, in microseconds.
    pub(crate) first: i64,
    /// When the newest was received, in microseconds.
    pub(crate) last: i64,
    postings: Range<u64>,
}

/// The names at which a search in the table can begin. 24 bytes of memory and the name per 64 users.
#[derive(Debug, Default)]
pub(super) struct UserFences {
    names: String,
    fences: Vec<Fence>,
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    name_at: u32,
    name_bytes: u8,
    users_at: u64,
    postings_at: u64,
}

impl UserFences {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut cursor, mut all) = (Cursor::new(bytes), Self::default());
        while !cursor.is_empty() {
            let name = cursor.name()?;
            let name_at = u32::try_from(all.names.len()).ok()?;
            all.names.push_str(name);
            let name_bytes = u8::try_from(name.len()).ok()?;
            let (users_at, postings_at) = (cursor.varint()?, cursor.varint()?);
            all.fences.push(Fence { name_at, name_bytes, users_at, postings_at });
        }
        all.names.shrink_to_fit();
        all.fences.shrink_to_fit();
        Some(all)
    }

    fn name(&self, fence: &Fence) -> &str {
        let start = index(fence.name_at);
        self.names.get(start..start + usize::from(fence.name_bytes)).unwrap_or_default()
    }

    /// Where in users and postings to begin, and where the users end, to find this name; `None` when it comes before
    /// all.
    fn around(&self, name: &str) -> Option<(u64, u64, u64)> {
        let behind = self.fences.partition_point(|fence| self.name(fence) <= name);
        let fence = self.fences.get(behind.checked_sub(1)?)?;
        let end = self.fences.get(behind).map_or(u64::MAX, |next| next.users_at);
        Some((fence.users_at, end, fence.postings_at))
    }
}

impl Segment {
    pub(crate) fn user(&self, name: &str) -> Result<Option<UserPart>, FileError> {
        let Some((begin, end, postings)) = self.inner.user_fences.around(name) else { return Ok(None) };
        let mut scan = UserScan::new(self, begin..end, postings);
        while let Some((found, part)) = scan.next()? {
            if found >= name {
                return Ok((found == name).then_some(part));
            }
        }
        Ok(None)
    }

    pub(crate) fn users(&self) -> UserScan {
        UserScan::new(self, 0..u64::MAX, 0)
    }

    /// The messages of a user, in the order of their ordinals.
    pub(crate) fn postings(&self, part: &UserPart) -> Postings {
        Postings {
            reader: PagedReader::new(self, self.inner.postings, part.postings.clone()),
            decoder: PostingDecoder::new(part.count, self.inner.rooms.base_time(), self.inner.messages),
        }
    }
}

pub(crate) struct Postings {
    reader: PagedReader,
    decoder: PostingDecoder,
}

impl Postings {
    #[allow(clippy::should_implement_trait)] // reading can fail
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Posting>, FileError> {
        self.decoder.next(&mut self.reader)
    }
}

/// Goes through the users of a segment in the order of their names, and through the messages of those of interest.
pub(crate) struct UserScan {
    users: PagedReader,
    postings: PagedReader,
    postings_end: u64,
    base: i64,
    ordinals: u32,
    /// Of the user that `next` gave last.
    pub(super) name: String,
}

impl UserScan {
    fn new(segment: &Segment, users: Range<u64>, postings: u64) -> Self {
        Self {
            users: PagedReader::new(segment, segment.inner.users, users),
            postings: PagedReader::new(segment, segment.inner.postings, postings..u64::MAX),
            postings_end: postings,
            base: segment.inner.rooms.base_time(),
            ordinals: segment.inner.messages,
            name: String::new(),
        }
    }

    /// The next user; `None` behind the last one.
    #[allow(clippy::should_implement_trait)] // what is lent cannot outlive the next call
    pub(crate) fn next(&mut self) -> Result<Option<(&str, UserPart)>, FileError> {
        if self.users.is_at_end() {
            return Ok(None);
        }
        self.name.clear();
        let (name, base) = (&mut self.name, self.base);
        let (count, postings, first, last) =
            self.users.take(USER_BYTES_MAX, "a user is unreadable", |from| {
                name.push_str(from.name()?);
                let (count, postings) = (from.varint()?, from.varint()?);
                let first = base.wrapping_add(from.zigzag()?);
                Some((count, postings, first, first.wrapping_add(from.zigzag()?)))
            })?;
        let begin = self.postings_end;
        self.postings_end = begin.saturating_add(postings);
        Ok(Some((&self.name, UserPart { count, first, last, postings: begin..self.postings_end })))
    }

    /// Begins the messages of the user that `next` gave last.
    pub(crate) fn begin_postings(&mut self, part: &UserPart) -> PostingDecoder {
        self.postings.skip(part.postings.start.saturating_sub(self.postings.position()));
        PostingDecoder::new(part.count, self.base, self.ordinals)
    }

    pub(crate) fn next_posting(
        &mut self,
        decoder: &mut PostingDecoder,
    ) -> Result<Option<Posting>, FileError> {
        decoder.next(&mut self.postings)
    }

    /// Shows `visit` the messages of the user that `next` gave last.
    pub(crate) fn postings(
        &mut self,
        part: &UserPart,
        mut visit: impl FnMut(Posting),
    ) -> Result<(), FileError> {
        let mut decoder = self.begin_postings(part);
        while let Some(posting) = decoder.next(&mut self.postings)? {
            visit(posting);
        }
        Ok(())
    }
}
