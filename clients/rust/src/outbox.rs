//! Frames to write to the connection of the moment.

use std::fmt;

use hubbub_ws::{Opcode, write};
use serde::Serialize;

use crate::random;

/// Frames to write; bounded by the unanswered ones and the subscriptions.
#[derive(Default)]
pub(crate) struct Outbox {
    /// `None` without a connection.
    bytes: Option<Vec<u8>>,
}

/// Without the bytes, which may have a token.
impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.as_ref().map(Vec::len);
        f.debug_struct("Outbox").field("bytes", &bytes).finish()
    }
}

impl Outbox {
    pub(crate) fn is_open(&self) -> bool {
        self.bytes.is_some()
    }

    /// Begins a connection.
    pub(crate) fn open(&mut self) {
        self.bytes = Some(Vec::new());
    }

    /// Drops what was not written.
    pub(crate) fn close(&mut self) {
        self.bytes = None;
    }

    /// Moves everything to `into`, which is empty.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) {
        if let Some(bytes) = &mut self.bytes {
            std::mem::swap(bytes, into);
        }
    }

    /// Appends the answer to a ping.
    pub(crate) fn push_pong(&mut self, payload: &[u8]) {
        if let Some(bytes) = &mut self.bytes {
            write::write_masked(bytes, Opcode::Pong, payload, random::mask());
        }
    }

    /// Appends a frame to those to be written. How many bytes its text has.
    pub(crate) fn push(&mut self, frame: &impl Serialize) -> usize {
        // Structs and values of strings and numbers have no error.
        let (Some(bytes), Ok(text)) = (&mut self.bytes, serde_json::to_vec(frame)) else { return 0 };
        write::write_masked(bytes, Opcode::Text, &text, random::mask());
        text.len()
    }
}
