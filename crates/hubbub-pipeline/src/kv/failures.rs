//! Loads that failed, for those who waited for them. Otherwise each of them would read in turn from a store that does not
//! answer, and the last would wait for the time-outs of all.

use std::collections::HashMap;

use hubbub_core::store::ReadError;
use parking_lot::Mutex;

/// Knows only keys that somebody waits for.
#[derive(Default)]
pub(super) struct Failures {
    of_keys: Mutex<HashMap<Vec<u8>, Failed>>,
}

/// Loads of a key that failed while somebody waited.
#[derive(Default)]
struct Failed {
    waiting: usize,
    loads: u64,
    last: Option<ReadError>,
}

/// Somebody who waits for the load of a key by somebody else.
pub(super) struct Waiting<'a> {
    failures: &'a Failures,
    key: &'a [u8],
    /// Loads that had failed before.
    loads: u64,
}

impl Failures {
    pub(super) fn wait<'a>(&'a self, key: &'a [u8]) -> Waiting<'a> {
        let mut of_keys = self.of_keys.lock();
        let failed = of_keys.entry(key.to_vec()).or_default();
        failed.waiting += 1;
        Waiting { failures: self, key, loads: failed.loads }
    }

    /// To be called before another load of the key can begin.
    pub(super) fn notify(&self, key: &[u8], error: &ReadError) {
        if let Some(failed) = self.of_keys.lock().get_mut(key) {
            failed.loads += 1;
            failed.last = Some(error.clone());
        }
    }
}

impl Waiting<'_> {
    /// How a load failed since this began to wait; `None` = none did. A load that was given up has not failed.
    pub(super) fn error(&self) -> Option<ReadError> {
        let of_keys = self.failures.of_keys.lock();
        of_keys.get(self.key).filter(|failed| failed.loads > self.loads)?.last.clone()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut of_keys = self.failures.of_keys.lock();
        if let Some(failed) = of_keys.get_mut(self.key) {
            failed.waiting -= 1;
            if failed.waiting == 0 {
                of_keys.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_to_those_who_waited_before_it() {
        let failures = Failures::default();
        let error = |reason: &str| ReadError::Unavailable { reason: reason.into() };
        failures.notify(b"a", &error("nobody waits"));
        let (first, other) = (failures.wait(b"a"), failures.wait(b"b"));
        assert_eq!(first.error(), None);
        failures.notify(b"a", &error("one"));
        let second = failures.wait(b"a");
        assert_eq!((first.error(), second.error(), other.error()), (Some(error("one")), None, None));
        drop(first);
        failures.notify(b"a", &error("two"));
        assert_eq!(second.error(), Some(error("two")));
        drop((second, other));
        assert!(failures.of_keys.lock().is_empty());
    }
}
