//! What must be there before clients work: queues, clients, and messages that wait.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use serde_json::Value;
use tokio::task::JoinSet;

use super::Stage;
use super::command::{Dialect, QueueCommand, Said};
use crate::client::Target;
use crate::client::caller::{Caller, get};
use crate::load::room_load::join;
use crate::progress::Live;

/// Connections that fill queues, and register clients. No divisor of a round number of clients or queues, so that each
/// comes to all of them.
const FILLERS: usize = 17;
/// Questions that one of them asks ahead.
const AHEAD: u64 = 64;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One server: how it is spoken to, and its queues.
#[derive(Debug, Clone)]
pub(crate) struct QueueTarget {
    pub(super) dialect: Dialect,
    pub(super) queues: Arc<[u64]>,
}

impl QueueTarget {
    /// The same for the connection of a client.
    pub(super) fn of_user(&self, client: u64) -> Self {
        let Dialect { via, target } = &self.dialect;
        let dialect = Dialect { via: *via, target: target.of_user(&client.to_string()) };
        Self { dialect, queues: Arc::clone(&self.queues) }
    }
}

/// Has at least `count` queues there. That many of them, and those of them that it made.
pub(super) async fn make_queues(dialect: &Dialect, count: u64) -> anyhow::Result<(Arc<[u64]>, Vec<u64>)> {
    let mut caller = Caller::open(&dialect.target, TIMEOUT).await?;
    let there = ask(dialect, &mut caller, &QueueCommand::Queues, |said| said.numbers()).await?;
    let mut queues = there.context("queues cannot be listed")?;
    let mut made = Vec::new();
    for number in 1..=count {
        if queues.len() as u64 >= count {
            break;
        }
        if queues.contains(&number) {
            continue;
        }
        let id = |said: Said<'_>| match said {
            Said::Id(id) => Some(id),
            Said::Done => Some(number),
            _ => None,
        };
        let id = ask(dialect, &mut caller, &QueueCommand::MakeQueue(number), id).await?;
        let id = id.with_context(|| format!("queue {number} could not be made"))?;
        queues.push(id);
        made.push(id);
    }
    queues.sort_unstable();
    queues.truncate(saturate(count));
    Ok((queues.into(), made))
}

pub(super) async fn register(place: &QueueTarget, clients: &[u64]) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    for part in clients.chunks(clients.len().div_ceil(FILLERS).max(1)) {
        let (place, part) = (place.clone(), part.to_vec());
        makers.spawn(async move {
            let mut caller = Caller::open(&place.dialect.target, TIMEOUT).await?;
            for client in part {
                let register = QueueCommand::Register(client);
                let is_done = ask(&place.dialect, &mut caller, &register, |said| said == Said::Done).await?;
                ensure!(is_done, "client {client} could not be registered");
            }
            anyhow::Ok(())
        });
    }
    join(makers).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bulk {
    Send,
    /// Takes as many as were sent to each client through each queue, the newest first.
    Take,
}

/// How `all` are shared out evenly among `count`.
fn shares(all: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| all / count + u64::from(index < all % count))
}

/// Sends or takes `messages`, shared out evenly among all servers, clients and queues.
pub(super) async fn bulk(stage: &Arc<Stage>, what: Bulk, messages: u64, quiet: bool) -> anyhow::Result<()> {
    let name = if what == Bulk::Send { "filling" } else { "taking" };
    let live = Arc::new(Live::new(name, messages, quiet));
    for (place, share) in stage.places.iter().zip(shares(messages, stage.places.len() as u64)) {
        join(fillers(stage, place, what, share, &live)).await.context(name)?;
    }
    live.clear();
    Ok(())
}

fn fillers(
    stage: &Arc<Stage>,
    place: &QueueTarget,
    what: Bulk,
    messages: u64,
    live: &Arc<Live<'static>>,
) -> JoinSet<anyhow::Result<()>> {
    let mut fillers = JoinSet::new();
    for (who, share) in shares(messages, FILLERS as u64).enumerate() {
        let (stage, place, live) = (Arc::clone(stage), place.clone(), Arc::clone(live));
        fillers.spawn(async move {
            let mut caller = Caller::open(&place.dialect.target, TIMEOUT).await?;
            let random = SeededRandom::new(crate::host::machine::seed().wrapping_add(who as u64));
            let mut pairs = pairs(who, &stage.clients, &place.queues);
            let mut done = 0;
            while done < share {
                let count = (share - done).min(AHEAD);
                let mut content = Vec::new();
                for (client, queue) in pairs.by_ref().take(saturate(count)) {
                    let ask = match what {
                        Bulk::Send => {
                            content.clear();
                            stage.ledger.write_content(&random, &mut content);
                            QueueCommand::Send {
                                sender: client,
                                receiver: Some(client),
                                queue,
                                content: &content,
                            }
                        }
                        Bulk::Take => QueueCommand::Take { queue, receiver: client, is_away: true },
                    };
                    place.dialect.write(&ask, caller.out());
                }
                let accepted = answers(&stage, &place, &mut caller, what, count).await?;
                ensure!(accepted == count, "{} of {count} messages: {what:?} failed", count - accepted);
                live.inc(count);
                done += count;
            }
            anyhow::Ok(())
        });
    }
    fillers
}

/// The clients and queues of connection `who`, one after another, again and again.
fn pairs(who: usize, clients: &[u64], queues: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let of = |list: &[u64], at: usize| list.get(at % list.len().max(1)).copied().unwrap_or(1);
    (who..).step_by(FILLERS).map(move |at| (of(clients, at / queues.len().max(1)), of(queues, at)))
}

/// Hears `count` answers, and notes each once; how many of them are as they should be.
async fn answers(
    stage: &Stage,
    place: &QueueTarget,
    caller: &mut Caller,
    what: Bulk,
    count: u64,
) -> anyhow::Result<u64> {
    let ask = match what {
        Bulk::Send => QueueCommand::Send { sender: 0, receiver: None, queue: 0, content: b"" },
        Bulk::Take => QueueCommand::Take { queue: 0, receiver: 0, is_away: true },
    };
    let (mut used, mut heard, mut accepted) = (0, 0, 0);
    let all = caller.answer(|bytes| {
        while heard < count {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some((said, more)) = place.dialect.read(&ask, rest)? else { return Ok(None) };
            used += more;
            heard += 1;
            match said {
                Said::Done => stage.ledger.counts().sent += 1,
                Said::Content(content) => stage.ledger.taken(content),
                _ => continue,
            }
            accepted += 1;
        }
        Ok(Some((accepted, used)))
    });
    all.await.map_err(|cause| anyhow::anyhow!("the connection was lost while queues were filled: {cause:?}"))
}

/// Messages in all queues; `None` when a server does not say.
pub(super) async fn depth<'t>(targets: impl Iterator<Item = &'t Target>) -> Option<u64> {
    let mut sum = 0;
    for target in targets {
        let mut after = Some(String::new());
        while let Some(name) = after {
            let body = get(target, &format!("/v1/queues?limit=1000{name}")).await.ok()?;
            let page: Value = serde_json::from_str(&body).ok()?;
            for queue in page.get("queues")?.as_array()? {
                sum += queue.get("messages")?.as_u64()?;
            }
            after = page.get("next").and_then(Value::as_str).map(|next| format!("&after={next}"));
        }
    }
    Some(sum)
}

async fn ask<R>(
    dialect: &Dialect,
    caller: &mut Caller,
    ask: &QueueCommand<'_>,
    hear: impl FnMut(Said<'_>) -> R,
) -> anyhow::Result<R> {
    let said = dialect.call(caller, ask, hear).await;
    said.map_err(|cause| anyhow::anyhow!("no answer to {ask:?}: {cause:?}"))
}
