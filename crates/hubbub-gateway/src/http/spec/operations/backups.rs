//! Backups.

use hubbub_core::ErrorCode as E;
use hubbub_core::id::ID_RULE;
use hubbub_core::limits::Limits;
use serde_json::{Value, json};

use super::super::operation::{Media, READING};
use super::super::schemas::schema;
use super::super::values::{EPOCH, answered, invalid, refusal};
use super::Operation;
use crate::http::backups::{NO_BACKUP, NO_FILE, OCTETS};

pub(super) const TAG: &str = "Backups";

/// What every operation on backups can meet.
const REFUSALS: &[E] = &[E::Invalid, E::Forbidden, E::NotSupported];

pub(in crate::http) fn begin(_: &Limits) -> Operation {
    let begun = json!({"backupId": "nightly", "epoch": EPOCH, "messages": 4, "files": [
        {"name": "segments/00000001.seg", "bytes": 1_024, "crc32c": 305_419_896},
        {"name": "MANIFEST", "bytes": 90, "crc32c": 2_596_069_104_u32},
        {"name": "FORMAT", "bytes": 21, "crc32c": 19_088_743},
    ]});
    let forbidden = refusal(E::Forbidden, "only the administrator may, not 'ada'");
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
        .example("nightly", &[("backup", "nightly")], (201, begun.clone()))
        .example("again", &[("backup", "nightly")], (200, begun))
        .example("somebody", &[("backup", "mine"), ("Hubbub-User", "ada")], answered(&forbidden))
        .example("noId", &[("backup", "night&day")], answered(&invalid(&[("backup", ID_RULE)])))
}

pub(in crate::http) fn file(_: &Limits) -> Operation {
    Operation::new("readBackupFile", TAG, "Read a file of a backup")
        .about("Verify length and `crc32c` (Castagnoli) of what arrived.")
        .caller()
        .gives(200, Media::Other(OCTETS), "The file's bytes, streamed.")
        .refuses(REFUSALS)
        .refuses(&[E::NotFound, E::Overloaded])
        .refuses(READING)
        .example(
            "format",
            &[("backup", "nightly"), ("file", "FORMAT")],
            (200, Value::from("hubbub data format 1\n")),
        )
        .example(
            "notListed",
            &[("backup", "nightly"), ("file", "LOCK")],
            answered(&refusal(E::NotFound, NO_FILE)),
        )
}

pub(in crate::http) fn end(_: &Limits) -> Operation {
    Operation::new("endBackup", TAG, "End a backup")
        .about("Its files are not readable any more, and space that only they took is free.")
        .caller()
        .gives(204, Media::None, "Ended.")
        .refuses(REFUSALS)
        .refuses(&[E::NotFound])
        .example("nightly", &[("backup", "nightly")], (204, Value::Null))
        .example("gone", &[("backup", "nightly")], answered(&refusal(E::NotFound, NO_BACKUP)))
}
