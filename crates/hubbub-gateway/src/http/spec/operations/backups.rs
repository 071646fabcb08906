//! Backups.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;

use super::super::operation::{Media, READING};
use super::super::schemas::schema;
use super::Operation;
use crate::http::backups::OCTETS;

pub(super) const TAG: &str = "Backups";

/// What every operation on backups can meet.
const REFUSALS: &[E] = &[E::Invalid, E::Forbidden, E::NotSupported];

pub(in crate::http) fn begin(_: &Limits) -> Operation {
    Operation::new("beginBackup", TAG, "Begin a backup")
        .about(
            "The list of files is the store at one moment: every message acknowledged before is in it. The files stay \
             readable, unchanged, until the backup is deleted, was not read for an hour, gives way to newer ones \
             (four are kept) or the server stops. Begun again under the same name, it is shown again.",
        )
        .caller()
        .gives(201, Media::Json(schema("Backup")), "Begun.")
        .gives(200, Media::Json(schema("Backup")), "There is one of that name already.")
        .refuses(REFUSALS)
        .refuses(READING)
        .refuses(&[E::Overloaded])
}

pub(in crate::http) fn file(_: &Limits) -> Operation {
    Operation::new("readBackupFile", TAG, "Read a file of a backup")
        .about("Verify length and `crc32c` (Castagnoli) of what arrived.")
        .caller()
        .gives(200, Media::Other(OCTETS), "The file's bytes, streamed.")
        .refuses(REFUSALS)
        .refuses(&[E::NotFound, E::Overloaded])
        .refuses(READING)
}

pub(in crate::http) fn end(_: &Limits) -> Operation {
    Operation::new("endBackup", TAG, "End a backup")
        .about("Its files are not readable any more, and space that only they took is free.")
        .caller()
        .gives(204, Media::None, "Ended.")
        .refuses(REFUSALS)
        .refuses(&[E::NotFound])
}
