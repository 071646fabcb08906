//! The last changes of all keys, for those who watch.

use std::collections::VecDeque;

use hubbub_core::invariant::saturate;
use hubbub_core::kv::{CHANGES_KEPT, KvChange, KvChanged, KvChanges, KvChangesRead};

use super::Key;

/// Changes looked at for one answer, so that no answer holds up a commit for long.
const LOOKED_AT_MAX: usize = 10_000;

/// The last changes, without gaps in their revisions. Up to [`CHANGES_KEPT`] of them, each 24 bytes and its key.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The revision behind which everything is kept.
    pub(super) base: u64,
    kept: VecDeque<(Key, KvChanged)>,
}

impl Changes {
    pub(crate) fn behind(base: u64) -> Self {
        Self { base, kept: VecDeque::new() }
    }

    pub(super) fn head(&self) -> u64 {
        self.base.saturating_add(self.kept.len() as u64)
    }

    /// Adds the change behind the last one. One that does not follow it is of a time before it, and is left out.
    pub(super) fn push(&mut self, revision: u64, key: &Key, what: KvChanged) {
        if revision != self.head().saturating_add(1) {
            return;
        }
        self.kept.push_back((Key::clone(key), what));
        if self.kept.len() > CHANGES_KEPT {
            self.kept.pop_front();
            self.base += 1;
        }
    }

    pub(super) fn through(&self, revision: u64) -> impl ExactSizeIterator<Item = (&Key, KvChanged)> {
        let wanted = saturate(revision.saturating_sub(self.base));
        self.kept.iter().take(wanted).map(|(key, what)| (key, *what))
    }

    pub(super) fn copy_through(&self, revision: u64) -> Self {
        let kept: VecDeque<_> = self.through(revision).map(|(key, what)| (Key::clone(key), what)).collect();
        Self { base: if kept.is_empty() { revision } else { self.base }, kept }
    }

    pub(super) fn read(&self, prefix: &[u8], after: u64, limit: usize) -> KvChangesRead {
        let head = self.head();
        if after < self.base || after > head {
            return KvChangesRead::Compacted { oldest: self.base, head };
        }
        let start = saturate::<_, usize>(after - self.base);
        let (mut changes, mut through) = (Vec::new(), after);
        for (key, what) in self.kept.iter().skip(start).take(LOOKED_AT_MAX) {
            if changes.len() >= limit {
                break;
            }
            through += 1;
            if key.starts_with(prefix) {
                changes.push(KvChange { revision: through, key: Key::clone(key), what: *what });
            }
        }
        KvChangesRead::Changes(KvChanges { changes, through, more: through < head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(history: KvChangesRead) -> (Vec<u64>, u64, bool) {
        match history {
            KvChangesRead::Changes(found) => {
                (found.changes.iter().map(|change| change.revision).collect(), found.through, found.more)
            }
            KvChangesRead::Compacted { .. } => panic!("{history:?}"),
        }
    }

    #[test]
    fn the_last_are_kept_and_pages_go_on_where_the_last_one_ended() {
        let mut changes = Changes::behind(5);
        let (a, b): (Key, Key) = (b"a".as_slice().into(), b"b".as_slice().into());
        for revision in 6..=5 + CHANGES_KEPT as u64 + 10 {
            changes.push(revision, if revision % 2 == 0 { &a } else { &b }, KvChanged::Put);
        }
        changes.push(7, &a, KvChanged::Put);
        let head = 5 + CHANGES_KEPT as u64 + 10;
        assert_eq!((changes.base, changes.head()), (15, head));
        for after in [0, 14, head + 1] {
            assert_eq!(changes.read(b"", after, 9), KvChangesRead::Compacted { oldest: 15, head });
        }
        assert_eq!(revisions(changes.read(b"a", 15, 2)), (vec![16, 18], 18, true));
        assert_eq!(revisions(changes.read(b"", head, 2)), (vec![], head, false));
        assert_eq!(revisions(changes.read(b"", head - 1, 1)), (vec![head], head, false));
        // A prefix that nothing has: what was looked at is said, and the rest is left for the next call.
        assert_eq!(revisions(changes.read(b"c", 20, 9)), (vec![], 20 + LOOKED_AT_MAX as u64, true));
        assert_eq!(changes.through(17).count(), 2);
    }
}
