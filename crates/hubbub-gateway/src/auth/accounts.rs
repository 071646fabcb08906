//! Accounts with passwords, and logins: where somebody is logged in. Both are entries of [`super::list`].
//!
//! A login is found by its token, as an API key is. It stands for the account as it was when the password was given: of a
//! removed or another account of the same name, and of one whose password or rights changed since, it is not valid. So one
//! write ends all logins of an account.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::{Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::attempts::{AttemptLimits, Attempts};
use super::caller::{Access, RightsSource};
use super::grants::{Grants, GrantsText};
use super::passwords::Passwords;

/// Begins the token of a login.
pub(crate) const PREFIX: &str = "hbl_";
const ACCOUNTS: &[u8] = b"\0hubbub/account/";
const LOGINS: &[u8] = b"\0hubbub/login/";

/// Logins that an account may have at a time; another one ends the oldest.
pub(crate) const LOGINS_MAX: usize = 20;

/// How people log in.
#[derive(Debug, Clone, Copy)]
pub struct AccountRules {
    /// How long a login lasts.
    pub login_lifetime: Duration,
    /// How often a password may be tried.
    pub attempts: AttemptLimits,
}

/// What logging in takes, where it is allowed.
pub(crate) struct LoggingIn {
    pub(crate) lifetime: Duration,
    pub(crate) attempts: Attempts,
    pub(crate) passwords: Passwords,
}

impl LoggingIn {
    /// `None` = the system gives no random bytes.
    pub(super) fn new(rules: AccountRules) -> Option<Self> {
        let (lifetime, attempts) = (rules.login_lifetime, Attempts::new(rules.attempts));
        Some(Self { lifetime, attempts, passwords: Passwords::new()? })
    }
}

/// An account as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredAccount {
    pub(crate) user: String,
    /// Of this account, not of one that had the name before.
    pub(crate) id: String,
    /// Grows when the password or the rights change.
    pub(crate) generation: u64,
    /// The login that changed the password, and is still valid.
    #[serde(default)]
    pub(crate) kept: Option<String>,
    /// In PHC string format.
    pub(crate) hash: String,
    /// In microseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) password_at: i64,
    #[serde(default)]
    pub(crate) grants: GrantsText,
}

/// A login as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredLogin {
    pub(crate) user: String,
    /// The account's id and generation.
    pub(crate) account: String,
    pub(crate) generation: u64,
    /// Of the token's secret.
    pub(crate) hash: String,
    /// In microseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) address: String,
    pub(crate) agent: String,
}

pub(crate) fn key_of_account(user: &str) -> Vec<u8> {
    [ACCOUNTS, user.as_bytes()].concat()
}

pub(crate) fn key_of_login(id: &str) -> Vec<u8> {
    [LOGINS, id.as_bytes()].concat()
}

struct Account {
    stored: StoredAccount,
    subject: UserId,
    grants: Grants,
}

/// All accounts and logins of the store.
#[derive(Default)]
pub(super) struct Accounts {
    accounts: BTreeMap<String, Account>,
    logins: BTreeMap<String, StoredLogin>,
    /// Ids of the logins of each user, in the order in which they came.
    of_user: HashMap<String, Vec<String>>,
}

impl Accounts {
    /// Applies an entry as it is now; `None` = it is of another kind. Otherwise, whether it takes away rights that somebody
    /// may have. What cannot be read counts as not there.
    pub(super) fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<bool> {
        if let Some(user) = key.strip_prefix(ACCOUNTS) {
            let user = String::from_utf8_lossy(user).into_owned();
            let before = match value.and_then(|value| account(&user, value)) {
                Some(account) => self.accounts.insert(user, account),
                None => self.accounts.remove(&user),
            };
            return Some(before.is_some());
        }
        let id = String::from_utf8_lossy(key.strip_prefix(LOGINS)?).into_owned();
        let login = value.and_then(|value| {
            let report =
                |error| tracing::error!(%error, id, "a login in the store cannot be read; it is refused");
            serde_json::from_slice::<StoredLogin>(value).map_err(report).ok()
        });
        let before = self.logins.remove(&id);
        if let Some(before) = &before
            && let Some(ids) = self.of_user.get_mut(&before.user)
        {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.of_user.remove(&before.user);
            }
        }
        if let Some(login) = login {
            self.of_user.entry(login.user.clone()).or_default().push(id.clone());
            self.logins.insert(id, login);
        }
        Some(before.is_some())
    }

    /// Whether the entry is there, and could be read.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let name = |prefix| key.strip_prefix(prefix).and_then(|name| std::str::from_utf8(name).ok());
        name(ACCOUNTS).is_some_and(|user| self.accounts.contains_key(user))
            || name(LOGINS).is_some_and(|id| self.logins.contains_key(id))
    }

    /// How many accounts and logins there are.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.accounts.len(), self.logins.len())
    }

    /// The account that a login is valid for.
    fn account_of(&self, id: &str, login: &StoredLogin) -> Option<&Account> {
        self.accounts.get(&login.user).filter(|account| account.stored.accepts(id, login))
    }

    pub(super) fn is_valid(&self, id: &str) -> bool {
        self.logins.get(id).is_some_and(|login| self.account_of(id, login).is_some())
    }

    /// What a login is the right to, if its secret has the hash that `is_right` compares.
    pub(super) fn access(&self, id: &str, is_right: impl FnOnce(&str) -> bool) -> Option<Access> {
        let login = self.logins.get(id).filter(|login| is_right(&login.hash))?;
        let account = self.account_of(id, login)?;
        Some(Access {
            subject: Some(account.subject.clone()),
            grants: account.grants.clone(),
            expires_at: Some(Timestamp::from_micros(login.expires_at)),
            leeway: Duration::ZERO,
            source: RightsSource::Login(id.into()),
        })
    }

    pub(super) fn account(&self, user: &str) -> Option<&StoredAccount> {
        Some(&self.accounts.get(user)?.stored)
    }

    /// Accounts behind `after`, by name.
    pub(super) fn page(&self, after: Option<&str>, limit: usize) -> Vec<StoredAccount> {
        let range = self
            .accounts
            .range::<str, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        range.map(|(_, account)| account.stored.clone()).take(limit).collect()
    }

    /// Valid logins behind `after`, by id; of everybody, or of one user.
    pub(super) fn logins(
        &self,
        user: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(String, StoredLogin)> {
        let is_valid = |(id, login): &(&String, &StoredLogin)| self.account_of(id, login).is_some();
        let copy = |(id, login): (&String, &StoredLogin)| (id.clone(), login.clone());
        if let Some(user) = user {
            let mut ids: Vec<&String> = self.of_user.get(user).into_iter().flatten().collect();
            ids.sort_unstable();
            let behind = ids.into_iter().filter(|id| after.is_none_or(|after| id.as_str() > after));
            let known = behind.filter_map(|id| self.logins.get_key_value(id));
            return known.filter(is_valid).map(copy).take(limit).collect();
        }
        let range =
            self.logins.range::<str, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        range.filter(is_valid).map(copy).take(limit).collect()
    }

    pub(super) fn login(&self, id: &str) -> Option<&StoredLogin> {
        self.logins.get(id)
    }

    /// The logins of a user that must go for another one: those that are not valid, and the oldest if there are too many.
    pub(super) fn surplus(&self, user: &str) -> Vec<String> {
        let all = self.of_user.get(user).into_iter().flatten();
        let (mut valid, mut surplus): (Vec<&String>, Vec<&String>) = all.partition(|id| self.is_valid(id));
        let begun = |id: &&String| self.logins.get(*id).map(|login| login.created_at);
        valid.sort_by_key(begun);
        let excess = (valid.len() + 1).saturating_sub(LOGINS_MAX);
        surplus.extend(valid.into_iter().take(excess));
        surplus.into_iter().cloned().collect()
    }

    /// Ids of all logins of a user.
    pub(super) fn ids_of(&self, user: &str) -> Vec<String> {
        self.of_user.get(user).cloned().unwrap_or_default()
    }
}

fn account(user: &str, value: &[u8]) -> Option<Account> {
    let parse = || {
        let stored: StoredAccount = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let grants = stored.grants.parse()?;
        let subject = UserId::new(&stored.user).map_err(|error| error.to_string())?;
        Ok(Account { stored, subject, grants })
    };
    let report = |error: String| tracing::error!(%error, user, "an account in the store cannot be read; it is refused");
    parse().map_err(report).ok()
}

impl StoredAccount {
    /// Whether a login is valid for this account.
    pub(crate) fn accepts(&self, id: &str, login: &StoredLogin) -> bool {
        self.id == login.account && (self.generation == login.generation || self.kept.as_deref() == Some(id))
    }
}

impl StoredLogin {
    /// A login of an account, from `now` on.
    pub(crate) fn new(account: &StoredAccount, (now, lifetime): (Timestamp, Duration), hash: String) -> Self {
        let created_at = now.as_micros();
        Self {
            user: account.user.clone(),
            account: account.id.clone(),
            generation: account.generation,
            hash,
            created_at,
            expires_at: created_at.saturating_add(saturate(lifetime.as_micros())),
            address: String::new(),
            agent: String::new(),
        }
    }
}

/// The login somebody calls with, if it is one.
pub(crate) fn login_of(access: &Access) -> Option<&str> {
    match &access.source {
        RightsSource::Login(id) => Some(id),
        RightsSource::Anyone | RightsSource::Token { .. } | RightsSource::Key(_) => None,
    }
}

/// A token of the store, which other servers may revoke at any time.
pub(super) fn is_stored(token: &str) -> bool {
    token.starts_with(super::credential_store::PREFIX) || token.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: &str, generation: u64, kept: Option<&str>) -> StoredAccount {
        StoredAccount {
            user: "ada".into(),
            id: id.into(),
            generation,
            kept: kept.map(str::to_owned),
            hash: String::new(),
            created_at: 0,
            password_at: 0,
            grants: GrantsText::default(),
        }
    }

    fn put(accounts: &mut Accounts, key: &[u8], value: &impl Serialize) -> bool {
        accounts.apply(key, Some(&serde_json::to_vec(value).unwrap())).unwrap()
    }

    /// With one login of each number, of the account as it is given.
    fn with_logins(account: &StoredAccount, numbers: std::ops::Range<i64>) -> Accounts {
        let mut accounts = Accounts::default();
        assert!(
            !put(&mut accounts, &key_of_account("ada"), account),
            "nobody loses anything by a new account"
        );
        for number in numbers {
            let at = (Timestamp::from_micros(number), Duration::from_secs(1));
            let login = StoredLogin::new(account, at, "hash".into());
            assert!(!put(&mut accounts, &key_of_login(&format!("l{number}")), &login));
        }
        accounts
    }

    #[test]
    fn a_change_of_the_account_ends_all_logins_but_the_one_it_names() {
        let mut accounts = with_logins(&stored("a", 1, None), 0..3);
        assert!(accounts.is_valid("l0") && !accounts.is_valid("nobody"));
        assert!(put(&mut accounts, &key_of_account("ada"), &stored("a", 2, Some("l1"))));
        assert_eq!([0, 1, 2].map(|n| accounts.is_valid(&format!("l{n}"))), [false, true, false]);
        assert!(accounts.access("l1", |hash| hash == "hash").is_some());
        assert!(accounts.access("l1", |_| false).is_none());
        assert_eq!(accounts.logins(Some("ada"), None, 10).len(), 1);
        // The next change ends it, too.
        put(&mut accounts, &key_of_account("ada"), &stored("a", 3, None));
        assert!(!accounts.is_valid("l1"));
        // Another account of the name is not the one that they are for.
        let mut accounts = with_logins(&stored("a", 1, None), 0..1);
        assert_eq!(accounts.apply(&key_of_account("ada"), None), Some(true));
        assert!(!accounts.is_valid("l0"));
        put(&mut accounts, &key_of_account("ada"), &stored("b", 1, None));
        assert!(!accounts.is_valid("l0") && accounts.access("l0", |_| true).is_none());
    }

    #[test]
    fn what_is_not_valid_and_the_oldest_go_for_another_login() {
        let mut accounts = with_logins(&stored("a", 1, None), 0..i64::try_from(LOGINS_MAX).unwrap() + 2);
        assert_eq!(accounts.surplus("ada"), ["l0", "l1", "l2"]);
        assert_eq!(accounts.apply(&key_of_login("l1"), None), Some(true));
        assert_eq!(accounts.apply(&key_of_login("l1"), None), Some(false));
        assert_eq!(accounts.surplus("ada"), ["l0", "l2"]);
        put(&mut accounts, &key_of_account("ada"), &stored("a", 2, Some("l5")));
        let surplus = accounts.surplus("ada");
        assert_eq!((surplus.len(), surplus.contains(&"l5".to_owned())), (LOGINS_MAX, false));
        for id in accounts.ids_of("ada") {
            accounts.apply(&key_of_login(&id), None);
        }
        assert!(accounts.of_user.is_empty() && accounts.logins.is_empty());
    }

    #[test]
    fn what_cannot_be_read_grants_nothing() {
        let mut accounts = with_logins(&stored("a", 1, None), 0..1);
        let wrong =
            GrantsText { rooms: [("a*b".to_owned(), "r".to_owned())].into(), ..GrantsText::default() };
        assert!(put(
            &mut accounts,
            &key_of_account("ada"),
            &StoredAccount { grants: wrong, ..stored("a", 1, None) }
        ));
        assert!(!accounts.is_valid("l0"));
        assert_eq!(accounts.apply(&key_of_login("l0"), Some(b"{}")), Some(true));
        assert_eq!(accounts.apply(b"\0hubbub/key/x", Some(b"{}")), None);
        assert_eq!(accounts.counts(), (0, 0));
    }
}
