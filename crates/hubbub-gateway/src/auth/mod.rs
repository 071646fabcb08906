//! Who calls, and what they may.
//!
//! The way of a request: [`request_token`] finds its token → [`Auth::identify`] gives what it is the right to, from memory for a
//! token that was seen before, else verified by [`token`] with the [`verifying_keys`] there are ([`jwks`] fetches those of an
//! identity provider), or looked up in [`credential_store`] for an API key or a login ([`credential_records`], [`accounts`]) →
//! [`caller::Caller::may`] answers for every endpoint, frame and command whether it is allowed; what each of them needs stands
//! in the tables of endpoints, frames and commands.
//! [`session`] ends what stays open when the right to it ends. [`receipts`] keeps people from ending the leases of others.
//!
//! Invariants
//! - Where authentication is on, nobody is an administrator without a token that says so.
//! - What is remembered of a token is forgotten with every change of keys and revocations.
//!
//! Not here: TLS, limits of rates, the requests by which people log in.

pub(crate) mod accounts;
mod attempts;
pub(crate) mod caller;
mod coalesced_read;
pub(crate) mod credential_records;
pub(crate) mod credential_store;
pub(crate) mod grants;
mod jwks;
pub(crate) mod open_connections;
pub(crate) mod origin;
pub(crate) mod passwords;
pub(crate) mod receipts;
pub(crate) mod request_token;
pub(crate) mod secrets;
pub(crate) mod session;
mod token;
mod verifying_keys;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::store::{ReadError, Store};
use hubbub_core::{Clock, ErrorCode, Timestamp, cache};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Notify;

use crate::problem::Problem;
pub use accounts::AccountRules;
use accounts::LoggingIn;
pub use attempts::AttemptLimits;
use caller::{Access, Identity};
use credential_store::CredentialStore;
pub use credential_store::PREFIX as KEY_PREFIX;
pub use grants::{GrantsText, Right, Scope};
pub use jwks::KeySetSource;
use receipts::ReceiptFormat;
use request_token::{only_header, refused, token_of};
use session::{Ended, Sessions};
use token::Refused;
pub(crate) use token::TOKEN_BYTES_MAX;
pub use token::{Claims, OneOrMany, TokenRules, Verifier, mint, unverified};

/// Interval in which open sockets are checked, the clock, and on a shared store the changes that other servers made.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// On a shared store, how old what is known of API keys and logins may be where nobody can wait for newer.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Time for the first token of a connection whose beginning had none.
pub(crate) const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of verified tokens in memory.
const CACHE_BYTES: u64 = 16 << 20;

#[derive(Clone)]
struct ByLength;

impl Weighter<Box<str>, (u64, Arc<Access>)> for ByLength {
    fn weight(&self, token: &Box<str>, _: &(u64, Arc<Access>)) -> u64 {
        // The claims take about as much again.
        2 * token.len() as u64 + 256
    }
}

type Tokens = Cache<Box<str>, (u64, Arc<Access>), ByLength>;

/// The token that a connection sent last. Most connections send one token only: they neither look it up among all tokens, nor
/// share what it is the right to with other connections, whose processors would contend for its counts of references.
#[derive(Default)]
pub(crate) struct LastToken(Mutex<Option<Remembered>>);

struct Remembered {
    /// The only header with a token, as it came.
    header: HeaderValue,
    generation: u64,
    access: Arc<Access>,
}

impl LastToken {
    fn get(&self, header: &HeaderValue, generation: u64) -> Option<Arc<Access>> {
        let last = self.0.lock();
        let last = last.as_ref().filter(|last| last.generation == generation && last.header == *header)?;
        Some(last.access.clone())
    }

    fn set(&self, header: &HeaderValue, generation: u64, access: &Access) {
        // A copy: that of the request is a part of all that was read with it.
        let Ok(header) = HeaderValue::from_bytes(header.as_bytes()) else { return };
        *self.0.lock() = Some(Remembered { header, generation, access: Arc::new(access.separate()) });
    }
}

/// Decides who calls. One for each server.
pub struct Auth {
    /// `None` = nobody has to prove anything.
    verifier: Option<Verifier>,
    /// What verified tokens are the right to, and the generation they were verified in.
    tokens: Tokens,
    /// Counts changes of keys and of revocations.
    generation: AtomicU64,
    pub(crate) credentials: CredentialStore,
    /// `None` = accounts are not for this server.
    pub(crate) logging_in: Option<LoggingIn>,
    /// Whether other servers write to the store.
    is_shared: bool,
    sessions: Sessions,
    /// Has sessions checked, and the key set fetched.
    changed: Notify,
    unknown_key: Notify,
    clock: Arc<dyn Clock>,
}

impl Auth {
    /// With a verifier, every caller needs a token; with rules for accounts, people may log in, too. Reads API keys,
    /// revocations, accounts and logins, if `store` has keys.
    pub async fn open(
        verifier: Option<Verifier>,
        accounts: Option<AccountRules>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ReadError> {
        let largest = 2 * TOKEN_BYTES_MAX as u64 + 256;
        let options = cache::options(10_000, CACHE_BYTES, largest);
        let auth = Self {
            verifier,
            tokens: Cache::with_options(options, ByLength, Default::default(), Default::default()),
            generation: AtomicU64::new(0),
            is_shared: store.is_shared(),
            credentials: CredentialStore::new(store, clock.clone()),
            logging_in: accounts.and_then(LoggingIn::new),
            sessions: Sessions::new(clock.now()),
            changed: Notify::new(),
            unknown_key: Notify::new(),
            clock,
        };
        auth.credentials.load().await?;
        auth.log_keys();
        Ok(auth)
    }

    /// Says what else than tokens opens the server: keys may be older than anybody remembers.
    fn log_keys(&self) {
        let keys = self.credentials.keys();
        if !self.is_on() || keys.is_empty() {
            return;
        }
        let administrators = keys.iter().filter(|(_, stored)| stored.grants.admin).count();
        tracing::info!(
            keys = keys.len(),
            administrators,
            "API keys are accepted; `hubbub key list` shows them, and `administrators` of them may do everything"
        );
    }

    /// Whether callers must prove who they are.
    pub fn is_on(&self) -> bool {
        self.verifier.is_some()
    }

    /// Why some tokens or API keys may be refused that should not be; `None` = there is no reason.
    pub(crate) fn fault(&self) -> Option<String> {
        self.credentials.fault()
    }

    /// How receipts of leases are written and read; `None` = the store has no key for them yet.
    pub(crate) fn receipt_format(&self) -> Option<ReceiptFormat> {
        if self.is_on() { self.credentials.receipt_format() } else { Some(ReceiptFormat::default()) }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Forgets verified tokens, and has open sockets checked.
    fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.tokens.clear();
        self.changed.notify_one();
    }

    /// Whether the right to something has ended.
    fn verdict(&self, access: &Access) -> Option<Ended> {
        if access.has_expired(self.now()) {
            return Some(Ended::Expired);
        }
        self.credentials.is_revoked(access).then_some(Ended::Revoked)
    }

    /// Who sent a request, by its token. `last` is that of its connection.
    pub(crate) fn identify(
        &self,
        last: &LastToken,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Identity, Problem> {
        if !self.is_on() {
            return Ok(Identity::Anyone);
        }
        let generation = self.generation.load(Ordering::SeqCst);
        let header = only_header(headers);
        if let Some(access) = header.and_then(|header| last.get(header, generation)) {
            return unexpired(access, self.now()).map(Identity::Somebody);
        }
        let Some(token) = token_of(method, headers)? else { return Ok(Identity::Nobody) };
        let access = self.verify(token)?;
        if let Some(header) = header {
            last.set(header, generation, &access);
        }
        Ok(Identity::Somebody(access))
    }

    /// Whether what [`Self::identify`] says may be out of date: it is about an API key or a login, which another server may have
    /// made or revoked a moment ago.
    pub(crate) fn must_refresh(
        &self,
        identified: &Result<Identity, Problem>,
        method: &Method,
        headers: &HeaderMap,
    ) -> bool {
        self.is_shared
            && match identified {
                Ok(Identity::Somebody(access)) => access.source.is_stored(),
                Ok(Identity::Anyone | Identity::Nobody) => false,
                Err(_) => token_of(method, headers).is_ok_and(|token| token.is_some_and(accounts::is_stored)),
            }
    }

    /// Applies what any server has changed of what [`credential_store`] holds before this was called.
    pub(crate) async fn refresh(&self) -> Result<(), ReadError> {
        self.credentials.refresh(|| self.invalidate()).await
    }

    /// Refuses a request that was authorized a while ago, if its right has ended meanwhile.
    pub(crate) async fn check_again(&self, access: &Access) -> Result<(), Problem> {
        if self.is_shared && access.source.is_stored() {
            // Boxed, so that requests do not reserve room for it.
            Box::pin(self.refresh()).await?;
        }
        self.verdict(access).map_or(Ok(()), |ended| Err(ended.problem()))
    }

    /// The same as [`Self::verify`] for frames and commands, which do not wait for the store: an API key or a login that another
    /// server has revoked is accepted for [`CHECK_INTERVAL`], and for [`AGE_MAX`] at most.
    pub(crate) fn verify_at_once(&self, token: &str) -> Result<Arc<Access>, Problem> {
        if self.is_shared && accounts::is_stored(token) && self.credentials.up_to().elapsed() > AGE_MAX {
            let reason =
                "whether this API key or login is still valid cannot be read at this moment; try again";
            return Err(Problem::new(ErrorCode::Unavailable, reason));
        }
        self.verify(token)
    }

    /// What a token or an API key is the right to now.
    pub(crate) fn verify(&self, token: &str) -> Result<Arc<Access>, Problem> {
        let now = self.now();
        let generation = self.generation.load(Ordering::SeqCst);
        if let Some((seen_in, access)) = self.tokens.get(token)
            && seen_in == generation
        {
            return unexpired(access, now);
        }
        let access = self.look_up(token, now)?;
        if let Some(ended) = self.verdict(&access) {
            return Err(ended.problem());
        }
        self.tokens.insert(token.into(), (generation, access.clone()));
        Ok(access)
    }

    fn look_up(&self, token: &str, now: Timestamp) -> Result<Arc<Access>, Problem> {
        if token.starts_with(credential_store::PREFIX) {
            return self.credentials.key(token).ok_or_else(|| refused("there is no such API key"));
        }
        if self.logging_in.is_some() && token.starts_with(accounts::PREFIX) {
            return self.credentials.login(token).ok_or_else(|| refused("this login has ended"));
        }
        let verifier = self.verifier.as_ref().ok_or_else(|| refused("this server takes no tokens"))?;
        match verifier.verify(token, now) {
            Ok(access) => Ok(Arc::new(access)),
            Err(Refused::Token(reason)) => Err(refused(format!("the token is refused: {reason}"))),
            Err(Refused::UnknownKey) => {
                self.unknown_key.notify_one();
                Err(refused("the token is refused: no key of this server has its kid"))
            }
            Err(Refused::NoKeys) => Err(Problem::new(
                ErrorCode::Unavailable,
                "the keys that tokens are signed with could not be read yet; see the server's log",
            )),
        }
    }

    /// Behind the time at which any token was issued that may be accepted now.
    pub(crate) fn latest_issue(&self, now: Timestamp) -> Timestamp {
        self.verifier.as_ref().map_or(now, |verifier| verifier.latest_issue(now))
    }

    /// Longest time that a token can be valid from now on; so long must a revocation be kept.
    pub(crate) fn lifetime_max(&self) -> Duration {
        self.verifier.as_ref().map_or(Duration::from_secs(366 * 86_400), Verifier::lifetime_max)
    }

    /// Ends what is open when its right ends, follows the changes that other servers make and a clock that is set back, and keeps the
    /// key set up to date. Does not return.
    pub async fn run(self: Arc<Self>, key_set: Option<KeySetSource>) {
        if !self.is_on() {
            return std::future::pending().await;
        }
        let keeping = async {
            match (&self.verifier, key_set) {
                (Some(verifier), Some(source)) => {
                    let on_change = || self.invalidate();
                    jwks::keep(verifier, source, &self.unknown_key, on_change).await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::join!(self.check_sessions(), self.follow_changes(), keeping);
    }

    async fn check_sessions(&self) {
        loop {
            // The time passes, or something was revoked.
            let _ = tokio::time::timeout(CHECK_INTERVAL, self.changed.notified()).await;
            self.sessions.check(|access| self.verdict(access));
        }
    }

    async fn follow_changes(&self) {
        let mut has_failed = false;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if !self.is_shared && !self.credentials.was_set_back() {
                continue;
            }
            let refreshed = self.refresh().await;
            if let (Err(error), false) = (&refreshed, has_failed) {
                tracing::warn!(%error, "reading revoked tokens, API keys and accounts failed; trying again until it succeeds");
            }
            has_failed = refreshed.is_err();
        }
    }
}

fn unexpired(access: Arc<Access>, now: Timestamp) -> Result<Arc<Access>, Problem> {
    if access.has_expired(now) { Err(Ended::Expired.problem()) } else { Ok(access) }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
