//! Asking a server over HTTP at a fixed rate, several kinds of questions in turn by chance; and questions about history:
//! the last messages of a room, a page by number, a page by time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::caller::{Caller, get};
use crate::client::Target;
use crate::phase::join;
use crate::record::Dist;

/// Connections that ask, each at its share of the rate.
const CONNECTIONS: u32 = 8;
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Question {
    pub(crate) name: &'static str,
    /// Draws the path of one, with its query.
    pub(crate) path: Box<dyn Fn(&SeededRandom) -> String + Send + Sync>,
}

#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Of each kind, counted from when the question was due.
    pub(crate) kinds: Vec<(&'static str, Dist)>,
    /// Questions with another answer than 200.
    pub(crate) failed: u64,
}

/// Asks for so long. Each question counts from when it was due.
pub(crate) async fn ask(
    target: &Target,
    questions: Vec<Question>,
    per_second: u32,
    time: Duration,
    seed: u64,
) -> anyhow::Result<Times> {
    let kinds = questions.iter().map(|question| (question.name, Dist::default())).collect();
    let times = Arc::new(Mutex::new(Times { kinds, failed: 0 }));
    let questions = Arc::new(questions);
    let every = Duration::from_secs(1) * CONNECTIONS / per_second.max(1);
    let begun = Instant::now();
    let mut askers = JoinSet::new();
    for who in 0..CONNECTIONS {
        let (target, questions, times) = (target.clone(), Arc::clone(&questions), Arc::clone(&times));
        let random = SeededRandom::new(seed.wrapping_add(u64::from(who)));
        askers.spawn(async move {
            let mut caller = Caller::open(&target, TIMEOUT).await?;
            let mut tick = interval_at(begun + every * who / CONNECTIONS, every);
            tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                let due = tick.tick().await;
                let kind = below(&random, questions.len() as u64) as usize;
                let Some(question) = questions.get(kind).filter(|_| due < begun + time) else {
                    return Ok(());
                };
                let path = (question.path)(&random);
                let status = caller.request("GET", &path, b"", |response| response.status).await;
                let status = status
                    .map_err(|cause| anyhow::anyhow!("no answer to {}: {}", question.name, cause.name()))?;
                let us = saturate(due.elapsed().as_micros());
                let mut times = times.lock();
                match times.kinds.get_mut(kind) {
                    Some((_, dist)) if status == 200 => dist.add(us),
                    _ => times.failed += 1,
                }
            }
        });
    }
    join(askers).await?;
    Ok(std::mem::take(&mut *times.lock()))
}

#[derive(Debug, Clone)]
struct Extent {
    room: u16,
    head: u64,
    oldest: Timestamp,
    newest: Timestamp,
}

/// Questions for random pages of rooms `1..=rooms`.
pub(crate) async fn about_history(target: &Target, rooms: u16) -> anyhow::Result<Vec<Question>> {
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

pub(crate) fn below(random: &SeededRandom, end: u64) -> u64 {
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
