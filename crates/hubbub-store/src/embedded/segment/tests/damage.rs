//! Whatever happens to the bytes of a file, nobody reads another message than was written.

use crc32c::crc32c;

use super::users::{look_up_users, read_users};
use super::{KEY, Owned, TestDirectory, examples, scan_all};
use crate::embedded::file::FileError;
use crate::embedded::file::FileKind;
use crate::embedded::segment::format::SEGMENT;
use crate::embedded::segment::{Codec, IdHasher, Segment};

type Everything = (Vec<Owned>, Vec<u64>, Vec<String>);

/// Reads everything there is, ids and users too.
fn read_everything(segment: &Segment) -> Result<Everything, FileError> {
    let mut hashes = Vec::new();
    segment.id_hashes(|some| hashes.extend_from_slice(some))?;
    let all = scan_all(segment)?;
    for message in &all {
        let found = segment.find_id(message.hash(), |found| found.seq == message.seq)?;
        assert!(found, "{} is gone", message.id);
    }
    let users = read_users(segment)?;
    assert_eq!(look_up_users(segment, users.keys())?, users);
    let postings: Vec<String> = users.iter().map(|user| format!("{user:?}")).collect();
    Ok((all, hashes, postings))
}

fn names_the_place(error: &FileError, file_bytes: u64) -> bool {
    let text = error.to_string();
    let in_file = match error {
        FileError::Damaged { offset, .. } | FileError::Io { offset, .. } => *offset <= file_bytes,
        FileError::Version { .. } => true,
    };
    in_file && text.contains("segments/00000001.seg")
}

#[test]
fn a_flipped_byte_is_an_error_or_changes_nothing() {
    let (directory, all) = (TestDirectory::new(), examples(400));
    directory.write(1, Codec::Lz4, &all);
    let good = std::fs::read(directory.file(1)).unwrap();
    let expected = read_everything(&directory.open(1).unwrap()).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(directory.file(1), &bad).unwrap();
        match directory.open(1).and_then(|segment| read_everything(&segment)) {
            Ok(read) => assert_eq!(read, expected, "byte {at}"),
            Err(error) => assert!(names_the_place(&error, good.len() as u64), "byte {at}: {error}"),
        }
    }
}

#[test]
fn every_byte_is_under_a_checksum() {
    let (directory, all) = (TestDirectory::new(), examples(400));
    directory.write(1, Codec::Zstd, &all);
    let good = std::fs::read(directory.file(1)).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] = !bad[at];
        std::fs::write(directory.file(1), &bad).unwrap();
        let read = directory.open(1).and_then(|segment| read_everything(&segment));
        assert!(read.is_err(), "byte {at} can be anything");
    }
}

/// What a full check finds.
fn check(segment: &Segment, key: [u64; 2]) -> Vec<FileError> {
    let mut faults = Vec::new();
    segment.check(&IdHasher::new(key), &mut |fault| faults.push(fault));
    faults
}

#[test]
fn a_check_finds_every_flipped_byte_and_says_where() {
    let (directory, all) = (TestDirectory::new(), examples(400));
    directory.write(1, Codec::Lz4, &all);
    let good = std::fs::read(directory.file(1)).unwrap();
    let segment = directory.open(1).unwrap();
    assert_eq!(segment.file().crc32c, crc32c(&good));
    assert!(check(&segment, KEY).is_empty());
    assert_eq!(check(&segment, [1, 2]).len(), 1, "another key's table of ids");
    for at in (0..good.len()).step_by(17) {
        let mut bad = good.clone();
        bad[at] ^= 64;
        std::fs::write(directory.file(1), &bad).unwrap();
        let found = match directory.open(1) {
            Ok(segment) => check(&segment, KEY),
            Err(error) => vec![error],
        };
        assert_eq!(found.len(), 1, "byte {at}: {found:?}");
        let is_near = match &found[0] {
            FileError::Damaged { offset, .. } => *offset <= at as u64,
            _ => at < FileKind::HEADER_BYTES,
        };
        assert!(is_near, "byte {at}: {found:?}");
    }
}

#[test]
fn a_check_goes_on_behind_damage() {
    let (directory, all) = (TestDirectory::new(), examples(2_000));
    directory.write(1, Codec::Lz4, &all);
    let mut bytes = std::fs::read(directory.file(1)).unwrap();
    let ids = {
        let segment = directory.open(1).unwrap();
        assert!(segment.inner.blocks.len() > 4);
        for block in [1, 3] {
            bytes[usize::try_from(segment.inner.blocks[block].offset).unwrap() + 20] ^= 1;
        }
        usize::try_from(segment.inner.ids.offset).unwrap()
    };
    bytes[ids + 4_096] ^= 1;
    std::fs::write(directory.file(1), &bytes).unwrap();
    let found = check(&directory.open(1).unwrap(), KEY);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[2].to_string().contains(&format!("at byte {}", ids + 4_096)), "{found:?}");
}

#[test]
fn a_cut_or_longer_file_is_refused() {
    let (directory, all) = (TestDirectory::new(), examples(50));
    directory.write(1, Codec::Lz4, &all);
    let good = std::fs::read(directory.file(1)).unwrap();
    for bytes in 0..good.len() {
        std::fs::write(directory.file(1), &good[..bytes]).unwrap();
        let error = directory.open(1).unwrap_err();
        assert!(names_the_place(&error, good.len() as u64), "{bytes} bytes: {error}");
    }
    std::fs::write(directory.file(1), [&good[..], b"x"].concat()).unwrap();
    assert!(matches!(directory.open(1), Err(FileError::Damaged { .. })));
}

#[test]
fn another_format_version_is_told_from_damage() {
    let (directory, all) = (TestDirectory::new(), examples(50));
    directory.write(1, Codec::Lz4, &all);
    let mut bytes = std::fs::read(directory.file(1)).unwrap();
    for version in [SEGMENT.version - 1, SEGMENT.version + 1] {
        bytes[..FileKind::HEADER_BYTES].copy_from_slice(&FileKind { version, ..SEGMENT }.header());
        std::fs::write(directory.file(1), &bytes).unwrap();
        let error = directory.open(1).unwrap_err();
        assert!(matches!(error, FileError::Version { found, .. } if found == version), "{error}");
    }
}

#[test]
fn sections_nobody_knows_are_skipped() {
    let (directory, all) = (TestDirectory::new(), examples(50));
    directory.write(1, Codec::Lz4, &all);
    let good = std::fs::read(directory.file(1)).unwrap();
    let (table_at, footer_at) = (good.len() - 32 - 8 * 32, good.len() - 32);
    let mut newer = good[..table_at].to_vec();
    newer.extend_from_slice(b"postings");
    let new_table = newer.len();
    newer.extend_from_slice(&good[table_at..footer_at]);
    // The entry over everything before the table is the last one.
    let (body, body_crc) = (new_table + 7 * 32, crc32c(&newer[..new_table]));
    newer[body + 4..body + 8].copy_from_slice(&body_crc.to_le_bytes());
    newer[body + 16..body + 24].copy_from_slice(&(new_table as u64).to_le_bytes());
    let mut entry = [0; 32];
    entry[0] = 200;
    newer.extend_from_slice(&entry);
    let mut footer = good[footer_at..].to_vec();
    footer[..8].copy_from_slice(&(new_table as u64).to_le_bytes());
    footer[8] = 9;
    footer[12..16].copy_from_slice(&crc32c(&newer[new_table..]).to_le_bytes());
    let crc = crc32c(&footer[..24]);
    footer[24..28].copy_from_slice(&crc.to_le_bytes());
    newer.extend_from_slice(&footer);
    std::fs::write(directory.file(1), newer).unwrap();
    assert_eq!(scan_all(&directory.open(1).unwrap()).unwrap(), all);
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let (directory, all) = (TestDirectory::new(), examples(50));
    directory.write(1, Codec::Lz4, &all);
    std::fs::rename(directory.file(1), directory.file(2)).unwrap();
    assert!(matches!(directory.open(2), Err(FileError::Damaged { .. })));
    assert!(matches!(directory.open(1), Err(FileError::Io { .. })));
}

#[test]
fn writing_again_after_a_crash_gives_the_same_file() {
    let (directory, all) = (TestDirectory::new(), examples(300));
    let mut abandoned = directory.writer(1, Codec::Lz4);
    all.iter().take(200).for_each(|message| abandoned.push(&message.as_message()).unwrap());
    drop(abandoned);
    assert_eq!(directory.disk.list("segments").unwrap(), ["00000001.tmp"]);
    assert!(std::fs::exists(directory.dir.path().join(SEGMENT.unfinished_path(1))).unwrap());
    directory.write(1, Codec::Lz4, &all);
    let first = std::fs::read(directory.file(1)).unwrap();
    directory.write(1, Codec::Lz4, &all);
    assert_eq!(std::fs::read(directory.file(1)).unwrap(), first);
    assert_eq!(directory.disk.list("segments").unwrap(), ["00000001.seg"]);
}
