//! Who registered or went.

use hubbub_core::invariant::saturate;
use std::collections::{BTreeMap, HashMap};

use crate::db::{Result, Tx, statements};
use crate::queues::working_set::{ANYBODY, Members, WorkingSet, chunk_of};

statements! {
    NEXT_VERSION("noting that clients change") =
        "update queue_head set client_version = client_version + 1 returning client_version";

    /// An insert uses up a number also where it finds a name that is there: so those that are known are only updated.
    CHANGE_CLIENTS("registering clients") =
        "with before as (select count(*) as registered from clients where id = any($1) and registered), \
         known as (update clients k set registered = c.registered, version = $3 \
           from unnest($1, $2) as c (id, registered) where k.id = c.id returning k.id, k.no), \
         made as (insert into clients (id, registered, version) \
           select c.id, c.registered, $3 \
           from unnest($1, $2) with ordinality as c (id, registered, place) \
           where not exists (select from clients k where k.id = c.id) order by c.place \
           returning id, no), \
         counted as (update queue_head set clients = clients + $4 - before.registered from before) \
         select id, no from known union all select id, no from made";

    READ_CHUNKS("reading who is registered") =
        "select chunk, members from client_chunks where chunk = any($1)";

    WRITE_CHUNKS("noting who is registered") =
        "insert into client_chunks (chunk, members) select * from unnest($1, $2) \
         on conflict (chunk) do update set members = excluded.members";
}

/// Notes who is registered, by numbers; the head's row is held.
async fn write_chunks(tx: &Tx<'_>, changed: &[(i32, bool)]) -> Result<()> {
    let mut chunks: BTreeMap<i32, Members> = BTreeMap::new();
    for (no, _) in changed {
        chunks.entry(chunk_of(*no).0).or_default();
    }
    let numbers: Vec<i32> = chunks.keys().copied().collect();
    for row in tx.query(&READ_CHUNKS, &[&numbers]).await? {
        chunks.insert(row.get(0), Members::of_bytes(row.get(1)));
    }
    for (no, is_registered) in changed {
        let (chunk, bit) = chunk_of(*no);
        chunks.entry(chunk).or_default().set(bit, *is_registered);
    }
    let numbers: Vec<i32> = chunks.keys().copied().collect();
    let members: Vec<&[u8]> = chunks.values().map(Members::bytes).collect();
    tx.execute(&WRITE_CHUNKS, &[&numbers, &members]).await.map(drop)
}

pub(super) async fn write(tx: &Tx<'_>, set: &mut WorkingSet) -> Result<()> {
    // The head's row is held from here on, so the order cannot lead to a deadlock: new ones in that of their numbers.
    let mut changed: Vec<_> = set.clients.iter().filter(|(_, client)| client.is_changed).collect();
    changed.sort_unstable_by_key(|(_, client)| client.order());
    let (names, registered): (Vec<&str>, Vec<bool>) =
        changed.into_iter().map(|(name, client)| (&**name, client.is_registered)).unzip();
    if names.is_empty() {
        return Ok(());
    }
    let version: i64 = tx.query_one(&NEXT_VERSION, &[]).await?.get(0);
    // Another server may have registered some of them since they were read; now nobody does.
    let wanted = saturate::<_, i64>(registered.iter().filter(|is| **is).count());
    let rows = tx.query(&CHANGE_CLIENTS, &[&names, &registered, &version, &wanted]).await?;
    let stands = rows.iter().filter_map(|row| {
        let client = set.clients.get(row.get::<_, &str>(0))?;
        Some((row.get::<_, i32>(1), client.is_registered))
    });
    write_chunks(tx, &stands.collect::<Vec<_>>()).await?;
    let numbers = rows.iter().filter_map(|row| {
        let client = set.clients.get(row.get::<_, &str>(0))?;
        Some((client.no, row.get::<_, i32>(1)))
    });
    let numbers: HashMap<i32, i32> = numbers.collect();
    let number = |no: i32| numbers.get(&no).copied().unwrap_or(no);
    for message in set.messages.values_mut().filter(|message| message.stored_in.is_none()) {
        (message.sender, message.receiver) = (number(message.sender), number(message.receiver));
    }
    for pending in set.pending.values_mut().filter(|pending| pending.template.sender < ANYBODY) {
        pending.template.sender = number(pending.template.sender);
    }
    Ok(())
}
