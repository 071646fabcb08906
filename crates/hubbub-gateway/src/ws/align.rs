//! Keeps replies of `/chat/{room}` from crossing a multiple of 16,384 bytes of the connection's stream (a mark).
//!
//! A widespread client, the WebSocket of the JDK, reads through a buffer of that size. It passes a text that crosses the
//! buffer's end to the program in two parts, and many programs take each part for a reply. So when the next reply could
//! cross the mark, the present one is padded up to it with spaces behind its JSON. A reply that is longer than expected
//! and would still cross is preceded by unsolicited pongs up to the mark (RFC 6455 §5.5.3).

use hubbub_core::invariant::saturate;

const BLOCK_BYTES: usize = 16 * 1024;
/// The next reply is expected to be at most this much longer than the present one.
const SLACK_BYTES: usize = 64;
/// First byte of a final text frame, and of a pong.
const TEXT: u8 = 0x81;
const PONG: u8 = 0x8a;
/// Longest payload of a frame with a header of two bytes.
const SHORT_MAX: usize = 125;

/// Aligns the reply in `out` from `start` on, which is one whole frame. `out` begins at `out_begins_at` in the stream.
/// A reply longer than a block stays as it is.
pub(super) fn align(out_begins_at: u64, mut start: usize, out: &mut Vec<u8>) {
    let bytes = out.len() - start;
    if bytes > BLOCK_BYTES {
        return;
    }
    let mut left = left_of_block(out_begins_at, start);
    if bytes > left {
        let pongs = pongs(left);
        start += pongs.len();
        out.splice(start - pongs.len()..start - pongs.len(), pongs);
        left = left_of_block(out_begins_at, start);
    }
    let rest = left - bytes;
    if rest > 0 && rest < bytes + SLACK_BYTES {
        fill(start, left, out);
    }
}

/// Bytes from a position in `out` to the next mark, 1 at least.
fn left_of_block(out_begins_at: u64, position: usize) -> usize {
    let in_block = (out_begins_at + position as u64) % BLOCK_BYTES as u64;
    BLOCK_BYTES - saturate::<u64, usize>(in_block)
}

/// Pongs of `bytes` in total, or of one more where no pong is so short.
fn pongs(bytes: usize) -> Vec<u8> {
    let mut pongs = Vec::with_capacity(bytes + 1);
    while pongs.len() < bytes {
        let payload = match bytes - pongs.len() {
            0..=2 => 0,
            // A single byte must not remain.
            left if left == SHORT_MAX + 3 => SHORT_MAX - 1,
            left => (left - 2).min(SHORT_MAX),
        };
        pongs.extend([PONG, saturate(payload)]);
        pongs.resize(pongs.len() + payload, 0);
    }
    pongs
}

/// Pads the frame at `start` with spaces to `bytes`, or to one or two fewer where no frame has that size.
fn fill(start: usize, bytes: usize, out: &mut Vec<u8>) {
    let is_short = out.get(start + 1).is_some_and(|length| usize::from(*length) <= SHORT_MAX);
    let (old_header, header) = (if is_short { 2 } else { 4 }, if bytes < SHORT_MAX + 5 { 2 } else { 4 });
    let payload = if header == 2 { (bytes - 2).min(SHORT_MAX) } else { bytes - 4 };
    let [high, low] = saturate::<usize, u16>(payload).to_be_bytes();
    let new: &[u8] = if header == 2 { &[TEXT, low] } else { &[TEXT, 126, high, low] };
    out.splice(start..start + old_header, new.iter().copied());
    out.resize(start + header + payload, b' ');
}

#[cfg(test)]
mod tests {
    use hubbub_ws::{Event, Reader, Role, write};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_reply_crosses_a_mark(
            begins_at in 0..40_000_u64,
            lengths in proptest::collection::vec((2..400_usize, 0..8_u8), 1..400),
            cuts in 1..50_usize,
        ) {
            let (mut out, mut out_begins_at, mut stream, mut texts) = (Vec::new(), begins_at, Vec::new(), 0);
            for (index, (length, kind)) in lengths.iter().enumerate() {
                match kind {
                    0 => write::write_pong(&mut out, &vec![1; length % 126]),
                    1 => { align_one(length * 40, out_begins_at, &mut out); texts += 1 }
                    _ => { align_one(*length, out_begins_at, &mut out); texts += 1 }
                }
                if index % cuts == 0 {
                    out_begins_at += out.len() as u64;
                    stream.append(&mut out);
                }
            }
            stream.append(&mut out);
            prop_assert_eq!(check(begins_at, &stream), texts);
        }
    }

    fn align_one(length: usize, out_begins_at: u64, out: &mut Vec<u8>) {
        let start = out.len();
        write::write_text(out, &vec![b'x'; length]);
        align(out_begins_at, start, out);
    }

    /// How many texts there are; none crosses a mark unless it is larger than a block.
    fn check(begins_at: u64, stream: &[u8]) -> usize {
        let (mut at, mut texts) = (0, 0);
        while at < stream.len() {
            let (header, payload) = match stream[at + 1] {
                126 => (4, usize::from(u16::from_be_bytes([stream[at + 2], stream[at + 3]]))),
                length => (2, usize::from(length)),
            };
            let end = at + header + payload;
            if stream[at] == TEXT {
                texts += 1;
                let text = std::str::from_utf8(&stream[at + header..end]).unwrap();
                assert!(text.trim_end_matches(' ').bytes().all(|byte| byte == b'x'));
                let block = |place: usize| (begins_at + place as u64) / BLOCK_BYTES as u64;
                assert!(end - at > BLOCK_BYTES || block(at) == block(end - 1), "{at} to {end}");
            }
            at = end;
        }
        let mut reader = Reader::new(Role::Client, 1 << 20);
        let mut bytes = stream.to_vec();
        let mut frames = reader.feed(&mut bytes);
        let mut read = 0;
        while let Some(event) = frames.next().unwrap() {
            read += usize::from(matches!(event, Event::Text(_)));
        }
        assert_eq!(read, texts);
        texts
    }
}
