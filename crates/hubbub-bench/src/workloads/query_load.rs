//! Asking a server over HTTP at a fixed rate, several kinds of questions in turn by chance; and questions about history:
//! the last messages of a room, a page by number, a page by time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::Target;
use crate::client::caller::get;
use crate::load::message_plan::BENCH_PREFIX;
use crate::load::pace::{Due, Rate, Schedule};
use crate::load::run::Run;
use crate::load::worker::{Worker, work};
use crate::options::{Patience, arguments};
use crate::progress::Live;
use crate::results::record::Ending;

/// Connections that ask.
const CONNECTIONS: u64 = 8;
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct QueryTemplate {
    pub(crate) name: &'static str,
    /// Draws the path of one, with its query.
    pub(crate) path: Box<dyn Fn(&SeededRandom) -> String + Send + Sync>,
}

/// When questions are due.
pub(crate) fn schedule(per_second: u32, time: Duration) -> Schedule {
    Schedule::new(Rate::constant(per_second.max(1).into()), time, 0)
}

/// Asks for so long. Each question counts from when it was due. Questions with another answer than 200 count as rejected.
pub(crate) async fn ask(
    target: &Target,
    questions: Vec<QueryTemplate>,
    per_second: u32,
    time: Duration,
    seed: u64,
    quiet: bool,
) -> anyhow::Result<Arc<Run>> {
    let usual: Patience = arguments("patience", &[])?;
    let kinds: Vec<&'static str> = questions.iter().map(|question| question.name).collect();
    let patience = Patience { send_timeout: TIMEOUT, ..usual };
    let run = Arc::new(Run::of_operations(target, &patience, &kinds));
    let schedule = schedule(per_second, time);
    let due = Due::new(schedule);
    let questions = Arc::new(questions);
    let mut askers = JoinSet::new();
    for who in 0..CONNECTIONS {
        let random = SeededRandom::new(seed.wrapping_add(who));
        askers.spawn(put(Worker::new(&run, target), Arc::clone(&questions), Arc::clone(&due), random));
    }
    due.start(&run);
    let live = Live::new("questions", schedule.messages(), quiet);
    let live = live.for_time(Some(time)).on_schedule(Some(schedule));
    work(&run, askers, &live, async {}, || due.abandon()).await;
    Ok(run)
}

/// Puts questions by chance over one connection, and over further ones when it breaks.
async fn put(mut worker: Worker, questions: Arc<Vec<QueryTemplate>>, due: Arc<Due>, random: SeededRandom) {
    let mut caller = None;
    while !worker.is_over() {
        if caller.is_none() {
            caller = worker.connect().await;
        }
        let Some(connected) = &mut caller else { continue };
        let Some(intended_us) = due.next().await else { break };
        let kind = below(&random, questions.len() as u64);
        let Some(question) = questions.get(kind as usize) else { break };
        let path = (question.path)(&random);
        let begun = worker.begin(Some(intended_us));
        let status = connected.request("GET", &path, b"", |response| response.status).await;
        let ending = match status {
            Ok(200) => Ending::Accepted,
            Ok(_) => Ending::Rejected,
            Err(_) => Ending::Unconfirmed,
        };
        worker.end(begun, kind as u8, 0, ending);
        if let Err(cause) = status {
            caller = None;
            worker.lost(cause).await;
        }
    }
    worker.hand_over();
}

#[derive(Debug, Clone)]
struct Extent {
    room: u16,
    head: u64,
    oldest: Timestamp,
    newest: Timestamp,
}

/// Questions for random pages of the rooms that a load without a prefix of its own went to: so many, from the first.
pub(crate) async fn about_history(target: &Target, rooms: u16) -> anyhow::Result<Vec<QueryTemplate>> {
    let mut extents = Vec::new();
    for room in 1..=rooms {
        extents.push(extent(target, room).await?);
    }
    let kind = |name, query: fn(&Extent, &SeededRandom) -> String| {
        let extents = extents.clone();
        let path = move |random: &SeededRandom| {
            let index = below(random, extents.len() as u64) as usize;
            extents.get(index).map_or_else(String::new, |extent| {
                format!("/v1/rooms/{BENCH_PREFIX}{}/messages?{}", extent.room, query(extent, random))
            })
        };
        QueryTemplate { name, path: Box::new(path) }
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
        let body = get(target, &format!("/v1/rooms/{BENCH_PREFIX}{room}/messages?{query}")).await?;
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
