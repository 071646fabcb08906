//! Segments against a plain list of messages.

use std::sync::Arc;

use hubbub_core::{Message, MessageType, Send, Timestamp};

use super::*;
use crate::embedded::disk::{Disk, FileDisk};
use crate::embedded::file::{FileError, SortedFileWriter};

mod damage;
mod reads;
mod users;

pub(super) const KEY: [u64; 2] = [11, 12];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) room: String,
    pub(super) seq: u64,
    pub(super) received: i64,
    pub(super) timestamp: i64,
    pub(super) user: String,
    pub(super) id: String,
    pub(super) username: Option<String>,
    pub(super) text: String,
    pub(super) kind: MessageType,
}

impl Owned {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let sent = &message.sent;
        Self {
            room: sent.room.to_owned(),
            seq: message.seq,
            received: message.received_at.as_micros(),
            timestamp: sent.timestamp.as_micros(),
            user: sent.user.to_owned(),
            id: sent.id.to_owned(),
            username: sent.username.map(str::to_owned),
            text: sent.text.to_owned(),
            kind: sent.kind,
        }
    }

    pub(super) fn as_message(&self) -> Message<'_> {
        Message {
            seq: self.seq,
            received_at: Timestamp::from_micros(self.received),
            sent: Send {
                room: &self.room,
                user: &self.user,
                id: &self.id,
                username: self.username.as_deref(),
                text: &self.text,
                kind: self.kind,
                timestamp: Timestamp::from_micros(self.timestamp),
            },
        }
    }

    pub(super) fn hash(&self) -> u64 {
        IdHasher::new(KEY).hash(&self.room, &self.id)
    }
}

/// `count` messages over three rooms with gaps in seq and equal times, texts of 0 to 400 bytes.
pub(super) fn examples(count: u64) -> Vec<Owned> {
    let example = |n: u64| Owned {
        room: format!("room-{}", n * 3 / count),
        seq: n * 3 + n % 2 + 1,
        received: 1_700_000_000_000_000 + i64::try_from(n / 3).unwrap() * 1_000,
        timestamp: 1_699_999_999_000_000 + i64::try_from(n).unwrap(),
        user: format!("user-{}", n % 7),
        id: if n.is_multiple_of(2) { format!("01980000-0000-7000-8000-{n:012x}") } else { format!("m-{n}") },
        username: n.is_multiple_of(3).then(|| format!("Üser {n}")),
        text: "all work and no play ".repeat(usize::try_from(n % 20).unwrap()),
        kind: MessageType::from_u8(u8::try_from(n % 3).unwrap()).unwrap(),
    };
    (0..count).map(example).collect()
}

pub(super) struct TestDirectory {
    pub(super) dir: tempfile::TempDir,
    pub(super) disk: Arc<dyn Disk>,
}

impl TestDirectory {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
        disk.make_dir(SEGMENTS_DIR).unwrap();
        Self { dir, disk }
    }

    pub(super) fn writer(&self, number: u64, codec: Codec) -> SegmentWriter {
        SegmentWriter::create(Arc::clone(&self.disk), number, codec, IdHasher::new(KEY)).unwrap()
    }

    pub(super) fn write(&self, number: u64, codec: Codec, messages: &[Owned]) {
        let mut writer = self.writer(number, codec);
        messages.iter().for_each(|message| writer.push(&message.as_message()).unwrap());
        writer.finish().unwrap();
    }

    pub(super) fn open(&self, number: u64) -> Result<Segment, FileError> {
        Segment::open(&*self.disk, number, BlockCache::new(1 << 20))
    }

    pub(super) fn file(&self, number: u64) -> std::path::PathBuf {
        self.dir.path().join(segment_path(number))
    }
}

pub(super) fn scan_all(segment: &Segment) -> Result<Vec<Owned>, FileError> {
    let (mut scan, mut all) = (segment.scan(), Vec::new());
    while let Some(message) = scan.next()? {
        all.push(Owned::of(&message));
    }
    Ok(all)
}
