//! The last revision and the next expiry of keys, as far as this server knows them without a query.

use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::db::{PgTime, Result, Sql};
use crate::store::Context;

/// The last revision and the next expiry that this server knows. Neither goes back.
#[derive(Debug, Default)]
pub(super) struct KeyPosition {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last revision that is known to be durable.
    revision: u64,
    /// When the first key expires, as of `due_as_of` or earlier than that.
    due: Option<Timestamp>,
    due_as_of: u64,
}

const POSITION: Sql = Sql {
    what: "reading the last revision of keys",
    text: "select coalesce((select max(revision) from kv_changes), 0), \
           (select min(expires_at) from kv where expires_at is not null)",
};

impl KeyPosition {
    pub(super) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Records a revision that was read.
    pub(super) fn observe(&self, revision: u64) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
    }

    /// Records when the first key expires, as read at `revision`.
    pub(super) fn observe_due(&self, revision: u64, due: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if revision >= state.due_as_of {
            (state.due, state.due_as_of) = (due, revision);
        }
    }

    /// Records a commit by this server, and the first expiry that it set.
    pub(super) fn record_commit(&self, revision: u64, expires_at: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if let Some(expires_at) = expires_at {
            state.due = Some(state.due.map_or(expires_at, |due| due.min(expires_at)));
            // A refresh that began before this commit does not see it.
            state.due_as_of = state.due_as_of.max(revision);
        }
    }

    pub(super) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let left = self.state.lock().due?.as_micros().saturating_sub(now.as_micros());
        Some(Duration::from_micros(saturate(left)))
    }

    pub(super) async fn refresh(&self, context: &Context) -> Result<()> {
        let row = context.db.read_one(&POSITION, &[]).await?;
        let due: Option<PgTime> = row.get(1);
        self.observe_due(super::lists::revision(row.get(0)), due.map(|due| due.0));
        Ok(())
    }
}
