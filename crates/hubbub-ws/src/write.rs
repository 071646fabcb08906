//! Appends frames to a buffer. Every frame is final: messages are never fragmented.

use crate::frame::{CONTROL_BYTES_MAX, Opcode};
use crate::mask::apply_mask;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Appends the header of an unmasked frame.
pub fn frame_header(out: &mut Vec<u8>, opcode: Opcode, payload_bytes: usize) {
    header(out, opcode, payload_bytes, 0);
}

fn header(out: &mut Vec<u8>, opcode: Opcode, payload_bytes: usize, mask_bit: u8) {
    out.push(FIN | opcode as u8);
    if let Ok(short @ 0..=125) = u8::try_from(payload_bytes) {
        out.push(mask_bit | short);
    } else if let Ok(medium) = u16::try_from(payload_bytes) {
        out.push(mask_bit | 126);
        out.extend_from_slice(&medium.to_be_bytes());
    } else {
        out.push(mask_bit | 127);
        out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    }
}

/// Appends an unmasked text frame. The caller vouches that `text` is UTF-8.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    frame_header(out, Opcode::Text, text.len());
    out.extend_from_slice(text);
}

/// Appends an unmasked ping; a payload over 125 bytes is cut.
pub fn write_ping(out: &mut Vec<u8>, payload: &[u8]) {
    write_control(out, Opcode::Ping, payload);
}

/// Appends an unmasked pong; a payload over 125 bytes is cut.
pub fn write_pong(out: &mut Vec<u8>, payload: &[u8]) {
    write_control(out, Opcode::Pong, payload);
}

fn write_control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    let payload = payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload);
    frame_header(out, opcode, payload.len());
    out.extend_from_slice(payload);
}

/// Appends an unmasked close frame; a reason over 123 bytes is cut between characters.
pub fn write_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    let payload = close_payload(code, reason);
    write_control(out, Opcode::Close, &payload);
}

/// The payload of a close frame, for [`write_masked`]; a reason over 123 bytes is cut between characters.
pub fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    let reason = reason.get(..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)).unwrap_or_default();
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    payload
}

/// Appends a masked frame, as clients send them.
pub fn write_masked(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], key: [u8; 4]) {
    header(out, opcode, payload.len(), MASKED);
    out.extend_from_slice(&key);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(out.get_mut(start..).unwrap_or_default(), key, 0);
}

/// Room kept by [`begin_text`] for the header: the form for 126 to 65,535 bytes, which needs no move at the end.
const HEADER_ROOM: usize = 4;

/// Starts an unmasked text frame whose length is not known yet: append the text to `out`, then call [`end_text`]
/// with what this returned.
#[must_use]
pub fn begin_text(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_ROOM]);
    start
}

/// Finishes the frame that [`begin_text`] started at `start`.
pub fn end_text(out: &mut Vec<u8>, start: usize) {
    let payload_bytes = out.len().saturating_sub(start + HEADER_ROOM);
    let mut bytes = Vec::new();
    let place = out.get_mut(start..start + HEADER_ROOM);
    match (u16::try_from(payload_bytes), place) {
        (Ok(medium @ 126..), Some(place)) => {
            let [high, low] = medium.to_be_bytes();
            place.copy_from_slice(&[FIN | Opcode::Text as u8, 126, high, low]);
        }
        _ => {
            frame_header(&mut bytes, Opcode::Text, payload_bytes);
            out.splice(start..(start + HEADER_ROOM).min(out.len()), bytes);
        }
    }
}
