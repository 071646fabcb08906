//! Section 7: closing.

use super::Reply::Echo;
use super::{Case, Chop, close, halves, ping, text};
use crate::harness::Dialect;

const NORMAL: [u16; 1] = [1000];
const PROTOCOL_ERROR: [u16; 1] = [1002];
/// UTF-8 but for a surrogate in it.
const BAD_REASON: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited";

/// The server's answer to `frames`, of which one is a close frame.
fn closing(number: &str, frames: impl Into<Vec<Vec<u8>>>, codes: impl Into<Vec<u16>>) -> Case {
    Case::new(number, Chop::Whole).round(frames, []).ends(codes)
}

pub(super) fn cases(dialect: Dialect) -> Vec<Case> {
    let hello = dialect.text("Hello World!");
    let long = dialect.text_of("BAsd7&jh23", 256 * 1024);
    let [first, second] = halves(&hello);
    let normal = || close(Some(1000), b"");
    let mut cases = vec![
        Case::new("7.1.1", Chop::Whole).round([text(&hello)], [Echo(hello.clone())]).stays(),
        closing("7.1.2", [normal(), close(None, b"")], NORMAL),
        closing("7.1.3", [normal(), ping(b"")], NORMAL),
        closing("7.1.4", [normal(), text(&hello)], NORMAL),
        closing("7.1.5", [first, normal(), second], NORMAL),
        // What came before the close frame is answered before it.
        Case::new("7.1.6", Chop::Whole)
            .round([text(&long), text(&hello), normal(), ping(b"")], [Echo(long), Echo(hello)])
            .ends(NORMAL),
        closing("7.3.1", [close(None, b"")], NORMAL),
        closing("7.3.2", [close(None, b"a")], PROTOCOL_ERROR),
        closing("7.3.3", [normal()], NORMAL),
        closing("7.3.4", [close(Some(1000), b"Hello World!")], NORMAL),
        closing("7.3.5", [close(Some(1000), &[b'*'; 123])], NORMAL),
        closing("7.3.6", [close(Some(1000), &[b'*'; 124])], PROTOCOL_ERROR),
        closing("7.5.1", [close(Some(1000), BAD_REASON)], [1002, 1007]),
        // RFC 6455 says nothing of these two.
        closing("7.13.1", [close(Some(5000), b"")], PROTOCOL_ERROR),
        closing("7.13.2", [close(Some(65_535), b"")], PROTOCOL_ERROR),
    ];
    let valid = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];
    for (number, code) in (1..).zip(valid) {
        cases.push(closing(&format!("7.7.{number}"), [close(Some(code), b"")], [code]));
    }
    let invalid = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999];
    for (number, code) in (1..).zip(invalid) {
        cases.push(closing(&format!("7.9.{number}"), [close(Some(code), b"")], PROTOCOL_ERROR));
    }
    cases
}
