//! What is remembered of each message until its answer: a queue of string pairs in one allocation.

use std::collections::VecDeque;

use hubbub_core::Timestamp;

/// When the texts already answered exceed this, the rest is moved to the front.
const USED_BYTES_MAX: usize = 16 * 1024;

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About<'a> {
    /// The message with this id.
    Message(&'a str),
    /// The read mark of this room.
    Mark(&'a str),
}

/// What an answer needs of the frame it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label<'a> {
    pub(super) about: About<'a>,
    /// The client's `ref` or the original frame, as JSON; empty when there is none.
    pub(super) extra: &'a str,
    pub(super) received_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    is_message: bool,
    about_bytes: u32,
    extra_bytes: u32,
    received_at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Labels {
    heads: VecDeque<Head>,
    text: String,
    /// Bytes of `text` before the first label.
    used: usize,
}

impl Labels {
    pub(super) fn push(&mut self, label: Label<'_>) {
        let (is_message, about) = match label.about {
            About::Message(id) => (true, id),
            About::Mark(room) => (false, room),
        };
        self.text.push_str(about);
        self.text.push_str(label.extra);
        // Both are parts of one frame, whose size is limited.
        let length = |part: &str| u32::try_from(part.len()).unwrap_or(u32::MAX);
        let (about_bytes, extra_bytes) = (length(about), length(label.extra));
        self.heads.push_back(Head { is_message, about_bytes, extra_bytes, received_at: label.received_at });
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Takes the oldest label and shows it.
    pub(super) fn pop<R>(&mut self, show: impl FnOnce(Label<'_>) -> R) -> Option<R> {
        let Head { is_message, about_bytes, extra_bytes, received_at } = self.heads.pop_front()?;
        let (about_bytes, extra_bytes) = (about_bytes as usize, extra_bytes as usize);
        let rest = self.text.get(self.used..)?;
        let (about, rest) = rest.split_at_checked(about_bytes)?;
        let about = if is_message { About::Message(about) } else { About::Mark(about) };
        let shown = show(Label { about, extra: rest.get(..extra_bytes)?, received_at });
        self.used += about_bytes + extra_bytes;
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
