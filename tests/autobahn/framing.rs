//! Sections 1 to 5: framing, pings and pongs, reserved bits, opcodes, fragmentation.

use super::Reply::{Echo, Pong};
use super::{BINARY_REFUSED, Case, Chop, binary, fragments, halves, ping, text};
use crate::harness::{Dialect, masked};

const NOT_TEXT: &[u8] = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
const PROTOCOL_ERROR: [u16; 1] = [1002];

pub(super) fn cases(dialect: Dialect) -> Vec<Case> {
    let mut cases = sizes(dialect);
    cases.extend(pings());
    cases.extend(reserved_bits(dialect));
    cases.extend(opcodes(dialect));
    cases.extend(fragmentation(dialect));
    cases
}

fn sizes(dialect: Dialect) -> Vec<Case> {
    let mut cases = vec![
        Case::new("1.1.1", Chop::Whole).round([text("")], [super::Reply::Malformed]).stays(),
        Case::new("1.2.1", Chop::Whole).round([binary(b"")], []).ends([BINARY_REFUSED]),
    ];
    let sizes = [125, 126, 127, 128, 65_535, 65_536, 65_536];
    for (number, bytes) in (2..).zip(sizes) {
        let chop = if number == 8 { Chop::Octets(997) } else { Chop::Whole };
        let sent = dialect.text_of("*", bytes);
        assert_eq!(sent.len(), bytes);
        cases.push(Case::new(format!("1.1.{number}"), chop).round([text(&sent)], [Echo(sent)]).stays());
        let sent = binary(&vec![0xFE; bytes]);
        cases.push(Case::new(format!("1.2.{number}"), chop).round([sent], []).ends([BINARY_REFUSED]));
    }
    cases
}

fn pings() -> Vec<Case> {
    let answered = |number, chop, payload: &[u8]| {
        Case::new(number, chop).round([ping(payload)], [Pong(payload.to_vec())]).stays()
    };
    let unasked = |payload| masked(0x8A, payload);
    let ten: Vec<_> = (0..10).map(|number| format!("payload-{number}").into_bytes()).collect();
    let ten = |number, chop| {
        let pongs: Vec<_> = ten.iter().cloned().map(Pong).collect();
        Case::new(number, chop).round(ten.iter().map(|one| ping(one)).collect::<Vec<_>>(), pongs).stays()
    };
    vec![
        answered("2.1", Chop::Whole, b""),
        answered("2.2", Chop::Whole, b"Hello, world!"),
        answered("2.3", Chop::Whole, NOT_TEXT),
        answered("2.4", Chop::Whole, &[0xFE; 125]),
        Case::new("2.5", Chop::Whole).round([ping(&[0xFE; 126])], []).ends(PROTOCOL_ERROR),
        answered("2.6", Chop::Octets(1), &[0xFE; 125]),
        Case::new("2.7", Chop::Whole).round([unasked(b"")], []).stays(),
        Case::new("2.8", Chop::Whole).round([unasked(b"unsolicited pong payload")], []).stays(),
        Case::new("2.9", Chop::Whole)
            .round(
                [unasked(b"unsolicited pong payload"), ping(b"ping payload")],
                [Pong(b"ping payload".to_vec())],
            )
            .stays(),
        ten("2.10", Chop::Whole),
        ten("2.11", Chop::Octets(1)),
    ]
}

/// A good text, a bad frame, and a ping that is not answered any more.
fn bad_in_between(dialect: Dialect, number: &str, chop: Chop, bad: Vec<u8>) -> Case {
    let good = dialect.text("Hello, world!");
    Case::new(number, chop).round([text(&good), bad, ping(b"")], [Echo(good)]).ends(PROTOCOL_ERROR)
}

fn bad(number: &str, chop: Chop, frames: impl Into<Vec<Vec<u8>>>) -> Case {
    Case::new(number, chop).round(frames, []).ends(PROTOCOL_ERROR)
}

fn reserved_bits(dialect: Dialect) -> Vec<Case> {
    let hello = dialect.text("Hello, world!");
    let reserved = |rsv: u8| masked(0x81 | rsv << 4, hello.as_bytes());
    vec![
        bad("3.1", Chop::Whole, [reserved(1)]),
        bad_in_between(dialect, "3.2", Chop::Whole, reserved(2)),
        bad_in_between(dialect, "3.3", Chop::Frames, reserved(3)),
        bad_in_between(dialect, "3.4", Chop::Octets(1), reserved(4)),
        bad("3.5", Chop::Whole, [masked(0xD2, NOT_TEXT)]),
        bad("3.6", Chop::Whole, [masked(0xE2, b"Hello, world!")]),
        bad("3.7", Chop::Whole, [masked(0xF8, b"")]),
    ]
}

fn opcodes(dialect: Dialect) -> Vec<Case> {
    let hello = b"Hello, world!";
    vec![
        bad("4.1.1", Chop::Whole, [masked(0x83, b"")]),
        bad("4.1.2", Chop::Whole, [masked(0x84, b"reserved opcode payload")]),
        bad_in_between(dialect, "4.1.3", Chop::Whole, masked(0x85, b"")),
        bad_in_between(dialect, "4.1.4", Chop::Whole, masked(0x86, hello)),
        bad_in_between(dialect, "4.1.5", Chop::Octets(1), masked(0x87, hello)),
        bad("4.2.1", Chop::Whole, [masked(0x8B, b"")]),
        bad("4.2.2", Chop::Whole, [masked(0x8C, b"reserved opcode payload")]),
        bad_in_between(dialect, "4.2.3", Chop::Whole, masked(0x8D, b"")),
        bad_in_between(dialect, "4.2.4", Chop::Whole, masked(0x8E, hello)),
        bad_in_between(dialect, "4.2.5", Chop::Octets(1), masked(0x8F, hello)),
    ]
}

fn fragmentation(dialect: Dialect) -> Vec<Case> {
    let chops = [Chop::Whole, Chop::Frames, Chop::Octets(1)];
    let both = dialect.text("fragment1fragment2");
    let [first, second] = halves(&both);
    let hello = text(&dialect.text("Hello, world!"));
    let mut cases = vec![
        bad("5.1", Chop::Whole, [masked(0x09, b"fragment1"), masked(0x80, b"fragment2")]),
        bad("5.2", Chop::Whole, [masked(0x0A, b"fragment1"), masked(0x80, b"fragment2")]),
        Case::new("5.15", Chop::Whole)
            .round(
                [first.clone(), second.clone(), masked(0x00, b"fragment3"), masked(0x81, b"fragment4")],
                [Echo(both.clone())],
            )
            .ends(PROTOCOL_ERROR),
        bad("5.18", Chop::Whole, [masked(0x01, b"fragment1"), masked(0x81, b"fragment2")]),
    ];
    for (number, chop) in (0..).zip(chops) {
        let named = |first: u32| format!("5.{}", first + number);
        let with_ping = [first.clone(), ping(b"ping payload"), second.clone()];
        let continuation = |fin: u8| masked(fin, b"non-continuation payload");
        cases.extend([
            Case::new(named(3), chop).round([first.clone(), second.clone()], [Echo(both.clone())]).stays(),
            Case::new(named(6), chop)
                .round(with_ping, [Pong(b"ping payload".to_vec()), Echo(both.clone())])
                .stays(),
            bad(&named(9), chop, [continuation(0x80), hello.clone()]),
            bad(&named(12), chop, [continuation(0x00), hello.clone()]),
        ]);
    }
    for (number, fin) in [("5.16", 0x00), ("5.17", 0x80)] {
        let thrice = [masked(fin, b"fragment1"), masked(0x01, b"fragment2"), masked(0x80, b"fragment3")];
        cases.push(bad(number, Chop::Whole, [thrice.clone(), thrice].concat()));
    }
    cases.extend([
        five_fragments(dialect, "5.19", Chop::Whole),
        five_fragments(dialect, "5.20", Chop::Octets(1)),
    ]);
    cases
}

/// The first ping is answered before the rest of the message is sent.
fn five_fragments(dialect: Dialect, number: &str, chop: Chop) -> Case {
    let sent = dialect.text("fragment1fragment2fragment3fragment4fragment5");
    let mut frames = fragments(0x01, sent.as_bytes().chunks(sent.len().div_ceil(5)));
    assert_eq!(frames.len(), 5);
    let mut rest = frames.split_off(2);
    frames.push(ping(b"pongme 1!"));
    rest.insert(2, ping(b"pongme 2!"));
    Case::new(number, chop)
        .round(frames, [Pong(b"pongme 1!".to_vec())])
        .round(rest, [Pong(b"pongme 2!".to_vec()), Echo(sent)])
        .stays()
}
