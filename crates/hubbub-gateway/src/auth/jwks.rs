//! Keeps a JSON Web Key Set (RFC 7517) up to date: a file, or a URL of an identity provider.
//!
//! The keys there are stay valid while new ones cannot be read. A token with an unknown `kid` has the set fetched at once,
//! but only so often: tokens are made up faster than keys are.

use std::path::PathBuf;
use std::time::Duration;

use hubbub_core::backoff::Backoff;
use hyper::Uri;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::token::Verifier;
use crate::fetch;

/// Bytes of a set.
pub(super) const SET_BYTES_MAX: usize = 256 * 1024;
/// Time between two reads where nothing asks for one.
const URL_INTERVAL: Duration = Duration::from_secs(600);
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a failed read, or one that an unknown key asked for; doubles with each that brings nothing new.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The pause after a read that took something new, or nothing, or failed.
fn pause_after<T, E>(backoff: &mut Backoff, taken: &Result<Option<T>, E>, is_asked_for: bool) -> Duration {
    let is_in_vain = match taken {
        Ok(Some(_)) => false,
        Ok(None) => is_asked_for,
        Err(_) => true,
    };
    if is_in_vain {
        backoff.exact_pause()
    } else {
        backoff.reset();
        PAUSE_FIRST
    }
}

/// Where the set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySetSource {
    /// A file, read again when it changes.
    File(PathBuf),
    /// An address: `https:`, or `http:` of this machine.
    Url(Uri),
}

impl KeySetSource {
    /// From the text of a setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|_| "auth.jwks must be a file or a URL".to_owned())?;
        fetch::check(&uri).map_err(|error| format!("auth.jwks {error}"))?;
        Ok(Self::Url(uri))
    }

    async fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                let metadata = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
                if metadata.len() > SET_BYTES_MAX as u64 {
                    return Err(format!("it has more than {SET_BYTES_MAX} bytes"));
                }
                tokio::fs::read(path).await.map_err(|error| error.to_string())
            }
            Self::Url(uri) => fetch::get(uri, SET_BYTES_MAX).await,
        }
    }

    fn interval(&self) -> Duration {
        match self {
            Self::File(_) => FILE_INTERVAL,
            Self::Url(_) => URL_INTERVAL,
        }
    }
}

/// Reads the set again and again. Does not return.
pub(super) async fn keep(
    verifier: &Verifier,
    source: KeySetSource,
    unknown_key: &Notify,
    on_change: impl Fn(),
) {
    let mut known: Option<Vec<u8>> = None;
    let mut backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
    let (mut has_failed, mut is_asked_for) = (false, false);
    loop {
        let read = source.read().await;
        let is_new = read.as_ref().is_ok_and(|text| known.as_ref() != Some(text));
        let taken = match read {
            Ok(text) if is_new => verifier.replace_set(&text).map(|()| Some(text)),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        let read_at = Instant::now();
        let again = read_at + pause_after(&mut backoff, &taken, is_asked_for);
        let next = match taken {
            Ok(text) => {
                if let Some(text) = text {
                    tracing::info!("the keys of tokens were read (auth.jwks)");
                    known = Some(text);
                    on_change();
                }
                has_failed = false;
                read_at + source.interval()
            }
            Err(error) => {
                if !has_failed {
                    tracing::warn!(%error, "reading the keys of tokens (auth.jwks) failed; trying again until it succeeds");
                }
                has_failed = true;
                again
            }
        };
        is_asked_for = tokio::select! {
            () = tokio::time::sleep_until(next) => false,
            () = unknown_key.notified() => {
                tokio::time::sleep_until(next.min(again)).await;
                again < next
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads without news are what most reads are, and a set may be broken for a moment at any time.
    #[test]
    fn only_reads_in_vain_make_the_next_one_wait_longer() {
        let (is_new, is_same, has_failed) = (Ok(Some(())), Ok(None), Err(()));
        let mut backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        let mut pause_after = |taken, is_asked_for| pause_after(&mut backoff, taken, is_asked_for);
        for (in_vain, is_asked_for) in [(&has_failed, false), (&is_same, true), (&has_failed, true)] {
            for (taken, is_asked_for) in [(&is_same, false), (&is_new, false), (&is_new, true)] {
                assert_eq!([(); 20].map(|()| pause_after(taken, is_asked_for)), [PAUSE_FIRST; 20]);
            }
            let pauses = [(); 8].map(|()| pause_after(in_vain, is_asked_for).as_secs());
            assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        }
    }
}
