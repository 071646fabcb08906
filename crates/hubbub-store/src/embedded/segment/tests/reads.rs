//! Every way to read gives what a search through the whole list gives.

use std::collections::BTreeMap;

use proptest::prelude::*;

use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{MessageRun, MessageType, Timestamp};

use super::{Owned, TestDirectory, examples, scan_all};
use crate::embedded::error::DoingOn;
use crate::embedded::file::{SortedFileWriter, write_sorted};
use crate::embedded::rooms::Hidden;
use crate::embedded::segment::{Codec, MergeError, ReadEnd, Segment, merge};

fn query(cursor: Cursor) -> HistoryQuery {
    HistoryQuery { cursor, from: None, to: None, limit: usize::MAX, bytes_max: usize::MAX }
}

fn read(segment: &Segment, room: &str, query: &HistoryQuery) -> (Vec<Owned>, ReadEnd) {
    let mut run = MessageRun::default();
    let end =
        segment.read_room(room, query, &Hidden { head: u64::MAX, ..Hidden::default() }, &mut run).unwrap();
    (run.iter().map(|message| Owned::of(&message)).collect(), end)
}

fn read_model(messages: &[Owned], room: &str, query: &HistoryQuery) -> (Vec<Owned>, ReadEnd) {
    let wanted = |message: &&Owned| {
        let in_cursor = match query.cursor {
            Cursor::After(seq) => message.seq > seq,
            Cursor::Before(seq) => message.seq < seq,
        };
        in_cursor
            && message.room == room
            && query.from.is_none_or(|from| message.received >= from.as_micros())
            && query.to.is_none_or(|to| message.received < to.as_micros())
    };
    let mut found: Vec<&Owned> = messages.iter().filter(wanted).collect();
    if matches!(query.cursor, Cursor::Before(_)) {
        found.reverse();
    }
    let (mut page, mut bytes) = (Vec::new(), 0);
    for message in found {
        bytes += message.text.len();
        if page.len() >= query.limit || (!page.is_empty() && bytes > query.bytes_max) {
            return (page, ReadEnd::Full);
        }
        page.push(message.clone());
    }
    (page, ReadEnd::Exhausted)
}

fn check_ids(segment: &Segment, messages: &[Owned]) {
    for message in messages {
        let mut found = None;
        let hit = segment.find_id(message.hash(), |candidate| {
            found = (candidate.sent.id == message.id && candidate.sent.room == message.room)
                .then(|| Owned::of(candidate));
            found.is_some()
        });
        assert!(hit.unwrap());
        assert_eq!(found.as_ref(), Some(message));
    }
    assert!(!segment.find_id(0, |_| true).unwrap());
    assert!(!segment.find_id(u64::MAX, |_| true).unwrap());
    let mut hashes = Vec::new();
    segment.id_hashes(|some| hashes.extend_from_slice(some)).unwrap();
    let mut expected: Vec<u64> = messages.iter().map(Owned::hash).collect();
    expected.sort_unstable();
    assert_eq!(hashes, expected);
}

fn check_spans(segment: &Segment, messages: &[Owned]) {
    let mut by_room: BTreeMap<&str, Vec<&Owned>> = BTreeMap::new();
    messages.iter().for_each(|message| by_room.entry(&message.room).or_default().push(message));
    assert_eq!(
        segment.rooms().map(|(room, _)| room).collect::<Vec<_>>(),
        by_room.keys().copied().collect::<Vec<_>>()
    );
    for (room, its) in &by_room {
        let span = segment.room(room).unwrap();
        assert_eq!(
            (span.first_seq, span.last_seq, u64::from(span.count)),
            (its[0].seq, its[its.len() - 1].seq, its.len() as u64)
        );
        let times = (span.first_received, span.last_received);
        assert_eq!(times, (its[0].received, its[its.len() - 1].received));
    }
    let times = messages.iter().map(|message| Timestamp::from_micros(message.received));
    assert_eq!(segment.times(), times.clone().min().zip(times.max()));
    assert!(segment.room("nobody").is_none());
}

fn messages() -> impl Strategy<Value = Vec<Owned>> {
    let id =
        prop_oneof!["[a-zA-Z0-9_.:@-]{1,64}", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"];
    let text = prop_oneof![3 => "\\PC{0,60}", 3 => "[ab]{300,900}", 1 => "[a-z ]{2000,9000}"];
    let one = (
        ("[a-c]{1,2}", 1_u64..5, 0_i64..3, any::<i64>()),
        ("[a-z0-9]{1,9}", id, proptest::option::of("\\PC{0,9}"), text, 0_u8..3),
    );
    proptest::collection::vec(one, 0..120).prop_map(|drawn| {
        let mut heads: BTreeMap<String, (u64, i64)> = BTreeMap::new();
        let mut all: Vec<Owned> = Vec::new();
        for ((room, step, wait, timestamp), (user, id, username, text, kind)) in drawn {
            let head = heads.entry(room.clone()).or_insert((0, 1_000));
            *head = (head.0 + step, head.1 + wait);
            let (seq, received) = *head;
            let timestamp = Timestamp::from_micros(timestamp).as_micros();
            let kind = MessageType::from_u8(kind).unwrap();
            if all.iter().any(|m| m.room == room && m.id == id) {
                continue; // an id is in a room once
            }
            all.push(Owned { room, seq, received, timestamp, user, id, username, text, kind });
        }
        all.sort_by(|a, b| (&a.room, a.seq).cmp(&(&b.room, b.seq)));
        all
    })
}

fn queries() -> impl Strategy<Value = (String, HistoryQuery)> {
    let cursor = prop_oneof![
        (0_u64..99).prop_map(Cursor::After),
        (0_u64..99).prop_map(Cursor::Before),
        Just(Cursor::After(0)),
        Just(Cursor::Before(u64::MAX)),
    ];
    let time = || proptest::option::of((990_i64..1_060).prop_map(Timestamp::from_micros));
    let limit = prop_oneof![1_usize..9, Just(usize::MAX)];
    let bytes_max = prop_oneof![0_usize..9_000, Just(usize::MAX)];
    ("[a-c]{1,2}", cursor, time(), time(), limit, bytes_max).prop_map(
        |(room, cursor, from, to, limit, bytes_max)| {
            (room, HistoryQuery { cursor, from, to, limit, bytes_max })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn reads_agree_with_the_list(messages in messages(), queries in proptest::collection::vec(queries(), 40), zstd in any::<bool>()) {
        let directory = TestDirectory::new();
        directory.write(7, if zstd { Codec::Zstd } else { Codec::Lz4 }, &messages);
        let segment = directory.open(7).unwrap();
        prop_assert_eq!(segment.messages(), messages.len() as u64);
        prop_assert_eq!(scan_all(&segment).unwrap(), &messages[..]);
        check_ids(&segment, &messages);
        check_spans(&segment, &messages);
        for (room, query) in &queries {
            prop_assert_eq!(read(&segment, room, query), read_model(&messages, room, query), "{} {:?}", room, query);
        }
    }

    #[test]
    fn a_merge_holds_what_its_sources_held(messages in messages(), parts in 1_u64..9) {
        let directory = TestDirectory::new();
        for part in 0..parts {
            let some: Vec<Owned> = messages.iter().filter(|m| m.seq % parts == part).cloned().collect();
            directory.write(part, Codec::Lz4, &some);
        }
        let sources: Vec<Segment> = (0..parts).map(|part| directory.open(part).unwrap()).collect();
        let mut writer = directory.writer(99, Codec::Zstd);
        merge(&sources, &mut writer, |message| message.sent.kind != MessageType::Leave).unwrap();
        writer.finish().unwrap();
        let kept: Vec<Owned> = messages.into_iter().filter(|m| m.kind != MessageType::Leave).collect();
        let merged = directory.open(99).unwrap();
        prop_assert_eq!(scan_all(&merged).unwrap(), &kept[..]);
        check_ids(&merged, &kept);
    }
}

#[test]
fn a_page_is_filled_from_one_segment_after_another() {
    let (directory, all) = (TestDirectory::new(), examples(600));
    let newer = |message: &Owned| message.seq > 300;
    for (number, side) in [(1, false), (2, true)] {
        let some: Vec<Owned> =
            all.iter().filter(|m| m.room == "room-0" && newer(m) == side).cloned().collect();
        directory.write(number, Codec::Lz4, &some);
    }
    let limited = HistoryQuery { limit: 150, ..query(Cursor::After(0)) };
    let mut run = MessageRun::default();
    assert_eq!(
        directory
            .open(1)
            .unwrap()
            .read_room("room-0", &limited, &Hidden { head: u64::MAX, ..Hidden::default() }, &mut run)
            .unwrap(),
        ReadEnd::Exhausted
    );
    assert_eq!(
        directory
            .open(2)
            .unwrap()
            .read_room("room-0", &limited, &Hidden { head: u64::MAX, ..Hidden::default() }, &mut run)
            .unwrap(),
        ReadEnd::Full
    );
    let seqs: Vec<u64> = run.iter().map(|message| message.seq).collect();
    assert_eq!(seqs, all[..150].iter().map(|message| message.seq).collect::<Vec<_>>());
}

#[test]
fn a_text_of_16_mib_stands_among_small_ones() {
    let (directory, mut all) = (TestDirectory::new(), examples(30));
    all[15].text = "ü".repeat(8 * 1024 * 1024);
    for codec in [Codec::Lz4, Codec::Zstd] {
        directory.write(1, codec, &all);
        assert_eq!(scan_all(&directory.open(1).unwrap()).unwrap(), all);
    }
}

#[test]
fn equal_hashes_are_all_shown_even_across_pages() {
    let (directory, mut all) = (TestDirectory::new(), examples(2_000));
    for message in all.iter_mut().filter(|message| message.room == "room-1") {
        message.id = "same".to_owned();
    }
    directory.write(1, Codec::Lz4, &all);
    let mut shown = 0;
    let same = all.iter().find(|message| message.id == "same").unwrap();
    assert!(
        !directory
            .open(1)
            .unwrap()
            .find_id(same.hash(), |_| {
                shown += 1;
                false
            })
            .unwrap()
    );
    assert_eq!(shown, all.iter().filter(|message| message.id == "same").count());
}

#[test]
fn disorder_is_refused() {
    let (directory, all) = (TestDirectory::new(), examples(9));
    let refused = |first: &Owned, second: &Owned| {
        let written = write_sorted("it", Ok(directory.writer(1, Codec::Lz4)), |writer| {
            writer.push(&first.as_message()).unwrap();
            let error = writer.push(&second.as_message()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            Err(error).doing("writing", "it")
        });
        assert!(written.is_err());
    };
    refused(&all[8], &all[0]);
    refused(&all[1], &all[0]);
    refused(&all[1], &all[1]);
    refused(&all[0], &Owned { received: 0, ..all[1].clone() });
    assert!(directory.disk.list("segments").unwrap().is_empty());
}

#[test]
fn a_seq_in_two_sources_is_refused() {
    let (directory, all) = (TestDirectory::new(), examples(9));
    directory.write(1, Codec::Lz4, &all);
    let twice = [directory.open(1).unwrap(), directory.open(1).unwrap()];
    let merged = merge(&twice, &mut directory.writer(2, Codec::Lz4), |_| true);
    assert!(matches!(merged, Err(MergeError::Write(_))));
}
