//! What must be there before clients work: queues, clients, and messages that wait.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::task::JoinSet;

use super::Stage;
use super::ask::{Ask, Dialect, Said};
use crate::caller::{Caller, get};
use crate::client::Target;
use crate::phase::join;

/// Connections that fill queues, and register clients. No divisor of a round number of clients or queues, so that each
/// comes to all of them.
const FILLERS: usize = 17;
/// Questions that one of them asks ahead.
const AHEAD: u64 = 64;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One server: how it is spoken to, and its queues.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(super) dialect: Dialect,
    pub(super) queues: Arc<[u64]>,
}

/// Has at least `count` queues there, and gives that many.
pub(super) async fn make_queues(dialect: &Dialect, count: u64) -> anyhow::Result<Arc<[u64]>> {
    let mut caller = connect(&dialect.target).await?;
    let there = ask(dialect, &mut caller, &Ask::Queues, |said| said.numbers()).await?;
    let mut queues = there.context("queues cannot be listed")?;
    for number in 1..=count {
        if queues.len() as u64 >= count {
            break;
        }
        if queues.contains(&number) {
            continue;
        }
        let made = |said: Said<'_>| match said {
            Said::Id(id) => Some(id),
            Said::Done => Some(number),
            _ => None,
        };
        let made = ask(dialect, &mut caller, &Ask::MakeQueue(number), made).await?;
        queues.push(made.with_context(|| format!("queue {number} could not be made"))?);
    }
    queues.sort_unstable();
    queues.truncate(saturate(count));
    Ok(queues.into())
}

pub(super) async fn register(place: &Place, clients: &[u64]) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    for part in clients.chunks(clients.len().div_ceil(FILLERS).max(1)) {
        let (place, part) = (place.clone(), part.to_vec());
        makers.spawn(async move {
            let mut caller = connect(&place.dialect.target).await?;
            for client in part {
                let register = Ask::Register(client);
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
pub(super) fn shares(all: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| all / count + u64::from(index < all % count))
}

/// Sends or takes `messages`, shared out evenly among all clients and queues.
pub(super) async fn bulk(
    stage: &Arc<Stage>,
    place: &Place,
    what: Bulk,
    messages: u64,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let mut fillers = JoinSet::new();
    for (who, share) in shares(messages, FILLERS as u64).enumerate() {
        let (stage, place, bar) = (Arc::clone(stage), place.clone(), bar.clone());
        fillers.spawn(async move {
            let mut caller = connect(&place.dialect.target).await?;
            let random = SeededRandom::new(crate::machine::seed().wrapping_add(who as u64));
            let mut asks = Asks { stage: &stage, place: &place, at: who };
            let mut done = 0;
            while done < share {
                let count = (share - done).min(AHEAD);
                let accepted = match what {
                    Bulk::Send => asks.send(&mut caller, &random, count).await?,
                    Bulk::Take => asks.take(&mut caller, count).await?,
                };
                ensure!(accepted == count, "{} of {count} messages: {what:?} failed", count - accepted);
                bar.inc(count);
                done += count;
            }
            anyhow::Ok(())
        });
    }
    join(fillers).await
}

/// The clients and queues of one connection, one after another.
struct Asks<'a> {
    stage: &'a Stage,
    place: &'a Place,
    at: usize,
}

impl Asks<'_> {
    fn next(&mut self) -> (u64, u64) {
        let of = |list: &[u64], at: usize| list.get(at % list.len().max(1)).copied().unwrap_or(1);
        let queues = &self.place.queues;
        let next = (of(&self.stage.clients, self.at / queues.len().max(1)), of(queues, self.at));
        self.at += FILLERS;
        next
    }

    async fn send(&mut self, caller: &mut Caller, random: &SeededRandom, count: u64) -> anyhow::Result<u64> {
        let ledger = &self.stage.ledger;
        for _ in 0..count {
            let (client, queue) = self.next();
            let mut content = Vec::new();
            ledger.write_content(random, &mut content);
            let send = Ask::Send { sender: client, receiver: Some(client), queue, content: &content };
            self.place.dialect.write(&send, caller.out());
        }
        let send = Ask::Send { sender: 0, receiver: None, queue: 0, content: b"" };
        let accepted = answers(&self.place.dialect, caller, &send, count, |said| *said == Said::Done).await?;
        ledger.sent(accepted);
        Ok(accepted)
    }

    async fn take(&mut self, caller: &mut Caller, count: u64) -> anyhow::Result<u64> {
        for _ in 0..count {
            let (receiver, queue) = self.next();
            self.place.dialect.write(&Ask::Take { queue, receiver, is_away: true }, caller.out());
        }
        let take = Ask::Take { queue: 0, receiver: 0, is_away: true };
        let accept = |said: &Said<'_>| {
            let Said::Content(content) = said else { return false };
            self.stage.ledger.taken(content);
            true
        };
        answers(&self.place.dialect, caller, &take, count, accept).await
    }
}

/// Hears `count` answers; of how many `accept` says yes. Each is shown to it once.
async fn answers(
    dialect: &Dialect,
    caller: &mut Caller,
    ask: &Ask<'_>,
    count: u64,
    mut accept: impl FnMut(&Said<'_>) -> bool,
) -> anyhow::Result<u64> {
    let (mut used, mut heard, mut accepted) = (0, 0, 0);
    let all = caller.answer(|bytes| {
        while heard < count {
            let Some((said, more)) = dialect.read(ask, bytes.get(used..).unwrap_or_default())? else {
                return Ok(None);
            };
            used += more;
            heard += 1;
            accepted += u64::from(accept(&said));
        }
        Ok(Some((accepted, used)))
    });
    all.await.map_err(|cause| anyhow::anyhow!("the connection was lost while queues were filled: {cause:?}"))
}

/// Messages in all queues; `None` when the server does not say.
pub(super) async fn depth(target: &Target) -> Option<u64> {
    let (mut sum, mut after) = (0, String::new());
    loop {
        let body = get(target, &format!("/v1/queues?limit=1000{after}")).await.ok()?;
        let page: Value = serde_json::from_str(&body).ok()?;
        for queue in page.get("queues")?.as_array()? {
            sum += queue.get("messages")?.as_u64()?;
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={next}"),
            None => return Some(sum),
        }
    }
}

async fn connect(target: &Target) -> anyhow::Result<Caller> {
    Caller::open(target, TIMEOUT).await
}

async fn ask<R>(
    dialect: &Dialect,
    caller: &mut Caller,
    ask: &Ask<'_>,
    hear: impl FnMut(Said<'_>) -> R,
) -> anyhow::Result<R> {
    let said = dialect.call(caller, ask, hear).await;
    said.map_err(|cause| anyhow::anyhow!("no answer to {ask:?}: {cause:?}"))
}
