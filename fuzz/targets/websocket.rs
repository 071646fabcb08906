//! Frames of WebSockets: the same bytes are the same events, wherever reads cut them, for both sides.

#![no_main]

use hubbub_ws::{Event, Reader, Role};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: usize = 4_096;

fn events(role: Role, input: &[u8], step: usize) -> (Vec<String>, usize) {
    let mut reader = Reader::new(role, MESSAGE_BYTES_MAX);
    let (mut all, mut held_max) = (Vec::new(), 0);
    for piece in input.chunks(step.max(1)) {
        let mut piece = piece.to_vec();
        let mut frames = reader.feed(&mut piece);
        loop {
            match frames.next() {
                Ok(Some(event)) => {
                    let is_last = matches!(event, Event::Close { .. });
                    all.push(format!("{event:?}"));
                    if is_last {
                        return (all, held_max);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    all.push(error.to_string());
                    return (all, held_max);
                }
            }
        }
        held_max = held_max.max(reader.held_bytes());
    }
    (all, held_max)
}

fuzz_target!(|input: &[u8]| {
    let [step, input @ ..] = input else { return };
    for role in [Role::Server, Role::Client] {
        let (whole, _) = events(role, input, input.len());
        let (cut, held_max) = events(role, input, usize::from(*step));
        assert_eq!(whole, cut);
        assert!(held_max <= MESSAGE_BYTES_MAX + 256, "{held_max} bytes are held");
    }
});
