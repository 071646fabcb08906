//! Questions about history: the last messages of a room, a page by number, a page by time.

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use serde::Deserialize;

use crate::asks::Question;
use crate::caller::get;
use crate::client::Target;

#[derive(Debug, Deserialize)]
struct Page {
    messages: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    seq: u64,
    received_at: String,
}

/// What a room holds.
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
    let page = async |query: &str| -> anyhow::Result<Entry> {
        let body = get(target, &format!("/v1/rooms/{room}/messages?{query}")).await?;
        let page: Page = serde_json::from_str(&body).context("the history is no list of messages")?;
        page.messages.into_iter().last().with_context(|| format!("room {room} is empty"))
    };
    let (first, last) = (page("after=0&limit=1").await?, page("limit=1").await?);
    let at = |entry: &Entry| Timestamp::parse(&entry.received_at).context("receivedAt is no time");
    Ok(Extent { room, head: last.seq, oldest: at(&first)?, newest: at(&last)? })
}
