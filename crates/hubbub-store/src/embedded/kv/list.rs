//! Keys in their order: tails and runs merged, of each key the newest version.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::kv::KeyInfo;

use super::run::{KeyScan, KeySource, first_key, pass};
use super::tail::KeyLocation;
use super::{Key, Version};
use crate::embedded::file::FileError;
use crate::embedded::tail::Tail;
use crate::embedded::view::View;

const TAIL_PAGE: usize = 256;

enum KeyCursor {
    Tail { tail: Arc<Tail>, page: VecDeque<(Key, KeyLocation)> },
    Run(KeyScan),
}

impl KeyCursor {
    fn tail(tail: &Arc<Tail>, from: Bound<&[u8]>) -> Self {
        Self::Tail { page: tail.keys.page(from, TAIL_PAGE).into(), tail: Arc::clone(tail) }
    }

    fn version(&self) -> Option<Version> {
        match self {
            Self::Tail { page, .. } => page.front().map(|(_, place)| place.version),
            Self::Run(scan) => scan.current().map(|entry| entry.version),
        }
    }
}

impl KeySource for KeyCursor {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Tail { page, .. } => page.front().map(|(key, _)| &**key),
            Self::Run(scan) => scan.key(),
        }
    }

    fn advance(&mut self) -> Result<(), FileError> {
        match self {
            Self::Tail { tail, page } => {
                if let (Some((last, _)), true) = (page.pop_front(), page.is_empty()) {
                    *page = tail.keys.page(Bound::Excluded(&last), TAIL_PAGE).into();
                }
                Ok(())
            }
            Self::Run(scan) => scan.advance(),
        }
    }
}

impl View {
    pub(crate) fn list_keys(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<KeyInfo>, FileError> {
        let after = after.filter(|after| *after >= prefix);
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        // Newest first, so that of equal keys the first one counts.
        let mut sources: Vec<KeyCursor> =
            self.tails.iter().rev().map(|tail| KeyCursor::tail(tail, from)).collect();
        for run in self.runs.iter().rev() {
            sources.push(KeyCursor::Run(run.scan(after.unwrap_or(prefix))?));
        }
        if let Some(after) = after {
            pass(&mut sources, after)?;
        }
        let mut keys = Vec::new();
        while keys.len() < limit
            && let Some((newest, key)) = first_key(&sources).filter(|(_, key)| key.starts_with(prefix))
            && let Some(version) = newest.version()
        {
            pass(&mut sources, &key)?;
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
