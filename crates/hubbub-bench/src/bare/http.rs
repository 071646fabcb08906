//! hyper, answering each POST with a receipt of the usual size.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hubbub_core::message::write_u64;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

pub(super) async fn serve(stream: TcpStream) -> anyhow::Result<()> {
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    Ok(connection.await?)
}

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

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match request.into_body().collect().await {
        Ok(body) => match serde_json::from_slice::<Draft<'_>>(&body.to_bytes()) {
            Ok(draft) => (StatusCode::CREATED, receipt(&draft)),
            Err(error) => (StatusCode::BAD_REQUEST, error.to_string().into_bytes()),
        },
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
