//! What is remembered of each message until its answer: a queue of string pairs in one allocation.

use std::collections::VecDeque;

use hubbub_core::Timestamp;

/// When the texts already answered exceed this, the rest is moved to the front.
const USED_BYTES_MAX: usize = 16 * 1024;

/// What an answer needs of the message it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label<'a> {
    pub(super) message_id: &'a str,
    /// The client's `ref` or the original frame, as JSON; empty when there is none.
    pub(super) extra: &'a str,
    pub(super) received_at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Labels {
    heads: VecDeque<(usize, usize, Timestamp)>,
    text: String,
    /// Bytes of `text` before the first label.
    used: usize,
}

impl Labels {
    pub(super) fn push(&mut self, label: Label<'_>) {
        self.text.push_str(label.message_id);
        self.text.push_str(label.extra);
        self.heads.push_back((label.message_id.len(), label.extra.len(), label.received_at));
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Takes the oldest label and shows it.
    pub(super) fn pop<R>(&mut self, show: impl FnOnce(Label<'_>) -> R) -> Option<R> {
        let (id_bytes, extra_bytes, received_at) = self.heads.pop_front()?;
        let rest = self.text.get(self.used..)?;
        let (message_id, rest) = rest.split_at_checked(id_bytes)?;
        let shown = show(Label { message_id, extra: rest.get(..extra_bytes)?, received_at });
        self.used += id_bytes + extra_bytes;
        if self.heads.is_empty() {
            self.text.clear();
            self.used = 0;
        } else if self.used > USED_BYTES_MAX {
            self.text.drain(..self.used);
            self.used = 0;
        }
        Some(shown)
    }

    /// Gives the memory back; for connections that fall idle.
    pub(super) fn release(&mut self) {
        if self.heads.is_empty() {
            *self = Self::default();
        }
    }
}
