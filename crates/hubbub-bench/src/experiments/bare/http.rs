//! What hyper answers where nothing is stored.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hubbub_core::message::write_u64;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;

use super::journal::Journal;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "all fields are read from JSON, as the real server does")]
struct Draft<'a> {
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
}

/// Answers each POST with a receipt of the usual size.
pub(super) async fn answer(
    request: Request<Incoming>,
    journal: Option<Arc<Journal>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let receipt = async {
        let body = request.into_body().collect().await?.to_bytes();
        let receipt = receipt(&serde_json::from_slice(&body)?);
        if let Some(journal) = journal {
            journal.keep(&body).await?;
        }
        anyhow::Ok(receipt)
    };
    let (status, body) = match receipt.await {
        Ok(receipt) => (StatusCode::CREATED, receipt),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string().into_bytes()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn receipt(draft: &Draft<'_>) -> Vec<u8> {
    static SEQ: AtomicU64 = AtomicU64::new(0);
    let mut out = Vec::with_capacity(192);
    out.extend_from_slice(b"{\"messageId\":\"");
    out.extend_from_slice(draft.message_id.as_bytes());
    out.extend_from_slice(b"\",\"seq\":");
    write_u64(SEQ.fetch_add(1, Ordering::Relaxed) + 1, &mut out);
    out.extend_from_slice(b",\"epoch\":\"0123456789abcdef\",\"receivedAt\":\"");
    crate::host::machine::now().write(&mut out);
    out.extend_from_slice(b"\",\"duplicate\":false}");
    out
}

static REVISION: AtomicU64 = AtomicU64::new(1);
static VALUE_BYTES: AtomicUsize = AtomicUsize::new(100);

/// Answers each GET with a value of the size last put, and each PUT with its revision.
pub(super) async fn answer_kv(
    request: Request<Incoming>,
    journal: Option<Arc<Journal>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_reading = request.method() == Method::GET;
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    let revision =
        if is_reading { REVISION.load(Ordering::Relaxed) } else { REVISION.fetch_add(1, Ordering::Relaxed) };
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        headers.insert(ETAG, tag);
    }
    if is_reading {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(HeaderName::from_static("hubbub-cache"), HeaderValue::from_static("hit"));
        *response.body_mut() = Full::new(Bytes::from(vec![b'x'; VALUE_BYTES.load(Ordering::Relaxed)]));
        return Ok(response);
    }
    let put = async {
        let value = request.into_body().collect().await?.to_bytes();
        if !value.is_empty() {
            VALUE_BYTES.store(value.len(), Ordering::Relaxed);
        }
        if let Some(journal) = journal {
            journal.keep(&value).await?;
        }
        anyhow::Ok(())
    };
    *response.status_mut() = if put.await.is_ok() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
    Ok(response)
}
