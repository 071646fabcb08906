//! The kinds of files, their names, headers and footers.

use std::collections::HashSet;

use crc32c::crc32c;

use super::Cursor;
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError};

/// Bytes of checksum and end magic at the end of a footer.
pub(crate) const FOOTER_END_BYTES: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damaged(&'static str),
    Version(u32),
}

#[derive(Debug)]
pub(crate) struct FileKind {
    pub(crate) dir: &'static str,
    /// End of the names of finished ones.
    pub(crate) extension: &'static str,
    /// Digits of the numbers in their names, at least.
    pub(crate) digits: usize,
    pub(crate) magic: &'static [u8; 8],
    /// Ends the footer, where these files have one.
    pub(crate) end_magic: &'static [u8],
    /// Format written, and the only one read.
    pub(crate) version: u32,
    /// What to say of a file with another magic.
    pub(crate) wrong_magic: &'static str,
}

impl FileKind {
    pub(crate) const HEADER_BYTES: usize = 16;

    /// Name of a finished file, relative to the data directory.
    pub(crate) fn path(&self, number: u64) -> String {
        format!("{}/{number:01$}.{2}", self.dir, self.digits, self.extension)
    }

    /// Name of a file while it is written; whatever has such a name after a crash is incomplete.
    pub(crate) fn unfinished_path(&self, number: u64) -> String {
        format!("{}/{number:01$}.tmp", self.dir, self.digits)
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out
    }

    pub(crate) fn check_header(&self, bytes: &[u8]) -> Result<(), HeaderFault> {
        let mut from = Cursor::new(bytes);
        let (magic, version, crc) = (from.array::<8>(), from.u32(), from.u32());
        if magic.as_ref() != Some(self.magic) {
            return Err(HeaderFault::Damaged(self.wrong_magic));
        }
        if crc != bytes.get(..Self::HEADER_BYTES - 4).map(crc32c) {
            return Err(HeaderFault::Damaged("the header's checksum does not match"));
        }
        match version {
            Some(version) if version == self.version => Ok(()),
            other => Err(HeaderFault::Version(other.unwrap_or_default())),
        }
    }

    /// Ends the fields of a footer with their checksum and the end magic.
    pub(crate) fn finish_footer(&self, fields: &mut Vec<u8>) {
        fields.extend_from_slice(&crc32c(fields).to_le_bytes());
        fields.extend_from_slice(self.end_magic);
    }

    /// The fields of a footer; `None` when it is not whole.
    pub(crate) fn check_footer<'a>(&self, footer: &'a [u8]) -> Option<Cursor<'a>> {
        let (fields, end) = footer.split_last_chunk::<FOOTER_END_BYTES>()?;
        let mut end = Cursor::new(end);
        (end.u32()? == crc32c(fields) && end.rest() == self.end_magic).then(|| Cursor::new(fields))
    }
}

/// Removes the files of a directory that have one of these extensions, or are unfinished, and that nothing names: what
/// interrupted seals, merges and removals left.
pub(crate) fn remove_unnamed(
    disk: &dyn Disk,
    dir: &str,
    extensions: &[&str],
    named: &HashSet<String>,
) -> Result<(), MaintainError> {
    for name in disk.list(dir).doing("listing the directory", dir)? {
        let path = format!("{dir}/{name}");
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_ours = extension == "tmp" || extensions.contains(&extension);
        if is_ours && !named.contains(&path) {
            disk.remove(&path).doing("removing", &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: FileKind = FileKind {
        dir: "some",
        extension: "one",
        digits: 8,
        magic: b"SOMEFILE",
        end_magic: b"SOME",
        version: 3,
        wrong_magic: "another file",
    };

    #[test]
    fn headers_are_told_apart() {
        let header = KIND.header();
        assert_eq!(header.len(), FileKind::HEADER_BYTES);
        assert_eq!(KIND.check_header(&header), Ok(()));
        let newer = FileKind { version: 4, ..KIND };
        assert_eq!(KIND.check_header(&newer.header()), Err(HeaderFault::Version(4)));
        let other = FileKind { magic: b"OTHERONE", ..KIND };
        assert_eq!(KIND.check_header(&other.header()), Err(HeaderFault::Damaged("another file")));
        for at in 0..header.len() {
            let mut flipped = header.clone();
            flipped[at] ^= 1;
            assert!(matches!(KIND.check_header(&flipped), Err(HeaderFault::Damaged(_))), "byte {at}");
            assert!(KIND.check_header(&header[..at]).is_err(), "cut at {at}");
        }
    }

    proptest! {
        #[test]
        fn footers_come_back_and_damage_is_seen(fields in proptest::collection::vec(any::<u8>(), 0..60), at: usize) {
            let mut footer = fields.clone();
            KIND.finish_footer(&mut footer);
            prop_assert_eq!(KIND.check_footer(&footer).map(|fields| fields.rest().to_vec()), Some(fields));
            let at = at % footer.len();
            prop_assert!(KIND.check_footer(&footer[..at]).is_none());
            footer[at] ^= 1;
            prop_assert!(KIND.check_footer(&footer).is_none());
        }
    }
}
