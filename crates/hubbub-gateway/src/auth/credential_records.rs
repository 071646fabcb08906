//! What the entries of [`super::list`] say, and what follows from them.
//!
//! Invariants
//! - What cannot be read grants nothing: an API key, an account or a login counts as not there, and a revocation as one for good.
//! - An entry that cannot be read changes nothing of what is known of others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::{Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use super::caller::{Access, RightsSource};
use super::grants::GrantsText;
use super::receipts::{self, ReceiptFormat};
use super::secrets::hash;

const KEYS: &[u8] = b"\0hubbub/key/";
const TOKENS: &[u8] = b"\0hubbub/revoked/token/";
const USERS: &[u8] = b"\0hubbub/revoked/user/";

/// An API key as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredKey {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(super) hash: String,
    pub(crate) created_at: i64,
    /// In microseconds since 1970; `None` = until it is revoked.
    #[serde(default)]
    pub(crate) expires_at: Option<i64>,
    #[serde(default)]
    pub(crate) grants: GrantsText,
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

pub(crate) fn key_of_key(id: &str) -> Vec<u8> {
    [KEYS, id.as_bytes()].concat()
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

/// Keys that could not be listed: behind `after`, and before `before`. `None` = from the first, or to the last.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) after: Option<Arc<[u8]>>,
    pub(super) before: Option<Arc<[u8]>>,
}

impl Gap {
    fn has(&self, key: &[u8]) -> bool {
        self.after.as_deref().is_none_or(|after| after < key)
            && self.before.as_deref().is_none_or(|before| key < before)
    }
}

/// All entries as they are known.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) keys: HashMap<String, (StoredKey, Arc<Access>)>,
    /// By what is revoked, then by its name.
    pub(super) revoked: HashMap<Revoked, HashMap<String, (StoredRevocation, Timestamp)>>,
    /// The names in [`Self::revoked`], by the key of the entry. Thousands may expire together.
    revoked_keys: HashMap<Box<[u8]>, String>,
    pub(super) accounts: Accounts,
    /// With the key that the store has for it.
    pub(super) receipt_format: Option<ReceiptFormat>,
    /// Keys of entries that cannot be read. Those of revocations have the hash of what is revoked.
    unreadable: HashSet<Box<[u8]>>,
    /// Where any entry may be.
    pub(super) gaps: Vec<Gap>,
    /// The history that they belong to; of another one, all are read again.
    pub(super) epoch: Arc<str>,
    /// The revision up to which changes are in.
    pub(super) through: u64,
}

impl Entries {
    /// None yet, of a history up to a revision.
    pub(super) fn of(epoch: Arc<str>, through: u64) -> Self {
        Self { epoch, through, ..Self::default() }
    }

    /// Applies an entry as it is now. Says whether somebody may have lost a right: what is only added changes nothing of what
    /// is known of others.
    pub(super) fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        self.unreadable.remove(key);
        if let Some(has_lost) = self.accounts.apply(key, value) {
            if value.is_some() && !self.accounts.has(key) {
                self.unreadable.insert(key.into());
            }
            return has_lost;
        }
        if let Some(id) = key.strip_prefix(KEYS) {
            return self.apply_key(key, String::from_utf8_lossy(id).into_owned(), value);
        }
        if key == receipts::KEY {
            self.receipt_format = value.and_then(ReceiptFormat::with_key);
            return false;
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

    fn apply_key(&mut self, key: &[u8], id: String, value: Option<&[u8]>) -> bool {
        let before = self.keys.remove(&id);
        match value.map(|value| api_key(&id, value)) {
            Some(Ok(entry)) => drop(self.keys.insert(id, entry)),
            Some(Err(error)) => {
                tracing::error!(%error, id, "an API key in the store cannot be read; it is refused");
                self.unreadable.insert(key.into());
            }
            None => {}
        }
        before.is_some()
    }

    /// Whether somebody's token or key was revoked.
    pub(super) fn is_revoked(&self, access: &Access) -> bool {
        match &access.source {
            RightsSource::Anyone => false,
            RightsSource::Key(id) => !self.keys.contains_key(&**id),
            RightsSource::Login(id) => !self.accounts.is_valid(id),
            RightsSource::Token { id, issued_at } => {
                let user = access.subject.as_ref().map(UserId::as_str);
                id.as_deref().is_some_and(|id| self.has_revoked(Revoked::Token, id, *issued_at))
                    || user.is_some_and(|user| self.has_revoked(Revoked::User, user, *issued_at))
            }
        }
    }

    fn has_revoked(&self, of: Revoked, subject: &str, issued_at: Option<Timestamp>) -> bool {
        let may_be_unreadable = !(self.unreadable.is_empty() && self.gaps.is_empty());
        let key = may_be_unreadable.then(|| of.key(subject));
        if key.as_deref().is_some_and(|key| self.unreadable.contains(key)) {
            return true;
        }
        match self.revoked.get(&of).and_then(|revoked| revoked.get(subject)) {
            Some((_, before)) => {
                of == Revoked::Token || issued_at.is_none_or(|issued_at| issued_at < *before)
            }
            None => key.is_some_and(|key| self.gaps.iter().any(|gap| gap.has(&key))),
        }
    }

    /// Whether an entry is there, or may be, that cannot be read.
    pub(super) fn is_unreadable(&self, key: &[u8]) -> bool {
        self.unreadable.contains(key) || self.gaps.iter().any(|gap| gap.has(key))
    }

    /// What cannot be read, and what follows from that; `None` = nothing.
    pub(super) fn fault(&self) -> Option<String> {
        let what = "API keys, accounts, logins";
        let what = match (self.unreadable.len(), self.gaps.len()) {
            (0, 0) => return None,
            (count, 0) => format!("{count} {what} or revocations"),
            (_, _) => format!("a part of the list of {what} and revocations"),
        };
        Some(format!(
            "{what} in the store cannot be read: what they allow is refused, and what such revocations name counts as \
             revoked, whenever it was issued; revoke or add it again, or mend the store and restart the server; see its log"
        ))
    }
}

fn api_key(id: &str, value: &[u8]) -> Result<(StoredKey, Arc<Access>), String> {
    let stored: StoredKey = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let grants = stored.grants.parse()?;
    let subject = UserId::new(&stored.user).map_err(|error| error.to_string())?;
    let expires_at = stored.expires_at.map(Timestamp::from_micros);
    let source = RightsSource::Key(id.into());
    let access = Access { subject: Some(subject), grants, expires_at, leeway: Duration::ZERO, source };
    Ok((stored, Arc::new(access)))
}
