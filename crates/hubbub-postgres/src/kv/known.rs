//! What is known of the keys without asking the database.

use std::time::Duration;

use hubbub_core::Timestamp;
use parking_lot::Mutex;

use crate::db::{Fault, PgTime, Sql};
use crate::store::Context;

/// Where the keys stand. It never goes back.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last revision that is known to be durable.
    revision: u64,
    /// When the first key runs out, as of `due_as_of` or earlier than that.
    due: Option<Timestamp>,
    due_as_of: u64,
}

const LOOK: Sql = Sql {
    what: "reading where the keys stand",
    text: "select coalesce((select max(revision) from kv_changes), 0), \
           (select min(expires_at) from kv where expires_at is not null)",
    types: &[],
};

impl Known {
    pub(super) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Notes a revision that was read.
    pub(super) fn saw(&self, revision: u64) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
    }

    /// Notes what the database says as of `revision`: when the first key runs out.
    pub(super) fn saw_due(&self, revision: u64, due: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if revision >= state.due_as_of {
            (state.due, state.due_as_of) = (due, revision);
        }
    }

    /// Notes a commit by this server, and the first of the times it set.
    pub(super) fn wrote(&self, revision: u64, expires_at: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if let Some(expires_at) = expires_at {
            state.due = Some(state.due.map_or(expires_at, |due| due.min(expires_at)));
            // A look that began before this commit does not know of it.
            state.due_as_of = state.due_as_of.max(revision);
        }
    }

    pub(super) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let left = self.state.lock().due?.as_micros().saturating_sub(now.as_micros());
        Some(Duration::from_micros(u64::try_from(left).unwrap_or(0)))
    }

    /// Asks the database.
    pub(super) async fn look(&self, context: &Context) -> Result<(), Fault> {
        let row = context.db.read_one(&LOOK, &[]).await?;
        let due: Option<PgTime> = row.get(1);
        self.saw_due(super::lists::revision(row.get(0)), due.map(|due| due.0));
        Ok(())
    }
}
