//! `/v1/backups`: copying the store while it is written to. For the administrator alone.

use std::sync::Arc;

use hubbub_core::backup::{BackupError, BackupFile, BackupStore};
use hubbub_core::id::{ID_RULE, is_valid_id};
use hubbub_core::{ErrorCode, FieldError};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::streamed::{Writer, streamed};
use super::types::{Epoch, Id};
use super::{Answer, json_of, no_content, respond, stream_response};
use crate::Gateway;
use crate::auth::session::Session;
use crate::outgoing_memory::{self, Reader};
use crate::problem::Problem;

/// Read from the store at a time; with [`PIECES_MAX`] what one reader costs in memory.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_MAX: usize = 2;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Backup {
    backup_id: Id<String>,
    epoch: Epoch,
    messages: u64,
    files: Vec<File>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct File {
    name: String,
    bytes: u64,
    crc32c: u32,
}

/// `PUT /v1/backups/{backup}`: begins one, or shows the one that was begun under this name.
pub(super) async fn begin(call: Call) -> Answer {
    let store = backups(&call)?;
    let backup = call.parameter("backup");
    if !is_valid_id(backup) {
        return Err(Problem::invalid(vec![FieldError::new("backup", ID_RULE)]));
    }
    let info = store.begin_backup(backup).await?;
    let status = if info.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let file = |file: BackupFile| File { name: file.name, bytes: file.bytes, crc32c: file.crc32c };
    let files = info.files.into_iter().map(file).collect();
    let backup = Backup { backup_id: Id(info.id), epoch: Epoch(info.epoch), messages: info.messages, files };
    json_of(status, &backup)
}

/// `GET /v1/backups/{backup}/files/{file}`: streams one of its files.
pub(super) async fn file(call: Call) -> Answer {
    let gateway = call.gateway();
    // Only a name that is in the list finds anything, whatever it decodes to.
    let name = percent_encoding::percent_decode_str(call.parameter("file")).decode_utf8_lossy().into_owned();
    let backup = call.parameter("backup");
    let first = backups(&call)?.read_backup(backup, &name, 0, PIECE_BYTES).await?;
    let Some(first) = first else {
        return Err(Problem::new(ErrorCode::NotFound, NO_FILE));
    };
    if first.len() < PIECE_BYTES {
        return Ok(respond(StatusCode::OK, OCTETS, first));
    }
    let session = Session::open(&gateway.auth, &call.caller()?);
    let (writer, body) = streamed(PIECES_MAX);
    let reader = call.peer.reader.clone();
    tokio::spawn(stream((gateway.clone(), reader), session, (backup.to_owned(), name), first, writer));
    Ok(stream_response(OCTETS, body))
}

/// Details of `not_found`.
const NO_BACKUP: &str = "there is no such backup; begin it again";
const NO_FILE: &str = "there is no such backup, or no such file in it";

const OCTETS: &str = "application/octet-stream";

/// `DELETE /v1/backups/{backup}`: lets go of it.
pub(super) async fn end(call: Call) -> Answer {
    if !backups(&call)?.end_backup(call.parameter("backup")) {
        return Err(Problem::new(ErrorCode::NotFound, NO_BACKUP));
    }
    Ok(no_content())
}

/// Sends what follows the first piece, at the reader's pace, until the caller's token ends. An answer that ends early is an error
/// at the other end.
async fn stream(
    (gateway, reader): (Arc<Gateway>, Arc<Reader>),
    session: Session,
    (backup, name): (String, String),
    first: Vec<u8>,
    writer: Writer,
) {
    let mut offset = 0;
    let mut piece = first;
    while !piece.is_empty() {
        offset += piece.len() as u64;
        let is_written = tokio::select! {
            biased;
            _ = session.end() => return writer.abort(std::io::Error::other("the token has ended")),
            written = writer.write(outgoing_memory::charge(&reader, piece.into())) => written.is_ok(),
        };
        if !is_written {
            return;
        }
        let Some(store) = gateway.store.backups() else { return };
        piece = match store.read_backup(&backup, &name, offset, PIECE_BYTES).await {
            Ok(Some(piece)) => piece,
            Ok(None) => return writer.abort(std::io::Error::other("the backup was ended")),
            Err(error) => {
                tracing::error!(%error, "a backup broke off");
                return writer.abort(std::io::Error::other(error));
            }
        };
    }
}

fn backups(call: &Call) -> Result<&dyn BackupStore, Problem> {
    call.gateway().store.backups().ok_or_else(|| {
        let text = "PostgreSQL is backed up with tools of its own, such as pg_basebackup, not here: see docs/postgresql.md";
        Problem::new(ErrorCode::NotSupported, text)
    })
}

impl From<BackupError> for Problem {
    fn from(error: BackupError) -> Self {
        let code = match &error {
            BackupError::Overloaded => ErrorCode::Overloaded,
            BackupError::Unavailable { .. } => ErrorCode::Unavailable,
        };
        // Only the administrator sees it, who may know the reason.
        Self::new(code, error.to_string())
    }
}
