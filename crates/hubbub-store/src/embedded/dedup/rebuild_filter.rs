//! A new filter when most of what the old one knows is gone.
//!
//! Nothing can be taken out of a filter, so under retention it would grow for ever. Once it holds more than twice
//! what is kept, the background builds one from the segments and offers it to the writer, who adds what is not in
//! segments yet and goes on with it.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::embedded::dedup::filter::IdFilter;
use crate::embedded::error::MaintainError;
use crate::embedded::shared::Shared;

/// A filter on its way to the writer.
#[derive(Debug)]
pub(crate) struct FreshFilter {
    /// Knows the ids of all segments learned.
    pub(crate) filter: IdFilter,
    /// Messages of journals up to this one are among them.
    pub(crate) through: u64,
    learned: HashSet<u64>,
}

impl Shared {
    /// Builds a filter or brings one up to date that the writer has not taken yet, if one is wanted. Says whether it
    /// did.
    pub(crate) fn refilter(&self) -> Result<bool, MaintainError> {
        let kept = self.view().messages();
        let slack = u64::try_from(self.options.slot_messages_max() * 4).unwrap_or(u64::MAX);
        let wanted =
            self.status.filter_ids.load(Ordering::Relaxed) > kept.saturating_mul(2).saturating_add(slack);
        let offered = self.fresh_filter.lock().take();
        if !wanted && offered.is_none() {
            return Ok(false);
        }
        let mut fresh = offered.unwrap_or_else(|| FreshFilter {
            filter: IdFilter::new(),
            through: 0,
            learned: HashSet::new(),
        });
        // Read first, so that the view has the segments of all journals up to it.
        let through = self.status.sealed_through.load(Ordering::Acquire);
        let is_new = fresh.through != through;
        for segment in &self.view().segments {
            if fresh.learned.insert(segment.number()) {
                segment.id_hashes(|hashes| hashes.iter().for_each(|hash| fresh.filter.insert(*hash)))?;
            }
        }
        fresh.through = through;
        *self.fresh_filter.lock() = Some(fresh);
        Ok(is_new)
    }
}
