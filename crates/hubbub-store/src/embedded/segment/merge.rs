//! Many segments into one, still sorted.

use std::io;

use hubbub_core::Message;

use super::error::SegmentError;
use super::open::Segment;
use super::scan::Scan;
use super::writer::SegmentWriter;

/// Why a merge was given up. Its sources are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A source could not be read.
    #[error(transparent)]
    Read(#[from] SegmentError),
    /// The new segment could not be written; try again when there is space.
    #[error("writing a merged segment failed: {0}")]
    Write(#[from] io::Error),
}

/// Copies the messages for which `keep` holds from `sources` to `writer`, in order. A room may be in several
/// sources, a seq of it in one only. The caller finishes the writer, or discards it when it holds nothing.
pub fn merge(
    sources: &[Segment],
    writer: &mut SegmentWriter,
    keep: impl Fn(&Message<'_>) -> bool,
) -> Result<(), MergeError> {
    let mut scans = Vec::with_capacity(sources.len());
    for source in sources {
        let mut scan = source.scan();
        if scan.next()?.is_some() {
            scans.push(scan);
        }
    }
    while let Some(place) = smallest(&scans) {
        let Some(scan) = scans.get_mut(place) else { break };
        if let Some(message) = scan.current().filter(&keep) {
            writer.push(&message)?;
        }
        if scan.next()?.is_none() {
            scans.swap_remove(place);
        }
    }
    Ok(())
}

/// Place of the scan whose message comes first.
fn smallest(scans: &[Scan]) -> Option<usize> {
    let keys = scans.iter().map(|scan| scan.current().map(|message| (message.sent.room, message.seq)));
    keys.enumerate().min_by(|(_, a), (_, b)| a.cmp(b)).map(|(place, _)| place)
}
