//! Reading keys.

use std::num::NonZeroU64;
use std::time::Duration;

use super::Read;
use crate::kv::{KeyPage, KvChangesRead, KvEntry};
use crate::time::Timestamp;

/// Reads of keys. They never wait for writes, see everything acknowledged before they began, and no expired key.
pub trait KvStore: Send + Sync + 'static {
    /// The value of a key; `None` if there is no such key.
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>>;

    /// Up to `limit` keys that begin with `prefix`, in the order of their bytes, starting behind `after`. Damage is an error
    /// ([`super::ReadError::Damaged`]) only if one of these keys may be there: what is before it can be listed with a smaller limit.
    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage>;

    /// Up to `limit` changes behind the revision `after` of keys that begin with `prefix`, oldest first. The last
    /// [`crate::kv::CHANGES_KEPT`] changes of the store are kept, over restarts too.
    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead>;

    /// Revision of the last durable change; 0 if there was none. Called after a read, it is not less than any revision that
    /// the read saw. Never waits for the disk.
    fn revision(&self) -> u64;

    /// Time until a [`crate::KvOp::Sweep`] has work; `None` = no key expires. Never waits for the disk.
    fn kv_due_in(&self) -> Option<Duration>;

    /// The time by which keys expire now; `None` = that of the server's clock. Never waits.
    fn kv_now(&self) -> Option<Timestamp> {
        None
    }

    /// Names the right of this server, at the moment of the call, to be the only one that changes the keys of a store that
    /// other servers write to; `None` = it has none. Between two calls with the same answer nobody else has changed a key,
    /// and no change by this server was left unknown. Never waits.
    fn kv_lease(&self) -> Option<NonZeroU64> {
        None
    }
}
