//! Section 6: UTF-8. What is valid is sent within a text of the dialect; what is not, as it is in the suite.

use super::Reply::{Echo, Malformed, Pong};
use super::{Case, Chop, fragments, ping, text};
use crate::harness::{Dialect, masked};

const BAD_UTF8: [u16; 1] = [1007];
const GREETING: &str = "Hello-µ@ßöäüàá-UTF-8!!";
/// "κόσμε", a surrogate, and ASCII.
const SURROGATE: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited";
/// "κόσμε", a character beyond U+10FFFF, and ASCII.
const OUT_OF_RANGE: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited";
const KOSME: &str = "κόσμε";

enum Sequence {
    Valid(&'static [u8]),
    Invalid(&'static [u8]),
}
use Sequence::{Invalid, Valid};

pub(super) fn cases(dialect: Dialect) -> Vec<Case> {
    let mut cases = vec![
        Case::new("6.1.1", Chop::Whole).round([text("")], [Malformed]).stays(),
        Case::new("6.1.2", Chop::Whole).round(fragments(0x01, [&b""[..]; 3]), [Malformed]).stays(),
        fragmented(dialect, "6.1.3", "middle frame payload", |sent| vec![b"", sent, b""]),
        fragmented(dialect, "6.2.1", GREETING, |sent| vec![sent]),
        fragmented(dialect, "6.2.2", GREETING, |sent| {
            let second = sent.windows(2).position(|two| two == "ü".as_bytes()).unwrap();
            vec![&sent[..second], &sent[second..]]
        }),
        fragmented(dialect, "6.2.3", GREETING, |sent| sent.chunks(1).collect()),
        fragmented(dialect, "6.2.4", KOSME, |sent| sent.chunks(1).collect()),
        Case::new("6.3.1", Chop::Whole).round([masked(0x81, SURROGATE)], []).ends(BAD_UTF8),
        Case::new("6.3.2", Chop::Whole).round(fragments(0x01, SURROGATE.chunks(1)), []).ends(BAD_UTF8),
        in_three_frames("6.4.1", 11, 15),
        in_three_frames("6.4.2", 12, 13),
        in_three_writes("6.4.3", 11, 15),
        in_three_writes("6.4.4", 12, 13),
    ];
    for (section, sequences) in SEQUENCES {
        for (number, sequence) in (1..).zip(*sequences) {
            let case = Case::new(format!("6.{section}.{number}"), Chop::Whole);
            cases.push(match sequence {
                Valid(bytes) => {
                    let sent = dialect.text(std::str::from_utf8(bytes).unwrap());
                    case.round([text(&sent)], [Echo(sent)]).stays()
                }
                Invalid(bytes) => case.round([masked(0x81, bytes)], []).ends(BAD_UTF8),
            });
        }
    }
    cases
}

fn fragmented(dialect: Dialect, number: &str, payload: &str, cut: impl Fn(&[u8]) -> Vec<&[u8]>) -> Case {
    let sent = dialect.text(payload);
    let frames = fragments(0x01, cut(sent.as_bytes()));
    Case::new(number, Chop::Whole).round(frames, [Echo(sent)]).stays()
}

/// Nothing is wrong with the first part; the second may be refused before the third comes.
fn in_three_frames(number: &str, second: usize, third: usize) -> Case {
    let parts = [&OUT_OF_RANGE[..second], &OUT_OF_RANGE[second..third], &OUT_OF_RANGE[third..]];
    let mut frames = fragments(0x01, parts);
    let rest = frames.split_off(1);
    frames.push(ping(b"A"));
    Case::new(number, Chop::Frames).round(frames, [Pong(b"A".to_vec())]).round(rest, []).ends(BAD_UTF8)
}

/// The same parts in one frame.
fn in_three_writes(number: &str, second: usize, third: usize) -> Case {
    let mut start = masked(0x81, OUT_OF_RANGE);
    let header = start.len() - OUT_OF_RANGE.len();
    let end = start.split_off(header + third);
    let middle = start.split_off(header + second);
    Case::new(number, Chop::Frames).round([start, middle, end], []).ends(BAD_UTF8)
}

const SEQUENCES: &[(u32, &[Sequence])] = &[
    // Some valid UTF-8 sequences.
    (5, &[
        Valid(b"hello$world"),
        Valid(b"hello\xc2\xa2world"),
        Valid(b"hello\xe2\x82\xacworld"),
        Valid(b"hello\xf0\xa4\xad\xa2world"),
        Valid(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"),
    ]),
    // All prefixes of a string with characters of several bytes.
    (6, &[
        Invalid(b"\xce"),
        Valid(b"\xce\xba"),
        Invalid(b"\xce\xba\xe1"),
        Invalid(b"\xce\xba\xe1\xbd"),
        Valid(b"\xce\xba\xe1\xbd\xb9"),
        Invalid(b"\xce\xba\xe1\xbd\xb9\xcf"),
        Valid(b"\xce\xba\xe1\xbd\xb9\xcf\x83"),
        Invalid(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce"),
        Valid(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc"),
        Invalid(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce"),
        Valid(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"),
    ]),
    // First possible sequence of a length.
    (7, &[
        Valid(b"\x00"),
        Valid(b"\xc2\x80"),
        Valid(b"\xe0\xa0\x80"),
        Valid(b"\xf0\x90\x80\x80"),
    ]),
    // First possible sequence of length 5 and 6.
    (8, &[
        Invalid(b"\xf8\x88\x80\x80\x80"),
        Invalid(b"\xfc\x84\x80\x80\x80\x80"),
    ]),
    // Last possible sequence of a length.
    (9, &[
        Valid(b"\x7f"),
        Valid(b"\xdf\xbf"),
        Valid(b"\xef\xbf\xbf"),
        Valid(b"\xf4\x8f\xbf\xbf"),
    ]),
    // Last possible sequence of length 4, 5 and 6.
    (10, &[
        Invalid(b"\xf7\xbf\xbf\xbf"),
        Invalid(b"\xfb\xbf\xbf\xbf\xbf"),
        Invalid(b"\xfd\xbf\xbf\xbf\xbf\xbf"),
    ]),
    // Other boundaries.
    (11, &[
        Valid(b"\xed\x9f\xbf"),
        Valid(b"\xee\x80\x80"),
        Valid(b"\xef\xbf\xbd"),
        Valid(b"\xf4\x8f\xbf\xbf"),
        Invalid(b"\xf4\x90\x80\x80"),
    ]),
    // Unexpected continuation bytes.
    (12, &[
        Invalid(b"\x80"),
        Invalid(b"\xbf"),
        Invalid(b"\x80\xbf"),
        Invalid(b"\x80\xbf\x80"),
        Invalid(b"\x80\xbf\x80\xbf"),
        Invalid(b"\x80\xbf\x80\xbf\x80"),
        Invalid(b"\x80\xbf\x80\xbf\x80\xbf"),
        Invalid(b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe"),
    ]),
    // Lonely start bytes.
    (13, &[
        Invalid(b"\xc0 \xc1 \xc2 \xc3 \xc4 \xc5 \xc6 \xc7 \xc8 \xc9 \xca \xcb \xcc \xcd \xce \xcf \xd0 \xd1 \xd2 \xd3 \xd4 \xd5 \xd6 \xd7 \xd8 \xd9 \xda \xdb \xdc \xdd \xde "),
        Invalid(b"\xe0 \xe1 \xe2 \xe3 \xe4 \xe5 \xe6 \xe7 \xe8 \xe9 \xea \xeb \xec \xed \xee "),
        Invalid(b"\xf0 \xf1 \xf2 \xf3 \xf4 \xf5 \xf6 "),
        Invalid(b"\xf8 \xf9 \xfa "),
        Invalid(b"\xfc "),
    ]),
    // The last continuation byte is missing.
    (14, &[
        Invalid(b"\xc0"),
        Invalid(b"\xe0\x80"),
        Invalid(b"\xf0\x80\x80"),
        Invalid(b"\xf8\x80\x80\x80"),
        Invalid(b"\xfc\x80\x80\x80\x80"),
        Invalid(b"\xdf"),
        Invalid(b"\xef\xbf"),
        Invalid(b"\xf7\xbf\xbf"),
        Invalid(b"\xfb\xbf\xbf\xbf"),
        Invalid(b"\xfd\xbf\xbf\xbf\xbf"),
    ]),
    // Incomplete sequences one after the other.
    (15, &[
        Invalid(b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf"),
    ]),
    // Impossible bytes.
    (16, &[
        Invalid(b"\xfe"),
        Invalid(b"\xff"),
        Invalid(b"\xfe\xfe\xff\xff"),
    ]),
    // Overlong ASCII.
    (17, &[
        Invalid(b"\xc0\xaf"),
        Invalid(b"\xe0\x80\xaf"),
        Invalid(b"\xf0\x80\x80\xaf"),
        Invalid(b"\xf8\x80\x80\x80\xaf"),
        Invalid(b"\xfc\x80\x80\x80\x80\xaf"),
    ]),
    // Longest overlong sequences.
    (18, &[
        Invalid(b"\xc1\xbf"),
        Invalid(b"\xe0\x9f\xbf"),
        Invalid(b"\xf0\x8f\xbf\xbf"),
        Invalid(b"\xf8\x87\xbf\xbf\xbf"),
        Invalid(b"\xfc\x83\xbf\xbf\xbf\xbf"),
    ]),
    // Overlong NUL.
    (19, &[
        Invalid(b"\xc0\x80"),
        Invalid(b"\xe0\x80\x80"),
        Invalid(b"\xf0\x80\x80\x80"),
        Invalid(b"\xf8\x80\x80\x80\x80"),
        Invalid(b"\xfc\x80\x80\x80\x80\x80"),
    ]),
    // Single UTF-16 surrogates.
    (20, &[
        Invalid(b"\xed\xa0\x80"),
        Invalid(b"\xed\xad\xbf"),
        Invalid(b"\xed\xae\x80"),
        Invalid(b"\xed\xaf\xbf"),
        Invalid(b"\xed\xb0\x80"),
        Invalid(b"\xed\xbe\x80"),
        Invalid(b"\xed\xbf\xbf"),
    ]),
    // Paired UTF-16 surrogates.
    (21, &[
        Invalid(b"\xed\xa0\x80\xed\xb0\x80"),
        Invalid(b"\xed\xa0\x80\xed\xbf\xbf"),
        Invalid(b"\xed\xad\xbf\xed\xb0\x80"),
        Invalid(b"\xed\xad\xbf\xed\xbf\xbf"),
        Invalid(b"\xed\xae\x80\xed\xb0\x80"),
        Invalid(b"\xed\xae\x80\xed\xbf\xbf"),
        Invalid(b"\xed\xaf\xbf\xed\xb0\x80"),
        Invalid(b"\xed\xaf\xbf\xed\xbf\xbf"),
    ]),
    // Noncharacters, which are valid.
    (22, &[
        Valid(b"\xef\xbf\xbe"),
        Valid(b"\xef\xbf\xbf"),
        Valid(b"\xf0\x9f\xbf\xbe"),
        Valid(b"\xf0\x9f\xbf\xbf"),
        Valid(b"\xf0\xaf\xbf\xbe"),
        Valid(b"\xf0\xaf\xbf\xbf"),
        Valid(b"\xf0\xbf\xbf\xbe"),
        Valid(b"\xf0\xbf\xbf\xbf"),
        Valid(b"\xf1\x8f\xbf\xbe"),
        Valid(b"\xf1\x8f\xbf\xbf"),
        Valid(b"\xf1\x9f\xbf\xbe"),
        Valid(b"\xf1\x9f\xbf\xbf"),
        Valid(b"\xf1\xaf\xbf\xbe"),
        Valid(b"\xf1\xaf\xbf\xbf"),
        Valid(b"\xf1\xbf\xbf\xbe"),
        Valid(b"\xf1\xbf\xbf\xbf"),
        Valid(b"\xf2\x8f\xbf\xbe"),
        Valid(b"\xf2\x8f\xbf\xbf"),
        Valid(b"\xf2\x9f\xbf\xbe"),
        Valid(b"\xf2\x9f\xbf\xbf"),
        Valid(b"\xf2\xaf\xbf\xbe"),
        Valid(b"\xf2\xaf\xbf\xbf"),
        Valid(b"\xf2\xbf\xbf\xbe"),
        Valid(b"\xf2\xbf\xbf\xbf"),
        Valid(b"\xf3\x8f\xbf\xbe"),
        Valid(b"\xf3\x8f\xbf\xbf"),
        Valid(b"\xf3\x9f\xbf\xbe"),
        Valid(b"\xf3\x9f\xbf\xbf"),
        Valid(b"\xf3\xaf\xbf\xbe"),
        Valid(b"\xf3\xaf\xbf\xbf"),
        Valid(b"\xf3\xbf\xbf\xbe"),
        Valid(b"\xf3\xbf\xbf\xbf"),
        Valid(b"\xf4\x8f\xbf\xbe"),
        Valid(b"\xf4\x8f\xbf\xbf"),
    ]),
    // Specials, such as the replacement character.
    (23, &[
        Valid(b"\xef\xbf\xb9"),
        Valid(b"\xef\xbf\xba"),
        Valid(b"\xef\xbf\xbb"),
        Valid(b"\xef\xbf\xbc"),
        Valid(b"\xef\xbf\xbd"),
        Valid(b"\xef\xbf\xbe"),
        Valid(b"\xef\xbf\xbf"),
    ]),
];
