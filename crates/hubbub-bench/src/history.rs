//! Questions about history: the last messages of a room, a page by number, a page by time.

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use serde_json::Value;

use crate::asks::Question;
use crate::caller::get;
use crate::client::Target;

#[derive(Debug, Clone)]
struct Extent {
    room: u16,
    head: u64,
    oldest: Timestamp,
    newest: Timestamp,
}

/// Questions for random pages of rooms `1..=rooms`.
pub(crate) async fn questions(target: &Target, rooms: u16) -> anyhow::Result<Vec<Question>> {
    let mut extents = Vec::new();
    for room in 1..=rooms {
        extents.push(extent(target, room).await?);
    }
    let kind = |name, query: fn(&Extent, &SeededRandom) -> String| {
        let extents = extents.clone();
        let path = move |random: &SeededRandom| {
            let index = below(random, extents.len() as u64) as usize;
            extents.get(index).map_or_else(String::new, |extent| {
                format!("/v1/rooms/{}/messages?{}", extent.room, query(extent, random))
            })
        };
        Question { name, path: Box::new(path) }
    };
    Ok(vec![
        kind("last 50", |_, _| "limit=50".to_owned()),
        kind("1,000 by seq", |extent, random| format!("after={}&limit=1000", below(random, extent.head))),
        kind("1,000 by time", |extent, random| {
            let span = extent.newest.as_micros().abs_diff(extent.oldest.as_micros());
            let from = extent.oldest.as_micros().saturating_add_unsigned(below(random, span));
            format!("from={}&limit=1000", Timestamp::from_micros(from))
        }),
    ])
}

fn below(random: &SeededRandom, end: u64) -> u64 {
    random.next_u64() % end.max(1)
}

async fn extent(target: &Target, room: u16) -> anyhow::Result<Extent> {
    let last_of = async |query: &str| -> anyhow::Result<(u64, Timestamp)> {
        let body = get(target, &format!("/v1/rooms/{room}/messages?{query}")).await?;
        let page: Value = serde_json::from_str(&body).context("the history is no list of messages")?;
        let entry = page.get("messages").and_then(|messages| messages.as_array()?.last());
        let entry = entry.with_context(|| format!("room {room} is empty"))?;
        let received_at = entry.get("receivedAt").and_then(|at| Timestamp::parse(at.as_str()?));
        let seq = entry.get("seq").and_then(Value::as_u64);
        seq.zip(received_at).context("a message of the history has no seq, or no time")
    };
    let ((_, oldest), (head, newest)) = (last_of("after=0&limit=1").await?, last_of("limit=1").await?);
    Ok(Extent { room, head, oldest, newest })
}
