//! Answers each POST with a receipt of the usual size.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hubbub_core::message::write_u64;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;

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

pub(super) async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let receipt = async {
        let body = request.into_body().collect().await?.to_bytes();
        anyhow::Ok(receipt(&serde_json::from_slice(&body)?))
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
    crate::machine::now().write(&mut out);
    out.extend_from_slice(b"\",\"duplicate\":false}");
    out
}
