//! Listing copies that are not made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::Waiting;
use tokio_postgres::Row;

use super::load::pending_chunk;
use super::read::{truncate_to_page, waiting_message};
use super::sql;
use super::working_set::Message;
use crate::db::{Result, Tx};

/// Copies of a queue that are not made, behind an id, in the order of ids and without their texts; as many as one page
/// may have.
pub(super) async fn read(
    tx: &Tx<'_>,
    queue: i32,
    after: i64,
    limit: usize,
) -> Result<Vec<(Message, Arc<str>)>> {
    // Of the first piece all may be before the page.
    let pieces = saturate::<_, i64>(limit).saturating_add(1);
    let rows = tx.query(&sql::PENDING_WAITING, &[&queue, &after, &pieces]).await?;
    let mut found: Vec<(Message, Arc<str>)> = Vec::new();
    for row in &rows {
        found.extend(copies(row).filter(|(copy, _)| copy.id > after).take(limit.saturating_sub(found.len())));
        if found.len() >= limit {
            break;
        }
    }
    truncate_to_page(&mut found, |(copy, _)| copy.bytes);
    Ok(found)
}

fn copies(row: &Row) -> impl Iterator<Item = (Message, Arc<str>)> {
    let template = Message { stored_in: None, ..Message::of_row(row) };
    let sender: Arc<str> = row.get::<_, &str>("sender_name").into();
    let (part, first) = (pending_chunk(row), template.id);
    let copies: Vec<(i64, i32)> = part.copies(row.get("chunk")).collect();
    copies.into_iter().map(move |(id, receiver)| {
        let copy = Message { id, receiver, copy_of: Some(first), ..template.clone() };
        (copy, Arc::clone(&sender))
    })
}

/// The same with texts and names, and how many bytes each takes.
pub(super) async fn complete(
    tx: &Tx<'_>,
    copies: Vec<(Message, Arc<str>)>,
    queue: &Arc<str>,
    now: i64,
) -> Result<Vec<(Waiting, i64)>> {
    let firsts: BTreeSet<i64> = copies.iter().filter_map(|(copy, _)| copy.copy_of).collect();
    let firsts: Vec<i64> = firsts.into_iter().collect();
    let receivers: Vec<i32> = copies.iter().map(|(copy, _)| copy.receiver).collect();
    let texts = tx.query(&sql::PENDING_TEXTS, &[&firsts]).await?;
    let names = tx.query(&sql::CLIENT_NAMES, &[&receivers]).await?;
    let texts: HashMap<i64, &str> = texts.iter().map(|row| (row.get(0), row.get(1))).collect();
    let names: HashMap<i32, Arc<str>> =
        names.iter().map(|row| (row.get(0), row.get::<_, &str>(1).into())).collect();
    let completed = copies.into_iter().map(|(copy, sender)| {
        let text = copy.copy_of.and_then(|first| texts.get(&first)).map(|text| (*text).to_owned());
        let receiver = names.get(&copy.receiver).map_or_else(|| Arc::from(""), Arc::clone);
        let bytes = copy.bytes;
        (waiting_message(Message { text, ..copy }, sender, receiver, queue, now), bytes)
    });
    Ok(completed.collect())
}
