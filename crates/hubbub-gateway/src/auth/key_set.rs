//! Keeps a JSON Web Key Set (RFC 7517) up to date: a file, or a URL of an identity provider.
//!
//! The keys there are stay valid while new ones cannot be read. A token with an unknown `kid` has the set fetched at once,
//! but only so often: tokens are made up faster than keys are.

use std::path::PathBuf;
use std::time::Duration;

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
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

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
    let mut pause = PAUSES[0];
    let mut has_failed = false;
    loop {
        let read = source.read().await;
        let is_new = read.as_ref().is_ok_and(|text| known.as_ref() != Some(text));
        let taken = match read {
            Ok(text) if is_new => verifier.replace_set(&text).map(|()| Some(text)),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        let read_at = Instant::now();
        let next = match taken {
            Ok(text) => {
                if let Some(text) = text {
                    tracing::info!("the keys of tokens were read (auth.jwks)");
                    known = Some(text);
                    on_change();
                    pause = PAUSES[0];
                }
                has_failed = false;
                read_at + source.interval()
            }
            Err(error) => {
                if !has_failed {
                    tracing::warn!(%error, "reading the keys of tokens (auth.jwks) failed; trying again until it succeeds");
                }
                has_failed = true;
                read_at + pause
            }
        };
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = unknown_key.notified() => tokio::time::sleep_until(next.min(read_at + pause)).await,
        }
        pause = (pause * 2).min(PAUSES[1]);
    }
}
