//! Answers each GET with a value that one prepared statement of its own selects from PostgreSQL, from the table of the real
//! server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ETAG, HeaderValue};
use hyper::{Request, Response, StatusCode};

use super::upsert::{CONNECTIONS, database};
use crate::experiments::limits::postgres::Prepared;

/// A value, and its revision.
pub(crate) const SELECT: &str = "select value, revision from kv \
     where key = $1 and (expires_at is null or expires_at > now())";

pub(super) async fn open() -> anyhow::Result<Arc<Prepared>> {
    Ok(Arc::new(Prepared::open(&database()?, CONNECTIONS, SELECT).await?))
}

pub(super) async fn answer(
    request: Request<Incoming>,
    selects: Arc<Prepared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let key = request.uri().path().trim_start_matches("/kv/").as_bytes();
    let mut response = Response::new(Full::default());
    match selects.run(&[&key]).await {
        Ok(Some(row)) => {
            if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", row.get::<_, i64>(1))) {
                response.headers_mut().insert(ETAG, tag);
            }
            *response.body_mut() = Full::new(Bytes::copy_from_slice(row.get(0)));
        }
        Ok(None) => *response.status_mut() = StatusCode::NOT_FOUND,
        Err(_) => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
    }
    Ok(response)
}
