//! Messages to everybody whose copies are not all made.

use super::is_deleted;
use crate::db::{DbError, Param, PgTime, Sql, Tx};
use crate::queues::sql::time;
use crate::queues::working_set::{Pending, PendingChunk, WorkingSet};

const ADD: Sql = Sql {
    what: "adding a message to everybody",
    text: "insert into queue_pending (first, queue, sender, state, sent_at, due_at, begun_at, expires_at, known_as, \
             body, unmade) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
};

const ADD_CHUNKS: Sql = Sql {
    what: "adding receivers of a message to everybody",
    text: "insert into queue_pending_chunks (first, chunk, low, high, receivers, unmade) \
           select * from unnest($1, $2, $3, $4, $5, $6)",
};

const CHANGE: Sql = Sql {
    what: "changing messages to everybody",
    text: "update queue_pending p set state = k.state, due_at = k.due_at, begun_at = k.begun_at, unmade = k.unmade \
           from unnest($1, $2, $3, $4, $5) as k (first, state, due_at, begun_at, unmade) where p.first = k.first",
};

const CHANGE_CHUNKS: Sql = Sql {
    what: "changing receivers of messages to everybody",
    text: "update queue_pending_chunks c set unmade = k.unmade from unnest($1, $2, $3) as k (first, chunk, unmade) \
           where c.first = k.first and c.chunk = k.chunk",
};

const DELETE: Sql = Sql {
    what: "removing messages to everybody",
    text: "with chunks as (delete from queue_pending_chunks where first = any($1)) \
           delete from queue_pending where first = any($1)",
};

const DELETE_CHUNKS: Sql = Sql {
    what: "removing receivers of messages to everybody",
    text: "delete from queue_pending_chunks c using unnest($1, $2) as k (first, chunk) \
           where c.first = k.first and c.chunk = k.chunk",
};

type ChunkOf<'a> = (i64, i32, &'a PendingChunk);

/// What became of messages to everybody; those of queues that are gone are cleared away with them.
pub(in crate::queues) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let live = |pending: &&Pending| pending.is_changed && !is_deleted(set, pending.template.queue);
    let (new, old): (Vec<&Pending>, Vec<&Pending>) =
        set.pending.values().filter(live).partition(|pending| pending.is_new);
    for pending in new.iter().filter(|pending| pending.unmade > 0) {
        add(tx, pending).await?;
    }
    let (kept, gone): (Vec<&Pending>, Vec<&Pending>) = old.iter().partition(|pending| pending.unmade > 0);
    change(tx, &kept).await?;
    if !gone.is_empty() {
        let gone: Vec<i64> = gone.iter().map(|pending| pending.template.id).collect();
        tx.execute(&DELETE, &[&gone]).await?;
    }
    let of = |some: &[&Pending]| -> Vec<ChunkOf<'_>> {
        let ranges = some.iter().filter(|one| one.unmade > 0).map(|one| one.template.id);
        let chunks = ranges.flat_map(|first| set.pending_chunks.range((first, i32::MIN)..=(first, i32::MAX)));
        let chunks = chunks.filter(|(_, part)| part.is_changed);
        chunks.map(|((first, chunk), part)| (*first, *chunk, part)).collect()
    };
    add_chunks(tx, &of(&new)).await?;
    change_chunks(tx, of(&kept)).await
}

async fn add(tx: &Tx<'_>, pending: &Pending) -> Result<(), DbError> {
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

async fn add_chunks(tx: &Tx<'_>, chunks: &[ChunkOf<'_>]) -> Result<(), DbError> {
    let some: Vec<&ChunkOf<'_>> = chunks.iter().filter(|(.., part)| !part.unmade.is_empty()).collect();
    if some.is_empty() {
        return Ok(());
    }
    let params: [Param<'_>; 6] = [
        &some.iter().map(|(first, ..)| *first).collect::<Vec<i64>>(),
        &some.iter().map(|(_, chunk, _)| *chunk).collect::<Vec<i32>>(),
        &some.iter().map(|(.., part)| part.low).collect::<Vec<i64>>(),
        &some.iter().map(|(.., part)| part.high()).collect::<Vec<i64>>(),
        &some.iter().map(|(.., part)| part.receivers.bytes()).collect::<Vec<&[u8]>>(),
        &some.iter().map(|(.., part)| part.unmade.bytes()).collect::<Vec<&[u8]>>(),
    ];
    tx.execute(&ADD_CHUNKS, &params).await.map(drop)
}

async fn change(tx: &Tx<'_>, some: &[&Pending]) -> Result<(), DbError> {
    if some.is_empty() {
        return Ok(());
    }
    let times = |value: fn(&Pending) -> Option<i64>| -> Vec<Option<PgTime>> {
        some.iter().map(|one| value(one).map(time)).collect()
    };
    let params: [Param<'_>; 5] = [
        &some.iter().map(|one| one.template.id).collect::<Vec<i64>>(),
        &some.iter().map(|one| one.template.state.number()).collect::<Vec<i16>>(),
        &times(|one| one.template.due_at),
        &times(|one| one.template.begun_at),
        &some.iter().map(|one| one.unmade).collect::<Vec<i64>>(),
    ];
    tx.execute(&CHANGE, &params).await.map(drop)
}

async fn change_chunks(tx: &Tx<'_>, chunks: Vec<ChunkOf<'_>>) -> Result<(), DbError> {
    let (gone, kept): (Vec<ChunkOf<'_>>, Vec<ChunkOf<'_>>) =
        chunks.into_iter().partition(|(.., part)| part.unmade.is_empty());
    let keys = |some: &[ChunkOf<'_>]| -> (Vec<i64>, Vec<i32>) {
        some.iter().map(|(first, chunk, _)| (*first, *chunk)).unzip()
    };
    if !gone.is_empty() {
        let (firsts, numbers) = keys(&gone);
        tx.execute(&DELETE_CHUNKS, &[&firsts, &numbers]).await?;
    }
    if !kept.is_empty() {
        let (firsts, numbers) = keys(&kept);
        let unmade: Vec<&[u8]> = kept.iter().map(|(.., part)| part.unmade.bytes()).collect();
        tx.execute(&CHANGE_CHUNKS, &[&firsts, &numbers, &unmade]).await?;
    }
    Ok(())
}
