//! WebSocket echo and acknowledgement, with one write for all that one read brought.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use hubbub_core::message::write_u64;
use hubbub_ws::{Event, Reader, Role, write};
use serde::Deserialize;
use tokio::net::TcpStream;

use super::journal::Journal;

pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

pub(super) async fn serve(
    stream: TcpStream,
    is_echo: bool,
    journal: Option<Arc<Journal>>,
) -> anyhow::Result<()> {
    let (wire, _) = super::upgrade(stream).await?;
    let (mut reader, mut seq) = (Reader::new(Role::Server, MESSAGE_BYTES_MAX), 0);
    super::converse(wire, journal, |bytes, out| answer(&mut reader, bytes, is_echo, &mut seq, out)).await
}

fn answer(
    reader: &mut Reader,
    bytes: &mut [u8],
    is_echo: bool,
    seq: &mut u64,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut acks = Acks::default();
    let mut frames = reader.feed(bytes);
    while let Some(event) = frames.next().map_err(io::Error::other)? {
        match (event, is_echo) {
            (Event::Text(text), true) => write::write_text(out, text.as_bytes()),
            (Event::Text(text), false) => {
                *seq += 1;
                acks.write(text, *seq, out)?;
            }
            (Event::Ping(payload), _) => write::write_pong(out, payload),
            (Event::Close { .. }, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
    Ok(())
}

/// A message as a client of `/chat/{room}` sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "all fields are read from JSON, as the real server does")]
struct Draft<'a> {
    user_id: u64,
    #[serde(borrow)]
    username: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    message_type: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
}

/// Writes the acknowledgements of one read, all with the same time.
#[derive(Default)]
pub(super) struct Acks {
    now: Vec<u8>,
}

impl Acks {
    pub(super) fn write(&mut self, text: &str, seq: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let draft: Draft<'_> = serde_json::from_str(text)?;
        if self.now.is_empty() {
            crate::host::machine::now().write(&mut self.now);
        }
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"status\":\"success\",\"messageId\":\"");
        out.extend_from_slice(draft.message_id.as_bytes());
        out.extend_from_slice(b"\",\"seq\":");
        write_u64(seq, out);
        out.extend_from_slice(b",\"serverReceiveTime\":\"");
        out.extend_from_slice(&self.now);
        out.extend_from_slice(b"\",\"serverSendTime\":\"");
        out.extend_from_slice(&self.now);
        out.extend_from_slice(b"\"}");
        write::end_text(out, start);
        Ok(())
    }
}
