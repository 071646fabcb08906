//! Commands of the line protocol: the same bytes are the same commands, wherever reads cut them.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unreachable_pub, reason = "the server's own files, of which this uses a part")]
#[path = "."]
mod line {
    #[path = "../../crates/hubbub-gateway/src/line/arguments.rs"]
    mod arguments;
    #[path = "../../crates/hubbub-gateway/src/line/parse.rs"]
    mod parse;

    /// The commands of `input`, read in pieces of `step` bytes.
    pub fn commands(input: &[u8], step: usize) -> Vec<String> {
        let (mut parser, mut kept, mut all) = (parse::Parser::default(), Vec::new(), Vec::new());
        for piece in input.chunks(step.max(1)) {
            kept.extend_from_slice(piece);
            let mut rest = &kept[..];
            loop {
                let (used, command) = parser.next(rest);
                rest = &rest[used..];
                let Some(command) = command else { break };
                all.push(format!("{command:?}"));
            }
            kept = rest.to_vec();
            assert!(kept.len() <= parse::LINE_BYTES_MAX + step, "{} bytes are kept", kept.len());
        }
        all
    }
}

fuzz_target!(|input: &[u8]| {
    let [step, input @ ..] = input else { return };
    assert_eq!(line::commands(input, input.len()), line::commands(input, usize::from(*step)));
});
