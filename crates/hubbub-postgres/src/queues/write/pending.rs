//! Messages to everybody whose copies are not all made.

use super::is_deleted;
use crate::db::{Param, Result, Tx, column, statements};
use crate::queues::sql::time;
use crate::queues::working_set::{Pending, PendingChunk, WorkingSet};

statements! {
    ADD("adding a message to everybody") =
        "insert into queue_pending (first, queue, sender, state, sent_at, due_at, begun_at, expires_at, known_as, \
           body, unmade) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    ADD_CHUNKS("adding receivers of a message to everybody") =
        "insert into queue_pending_chunks (first, chunk, low, high, receivers, unmade) \
         select * from unnest($1, $2, $3, $4, $5, $6)";

    CHANGE("changing messages to everybody") =
        "update queue_pending p set state = k.state, due_at = k.due_at, begun_at = k.begun_at, unmade = k.unmade \
         from unnest($1, $2, $3, $4, $5) as k (first, state, due_at, begun_at, unmade) where p.first = k.first";

    CHANGE_CHUNKS("changing receivers of messages to everybody") =
        "update queue_pending_chunks c set unmade = k.unmade from unnest($1, $2, $3) as k (first, chunk, unmade) \
         where c.first = k.first and c.chunk = k.chunk";

    DELETE("removing messages to everybody") =
        "with chunks as (delete from queue_pending_chunks where first = any($1)) \
         delete from queue_pending where first = any($1)";

    DELETE_CHUNKS("removing receivers of messages to everybody") =
        "delete from queue_pending_chunks c using unnest($1, $2) as k (first, chunk) \
         where c.first = k.first and c.chunk = k.chunk";
}

type ChunkOf<'a> = (i64, i32, &'a PendingChunk);

/// What became of messages to everybody; those of queues that are gone are cleared away with them.
pub(in crate::queues) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    let live = |pending: &&Pending| pending.is_changed && !is_deleted(set, pending.template.queue);
    let (new, old): (Vec<&Pending>, Vec<&Pending>) =
        set.pending.values().filter(live).partition(|pending| pending.is_new);
    for pending in new.iter().filter(|pending| pending.unmade > 0) {
        add(tx, pending).await?;
    }
    let (kept, gone): (Vec<&Pending>, Vec<&Pending>) = old.iter().partition(|pending| pending.unmade > 0);
    change(tx, &kept).await?;
    tx.execute_for(&DELETE, &[&column(&gone, |pending| pending.template.id)]).await?;
    let chunks_of = |some: &[&Pending]| -> (Vec<ChunkOf<'_>>, Vec<ChunkOf<'_>>) {
        let ranges = some.iter().filter(|one| one.unmade > 0).map(|one| one.template.id);
        let chunks = ranges.flat_map(|first| set.pending_chunks.range((first, i32::MIN)..=(first, i32::MAX)));
        let chunks = chunks.filter(|(_, part)| part.is_changed);
        let chunks = chunks.map(|((first, chunk), part)| (*first, *chunk, part));
        chunks.partition(|(.., part)| part.unmade.is_empty())
    };
    let (_, added) = chunks_of(&new);
    let (finished, changed) = chunks_of(&kept);
    add_chunks(tx, &added).await?;
    tx.execute_for(&DELETE_CHUNKS, &[&firsts(&finished), &numbers(&finished)]).await?;
    let unmade = column(&changed, |(.., part)| part.unmade.bytes());
    tx.execute_for(&CHANGE_CHUNKS, &[&firsts(&changed), &numbers(&changed), &unmade]).await.map(drop)
}

fn firsts(chunks: &[ChunkOf<'_>]) -> Vec<i64> {
    column(chunks, |(first, ..)| *first)
}

fn numbers(chunks: &[ChunkOf<'_>]) -> Vec<i32> {
    column(chunks, |(_, chunk, _)| *chunk)
}

async fn add(tx: &Tx<'_>, pending: &Pending) -> Result<()> {
    let one = &pending.template;
    let params: [Param<'_>; 11] = [
        &one.id,
        &one.queue,
        &one.sender,
        &one.state.number(),
        &time(one.sent_at),
        &one.due_at.map(time),
        &one.begun_at.map(time),
        &one.expires_at.map(time),
        &one.known_as,
        &one.text.as_deref().unwrap_or_default(),
        &pending.unmade,
    ];
    tx.execute(&ADD, &params).await.map(drop)
}

async fn add_chunks(tx: &Tx<'_>, chunks: &[ChunkOf<'_>]) -> Result<u64> {
    let params: [Param<'_>; 6] = [
        &firsts(chunks),
        &numbers(chunks),
        &column(chunks, |(.., part)| part.low),
        &column(chunks, |(.., part)| part.high()),
        &column(chunks, |(.., part)| part.receivers.bytes()),
        &column(chunks, |(.., part)| part.unmade.bytes()),
    ];
    tx.execute_for(&ADD_CHUNKS, &params).await
}

async fn change(tx: &Tx<'_>, some: &[&Pending]) -> Result<u64> {
    let params: [Param<'_>; 5] = [
        &column(some, |one| one.template.id),
        &column(some, |one| one.template.state.number()),
        &column(some, |one| one.template.due_at.map(time)),
        &column(some, |one| one.template.begun_at.map(time)),
        &column(some, |one| one.unmade),
    ];
    tx.execute_for(&CHANGE, &params).await
}
