//! Keys in their order: tails and runs merged, of each key the newest version.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::kv::KeyInfo;

use super::run::KeyScan;
use super::tail::KeyLocation;
use super::{Key, Version};
use crate::embedded::error::MaintainError;
use crate::embedded::tail::Tail;
use crate::embedded::view::View;

/// Keys taken from a tail's index at once.
const TAIL_PAGE: usize = 256;

/// Keys of one tail or run, from some key on.
enum Source {
    Tail { tail: Arc<Tail>, page: VecDeque<(Key, KeyLocation)> },
    Run(KeyScan),
}

impl Source {
    fn tail(tail: &Arc<Tail>, from: Bound<&[u8]>) -> Self {
        Self::Tail { page: tail.keys.page(from, TAIL_PAGE).into(), tail: Arc::clone(tail) }
    }

    fn current(&self) -> Option<(&[u8], Version)> {
        match self {
            Self::Tail { page, .. } => page.front().map(|(key, place)| (&**key, place.version)),
            Self::Run(scan) => scan.current().map(|entry| (entry.key, entry.version)),
        }
    }

    fn advance(&mut self) -> Result<(), MaintainError> {
        match self {
            Self::Tail { tail, page } => {
                if let (Some((last, _)), true) = (page.pop_front(), page.is_empty()) {
                    *page = tail.keys.page(Bound::Excluded(&last), TAIL_PAGE).into();
                }
            }
            Self::Run(scan) => scan.advance()?,
        }
        Ok(())
    }
}

impl View {
    /// See [`hubbub_core::KvStore::keys`].
    pub(crate) fn list_keys(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<KeyInfo>, MaintainError> {
        let after = after.filter(|after| *after >= prefix);
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        // Newest first, so that of equal keys the first one counts.
        let mut sources: Vec<Source> = self.tails.iter().rev().map(|tail| Source::tail(tail, from)).collect();
        for run in self.runs.iter().rev() {
            let mut scan = run.scan(after.unwrap_or(prefix))?;
            if scan.current().is_some_and(|entry| Some(entry.key) == after) {
                scan.advance()?;
            }
            sources.push(Source::Run(scan));
        }
        let mut keys = Vec::new();
        while keys.len() < limit {
            let newest = |(place, source): (usize, &Source)| {
                let (key, version) = source.current()?;
                Some((key.to_vec(), place, version))
            };
            let smallest =
                sources.iter().enumerate().filter_map(newest).min_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
            let Some((key, _, version)) = smallest.filter(|(key, ..)| key.starts_with(prefix)) else { break };
            for source in &mut sources {
                if source.current().is_some_and(|(other, _)| other == key) {
                    source.advance()?;
                }
            }
            if version.is_seen(now) {
                keys.push(KeyInfo {
                    key: key.into(),
                    revision: version.revision,
                    bytes: version.value_bytes.into(),
                    expires_at: version.expires.map(Timestamp::from_micros),
                });
            }
        }
        Ok(keys)
    }
}
