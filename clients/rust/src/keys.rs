//! Keys with values.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use hyper::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::error::{Error, Fault};
use crate::http::{Answer, Http, Request, escape, with_query};
use crate::rooms::Start;
use crate::watch::Watch;

/// Most attempts to change a key that others change all the time.
const CONFLICTS_MAX: u32 = 100;

/// Keys with values. A key is any bytes.
#[derive(Debug, Clone)]
pub struct Keys {
    http: Arc<Http>,
}

/// What a key has. A revision is greater than all before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The value.
    pub value: Bytes,
    /// When it was put.
    pub revision: u64,
}

/// Options of a value.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// Only if the key still has this revision (0 = does not exist); `None` = whatever it has.
    pub revision: Option<u64>,
    /// How long it lives; `None` = until it is deleted.
    pub ttl: Option<Duration>,
}

/// Key of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyEntry {
    /// The key.
    #[serde(deserialize_with = "unescaped")]
    pub key: Vec<u8>,
    /// When its value was put.
    pub revision: u64,
    /// Length of its value.
    pub bytes: u64,
    /// When it expires, if it does.
    #[serde(default)]
    pub expires_at: Option<String>,
}

impl KeyEntry {
    /// The key as text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

/// Keys in order.
#[derive(Debug, Clone, Deserialize)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<KeyEntry>,
    /// Where to watch from.
    pub revision: u64,
    /// History that the revisions belong to.
    pub epoch: String,
    /// The `after` of the next page; `None` at the end.
    #[serde(default, deserialize_with = "maybe_unescaped")]
    pub next: Option<Vec<u8>>,
}

/// The bytes of a key as the server writes it.
pub(crate) fn unescape(encoded: &str) -> Vec<u8> {
    percent_decode_str(encoded).collect()
}

fn unescaped<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    Ok(unescape(&Cow::<str>::deserialize(from)?))
}

fn maybe_unescaped<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    Ok(Option::<Cow<str>>::deserialize(from)?.map(|encoded| unescape(&encoded)))
}

fn path_of(key: &[u8]) -> Result<String, Error> {
    let segments: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
    if segments.iter().any(|segment| [&b"."[..], b".."].contains(segment)) {
        let rule = "must have no segment . or .., use POST /v1/kv".to_owned();
        let faults = vec![Fault { field: "key".to_owned(), rule }];
        return Err(Error::new("invalid", "").with(|problem| problem.errors = faults));
    }
    let segments: Vec<String> = segments.into_iter().map(escape).collect();
    Ok(format!("/kv/{}", segments.join("/")))
}

fn revision_of(headers: &HeaderMap) -> Result<u64, Error> {
    let tag = headers.get(ETAG).ok_or_else(|| Error::strange("no ETag"))?;
    let text = tag.to_str().unwrap_or_default();
    // A proxy that compresses what it passes on makes the tag a weak one.
    let text = text.strip_prefix("W/").unwrap_or(text);
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    number.and_then(|number| number.parse().ok()).ok_or_else(|| Error::strange(format!("ETag: {tag:?}")))
}

/// Whether an answer to `HEAD` says that there is no such key. It has no body: its type tells the server's from a proxy's.
fn is_absence(error: &Error) -> bool {
    let is_ours = |kind: &String| kind.starts_with("application/problem+json");
    error.status == StatusCode::NOT_FOUND.as_u16() && error.content_type.as_ref().is_some_and(is_ours)
}

fn with_condition(request: Request, revision: u64) -> Request {
    match revision {
        0 => request.header(IF_NONE_MATCH, "*"),
        _ => request.header(IF_MATCH, format!("\"{revision}\"")),
    }
}

/// An answer that an earlier attempt of the same call may have caused says nothing.
fn open_if_repeated(error: Error) -> Error {
    if !error.is_open || !error.is("condition_failed") {
        return error;
    }
    error.with(|problem| {
        problem.code = "unconfirmed".to_owned();
        problem.detail = "an attempt without an answer may have taken effect; read the key".to_owned();
    })
}

impl Keys {
    pub(crate) fn new(http: Arc<Http>) -> Self {
        Self { http }
    }

    /// The value; `None` if there is no such key.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>, Error> {
        match self.http.call(&Request::new(Method::GET, path_of(key.as_ref())?)).await {
            Ok(Answer { headers, body, .. }) => {
                Ok(Some(KeyValue { value: body, revision: revision_of(&headers)? }))
            }
            Err(error) if error.is("unknown_key") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a value and returns its revision.
    ///
    /// # Errors
    /// `condition_failed` if the condition fails. With or without one `unconfirmed` if an attempt without an answer may
    /// have stored it, and somebody else's value is there now.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<u64, Error> {
        let (key, value) = (key.as_ref(), value.into());
        if let Some(revision) = options.revision {
            return self.put_if(key, value, revision, options.ttl).await;
        }
        // As it is, but each attempt names the revision it saw: an attempt that got no answer must not take effect behind
        // later changes. But the absence of a key is true again after a delete.
        let mut conflicts = 0;
        loop {
            let seen = self.revision(key).await?;
            let error = match self.put_if(key, value.clone(), seen, options.ttl).await {
                Err(error) => error,
                stored => return stored,
            };
            conflicts += 1;
            if error.is("unconfirmed") {
                let found = self.get(key).await.ok().flatten().filter(|found| found.value == value);
                return found.map(|found| found.revision).ok_or(error);
            }
            // Somebody else was faster.
            if !error.is("condition_failed") || conflicts == CONFLICTS_MAX {
                return Err(error);
            }
        }
    }

    async fn put_if(
        &self,
        key: &[u8],
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<u64, Error> {
        let mut request = with_condition(Request::new(Method::PUT, path_of(key)?).body(value), revision);
        if let Some(ttl) = ttl {
            request = request.header(HeaderName::from_static("hubbub-ttl"), ttl.as_secs_f64().to_string());
        }
        let stored = self.http.call(&request).await.map_err(open_if_repeated)?;
        revision_of(&stored.headers)
    }

    /// 0 if there is no such key.
    async fn revision(&self, key: &[u8]) -> Result<u64, Error> {
        match self.http.call(&Request::new(Method::HEAD, path_of(key)?)).await {
            Ok(answer) => revision_of(&answer.headers),
            Err(error) if is_absence(&error) => Ok(0),
            Err(error) if error.status == StatusCode::FORBIDDEN.as_u16() => Err(error.with(|problem| {
                let why = "the key is read first, as no revision was given: that needs the right to read it";
                why.clone_into(&mut problem.detail);
            })),
            Err(error) => Err(error),
        }
    }

    /// Deletes a key, with a revision only if it still has that. Whether there was such a key.
    ///
    /// # Errors
    /// As [`Keys::put`].
    pub async fn delete(&self, key: impl AsRef<[u8]>, revision: Option<u64>) -> Result<bool, Error> {
        let key = key.as_ref();
        if let Some(revision) = revision {
            return self.delete_if(key, revision).await;
        }
        let mut conflicts = 0;
        loop {
            let seen = self.revision(key).await?;
            if seen == 0 {
                return Ok(false);
            }
            let error = match self.delete_if(key, seen).await {
                Err(error) => error,
                deleted => return deleted,
            };
            conflicts += 1;
            if error.is("unconfirmed") {
                return if self.revision(key).await.is_ok_and(|now| now == 0) {
                    Ok(true)
                } else {
                    Err(error)
                };
            }
            if !error.is("condition_failed") || conflicts == CONFLICTS_MAX {
                return Err(error);
            }
        }
    }

    async fn delete_if(&self, key: &[u8], revision: u64) -> Result<bool, Error> {
        let request = with_condition(Request::new(Method::DELETE, path_of(key)?), revision);
        match self.http.done(&request).await {
            Ok(()) => Ok(true),
            Err(error) if error.is("unknown_key") && error.is_open => Ok(true),
            Err(error) if error.is("unknown_key") => {
                Err(error.with(|problem| problem.code = "condition_failed".to_owned()))
            }
            Err(error) => Err(open_if_repeated(error)),
        }
    }

    /// Reads a page of keys with this prefix, behind `after` (empty = from the first); at most `limit`, or as many as the
    /// server likes.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`.
    pub async fn list(
        &self,
        prefix: impl AsRef<[u8]>,
        after: impl AsRef<[u8]>,
        limit: Option<u64>,
    ) -> Result<KeyPage, Error> {
        let after = Some(escape(after)).filter(|after| !after.is_empty());
        let pairs = [
            ("prefix", Some(escape(prefix))),
            ("after", after),
            ("limit", limit.map(|limit| limit.to_string())),
        ];
        self.http.call(&Request::new(Method::GET, with_query("/v1/kv", pairs))).await?.value("keys")
    }

    /// Follows changes of keys with this prefix, behind a revision or from now on.
    pub fn watch(&self, prefix: impl AsRef<[u8]>, start: Start) -> Watch {
        Watch::new(Arc::clone(&self.http), escape(prefix), start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_bytes_is_one_path() {
        assert_eq!(path_of("user:1/a b%/ö".as_bytes()).unwrap(), "/kv/user%3A1/a%20b%25/%C3%B6");
        assert_eq!(path_of(&[0, 255]).unwrap(), "/kv/%00%FF");
        assert!(path_of(b"a/../b").unwrap_err().to_string().contains("key must have no segment"));
        assert_eq!(unescape("%00%FF/a"), [0, 255, b'/', b'a']);
    }
}
