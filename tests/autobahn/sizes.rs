//! Sections 9 and 10: large messages, many fragments, chopped writes.

use super::Reply::Echo;
use super::{BINARY_REFUSED, Case, Chop, fragments};
use crate::harness::Dialect;

/// Lets messages of up to 6 MiB and 4 KiB through.
pub(super) const LIMITS: [&str; 2] = ["limits.message_bytes=1MiB", "store.embedded.journal_slot=4MiB"];
const FRAME_BYTES_MAX: usize = 6 * MIB + 4 * KIB;
const TOO_BIG: u16 = 1009;
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

const SIZES: [usize; 6] = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB];
const FRAGMENTS: [usize; 9] = [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];
const CHOPS: [usize; 6] = [64, 128, 256, 512, 1024, 2048];

/// One after the other, so that not all of them are in memory.
pub(super) fn cases(dialect: Dialect) -> impl Iterator<Item = Case> {
    let whole = (1..).zip(SIZES).flat_map(move |(number, bytes)| {
        let named = |kind: u32| format!("9.{kind}.{number}");
        [
            large_text(dialect, named(1), bytes, bytes, Chop::Whole),
            large_binary(named(2), bytes, bytes, Chop::Whole),
        ]
    });
    let fragmented = (1..).zip(FRAGMENTS).flat_map(move |(number, fragment)| {
        let named = |kind: u32| format!("9.{kind}.{number}");
        [
            large_text(dialect, named(3), 4 * MIB, fragment, Chop::Whole),
            large_binary(named(4), 4 * MIB, fragment, Chop::Whole),
        ]
    });
    let chopped = (1..).zip(CHOPS).flat_map(move |(number, chop)| {
        let (named, chop) = (|kind: u32| format!("9.{kind}.{number}"), Chop::Octets(chop));
        [large_text(dialect, named(5), MIB, MIB, chop), large_binary(named(6), MIB, MIB, chop)]
    });
    let fragmented_by_itself = large_text(dialect, "10.1.1".to_owned(), 65_536, 1300, Chop::Whole);
    whole.chain(fragmented).chain(chopped).chain([fragmented_by_itself])
}

fn large_text(dialect: Dialect, number: String, bytes: usize, fragment: usize, chop: Chop) -> Case {
    let sent = dialect.text_of("BAsd7&jh23", bytes);
    let frames = fragments(0x01, sent.as_bytes().chunks(fragment));
    let case = Case::new(number, chop);
    if bytes > FRAME_BYTES_MAX {
        return case.round(frames, []).ends([TOO_BIG]);
    }
    case.round(frames, [Echo(sent)]).stays()
}

fn large_binary(number: String, bytes: usize, fragment: usize, chop: Chop) -> Case {
    let frames = fragments(0x02, vec![0xFE; bytes].chunks(fragment));
    // Its size does not matter: its first header says that it is binary.
    Case::new(number, chop).round(frames, []).ends([BINARY_REFUSED])
}
