//! Writing what a batch changed: first what others refer to ([`clients`], [`queues`]), then everything else at once.

mod clients;
mod known;
mod low_water_marks;
mod messages;
mod pending;
mod queues;
mod totals;

use tokio::try_join;

use super::working_set::{Message, State, WorkingSet};
use crate::db::{Result, Tx};
pub(super) use queues::delete_queues;

fn is_deleted(set: &WorkingSet, queue: i32) -> bool {
    set.queues.get(&queue).is_some_and(|queue| queue.is_deleted)
}

pub(super) async fn write(tx: &Tx<'_>, set: &mut WorkingSet) -> Result<()> {
    clients::write(tx, set).await?;
    let set = &*set;
    queues::write(tx, set).await?;
    try_join!(
        biased;
        async {
            // Copies get their texts from the messages they were made of.
            messages::write(tx, set).await?;
            pending::write(tx, set).await
        },
        known::write(tx, set),
        totals::write(tx, set),
        low_water_marks::write(tx, set),
    )?;
    Ok(())
}

/// When time does something with what was written, if it does.
pub(super) fn due_of(set: &WorkingSet) -> Option<i64> {
    // Proven time gets there so much later.
    let behind = set.now.saturating_sub(set.proven);
    let expires = |message: &Message| message.expires_at.map(|at| at.saturating_add(behind));
    let written = set.messages.values().filter(|message| !message.is_gone);
    let written = written.filter(|message| message.is_changed || message.stored_in.is_none());
    let due = written.filter_map(|message| match message.state {
        State::Exhausted | State::Expired => Some(i64::MIN),
        State::Leased => message.due_at,
        State::Delayed => message.due_at.into_iter().chain(expires(message)).min(),
        State::Ready => expires(message),
    });
    let pending = set.pending.values().filter(|one| one.unmade > 0 && one.is_changed);
    let pending = pending.filter_map(|one| match one.template.state {
        State::Expired => Some(i64::MIN),
        _ => one.template.due_at.into_iter().chain(one.template.expires_at).min(),
    });
    due.chain(pending).min()
}
