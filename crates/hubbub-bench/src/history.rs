//! Reading history over HTTP at a fixed rate: the last messages of a room, a page by number, a page by time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::client::Target;
use crate::client::get::get;
use crate::client::post::split_response;
use crate::record::Dist;
use crate::wire::Wire;

/// Connections that ask, each at its share of the rate.
const CONNECTIONS: u32 = 8;

/// Reading times of the three kinds of requests.
#[derive(Debug, Default)]
pub(crate) struct HistoryTimes {
    pub(crate) last_50: Dist,
    pub(crate) by_seq: Dist,
    pub(crate) by_time: Dist,
    /// Requests with another answer than 200.
    pub(crate) failed: u64,
}

/// A page of history, as far as it matters here.
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

/// Asks for random pages of rooms `1..=rooms`.
pub(crate) async fn read(
    target: &Target,
    rooms: u16,
    per_second: u32,
    time: Duration,
    seed: u64,
) -> anyhow::Result<HistoryTimes> {
    let mut extents = Vec::new();
    for room in 1..=rooms {
        extents.push(extent(target, room).await?);
    }
    let times = Arc::new(Mutex::new(HistoryTimes::default()));
    let every = Duration::from_secs(1) * CONNECTIONS / per_second.max(1);
    let begun = Instant::now();
    let mut readers = JoinSet::new();
    for who in 0..CONNECTIONS {
        let reader = Reader {
            target: target.clone(),
            extents: extents.clone(),
            random: SeededRandom::new(seed.wrapping_add(u64::from(who))),
            times: Arc::clone(&times),
        };
        readers.spawn(reader.run(begun + every * who / CONNECTIONS, every, begun + time));
    }
    while let Some(ended) = readers.join_next().await {
        ended.context("a reader ended early")??;
    }
    Ok(std::mem::take(&mut *times.lock()))
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

struct Reader {
    target: Target,
    extents: Vec<Extent>,
    random: SeededRandom,
    times: Arc<Mutex<HistoryTimes>>,
}

impl Reader {
    /// One request every `every`; each counts from when it was due.
    async fn run(self, first: Instant, every: Duration, end: Instant) -> anyhow::Result<()> {
        let Ok(mut wire) = self.target.connect().await else { anyhow::bail!("nobody answers") };
        let mut tick = interval_at(first, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut answer = Vec::new();
        loop {
            let due = tick.tick().await;
            if due >= end {
                return Ok(());
            }
            let (kind, query) = self.draw();
            let status = self.ask(&mut wire, &query, &mut answer).await?;
            let us = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
            let mut times = self.times.lock();
            match (status, kind) {
                (200, 0) => times.last_50.add(us),
                (200, 1) => times.by_seq.add(us),
                (200, _) => times.by_time.add(us),
                _ => times.failed += 1,
            }
        }
    }

    fn draw(&self) -> (u64, String) {
        let below = |end: u64| self.random.next_u64() % end.max(1);
        let index = below(self.extents.len() as u64) as usize;
        let Some(extent) = self.extents.get(index) else { return (0, String::new()) };
        let Extent { room, head, oldest, newest } = extent;
        match below(3) {
            0 => (0, format!("{room}/messages?limit=50")),
            1 => (1, format!("{room}/messages?after={}&limit=1000", below(*head))),
            _ => {
                let span = newest.as_micros().abs_diff(oldest.as_micros());
                let from = oldest.as_micros().saturating_add_unsigned(below(span));
                (2, format!("{room}/messages?from={}&limit=1000", Timestamp::from_micros(from)))
            }
        }
    }

    async fn ask(&self, wire: &mut Wire, query: &str, answer: &mut Vec<u8>) -> anyhow::Result<u16> {
        let Target { prefix, host, .. } = &self.target;
        let request = format!("GET {prefix}/v1/rooms/{query} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        wire.stream().write_all(request.as_bytes()).await?;
        answer.clear();
        loop {
            anyhow::ensure!(wire.stream().read_buf(answer).await? > 0, "the server closed the connection");
            // A page of 250 KB comes in a few reads, and its header is short.
            match split_response(answer) {
                Ok(Some((response, _))) => return Ok(response.status),
                Ok(None) => {}
                Err(_) => anyhow::bail!("the answer is no HTTP"),
            }
        }
    }
}
