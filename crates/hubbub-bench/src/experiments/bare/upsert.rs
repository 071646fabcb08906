//! Answers each PUT once PostgreSQL has it: one statement, and one commit, for each request.
//!
//! The statement writes what the real server's batches write: the value with its revision, and a row of the log of
//! changes, into the same tables. The revision is a sequence's, which costs less than what the real server promises: it
//! may skip numbers, and show a later one before an earlier one.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{ETAG, HeaderValue};
use hyper::{Request, Response, StatusCode};

use crate::experiments::limits::postgres::{Prepared, connect};

pub(crate) const DATABASE: &str = "HUBBUB_BENCH_DATABASE";
/// As many connections as the real server's pool has at most.
pub(super) const CONNECTIONS: usize = 16;

const SEQUENCE: &str = "create sequence if not exists upsert_revisions";
const UPSERT: &str = "with logged as (insert into kv_changes (revision, key, what, knows_lease) \
         values (nextval('upsert_revisions'), $1, 'P', true) returning revision) \
     insert into kv (key, value, revision) select $1, $2, revision from logged \
     on conflict (key) do update set value = excluded.value, revision = excluded.revision returning revision";

/// Of the database that [`DATABASE`] names.
pub(super) fn database() -> anyhow::Result<String> {
    std::env::var(DATABASE).with_context(|| format!("{DATABASE} is not set"))
}

pub(super) async fn open() -> anyhow::Result<Arc<Prepared>> {
    let url = database()?;
    connect(&url).await?.batch_execute(SEQUENCE).await?;
    Ok(Arc::new(Prepared::open(&url, CONNECTIONS, UPSERT).await?))
}

pub(super) async fn answer(
    request: Request<Incoming>,
    upserts: Arc<Prepared>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let key = request.uri().path().trim_start_matches("/kv/").to_owned();
    let put = async {
        let value = request.into_body().collect().await?.to_bytes();
        let row = upserts.run(&[&key.as_bytes(), &&*value]).await?;
        anyhow::Ok(row.context("no revision")?.get::<_, i64>(0))
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = match put.await {
        Ok(revision) => {
            if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
                response.headers_mut().insert(ETAG, tag);
            }
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok(response)
}
