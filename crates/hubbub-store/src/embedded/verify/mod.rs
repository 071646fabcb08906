//! Reading everything in a data directory, or in a copy of one, to find whatever is wrong with it.
//!
//! Nothing is changed, not even the file `LOCK`. What a start would refuse is found here, and more: a start reads the
//! indexes of segments, this also reads what they point to.

mod keys;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;

use hubbub_core::Message;
use hubbub_core::clock::ManualClock;
use hubbub_core::invariant::saturate;

use crate::embedded::disk::data_dir::{self, DirLock};
use crate::embedded::disk::format_file::{self, FORMAT};
use crate::embedded::disk::{Disk, FileDisk};
use crate::embedded::error::OpenError;
use crate::embedded::journal::end::EndFile;
use crate::embedded::journal::scan::JournalScan;
use crate::embedded::journal::{JOURNAL_DIR, block, slot_path};
use crate::embedded::manifest::{MANIFEST, Manifest};
use crate::embedded::queues::read_checkpoint;
use crate::embedded::record::{Record, Records};
use crate::embedded::recovery::slots::{read_slot, read_slots};
use crate::embedded::rooms::{Position, Rooms};
use crate::embedded::segment::{BlockCache, IdHasher, RoomEntry, Segment, segment_path};

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFault {
    /// The file, relative to the data directory.
    pub file: String,
    /// Where the damage begins.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for DataFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}: {}", self.file, self.offset, self.what)
    }
}

/// What a data directory holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// The history's id.
    pub epoch: String,
    /// Messages kept.
    pub messages: u64,
    /// Messages that stand in journal slots.
    pub unsealed: u64,
    /// Rooms.
    pub rooms: u64,
    /// Segments.
    pub segments: u64,
    /// Keys, those included that have run out and were not deleted yet.
    pub keys: u64,
    /// Bytes of the segments.
    pub bytes: u64,
}

/// Reads everything below `dir` and reports to `fault` whatever is wrong. An error is what kept it from reading on: the
/// directory is in use, cannot be read, or was written by a newer version. `progress` is told how many bytes of segments,
/// runs and journal slots were read.
pub fn verify(
    dir: &Path,
    fault: &mut dyn FnMut(DataFault),
    progress: &dyn Fn(u64),
) -> Result<Verified, OpenError> {
    // Whether there is a directory at all is no question of damage.
    let unreadable = |source| OpenError::Unreadable { attempted: "reading", path: dir.to_owned(), source };
    std::fs::read_dir(dir).map_err(unreadable)?;
    let lock = DirLock::take_if_there(dir)?;
    let disk = FileDisk::read_only(dir);
    let mut verifier = Verifier {
        disk: &disk,
        is_used: lock.is_some() && !data_dir::is_backup(dir),
        fault,
        progress,
        spans: HashMap::new(),
        newest: HashMap::new(),
        revision: 0,
        faults: 0,
        found: Verified::default(),
    };
    verifier.all()?;
    Ok(verifier.found)
}

struct Verifier<'a> {
    disk: &'a FileDisk,
    /// A server has opened the directory, so that it must have a journal. A backup has none.
    is_used: bool,
    fault: &'a mut dyn FnMut(DataFault),
    progress: &'a dyn Fn(u64),
    /// The parts of each room in segments, in their order, with the number of the segment.
    spans: HashMap<String, Vec<(u64, RoomEntry)>>,
    /// Number and time of each room's newest message in the journal.
    newest: HashMap<String, (u64, i64)>,
    /// Revision of the newest change of a key in the journal.
    revision: u64,
    faults: u64,
    found: Verified,
}

impl Verifier<'_> {
    fn damaged(&mut self, file: &str, offset: u64, what: impl Into<String>) {
        self.faults += 1;
        (self.fault)(DataFault { file: file.to_owned(), offset, what: what.into() });
    }

    /// Reports an error that is damage of the data; returns any other.
    fn report(&mut self, error: OpenError) -> Result<(), OpenError> {
        match error {
            OpenError::Damaged { file, offset, what } => {
                self.damaged(&file, offset, what);
                Ok(())
            }
            OpenError::Unreadable { attempted, path, source } => {
                self.damaged(&path.to_string_lossy(), 0, format!("{attempted} it failed: {source}"));
                Ok(())
            }
            error => Err(error),
        }
    }

    fn all(&mut self) -> Result<(), OpenError> {
        match format_file::check(self.disk) {
            Ok(true) => {}
            Ok(false) => self.damaged(FORMAT, 0, "it is missing"),
            Err(error) => self.report(error)?,
        }
        let manifest = match Manifest::load(self.disk) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => {
                self.damaged(MANIFEST, 0, "it is missing");
                return Ok(());
            }
            Err(error) => return self.report(error),
        };
        let Some(mut rooms) = Rooms::decode(&manifest.rooms) else {
            self.damaged(MANIFEST, 0, "its rooms are unreadable");
            return Ok(());
        };
        self.found.epoch = manifest.epoch();
        self.segments(&manifest)?;
        self.keys(&manifest)?;
        let queues_at = self.queues(&manifest)?;
        let may_lack = self.journal(&manifest, &mut rooms, queues_at)? || manifest.unsynced;
        // With anything else damaged, or lost as durability `os` allows, it would be no news that something is missing.
        if self.faults == 0 && !may_lack {
            self.counts(&rooms);
        }
        (self.found.rooms, self.found.messages) = (rooms.known, rooms.messages);
        Ok(())
    }

    fn segments(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        let hasher = IdHasher::new(manifest.id_key);
        // Every block is read once.
        let cache = BlockCache::new(0);
        for number in &manifest.segments {
            let segment = match Segment::open(self.disk, *number, cache.clone()) {
                Ok(segment) => segment,
                Err(error) => {
                    self.report(error.into())?;
                    continue;
                }
            };
            let mut errors = Vec::new();
            segment.check(&hasher, &mut |error| errors.push(error));
            for error in errors {
                self.report(error.into())?;
            }
            self.found.segments += 1;
            self.found.bytes += segment.bytes();
            (self.progress)(segment.bytes());
            self.spans(&segment);
        }
        Ok(())
    }

    /// Answers how far the journal is applied to them.
    fn queues(&mut self, manifest: &Manifest) -> Result<Position, OpenError> {
        match read_checkpoint(self.disk, &manifest.queues, manifest.id_key, &ManualClock::default()) {
            Ok(queues) => {
                for error in queues.check_texts(self.disk) {
                    self.report(error)?;
                }
                Ok(queues.at)
            }
            Err(error) => self.report(error).map(|()| Position::default()),
        }
    }

    /// The rooms of a segment must go on where the segments before it ended.
    fn spans(&mut self, segment: &Segment) {
        for (name, room) in segment.rooms() {
            let all = self.spans.entry(name.to_owned()).or_default();
            let follows = all.last().is_none_or(|(_, before)| {
                room.first_seq > before.last_seq && room.first_received >= before.last_received
            });
            all.push((segment.number(), *room));
            if !follows {
                let what = format!("room {name} goes on before the place where an earlier segment ended");
                self.damaged(&segment_path(segment.number()), 0, what);
            }
        }
    }

    /// Enters what stands in the journal. Says whether something is lost that need not have been kept.
    fn journal(
        &mut self,
        manifest: &Manifest,
        rooms: &mut Rooms,
        queues_at: Position,
    ) -> Result<bool, OpenError> {
        match self.disk.list(JOURNAL_DIR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_used => return Ok(false),
            _ => {}
        }
        let chain = EndFile::open(self.disk, manifest.block_seed)
            .and_then(|(_, recorded)| read_slots(self.disk, manifest, &recorded));
        match chain {
            Ok(chain) => {
                let held = chain.must_hold([rooms.at, queues_at], manifest);
                held.or_else(|error| self.report(error))?;
                for journal in &chain.unsealed {
                    self.records(journal, manifest, rooms)?;
                }
                Ok(chain.lost)
            }
            Err(error) => self.report(error).map(|()| false),
        }
    }

    /// Every record of a journal must be readable and follow what came before in its room.
    fn records(
        &mut self,
        journal: &JournalScan,
        manifest: &Manifest,
        rooms: &mut Rooms,
    ) -> Result<(), OpenError> {
        let path = slot_path(journal.slot.number);
        let mut bytes = Vec::new();
        if let Err(error) = read_slot(&journal.slot, journal.end, &mut bytes) {
            return self.report(error);
        }
        (self.progress)(bytes.len() as u64);
        for start in &journal.blocks {
            let Some((header, records)) =
                bytes.get(saturate(*start)..).and_then(|rest| block::read(rest, manifest.block_seed))
            else {
                self.damaged(&path, *start, "a block that counts is unreadable");
                continue;
            };
            let at = Position { journal: journal.number(), batch: header.batch };
            // What the manifest's rooms have already is not applied again.
            let is_new = at > rooms.at;
            for record in Records::new(*start, &header, records) {
                match record {
                    Ok((at, _, Record::Message(message))) => self.message(&path, at, &message, is_new, rooms),
                    Ok((_, _, Record::Change(change))) if is_new => {
                        rooms.apply(&change);
                    }
                    Ok((_, _, Record::Change(_) | Record::Queue(_) | Record::Time(_))) => {}
                    Ok((at, _, Record::Key(change))) => self.key(&path, at, &change),
                    Err(at) => self.damaged(&path, at, "a record of a valid block is unreadable"),
                }
            }
            rooms.at = at.max(rooms.at);
        }
        Ok(())
    }

    fn message(&mut self, path: &str, offset: u32, message: &Message<'_>, is_new: bool, rooms: &mut Rooms) {
        let (room, this) = (message.sent.room, (message.seq, message.received_at.as_micros()));
        let sealed = || self.spans.get(room)?.last().map(|(_, part)| (part.last_seq, part.last_received));
        let before = self.newest.get(room).copied().or_else(sealed);
        if before.is_some_and(|before| this.0 <= before.0 || this.1 < before.1) {
            self.damaged(path, offset.into(), format!("message {} of room {room} is out of order", this.0));
        }
        self.newest.insert(room.to_owned(), this);
        let number = rooms.intern(room);
        if is_new {
            rooms.store(number, this.0, this.1, || Some(message.sent.user));
        }
        self.found.unsealed += 1;
    }

    /// A room's numbers are dense but for what is hidden, so it is known what there must be.
    fn counts(&mut self, rooms: &Rooms) {
        let known: HashSet<&str> = rooms.all().iter().map(|room| &*room.name).collect();
        let mut faults: Vec<(u64, String)> = Vec::new();
        for (name, spans) in &self.spans {
            let segment = spans.last().map_or(0, |(segment, _)| *segment);
            if !known.contains(name.as_str()) {
                faults.push((segment, format!("it holds room {name}, which the manifest does not know")));
            }
        }
        for room in rooms.all() {
            let (hidden, mut next) = (room.hidden(), 1);
            for (segment, part) in self.spans.get(&*room.name).into_iter().flatten() {
                let missing = hidden.visible(next, part.first_seq.saturating_sub(1))
                    + hidden.visible(part.first_seq, part.last_seq).saturating_sub(part.count.into());
                if missing > 0 {
                    let what =
                        format!("{missing} messages of room {} are missing in it or before it", room.name);
                    faults.push((*segment, what));
                }
                next = part.last_seq + 1;
            }
            let end = self.newest.get(&*room.name).map_or(next.saturating_sub(1), |newest| newest.0);
            if end > room.head || hidden.visible(end + 1, room.head) > 0 {
                let what = format!("room {} ends at message {end}, it says at {}", room.name, room.head);
                self.damaged(MANIFEST, 0, what);
            }
        }
        for (segment, what) in faults {
            self.damaged(&segment_path(segment), 0, what);
        }
    }
}
