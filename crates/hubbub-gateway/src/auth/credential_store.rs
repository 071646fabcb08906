//! API keys, revoked tokens, accounts, logins and the key of receipts: entries of the store's keys below a reserved prefix, kept
//! in memory by every server.
//!
//! Whoever changes one applies it here before answering. Where other servers share the store, each of them reads the
//! changes several times a second, and before it accepts an API key or a login: a revoked one is refused by every server from
//! the moment its revocation is answered. Open sockets, and revoked tokens on other servers, end within a second.
//!
//! An entry that is damaged in the store holds up no other: it counts as one that cannot be read ([`super::entries`]).
//!
//! Entries that have expired are not seen. A server that starts with a clock that is ahead takes some for expired that are not, and
//! the store tells of no change when the clock is set right. So everything is read again when time was set back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use futures_util::future::join_all;
use hubbub_core::Clock;
use hubbub_core::clock::STEP_MAX;
use hubbub_core::invariant::saturate;
use hubbub_core::kv::{KvChange, KvChanged, KvChangesRead};
use hubbub_core::store::{ReadError, Store};

use super::accounts::{self, StoredAccount, StoredLogin};
use super::caller::Access;
use super::coalesced_read::CoalescedRead;
use super::credential_records::{Entries, Gap, Revoked, StoredKey, StoredRevocation};
use super::receipts::ReceiptFormat;
use super::secrets::{are_same, hash};

/// Where they are in the store. No client reads or writes keys that begin so.
pub(crate) const RESERVED: &[u8] = b"\0hubbub/";
/// API keys, revocations, accounts and logins that a store may hold.
pub(crate) const ENTRIES_MAX: usize = 100_000;
const PAGE: usize = 1_000;
/// Values that are read together: one after another, many take long in a store at the other end of a network.
const READS_AT_ONCE: usize = 50;

/// What an API key begins with, so that people and scanners recognise it.
pub const PREFIX: &str = "hbk_";

/// A key and its value, if it has one.
type Entry = (Arc<[u8]>, Option<Arc<[u8]>>);

pub(crate) struct CredentialStore {
    /// `None` = it has no keys, so there are no API keys, and nothing is revoked before it expires.
    store: Option<Arc<dyn Store>>,
    entries: RwLock<Entries>,
    catching_up: CoalescedRead,
    clock: Arc<dyn Clock>,
    /// The most that the time by which entries expire was ahead of the monotonic clock since all of them were read, in
    /// microseconds.
    ahead_max: AtomicI64,
}

impl CredentialStore {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let store = store.has_queues_and_keys().then_some(store);
        let (entries, catching_up) = (RwLock::default(), CoalescedRead::new());
        Self { store, entries, catching_up, clock, ahead_max: AtomicI64::new(i64::MIN) }
    }

    /// Whether time was set back since all entries were read, so that some may be valid again that had expired before. Call it
    /// regularly: it compares with the times that it saw.
    pub(crate) fn was_set_back(&self) -> bool {
        let Some(store) = &self.store else { return false };
        let ahead = self.ahead(&**store);
        let most = self.ahead_max.fetch_max(ahead, Ordering::SeqCst);
        most.saturating_sub(ahead) > saturate(STEP_MAX.as_micros())
    }

    /// How far the time by which entries expire is ahead of the monotonic clock, in microseconds.
    fn ahead(&self, store: &dyn Store) -> i64 {
        let now = store.kv_now().unwrap_or_else(|| self.clock.now());
        now.as_micros().saturating_sub(saturate(self.clock.monotonic().as_micros()))
    }

    /// Reads all entries.
    pub(crate) async fn load(&self) -> Result<(), ReadError> {
        let Some(store) = &self.store else { return Ok(()) };
        let ahead = self.ahead(&**store);
        // In this order: a history that begins in between is noticed by the next refresh.
        let (epoch, through) = (store.epoch(), store.revision());
        let mut loaded = Entries::of(epoch, through);
        let (mut after, mut limit): (Option<Arc<[u8]>>, usize) = (None, PAGE);
        loop {
            let (keys, has_more): (Vec<Arc<[u8]>>, bool) =
                match store.keys(RESERVED, after.as_deref(), limit).await {
                    Ok(page) => {
                        let has_more = page.keys.len() == limit;
                        (page.keys.into_iter().map(|info| info.key).collect(), has_more)
                    }
                    // What is before the damage is in a smaller page.
                    Err(ReadError::Damaged { .. }) if limit > 1 => {
                        limit /= 2;
                        continue;
                    }
                    // What is known is better than nothing at all.
                    Err(error @ ReadError::Damaged { resume_at: None, .. })
                        if after.is_none() && self.is_loaded() =>
                    {
                        return Err(error);
                    }
                    Err(ReadError::Damaged { resume_at, .. }) => {
                        loaded.gaps.push(Gap { after: after.clone(), before: resume_at.clone() });
                        limit = PAGE;
                        let behind = resume_at.filter(|key| key.starts_with(RESERVED));
                        let has_more = behind.is_some();
                        (behind.into_iter().collect(), has_more)
                    }
                    Err(error) => return Err(error),
                };
            for keys in keys.chunks(READS_AT_ONCE) {
                let values = join_all(keys.iter().map(|key| read_value(&**store, key))).await;
                for (key, value) in keys.iter().zip(values) {
                    let _ = loaded.apply(key, value?.as_deref());
                }
            }
            if !has_more {
                break;
            }
            after = keys.into_iter().next_back();
        }
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        self.ahead_max.store(ahead, Ordering::SeqCst);
        Ok(())
    }

    /// Applies everything that was committed before this was called. Calls `on_change` if that took anything away, before
    /// anybody who waits for it goes on.
    pub(crate) async fn refresh(&self, on_change: impl Fn()) -> Result<(), ReadError> {
        let Some(store) = &self.store else { return Ok(()) };
        self.catching_up.run(self.read_changes(&**store, on_change)).await
    }

    /// Everything that was committed before this is applied.
    pub(crate) fn up_to(&self) -> Instant {
        self.catching_up.up_to()
    }

    async fn read_changes(&self, store: &dyn Store, on_change: impl Fn()) -> Result<(), ReadError> {
        if self.was_set_back() {
            self.load().await?;
            on_change();
            return Ok(());
        }
        loop {
            let (epoch, through) = self.read_entries(|entries| (entries.epoch.clone(), entries.through));
            let page = match store.changes(RESERVED, through, PAGE).await {
                Ok(KvChangesRead::Changes(page)) if store.epoch() == epoch => page,
                // Changes that cannot be read are passed over by reading everything.
                Ok(KvChangesRead::Changes(_) | KvChangesRead::Compacted { .. })
                | Err(ReadError::Damaged { .. }) => {
                    self.load().await?;
                    on_change();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let mut changed = Vec::new();
            for changes in page.changes.chunks(READS_AT_ONCE) {
                let values = join_all(changes.iter().map(|change| read_changed(store, change))).await;
                for (change, value) in changes.iter().zip(values) {
                    changed.push((change.key.clone(), value?));
                }
            }
            if self.apply(changed, page.through) {
                on_change();
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Says whether somebody may have lost a right.
    fn apply(&self, changed: Vec<Entry>, through: u64) -> bool {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.through = through;
        changed
            .into_iter()
            .fold(false, |has_lost, (key, value)| entries.apply(&key, value.as_deref()) || has_lost)
    }

    /// Whether entries were read before.
    fn is_loaded(&self) -> bool {
        self.read_entries(|entries| !entries.epoch.is_empty())
    }

    /// Whether a revocation is there, or may be, that cannot be read.
    pub(crate) fn is_unreadable(&self, of: Revoked, subject: &str) -> bool {
        self.read_entries(|entries| entries.is_unreadable(&of.key(subject)))
    }

    fn read_entries<T>(&self, read: impl FnOnce(&Entries) -> T) -> T {
        read(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who has this API key; `None` = there is none, or its secret is another.
    pub(crate) fn key(&self, text: &str) -> Option<Arc<Access>> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let given = hash(secret);
        self.read_entries(|entries| {
            let (stored, access) = entries.keys.get(id)?;
            are_same(&stored.hash, &given).then(|| access.clone())
        })
    }

    /// Who is logged in with this; `None` = nobody, or not any more.
    pub(crate) fn login(&self, text: &str) -> Option<Arc<Access>> {
        let (id, secret) = text.strip_prefix(accounts::PREFIX)?.split_once('_')?;
        let given = hash(secret);
        self.read_entries(|entries| entries.accounts.access(id, |hash| are_same(hash, &given)).map(Arc::new))
    }

    pub(crate) fn account(&self, user: &str) -> Option<StoredAccount> {
        self.read_entries(|entries| entries.accounts.account(user).cloned())
    }

    /// Accounts behind `after`, by name.
    pub(crate) fn accounts(&self, after: Option<&str>, limit: usize) -> Vec<StoredAccount> {
        self.read_entries(|entries| entries.accounts.page(after, limit))
    }

    /// Logins behind `after`, by id; of everybody, or of one user.
    pub(crate) fn logins(
        &self,
        user: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(String, StoredLogin)> {
        self.read_entries(|entries| entries.accounts.logins(user, after, limit))
    }

    /// A login, valid or not.
    pub(crate) fn login_by_id(&self, id: &str) -> Option<StoredLogin> {
        self.read_entries(|entries| entries.accounts.login(id).cloned())
    }

    /// Logins that must go for another one of this user.
    pub(crate) fn surplus_logins(&self, user: &str) -> Vec<String> {
        self.read_entries(|entries| entries.accounts.surplus(user))
    }

    /// All logins of a user, valid or not.
    pub(crate) fn login_ids(&self, user: &str) -> Vec<String> {
        self.read_entries(|entries| entries.accounts.ids_of(user))
    }

    /// Whether somebody's token or key was revoked.
    pub(crate) fn is_revoked(&self, access: &Access) -> bool {
        self.read_entries(|entries| entries.is_revoked(access))
    }

    /// What in the list cannot be read, and what follows from that; `None` = nothing.
    pub(crate) fn fault(&self) -> Option<String> {
        self.read_entries(Entries::fault)
    }

    /// How receipts are written and read, if there is a key for it.
    pub(crate) fn receipt_format(&self) -> Option<ReceiptFormat> {
        self.read_entries(|entries| entries.receipt_format.clone())
    }

    /// What is known of a revocation.
    pub(crate) fn revocation(&self, of: Revoked, subject: &str) -> Option<StoredRevocation> {
        self.read_entries(|entries| Some(entries.revoked.get(&of)?.get(subject)?.0.clone()))
    }

    /// Whether one more entry may come where there may be `most`. Logins do not count where another entry is to come.
    pub(crate) fn has_room(&self, is_login: bool, most: usize) -> bool {
        self.read_entries(|entries| {
            let revoked: usize = entries.revoked.values().map(HashMap::len).sum();
            let (accounts, logins) = entries.accounts.counts();
            let others = entries.keys.len() + revoked + accounts;
            others + if is_login { logins } else { 0 } < most
        })
    }

    /// All API keys, by id.
    pub(crate) fn keys(&self) -> Vec<(String, StoredKey)> {
        let mut keys: Vec<_> = self.read_entries(|entries| {
            entries.keys.iter().map(|(id, (stored, _))| (id.clone(), stored.clone())).collect()
        });
        keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        keys
    }

    /// All revocations.
    pub(crate) fn revocations(&self) -> Vec<(Revoked, StoredRevocation)> {
        let mut all: Vec<_> = self.read_entries(|entries| {
            let all =
                entries.revoked.iter().flat_map(|(of, revoked)| revoked.values().map(|entry| (*of, entry)));
            all.map(|(of, (stored, _))| (of, stored.clone())).collect()
        });
        all.sort_unstable_by(|(a, x), (b, y)| (a, &x.subject).cmp(&(b, &y.subject)));
        all
    }
}

/// What a change left of a key.
async fn read_changed(store: &dyn Store, change: &KvChange) -> Result<Option<Arc<[u8]>>, ReadError> {
    match change.what {
        KvChanged::Put => read_value(store, &change.key).await,
        KvChanged::Deleted | KvChanged::Expired => Ok(None),
    }
}

/// The value of an entry as it is now. One that is damaged is empty, which no entry can be read from.
async fn read_value(store: &dyn Store, key: &[u8]) -> Result<Option<Arc<[u8]>>, ReadError> {
    match store.value(key).await {
        Ok(entry) => Ok(entry.map(|entry| entry.value)),
        Err(ReadError::Damaged { .. }) => Ok(Some(Arc::default())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "credential_store_tests.rs"]
mod tests;
