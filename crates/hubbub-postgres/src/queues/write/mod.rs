//! Writing what a batch changed: first what others refer to ([`clients`], [`queues`]), then everything else at once.

mod clients;
mod known;
mod lines;
mod messages;
mod pending;
mod queues;
mod totals;

use tokio::try_join;

use super::image::{Image, Message, State};
use crate::db::{Fault, Tx};
pub(super) use queues::delete_queues;

fn is_deleted(image: &Image, queue: i32) -> bool {
    image.queues.get(&queue).is_some_and(|queue| queue.is_deleted)
}

/// Writes everything that is to be written.
pub(super) async fn write(tx: &Tx<'_>, image: &mut Image) -> Result<(), Fault> {
    clients::write(tx, image).await?;
    let image = &*image;
    queues::write(tx, image).await?;
    try_join!(
        biased;
        async {
            // Copies get their texts from the messages they were made of.
            messages::write(tx, image).await?;
            pending::write(tx, image).await
        },
        known::write(tx, image),
        totals::write(tx, image),
        lines::write(tx, image),
    )?;
    Ok(())
}

/// When time does something with what was written, if it does.
pub(super) fn due_of(image: &Image) -> Option<i64> {
    // Proven time gets there so much later.
    let behind = image.now.saturating_sub(image.proven);
    let expires = |message: &Message| message.expires_at.map(|at| at.saturating_add(behind));
    let written = image.messages.values().filter(|message| !message.is_gone);
    let written = written.filter(|message| message.is_changed || message.stored_in.is_none());
    let due = written.filter_map(|message| match message.state {
        State::Exhausted | State::Expired => Some(i64::MIN),
        State::Leased => message.due_at,
        State::Delayed => message.due_at.into_iter().chain(expires(message)).min(),
        State::Ready => expires(message),
    });
    let pending = image.pending.values().filter(|one| one.unmade > 0 && one.is_changed);
    let pending = pending.filter_map(|one| match one.template.state {
        State::Expired => Some(i64::MIN),
        _ => one.template.due_at.into_iter().chain(one.template.expires_at).min(),
    });
    due.chain(pending).min()
}
