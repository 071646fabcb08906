//! Backups.

use hubbub_core::ErrorCode::*;

use super::super::backups;
use super::super::endpoint::{Endpoint, delete, get, put};
use super::super::operation::{Media::*, OCTETS};
use super::super::permission::Permission;
use crate::auth::Scope;

pub(super) static ENDPOINTS: &[Endpoint] = &[
    put("/v1/backups/{backup}", |call| Box::pin(backups::begin(call)))
        .needs(Permission::Scope(Scope::Backup))
        .named("beginBackup", "Begin a backup")
        .about(
            "The list of files is the store at one moment: every message acknowledged before is in it. The files stay \
             readable, unchanged, until the backup is deleted, was not read for an hour, gives way to newer ones \
             (four are kept) or the server stops. Begun again under the same name, it is shown again.",
        )
        .gives(&[
            (201, Json("Backup"), "Begun."),
            (200, Json("Backup"), "There is one of that name already."),
        ])
        .refuses_only(&[Invalid, Forbidden, NotSupported, Overloaded, Unavailable, Internal]),
    get("/v1/backups/{backup}/files/{file}", |call| Box::pin(backups::file(call)))
        .without_head()
        .needs(Permission::Scope(Scope::Backup))
        .named("readBackupFile", "Read a file of a backup")
        .about("Verify length and `crc32c` (Castagnoli) of what arrived.")
        .gives(&[(200, OCTETS, "The file's bytes, streamed.")])
        .refuses(&[Invalid, Forbidden, NotSupported, NotFound, Overloaded]),
    delete("/v1/backups/{backup}", |call| Box::pin(backups::end(call)))
        .needs(Permission::Scope(Scope::Backup))
        .named("endBackup", "End a backup")
        .about("Its files are not readable any more, and space that only they took is free.")
        .gives(&[(204, Nothing, "Ended.")])
        .refuses_only(&[Invalid, Forbidden, NotSupported, NotFound]),
];
