//! What the answers of one socket need of their requests: a queue of string pairs in one allocation.

use std::collections::VecDeque;

use hubbub_core::Timestamp;
use hubbub_core::invariant::broken;

/// When the texts already answered exceed this, the rest is moved to the front.
const USED_BYTES_MAX: usize = 16 * 1024;

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject<'a> {
    /// The message with this id.
    Message(&'a str),
    /// The read mark of this room.
    Mark(&'a str),
}

/// What an answer needs of the frame it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) subject: Subject<'a>,
    /// The client's `ref` or the original frame, as JSON; empty when there is none.
    pub(super) extra: &'a str,
    pub(super) received_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Of the room's name, where it is the first of a submission.
    room_bytes: usize,
    is_message: bool,
    subject_bytes: usize,
    extra_bytes: usize,
    received_at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    entries: VecDeque<Entry>,
    text: String,
    /// Bytes of `text` before the first request.
    used: usize,
    /// The room of the submission whose request was taken last.
    room: String,
    /// How many were taken.
    taken: u64,
}

impl RequestQueue {
    /// Adds the first request of a submission to a room.
    pub(super) fn push_first(&mut self, room: &str, request: Request<'_>) {
        self.text.push_str(room);
        self.push(request);
        if let Some(entry) = self.entries.back_mut() {
            entry.room_bytes = room.len();
        }
    }

    /// The room of the submission that the oldest request is of.
    pub(super) fn room(&self) -> &str {
        let rest = self.text.get(self.used..).unwrap_or_default();
        match self.entries.front() {
            Some(entry) if entry.room_bytes > 0 => rest.get(..entry.room_bytes).unwrap_or_default(),
            _ => &self.room,
        }
    }

    /// Number of the oldest request, counted from the socket's first.
    pub(super) fn oldest(&self) -> u64 {
        self.taken
    }

    /// Number of the request that comes next.
    pub(super) fn next(&self) -> u64 {
        self.taken + self.entries.len() as u64
    }

    pub(super) fn push(&mut self, request: Request<'_>) {
        let (is_message, subject) = match request.subject {
            Subject::Message(id) => (true, id),
            Subject::Mark(room) => (false, room),
        };
        self.text.push_str(subject);
        self.text.push_str(request.extra);
        self.entries.push_back(Entry {
            room_bytes: 0,
            is_message,
            subject_bytes: subject.len(),
            extra_bytes: request.extra.len(),
            received_at: request.received_at,
        });
    }

    /// Takes the oldest request and shows it.
    pub(super) fn pop(&mut self, show: impl FnOnce(Request<'_>)) {
        let Some(entry) = self.entries.pop_front() else {
            broken("each operation of a socket has a request");
            return;
        };
        self.taken += 1;
        if entry.room_bytes > 0 {
            let room = self.text.get(self.used..self.used + entry.room_bytes).unwrap_or_default();
            self.room.clear();
            self.room.push_str(room);
        }
        let (subject, extra) = self.texts(&entry);
        let subject = if entry.is_message { Subject::Message(subject) } else { Subject::Mark(subject) };
        show(Request { subject, extra, received_at: entry.received_at });
        self.used += entry.room_bytes + entry.subject_bytes + entry.extra_bytes;
        if self.entries.is_empty() {
            self.text.clear();
            self.used = 0;
        } else if self.used > USED_BYTES_MAX {
            self.text.drain(..self.used);
            self.used = 0;
        }
    }

    fn texts(&self, entry: &Entry) -> (&str, &str) {
        let rest = self.text.get(self.used + entry.room_bytes..).unwrap_or_default();
        let (subject, rest) = rest.split_at_checked(entry.subject_bytes).unwrap_or_default();
        (subject, rest.get(..entry.extra_bytes).unwrap_or_default())
    }

    /// Bytes of the texts that wait.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() - self.used
    }

    /// Gives the memory back; for connections that fall idle.
    pub(super) fn release(&mut self) {
        if self.entries.is_empty() {
            *self = Self { taken: self.taken, ..Self::default() };
        }
    }
}
