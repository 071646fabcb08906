//! Decodes frames into messages.

use std::ops::Range;

use crate::error::ProtocolError;
use crate::frame::{CONTROL_BYTES_MAX, HEADER_BYTES_MAX, Header, Opcode, Role};
use crate::mask::apply_mask;

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole text message.
    Text(&'a str),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// To be answered with a pong of the same payload.
    Ping(&'a [u8]),
    /// An answer to a ping.
    Pong(&'a [u8]),
    /// The peer's last frame; whatever follows it is dropped.
    Close {
        /// Status code, if the peer gave one.
        code: Option<u16>,
        /// The peer's words; may be empty.
        reason: &'a str,
    },
}

/// Decodes one direction of one connection.
#[derive(Debug)]
pub struct Reader {
    /// What is unfinished: the message so far, then a control frame so far. Not allocated between messages.
    held: Vec<u8>,
    /// The frame whose payload is not complete yet.
    frame: Option<Partial>,
    max_message_bytes: usize,
    /// Start of a header that a read cut off.
    head: [u8; HEADER_BYTES_MAX],
    head_bytes: usize,
    role: Role,
    /// Kind of the fragmented message under way.
    message: Option<Opcode>,
    closed: bool,
    is_text_only: bool,
}

#[derive(Debug, Clone, Copy)]
struct Partial {
    header: Header,
    /// Position in `held` at which its payload begins.
    start: usize,
    missing_bytes: usize,
}

/// A payload that is complete and unmasked: bytes of the input, or of what is held.
enum PayloadRange {
    Input(Range<usize>),
    Held(Range<usize>),
}

impl Reader {
    /// A reader at the start of a connection; messages over `max_message_bytes` are refused.
    pub fn new(role: Role, max_message_bytes: usize) -> Self {
        Self {
            held: Vec::new(),
            frame: None,
            max_message_bytes,
            head: [0; HEADER_BYTES_MAX],
            head_bytes: 0,
            role,
            message: None,
            closed: false,
            is_text_only: false,
        }
    }

    /// Refuses binary messages by the header of their first frame, before anything of them is held.
    pub fn text_only(self) -> Self {
        Self { is_text_only: true, ..self }
    }

    /// Takes the next bytes of the stream. Call [`Frames::next`] until it yields `None`: what is not asked for is lost.
    pub fn feed<'b>(&'b mut self, input: &'b mut [u8]) -> Frames<'b> {
        Frames { reader: self, input, at: 0, used_held: None }
    }

    /// Heap memory held for an unfinished message, in bytes; at most the longest message and a control frame.
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// What has come of the unfinished message, in bytes.
    pub fn unfinished_bytes(&self) -> usize {
        self.held.len()
    }

    /// Whether the stream stands between two messages.
    pub fn is_idle(&self) -> bool {
        self.frame.is_none() && self.message.is_none() && self.head_bytes == 0
    }

    /// Checks a frame's header against the state of the stream; gives the payload's length.
    fn admit(&self, header: &Header) -> Result<usize, ProtocolError> {
        let too_big = ProtocolError::TooBig { limit_bytes: self.max_message_bytes };
        let payload = usize::try_from(header.payload_bytes).map_err(|_| too_big);
        if header.opcode.is_control() {
            return payload;
        }
        match (header.opcode, self.message) {
            (Opcode::Continuation, None) => return Err(ProtocolError::UnexpectedContinuation),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(ProtocolError::UnfinishedMessage),
            (Opcode::Binary, None) if self.is_text_only => return Err(ProtocolError::Binary),
            _ => {}
        }
        let payload = payload?;
        if payload > self.max_message_bytes.saturating_sub(self.held.len()) {
            Err(too_big)
        } else {
            Ok(payload)
        }
    }
}

/// The events of one [`Reader::feed`]; each borrows from the input or the reader.
#[derive(Debug)]
pub struct Frames<'b> {
    reader: &'b mut Reader,
    input: &'b mut [u8],
    at: usize,
    /// From here on, `held` was shown by the last event and can go.
    used_held: Option<usize>,
}

impl Frames<'_> {
    /// Refuses messages over `max_message_bytes` from the next frame on.
    pub fn set_max_message_bytes(&mut self, max_message_bytes: usize) {
        self.reader.max_message_bytes = max_message_bytes;
    }

    /// The next event, or `None` when the input is used up. After an error the stream has no meaning any more.
    #[allow(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from the iterator")]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, ProtocolError> {
        self.release_held();
        while !self.reader.closed {
            let frame = match self.reader.frame.take() {
                Some(frame) => frame,
                None => match self.read_header()? {
                    Some(frame) => frame,
                    None => break,
                },
            };
            match self.read_payload(frame) {
                Progress::Ready(opcode, payload) => return self.show(opcode, payload).map(Some),
                Progress::Fragment => {}
                Progress::Wait => break,
            }
        }
        Ok(None)
    }

    fn release_held(&mut self) {
        if let Some(start) = self.used_held.take() {
            self.reader.held.truncate(start);
            if start == 0 {
                self.reader.held = Vec::new();
            }
        }
    }

    fn read_header(&mut self) -> Result<Option<Partial>, ProtocolError> {
        let reader = &mut *self.reader;
        let input = self.input.get(self.at..).unwrap_or_default();
        let known = reader.head_bytes;
        let parsed = if known == 0 {
            Header::parse(input, reader.role)?
        } else {
            for (to, from) in reader.head.iter_mut().skip(known).zip(input) {
                *to = *from;
            }
            let filled = HEADER_BYTES_MAX.min(known + input.len());
            Header::parse(reader.head.get(..filled).unwrap_or_default(), reader.role)?
        };
        let Some((header, header_bytes)) = parsed else {
            if known == 0 {
                for (to, from) in reader.head.iter_mut().zip(input) {
                    *to = *from;
                }
            }
            // Fewer than a longest header's bytes, or it would have parsed.
            reader.head_bytes = known + input.len();
            self.at = self.input.len();
            return Ok(None);
        };
        reader.head_bytes = 0;
        self.at += header_bytes - known;
        let missing_bytes = reader.admit(&header)?;
        Ok(Some(Partial { header, start: reader.held.len(), missing_bytes }))
    }

    /// Unmasks what is there of the frame's payload and decides whether it is all.
    fn read_payload(&mut self, mut frame: Partial) -> Progress {
        let reader = &mut *self.reader;
        let end = self.at + frame.missing_bytes.min(self.input.len() - self.at);
        let range = self.at..end;
        let part = self.input.get_mut(range.clone()).unwrap_or_default();
        if let Some(key) = frame.header.mask {
            apply_mask(part, key, reader.held.len() - frame.start);
        }
        self.at = end;
        frame.missing_bytes -= part.len();
        let Header { fin, opcode, .. } = frame.header;
        let whole = frame.missing_bytes == 0;
        let untouched = reader.held.len() == frame.start;
        if whole && fin && untouched && opcode != Opcode::Continuation {
            return Progress::Ready(opcode, PayloadRange::Input(range));
        }
        hold(&mut reader.held, part, reader.max_message_bytes);
        if !whole {
            reader.frame = Some(frame);
            return Progress::Wait;
        }
        if opcode.is_control() {
            return self.held_from(frame.start, opcode);
        }
        let kind = reader.message.unwrap_or(opcode);
        if fin {
            reader.message = None;
            self.held_from(0, kind)
        } else {
            reader.message = Some(kind);
            Progress::Fragment
        }
    }

    fn held_from(&mut self, start: usize, opcode: Opcode) -> Progress {
        self.used_held = Some(start);
        Progress::Ready(opcode, PayloadRange::Held(start..self.reader.held.len()))
    }

    fn show(&mut self, opcode: Opcode, payload: PayloadRange) -> Result<Event<'_>, ProtocolError> {
        if opcode == Opcode::Close {
            self.reader.closed = true;
        }
        let payload = match payload {
            PayloadRange::Input(range) => self.input.get(range),
            PayloadRange::Held(range) => self.reader.held.get(range),
        }
        .unwrap_or_default();
        match opcode {
            Opcode::Text => Ok(Event::Text(utf8(payload)?)),
            Opcode::Binary | Opcode::Continuation => Ok(Event::Binary(payload)),
            Opcode::Ping => Ok(Event::Ping(payload)),
            Opcode::Pong => Ok(Event::Pong(payload)),
            Opcode::Close => close_event(payload),
        }
    }
}

/// Appends to what is held. Its memory doubles as it grows, as that of every vector, but never beyond a whole message with
/// a control frame behind it.
fn hold(held: &mut Vec<u8>, part: &[u8], max_message_bytes: usize) {
    let needed = held.len() + part.len();
    if needed > held.capacity() {
        let most = max_message_bytes.saturating_add(CONTROL_BYTES_MAX);
        let capacity = held.capacity().saturating_mul(2).min(most).max(needed);
        held.reserve_exact(capacity - held.len());
    }
    held.extend_from_slice(part);
}

enum Progress {
    /// A message or control frame is complete.
    Ready(Opcode, PayloadRange),
    /// A fragment is complete; its message is not.
    Fragment,
    /// The input ends within the frame.
    Wait,
}

fn utf8(payload: &[u8]) -> Result<&str, ProtocolError> {
    std::str::from_utf8(payload).map_err(|_| ProtocolError::BadUtf8)
}

fn close_event(payload: &[u8]) -> Result<Event<'_>, ProtocolError> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok(Event::Close { code: None, reason: "" }),
            _ => Err(ProtocolError::BadCloseCode),
        };
    };
    let code = u16::from_be_bytes(*code);
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => {
            Ok(Event::Close { code: Some(code), reason: utf8(reason)? })
        }
        _ => Err(ProtocolError::BadCloseCode),
    }
}
