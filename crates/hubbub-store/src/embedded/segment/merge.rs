//! Many segments into one, still sorted.
//!
//! Messages come together by (room, seq), then their ids by hash and their users by name, from the sources' own sorted
//! tables: a merge needs no memory per message, only per piece of a source that stays together and per user.

use std::io;

use hubbub_core::Message;

use super::ids::{IdStream, IdTableWriter};
use super::merge_users::merge_users;
use super::open::Segment;
use super::scan::MessageScan;
use super::writer::SegmentWriter;
use crate::embedded::file::{FileError, Output};

/// Why a merge was given up. Its sources are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MergeError {
    #[error(transparent)]
    Read(#[from] FileError),
    /// The new segment could not be written; try again when there is space.
    #[error("writing a merged segment failed: {0}")]
    Write(#[from] io::Error),
}

/// Copies the messages for which `keep` holds from `sources` to `writer`, which is empty, in order. A room may be in
/// several sources, a seq of it in one only; all have ids hashed with the same key. The caller finishes the writer
/// without adding more, or discards it when it holds nothing.
pub(crate) fn merge(
    sources: &[Segment],
    writer: &mut SegmentWriter,
    keep: impl Fn(&Message<'_>) -> bool,
) -> Result<(), MergeError> {
    let mut scans = sources.iter().map(Segment::scan).collect::<Vec<_>>();
    for scan in &mut scans {
        scan.next()?;
    }
    let mut moves = vec![Moves::default(); sources.len()];
    while let Some(place) = first_of(&scans) {
        let (Some(scan), Some(moves)) = (scans.get_mut(place), moves.get_mut(place)) else { break };
        if let Some(message) = scan.current().filter(&keep) {
            moves.add(scan.ordinal, writer.push_without_indexes(&message)?);
        }
        scan.next()?;
    }
    writer.write_tables(
        |table, output| merge_ids(sources, &moves, table, output),
        |table, output| merge_users(sources, &moves, table, output),
    )
}

fn first_of(scans: &[MessageScan]) -> Option<usize> {
    let keys = scans.iter().enumerate().filter_map(|(place, scan)| {
        let message = scan.current()?;
        Some((message.sent.room, message.seq, place))
    });
    keys.min().map(|(_, _, place)| place)
}

fn merge_ids(
    sources: &[Segment],
    moves: &[Moves],
    table: &mut IdTableWriter,
    output: &mut Output,
) -> Result<(), MergeError> {
    let mut tables = Vec::with_capacity(sources.len());
    for (source, moves) in sources.iter().zip(moves) {
        let mut kept = KeptIds { stream: source.id_stream(), moves, current: None };
        kept.advance()?;
        tables.push(kept);
    }
    while let Some(kept) =
        tables.iter_mut().filter(|kept| kept.current.is_some()).min_by_key(|kept| kept.current)
    {
        if let Some((hash, ordinal)) = kept.current {
            table.push(hash, ordinal, output)?;
        }
        kept.advance()?;
    }
    Ok(())
}

/// The ids of one source that were kept, with their new ordinals.
struct KeptIds<'a> {
    stream: IdStream,
    moves: &'a Moves,
    current: Option<(u64, u32)>,
}

impl KeptIds<'_> {
    fn advance(&mut self) -> Result<(), FileError> {
        self.current = None;
        while let Some((hash, ordinal)) = self.stream.next()? {
            if let Some(ordinal) = self.moves.find(ordinal) {
                self.current = Some((hash, ordinal));
                break;
            }
        }
        Ok(())
    }
}

/// Where the messages of a source went: pieces that stayed together.
#[derive(Debug, Clone, Default)]
pub(super) struct Moves {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    from: u32,
    to: u32,
    messages: u32,
}

impl Moves {
    /// Both ordinals are greater than all added before.
    fn add(&mut self, from: u32, to: u32) {
        match self.pieces.last_mut() {
            Some(last) if last.from + last.messages == from && last.to + last.messages == to => {
                last.messages += 1;
            }
            _ => self.pieces.push(Piece { from, to, messages: 1 }),
        }
    }

    pub(super) fn find(&self, from: u32) -> Option<u32> {
        let behind = self.pieces.partition_point(|piece| piece.from <= from);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        (from - piece.from < piece.messages).then(|| piece.to + (from - piece.from))
    }
}
