//! Answers each GET with a value of the size last put, and each PUT with its revision.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

static REVISION: AtomicU64 = AtomicU64::new(1);
static VALUE_BYTES: AtomicUsize = AtomicUsize::new(100);

pub(super) async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
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
    *response.status_mut() = match request.into_body().collect().await {
        Ok(body) => {
            let bytes = body.to_bytes().len();
            if bytes > 0 {
                VALUE_BYTES.store(bytes, Ordering::Relaxed);
            }
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    };
    Ok(response)
}
