//! The body of a request, which is read on for a moment where its request was answered before that.
//!
//! Over HTTP/1 a body that nobody reads ends the connection. A client, or a proxy, that still sends finds it closed then, and
//! often loses the answer: proxies make a 502 of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hubbub_core::ErrorCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_RANGE, EXPECT, HeaderValue};
use hyper::{HeaderMap, Method, Version};

use crate::incoming_memory::{self, Share};
use crate::problem::Problem;

/// What is read and dropped of a body at most, for how long, and how long nothing may come. A client that sends more is better off
/// with a closed connection, and one that sends nothing may wait for its end.
const DISCARDED_MAX: u64 = 16 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
const FRAME_TIMEOUT: Duration = Duration::from_millis(500);

/// A body; what is left of it when it is dropped is read and forgotten.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` once nothing more is to be read.
    body: Option<Incoming>,
    rest: BodyRest,
}

/// What becomes of the rest of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyRest {
    /// Nothing: HTTP/2 ends a stream without the connection.
    Ended,
    /// The client waits to be asked for the body with 100, and sends nothing of it after a refusal. hyper asks when it is read.
    Unasked,
    Discarded,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, version: Version, headers: &HeaderMap) -> Self {
        let rest = if version >= Version::HTTP_2 {
            BodyRest::Ended
        } else if headers.contains_key(EXPECT) {
            BodyRest::Unasked
        } else {
            BodyRest::Discarded
        };
        Self { body: Some(body), rest }
    }

    /// Whether the client waits to be asked for it, and was not yet.
    pub(super) fn is_to_be_asked_for(&self) -> bool {
        self.rest == BodyRest::Unasked
    }

    /// The next frame, unless what came before it is given up.
    async fn next_frame(
        &mut self,
        share: &Share,
    ) -> Result<Option<Result<Frame<Bytes>, hyper::Error>>, incoming_memory::Full> {
        poll_fn(|context| match share.poll_given_up(context) {
            Poll::Ready(()) => Poll::Ready(Err(incoming_memory::Full)),
            Poll::Pending => Pin::new(&mut *self).poll_frame(context).map(Ok),
        })
        .await
    }

    /// The whole of it, of at most `limit` bytes. While it comes, `share` counts it.
    pub(super) async fn read_all(&mut self, limit: usize, share: &mut Share) -> Result<Bytes, Problem> {
        let mut whole = Pieces::None;
        while let Some(frame) = self.next_frame(share).await? {
            let frame = frame.map_err(|error| {
                Problem::new(ErrorCode::Malformed, format!("the body ended early: {error}"))
            })?;
            // Trailers say nothing here.
            let Ok(piece) = frame.into_data() else { continue };
            if piece.len() > limit.saturating_sub(whole.len()) {
                return Err(too_large(limit));
            }
            whole.push(piece);
            if !self.is_end_stream() {
                share.set_or_refuse(whole.len())?;
            }
        }
        Ok(whole.into_bytes())
    }

    /// Reads no more of it: it was waited for long enough.
    pub(super) fn give_up(&mut self) {
        self.body = None;
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.rest == BodyRest::Unasked {
            self.rest = BodyRest::Discarded;
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| self.rest == BodyRest::Discarded && !body.is_end_stream());
        if let Some(body) = rest.filter(|body| body.size_hint().lower() <= DISCARDED_MAX) {
            tokio::spawn(tokio::time::timeout(DISCARD_TIMEOUT, discard(body)));
        }
    }
}

/// Refuses a body that is not what it would be taken for: a part of something, or coded.
pub(super) fn check_is_plain(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let is_identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    let detail = if headers.contains_key(CONTENT_RANGE) {
        "Content-Range: a body is taken as a whole, not in parts"
    } else if !headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        "Content-Encoding: a body must not be coded (identity is fine)"
    } else {
        return Ok(());
    };
    Err(Problem::new(ErrorCode::Malformed, detail))
}

/// The refusal of a body that is longer than it may be.
pub(super) fn too_large(limit: usize) -> Problem {
    Problem::new(ErrorCode::TooLarge, format!("the body may have at most {limit} bytes"))
}

/// The refusal of a body that does not come in time.
pub(super) fn too_slow(limit: Duration) -> Problem {
    Problem::new(ErrorCode::RequestTimeout, format!("the body took longer than {} s", limit.as_secs()))
}

/// A body that most often comes in one piece, which is not copied. Many small ones are put together at once: each would hold
/// more than its bytes.
enum Pieces {
    None,
    One(Bytes),
    Many(Vec<u8>),
}

impl Pieces {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(piece) => piece.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        match self {
            Self::None => *self = Self::One(piece),
            Self::One(first) => *self = Self::Many([&first[..], &piece].concat()),
            Self::Many(bytes) => bytes.extend_from_slice(&piece),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(piece) => piece,
            Self::Many(bytes) => bytes.into(),
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut bytes = 0;
    while bytes <= DISCARDED_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(FRAME_TIMEOUT, body.frame()).await
    {
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_coded_bodies_are_refused() {
        let check = |method: Method, lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            check_is_plain(&method, &headers).map_err(|problem| problem.code)
        };
        let identity = ("content-encoding", "Identity");
        assert_eq!(check(Method::PUT, &[]), Ok(()));
        assert_eq!(check(Method::POST, &[identity, identity]), Ok(()));
        let (part, gzip) = (("content-range", "bytes 0-1/4"), ("content-encoding", "gzip"));
        for lines in [&[part][..], &[gzip], &[identity, gzip], &[("content-encoding", "identity, br")]] {
            assert_eq!(check(Method::PUT, lines), Err(ErrorCode::Malformed), "{lines:?}");
            assert_eq!(check(Method::POST, lines), Err(ErrorCode::Malformed), "{lines:?}");
            // It has no body.
            assert_eq!(check(Method::GET, lines), Ok(()), "{lines:?}");
        }
    }
}
