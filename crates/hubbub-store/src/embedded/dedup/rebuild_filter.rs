//! Rebuilds the Bloom filter of ids when most of its ids are deleted.
//!
//! Nothing can be removed from a filter, so under retention it would grow for ever. Once it holds more than twice as many
//! ids as there are messages, the background builds one from the segments and offers it to the writer. The writer adds
//! the ids that are not in segments yet, and uses it from then on.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::embedded::dedup::filter::IdFilter;
use crate::embedded::error::MaintainError;
use crate::embedded::shared::Shared;

/// A filter that the writer has not taken yet.
#[derive(Debug)]
pub(crate) struct FreshFilter {
    /// Holds the ids of all segments that are included.
    pub(crate) filter: IdFilter,
    /// Journals up to this one are in those segments.
    pub(crate) through: u64,
    included: HashSet<u64>,
}

impl Shared {
    /// Builds a filter if one is needed, or adds new segments to one that the writer has not taken yet. Returns whether
    /// there was anything to do.
    pub(crate) fn rebuild_filter(&self) -> Result<bool, MaintainError> {
        let kept = self.view().messages();
        let slack = self.options.slot_messages_max() as u64 * 4;
        let wanted =
            self.status.filter_ids.load(Ordering::Relaxed) > kept.saturating_mul(2).saturating_add(slack);
        let unreadable = self.unreadable_ids.load(Ordering::Relaxed);
        if self.view().segments.iter().any(|segment| segment.number() == unreadable) {
            // It could not be read to its end at the next attempt either. The old one holds all ids.
            return Ok(false);
        }
        let offered = self.fresh_filter.lock().take();
        if !wanted && offered.is_none() {
            return Ok(false);
        }
        let mut fresh = offered.unwrap_or_else(|| FreshFilter {
            filter: IdFilter::new(),
            through: 0,
            included: HashSet::new(),
        });
        // Read first, so that the view has the segments of all journals up to it.
        let through = self.status.sealed_through.load(Ordering::Acquire);
        let is_new = fresh.through != through;
        for segment in &self.view().segments {
            if fresh.included.insert(segment.number()) {
                segment
                    .id_hashes(|hashes| hashes.iter().for_each(|hash| fresh.filter.insert(*hash)))
                    .inspect_err(|_| self.unreadable_ids.store(segment.number(), Ordering::Relaxed))?;
            }
        }
        fresh.through = through;
        *self.fresh_filter.lock() = Some(fresh);
        Ok(is_new)
    }
}
