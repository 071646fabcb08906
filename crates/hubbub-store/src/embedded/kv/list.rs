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

    fn behind_damage(&self) -> Option<&[u8]> {
        match self {
            Self::Tail { .. } => None,
            Self::Run(scan) => scan.behind_damage(),
        }
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

/// Why keys could not be listed.
#[derive(Debug)]
pub(crate) struct ListError {
    pub(crate) error: FileError,
    /// The first key behind those that cannot be listed, if it is known.
    pub(crate) resume_at: Option<Key>,
}

impl View {
    /// See [`hubbub_core::KvStore::keys`].
    pub(crate) fn list_keys(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<KeyInfo>, ListError> {
        let mut sources = Vec::new();
        self.collect_keys(&mut sources, (prefix, after), limit, now).map_err(|error| {
            let resume_at = sources.iter().find_map(KeyCursor::behind_damage).map(Key::from);
            ListError { error, resume_at }
        })
    }

    fn collect_keys(
        &self,
        sources: &mut Vec<KeyCursor>,
        (prefix, after): (&[u8], Option<&[u8]>),
        limit: usize,
        now: i64,
    ) -> Result<Vec<KeyInfo>, FileError> {
        let after = after.filter(|after| *after >= prefix);
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        // Newest first, so that of equal keys the first one counts.
        sources.extend(self.tails.iter().rev().map(|tail| KeyCursor::tail(tail, from)));
        for run in self.runs.iter().rev() {
            let mut scan = KeyScan::new(run, prefix);
            let sought = scan.seek(after.unwrap_or(prefix));
            sources.push(KeyCursor::Run(scan));
            sought?;
        }
        let (mut keys, mut last) = (Vec::new(), after.map(Key::from));
        while keys.len() < limit {
            // Only now: what is behind the last key of a page may be damaged.
            if let Some(last) = &last {
                pass(sources, last)?;
            }
            let next = first_key(sources).filter(|(_, key)| key.starts_with(prefix));
            let Some((Some(version), key)) = next.map(|(newest, key)| (newest.version(), Key::from(key)))
            else {
                break;
            };
            last = Some(Key::clone(&key));
            if version.is_seen(now) {
                keys.push(KeyInfo {
                    key,
                    revision: version.revision,
                    bytes: version.value_bytes.into(),
                    expires_at: version.expires.map(Timestamp::from_micros),
                });
            }
        }
        Ok(keys)
    }
}
