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
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Statement};

use crate::limits::postgres::connect;

/// Where the database is; its tables are there already.
pub(crate) const DATABASE: &str = "HUBBUB_BENCH_DATABASE";
/// As many connections as the real server's pool has at most.
const CONNECTIONS: usize = 16;

const SEQUENCE: &str = "create sequence if not exists upsert_revisions";
const UPSERT: &str = "with logged as (insert into kv_changes (revision, key, what) \
         values (nextval('upsert_revisions'), $1, 'P') returning revision) \
     insert into kv (key, value, revision) select $1, $2, revision from logged \
     on conflict (key) do update set value = excluded.value, revision = excluded.revision returning revision";

/// Connections, each with the statement prepared.
pub(super) struct Upserts {
    idle: Mutex<Vec<(Client, Statement)>>,
    permits: Semaphore,
}

impl Upserts {
    /// To the database that [`DATABASE`] names.
    pub(super) async fn open() -> anyhow::Result<Arc<Self>> {
        let url = std::env::var(DATABASE).with_context(|| format!("{DATABASE} is not set"))?;
        connect(&url).await?.batch_execute(SEQUENCE).await?;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = connect(&url).await?;
            let statement = client.prepare(UPSERT).await?;
            idle.push((client, statement));
        }
        Ok(Arc::new(Self { idle: Mutex::new(idle), permits: Semaphore::new(CONNECTIONS) }))
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<i64> {
        let _permit = self.permits.acquire().await?;
        let (client, statement) = self.idle.lock().pop().context("more permits than connections")?;
        let row = client.query_one(&statement, &[&key, &value]).await;
        self.idle.lock().push((client, statement));
        Ok(row?.get(0))
    }
}

pub(super) async fn answer(
    request: Request<Incoming>,
    upserts: Arc<Upserts>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let key = request.uri().path().trim_start_matches("/kv/").to_owned();
    let put = async {
        let value = request.into_body().collect().await?.to_bytes();
        upserts.put(key.as_bytes(), &value).await
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
