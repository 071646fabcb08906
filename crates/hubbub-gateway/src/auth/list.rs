//! API keys, revoked tokens, accounts and logins: entries of the store's keys below a reserved prefix, kept in memory by every
//! server.
//!
//! Whoever changes one applies it here before answering. Where other servers share the store, each of them reads the
//! changes several times a second, and before it accepts an API key or a login: a revoked one is refused by every server from
//! the moment its revocation is answered. Open sockets, and revoked tokens on other servers, end within a second.
//!
//! Of an API key or a login only a hash is stored. Its secret has 256 random bits, so the hash needs neither salt nor rounds.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use aws_lc_rs::{constant_time, digest, rand};
use hubbub_core::kv::{KvChanged, KvEntry, KvHistory};
use hubbub_core::store::{ReadError, Store};
use hubbub_core::{Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::accounts::{self, Accounts, StoredAccount, StoredLogin};
use super::caller::{Access, Source};
use super::catching_up::CatchingUp;
use super::grants::GrantsText;

/// Where they are in the store. No client reads or writes keys that begin so.
pub(crate) const RESERVED: &[u8] = b"\0hubbub/";
const KEYS: &[u8] = b"\0hubbub/key/";
const TOKENS: &[u8] = b"\0hubbub/revoked/token/";
const USERS: &[u8] = b"\0hubbub/revoked/user/";
/// API keys, revocations, accounts and logins that a store may hold.
pub(crate) const ENTRIES_MAX: usize = 100_000;
const PAGE: usize = 1_000;

/// What an API key begins with, so that people and scanners recognise it.
pub(crate) const PREFIX: &str = "hbk_";
const SECRET_BYTES: usize = 32;

/// An API key as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredKey {
    pub(crate) name: String,
    pub(crate) user: String,
    hash: String,
    pub(crate) created_at: i64,
    /// In microseconds since 1970; `None` = until it is revoked.
    #[serde(default)]
    pub(crate) expires_at: Option<i64>,
    #[serde(default)]
    pub(crate) grants: GrantsText,
}

/// Who revoked what, as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredRevocation {
    /// The token's `jti`, or the user.
    pub(crate) subject: String,
    /// Of a user: tokens issued before this are revoked, in microseconds since 1970.
    #[serde(default)]
    pub(crate) before: i64,
}

/// What is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Revoked {
    Token,
    User,
}

impl Revoked {
    /// The key of an entry; a name of any length and content has a short one.
    pub(crate) fn key(self, subject: &str) -> Vec<u8> {
        let prefix = match self {
            Self::Token => TOKENS,
            Self::User => USERS,
        };
        [prefix, hash(subject).as_bytes()].concat()
    }
}

pub(crate) fn key_of_key(id: &str) -> Vec<u8> {
    [KEYS, id.as_bytes()].concat()
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A new API key or login: its id, what its owner gets, which begins with `prefix`, and the hash that is stored.
pub(crate) fn make_secret(prefix: &str) -> Option<(String, String, String)> {
    let (id, mut secret) = (make_id()?, [0; SECRET_BYTES]);
    rand::fill(&mut secret).ok()?;
    let secret = hex(&secret);
    let token = format!("{prefix}{id}_{secret}");
    Some((id, token, hash(&secret)))
}

/// 64 random bits.
pub(crate) fn make_id() -> Option<String> {
    let mut id = [0; 8];
    rand::fill(&mut id).ok()?;
    Some(hex(&id))
}

impl StoredKey {
    pub(crate) fn new(
        (name, user): (String, String),
        grants: GrantsText,
        (created_at, expires_at): (Timestamp, Option<Timestamp>),
        hash: String,
    ) -> Self {
        let (created_at, expires_at) = (created_at.as_micros(), expires_at.map(Timestamp::as_micros));
        Self { name, user, hash, created_at, expires_at, grants }
    }
}

#[derive(Default)]
struct Entries {
    keys: HashMap<String, (StoredKey, Arc<Access>)>,
    /// By what is revoked, then by its name.
    revoked: HashMap<Revoked, HashMap<String, (StoredRevocation, Timestamp)>>,
    /// The names in [`Self::revoked`], by the key of the entry. Thousands may expire together.
    revoked_keys: HashMap<Box<[u8]>, String>,
    accounts: Accounts,
    /// Keys of entries that cannot be read. Those of revocations have the hash of what is revoked.
    unreadable: HashSet<Box<[u8]>>,
    /// The history that they belong to; of another one, all are read again.
    epoch: Arc<str>,
    /// The revision up to which changes are in.
    through: u64,
}

pub(crate) struct AccessList {
    /// `None` = it has no keys, so there are no API keys, and nothing is revoked before it expires.
    store: Option<Arc<dyn Store>>,
    entries: RwLock<Entries>,
    catching_up: CatchingUp,
}

impl AccessList {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let store = store.has_queues_and_keys().then_some(store);
        Self { store, entries: RwLock::default(), catching_up: CatchingUp::new() }
    }

    /// Reads all entries.
    pub(crate) async fn load(&self) -> Result<(), ReadError> {
        let Some(store) = &self.store else { return Ok(()) };
        // In this order: a history that begins in between is noticed by the next refresh.
        let (epoch, through) = (store.epoch(), store.revision());
        let mut loaded = Entries { epoch, through, ..Entries::default() };
        let mut after: Option<Arc<[u8]>> = None;
        loop {
            let page = store.keys(RESERVED, after.as_deref(), PAGE).await?;
            for info in &page {
                let value = store.value(&info.key).await?;
                let _ = loaded.apply(&info.key, value.as_ref().map(|entry| &*entry.value));
            }
            if page.len() < PAGE {
                break;
            }
            after = page.last().map(|info| info.key.clone());
        }
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = loaded;
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
        loop {
            let (epoch, through) = self.read_entries(|entries| (entries.epoch.clone(), entries.through));
            let history = store.changes(RESERVED, through, PAGE).await?;
            let page = match history {
                KvHistory::Changes(page) if store.epoch() == epoch => page,
                KvHistory::Changes(_) | KvHistory::Compacted { .. } => {
                    self.load().await?;
                    on_change();
                    return Ok(());
                }
            };
            let mut changed = Vec::new();
            for change in &page.changes {
                let value = match change.what {
                    KvChanged::Put => store.value(&change.key).await?,
                    KvChanged::Deleted | KvChanged::Expired => None,
                };
                changed.push((change.key.clone(), value));
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
    fn apply(&self, changed: Vec<(Arc<[u8]>, Option<KvEntry>)>, through: u64) -> bool {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.through = through;
        changed.into_iter().fold(false, |has_lost, (key, value)| {
            entries.apply(&key, value.as_ref().map(|entry| &*entry.value)) || has_lost
        })
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
        self.read_entries(|entries| match &access.source {
            Source::Anyone => false,
            Source::Key(id) => !entries.keys.contains_key(&**id),
            Source::Login(id) => !entries.accounts.is_valid(id),
            Source::Token { id, issued_at } => {
                let is_revoked = |of: Revoked, subject: &str| {
                    if !entries.unreadable.is_empty() && entries.unreadable.contains(&*of.key(subject)) {
                        return true;
                    }
                    let found = entries.revoked.get(&of).and_then(|revoked| revoked.get(subject));
                    found.is_some_and(|(_, before)| {
                        of == Revoked::Token || issued_at.is_none_or(|issued_at| issued_at < *before)
                    })
                };
                !(entries.revoked.is_empty() && entries.unreadable.is_empty())
                    && (id.as_deref().is_some_and(|id| is_revoked(Revoked::Token, id))
                        || access
                            .subject
                            .as_ref()
                            .is_some_and(|user| is_revoked(Revoked::User, user.as_str())))
            }
        })
    }

    /// What in the list cannot be read, and what follows from that; `None` = nothing.
    pub(crate) fn fault(&self) -> Option<String> {
        let count = self.read_entries(|entries| entries.unreadable.len());
        (count > 0).then(|| {
            format!(
                "{count} API keys or revocations in the store cannot be read: such keys are refused, and what such \
                 revocations name counts as revoked, whenever it was issued; revoke it again, or see the server's log"
            )
        })
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

impl Entries {
    /// Applies an entry as it is now. What cannot be read grants nothing: an API key, an account or a login counts as not
    /// there, and a revocation as one for good. Says whether somebody may have lost a right: what is only added changes
    /// nothing of what is known of others.
    fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        self.unreadable.remove(key);
        if let Some(has_lost) = self.accounts.apply(key, value) {
            if value.is_some() && !self.accounts.has(key) {
                self.unreadable.insert(key.into());
            }
            return has_lost;
        }
        if let Some(id) = key.strip_prefix(KEYS) {
            let id = String::from_utf8_lossy(id).into_owned();
            let before = self.keys.remove(&id);
            match value.map(|value| api_key(&id, value)) {
                Some(Ok(entry)) => drop(self.keys.insert(id, entry)),
                Some(Err(error)) => {
                    tracing::error!(%error, id, "an API key in the store cannot be read; it is refused");
                    self.unreadable.insert(key.into());
                }
                None => {}
            }
            return before.is_some();
        }
        let of = match (key.strip_prefix(TOKENS), key.strip_prefix(USERS)) {
            (Some(_), _) => Revoked::Token,
            (None, Some(_)) => Revoked::User,
            (None, None) => return false,
        };
        let revoked = self.revoked.entry(of).or_default();
        match value.map(serde_json::from_slice::<StoredRevocation>) {
            Some(Ok(stored)) => {
                let before = Timestamp::from_micros(stored.before);
                self.revoked_keys.insert(key.into(), stored.subject.clone());
                revoked.insert(stored.subject.clone(), (stored, before));
            }
            Some(Err(error)) => {
                tracing::error!(%error, "a revocation in the store cannot be read; what it names counts as revoked");
                self.unreadable.insert(key.into());
            }
            None => {
                if let Some(subject) = self.revoked_keys.remove(key) {
                    revoked.remove(&subject);
                }
            }
        }
        true
    }
}

/// Compares two hashes in constant time.
fn are_same(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

fn api_key(id: &str, value: &[u8]) -> Result<(StoredKey, Arc<Access>), String> {
    let stored: StoredKey = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let grants = stored.grants.parse()?;
    let subject = UserId::new(&stored.user).map_err(|error| error.to_string())?;
    let expires_at = stored.expires_at.map(Timestamp::from_micros);
    let source = Source::Key(id.into());
    Ok((stored, Arc::new(Access { subject: Some(subject), grants, expires_at, source })))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
