//! Hashes and verifies passwords with Argon2id (RFC 9106), on threads of their own.
//!
//! Invariants
//! - At most [`AT_ONCE`] hashes are computed at a time, each in 19 MiB, and [`WAITING_MAX`] more wait, besides [`RESERVED`] of
//!   callers that set a password. Others are refused.
//! - A name without an account costs the same work as a wrong password.

use std::sync::Arc;

use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use hubbub_core::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::secrets::random;
use crate::problem::Problem;

/// The least that OWASP's Password Storage Cheat Sheet recommends for Argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

const AT_ONCE: usize = 2;
const WAITING_MAX: usize = 64;
/// Waits beyond that for whoever sets a password: however many try to log in, accounts can be added and changed.
const RESERVED: usize = 8;

/// Shortest and longest password, in characters. A short one is guessed, however slow guessing is made.
pub(crate) const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 12..=256;

pub(crate) struct Passwords {
    running: Arc<Semaphore>,
    admitted: Arc<Semaphore>,
    /// More of them, for callers that have proved who they are.
    reserved: Arc<Semaphore>,
    /// The hash of nobody's password.
    nobody: String,
}

fn hasher() -> Option<Argon2<'static>> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(HASH_BYTES)).ok()?;
    Some(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn hash(password: &str) -> Option<String> {
    let salt: [u8; SALT_BYTES] = random()?;
    Some(hasher()?.hash_password_with_salt(password.as_bytes(), &salt).ok()?.to_string())
}

/// A hash that no password has.
fn of_nobody() -> Option<String> {
    let (salt, output): ([u8; SALT_BYTES], [u8; HASH_BYTES]) = (random()?, random()?);
    let like = hasher()?;
    let hash = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: like.params().try_into().ok()?,
        salt: Some(Salt::new(&salt).ok()?),
        hash: Some(Output::new(&output).ok()?),
    };
    Some(hash.to_string())
}

/// Whether a password has this hash; by the parameters that stand in the hash.
fn is_right(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else {
        tracing::error!("the hash of a password in the store cannot be read; the password is refused");
        return false;
    };
    hasher().is_some_and(|hasher| hasher.verify_password(password.as_bytes(), &hash).is_ok())
}

impl Passwords {
    /// `None` = the system gives no random bytes.
    pub(crate) fn new() -> Option<Self> {
        let [running, admitted, reserved] =
            [AT_ONCE, AT_ONCE + WAITING_MAX, RESERVED].map(|places| Arc::new(Semaphore::new(places)));
        Some(Self { running, admitted, reserved, nobody: of_nobody()? })
    }

    /// Hashes a password that somebody sets, with a salt of its own. The caller must have proved who it is.
    pub(crate) async fn hash(&self, password: String) -> Result<String, Problem> {
        let admitted =
            self.admit().or_else(|refused| self.reserved.clone().try_acquire_owned().map_err(|_| refused))?;
        self.run(admitted, move || hash(&password)).await?.ok_or_else(failed)
    }

    /// Whether it is the password with this hash. `None` = there is no account: takes as long, and it is not.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, Problem> {
        let is_there = hash.is_some();
        let hash = hash.unwrap_or_else(|| self.nobody.clone());
        Ok(self.run(self.admit()?, move || is_right(&password, &hash)).await? && is_there)
    }

    fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.admitted.clone().try_acquire_owned().map_err(|_| overloaded())
    }

    async fn run<T: Send + 'static>(
        &self,
        admitted: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let running = self.running.clone().acquire_owned().await.map_err(|_| overloaded())?;
        // The work goes on when nobody waits for it any more, and counts until it ends.
        let work = move || {
            let result = work();
            drop((admitted, running));
            result
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| failed())
    }
}

fn overloaded() -> Problem {
    Problem::new(ErrorCode::Overloaded, "too many people log in at this moment")
}

fn failed() -> Problem {
    Problem::new(ErrorCode::Internal, "the password could not be hashed")
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_password_has_its_own_hash_only() {
        let passwords = Passwords::new().unwrap();
        let one = passwords.hash("correct horse battery".into()).await.unwrap();
        let other = passwords.hash("correct horse battery".into()).await.unwrap();
        assert_ne!(one, other, "each has a salt of its own");
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
        let verify = async |password: &str, hash: Option<&str>| {
            passwords.verify(password.into(), hash.map(str::to_owned)).await.unwrap()
        };
        assert!(verify("correct horse battery", Some(&one)).await);
        assert!(verify("correct horse battery", Some(&other)).await);
        assert!(!verify("correct horse batterx", Some(&one)).await);
        assert!(!verify("", Some(&one)).await);
        assert!(!verify("correct horse battery", Some("nonsense")).await);
        assert!(!verify("correct horse battery", None).await);
    }

    /// What nobody's password costs is what everybody's costs.
    #[test]
    fn the_hash_of_nobody_is_like_others() {
        let (nobody, somebody) = (of_nobody().unwrap(), hash("x").unwrap());
        let parameters = |hash: &str| hash.rsplitn(3, '$').nth(2).unwrap().to_owned();
        assert_eq!(parameters(&nobody), parameters(&somebody));
        assert_eq!(nobody.len(), somebody.len());
        assert!(PasswordHash::new(&nobody).is_ok());
        assert_ne!(nobody, of_nobody().unwrap());
    }

    /// However many come at once, few are worked on, and no more than a bounded number waits.
    #[tokio::test]
    async fn few_are_hashed_at_once() {
        let passwords = Passwords::new().unwrap();
        let held: Vec<_> =
            (0..AT_ONCE).map(|_| passwords.running.clone().try_acquire_owned().unwrap()).collect();
        let run = || Box::pin(async { passwords.run(passwords.admit()?, || 7).await });
        let mut waiting: Vec<_> = (0..AT_ONCE + WAITING_MAX).map(|_| run()).collect();
        for one in &mut waiting {
            assert!(poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await.is_pending());
        }
        assert_eq!(run().await.unwrap_err().code, ErrorCode::Overloaded);
        // Passwords can be set all the same.
        let mut setting = Box::pin(passwords.hash("correct horse battery".into()));
        assert!(poll_fn(|context| Poll::Ready(setting.as_mut().poll(context))).await.is_pending());
        // Who gives up leaves room.
        drop(waiting.pop());
        drop(held);
        waiting.push(run());
        let answers = futures_util::future::join_all(waiting).await;
        assert!(answers.into_iter().all(|answer| answer == Ok(7)));
        assert!(setting.await.is_ok());
    }
}
