//! What becomes of a connection with an answer that nobody waits for any more: its caller went away, or ran out of patience.
//!
//! The statement goes on in the database. Until it has ended the connection keeps its place in the pool, so that the database never
//! runs more of them than the pool has connections. One that takes longer than a moment is canceled. A transaction pooler forgets
//! requests to cancel, so behind one the database ends reads by itself ([`ReadLimit`]).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use scopeguard::ScopeGuard;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::options::Pooler;

/// How long a statement may take before it is canceled. Nearly all are answered by then, and keep their connection.
const GRACE: Duration = Duration::from_millis(500);
/// How long the database may take to end one that was canceled, or has met its limit. Then the connection is given up, whatever
/// runs there.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than its caller waits the database goes on with a read.
const LIMIT_MARGIN: Duration = Duration::from_secs(1);

/// How long the database goes on with a statement of a read, behind a transaction pooler.
#[derive(Clone)]
pub(super) struct ReadLimit {
    limit: Duration,
    text: Arc<str>,
}

impl ReadLimit {
    /// For reads whose callers wait so long at most.
    fn behind(patience: Duration) -> Self {
        let limit = patience.saturating_add(LIMIT_MARGIN);
        // Zero would be none.
        let millis = limit.as_millis().clamp(1, i32::MAX as u128);
        let text = format!(
            "select set_config('statement_timeout', '{millis}', true) where current_setting('statement_timeout') = '0'"
        );
        Self { limit, text: text.into() }
    }

    /// What sets it for a transaction. An operator's own limit stays.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Waits for such answers.
#[derive(Clone)]
pub(super) struct Abandoned {
    runtime: Handle,
    how: How,
}

#[derive(Clone)]
enum How {
    /// Canceled through a connection like this.
    Cancel(MakeRustlsConnect),
    Limit(ReadLimit),
}

impl Abandoned {
    /// Call it on the runtime that drives the connections. `tls` is that of the connections; whoever reads waits for `patience` at
    /// most.
    pub(super) fn new(pooler: Pooler, tls: MakeRustlsConnect, patience: Duration) -> Self {
        let how = match pooler {
            Pooler::Session => How::Cancel(tls),
            Pooler::Transaction => How::Limit(ReadLimit::behind(patience)),
        };
        Self { runtime: Handle::current(), how }
    }

    /// The limit that each transaction of a read has to set.
    pub(super) const fn read_limit(&self) -> Option<&ReadLimit> {
        match &self.how {
            How::Cancel(_) => None,
            How::Limit(limit) => Some(limit),
        }
    }

    /// Returns the connection to the pool once all is answered; closes it if a statement had to be canceled, or if `is_last`.
    pub(super) fn settle(&self, client: Object, is_last: bool) {
        let how = self.how.clone();
        // Closes the connection, also if the runtime ends before the task.
        let client = scopeguard::guard(client, |client| drop(Object::take(client)));
        self.runtime.spawn(async move {
            if has_ended(&client, how).await && !is_last {
                drop(ScopeGuard::into_inner(client));
            }
        });
    }
}

/// Waits until all is answered. Whether the connection can be used again.
async fn has_ended(client: &Object, how: How) -> bool {
    // Answers come in order. This statement is empty, so behind a transaction pooler any server may answer it.
    let mut last = pin!(client.batch_execute(""));
    match how {
        How::Limit(ReadLimit { limit, .. }) => {
            timeout(limit.saturating_add(END_PATIENCE), last).await.is_ok_and(|answer| answer.is_ok())
        }
        How::Cancel(tls) => {
            if let Ok(answer) = timeout(GRACE, &mut last).await {
                return answer.is_ok();
            }
            let canceling = async {
                if let Err(error) = client.cancel_token().cancel_query(tls).await {
                    tracing::debug!(%error, "canceling a statement that nobody waits for failed");
                }
                last.await
            };
            // Whatever comes of it: the request may arrive late, and would hit the next statement.
            let _ = timeout(END_PATIENCE, canceling).await;
            false
        }
    }
}
