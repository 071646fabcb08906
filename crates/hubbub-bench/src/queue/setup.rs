//! What must be there before clients work: queues, clients, and messages that wait.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use indicatif::ProgressBar;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::ask::{Ask, Dialect, Said};
use super::ledger::MessageLedger;
use crate::caller::{Caller, get};
use crate::client::Target;

/// Connections that fill queues, and register clients. No divisor of a round number of clients or queues, so that each
/// comes to all of them.
const FILLERS: usize = 17;
/// Questions that one of them asks ahead.
const AHEAD: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One server: how it is spoken to, and where.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) dialect: Dialect,
    pub(super) target: Target,
    /// Its queues.
    pub(super) queues: Arc<[u64]>,
}

/// Has at least `count` queues there, and gives that many.
pub(super) async fn make_queues(
    dialect: &Dialect,
    target: &Target,
    count: u64,
) -> anyhow::Result<Arc<[u64]>> {
    let mut caller = connect(target).await?;
    let there = ask(dialect, &mut caller, &Ask::Queues).await?;
    let Answer::Numbers(mut queues) = there else { anyhow::bail!("queues cannot be listed") };
    for number in 1..=count {
        if queues.len() as u64 >= count {
            break;
        }
        if queues.contains(&number) {
            continue;
        }
        match ask(dialect, &mut caller, &Ask::MakeQueue(number)).await? {
            Answer::Id(id) => queues.push(id),
            Answer::Done => queues.push(number),
            Answer::Numbers(_) | Answer::Refused => anyhow::bail!("queue {number} could not be made"),
        }
    }
    queues.sort_unstable();
    queues.truncate(saturate(count));
    Ok(queues.into())
}

/// Registers all clients.
pub(super) async fn register(place: &Place, clients: &[u64]) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    for part in clients.chunks(clients.len().div_ceil(FILLERS).max(1)) {
        let (place, part) = (place.clone(), part.to_vec());
        makers.spawn(async move {
            let mut caller = connect(&place.target).await?;
            for client in part {
                let said = ask(&place.dialect, &mut caller, &Ask::Register(client)).await?;
                ensure!(said == Answer::Done, "client {client} could not be registered");
            }
            anyhow::Ok(())
        });
    }
    join(makers).await
}

/// What is done to many messages at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bulk {
    Send,
    /// Takes as many as were sent to each client through each queue, the newest first.
    Take,
}

/// Sends or takes `messages`, shared out evenly among all clients and queues.
pub(super) async fn bulk(
    place: &Place,
    clients: &Arc<[u64]>,
    ledger: &Arc<MessageLedger>,
    (what, messages): (Bulk, u64),
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let mut fillers = JoinSet::new();
    for who in 0..FILLERS as u64 {
        let share = messages / FILLERS as u64 + u64::from(who < messages % FILLERS as u64);
        let (place, clients, ledger, bar) =
            (place.clone(), Arc::clone(clients), Arc::clone(ledger), bar.clone());
        fillers.spawn(async move {
            let mut caller = connect(&place.target).await?;
            let random = SeededRandom::new(crate::machine::seed().wrapping_add(who));
            let mut asks = Asks { place: &place, clients: &clients, at: who as usize };
            let mut done = 0;
            while done < share {
                let count = (share - done).min(AHEAD as u64);
                let accepted = match what {
                    Bulk::Send => asks.send(&mut caller, &ledger, &random, count).await?,
                    Bulk::Take => asks.take(&mut caller, &ledger, count).await?,
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
    place: &'a Place,
    clients: &'a [u64],
    at: usize,
}

impl Asks<'_> {
    fn next(&mut self) -> (u64, u64) {
        let of = |list: &[u64], at: usize| list.get(at % list.len().max(1)).copied().unwrap_or(1);
        let queues = &self.place.queues;
        let next = (of(self.clients, self.at / queues.len().max(1)), of(queues, self.at));
        self.at += FILLERS;
        next
    }

    async fn send(
        &mut self,
        caller: &mut Caller,
        ledger: &MessageLedger,
        random: &SeededRandom,
        count: u64,
    ) -> anyhow::Result<u64> {
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

    async fn take(&mut self, caller: &mut Caller, ledger: &MessageLedger, count: u64) -> anyhow::Result<u64> {
        for _ in 0..count {
            let (receiver, queue) = self.next();
            self.place.dialect.write(&Ask::Take { queue, receiver, is_away: true }, caller.out());
        }
        let take = Ask::Take { queue: 0, receiver: 0, is_away: true };
        answers(&self.place.dialect, caller, &take, count, |said| {
            if let Said::Content(content) = said {
                ledger.taken(content);
            }
            matches!(said, Said::Content(_))
        })
        .await
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
    #[derive(Deserialize)]
    struct Page {
        queues: Vec<Depth>,
        next: Option<String>,
    }
    #[derive(Deserialize)]
    struct Depth {
        messages: u64,
    }
    let (mut sum, mut after) = (0, String::new());
    loop {
        let body = get(target, &format!("/v1/queues?limit=1000{after}")).await.ok()?;
        let page: Page = serde_json::from_str(&body).ok()?;
        sum += page.queues.iter().map(|queue| queue.messages).sum::<u64>();
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Some(sum),
        }
    }
}

/// An answer that outlives its bytes.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Id(u64),
    Numbers(Vec<u64>),
    Refused,
}

async fn connect(target: &Target) -> anyhow::Result<Caller> {
    let connected = Caller::connect(target, TIMEOUT).await;
    connected.map_err(|cause| anyhow::anyhow!("cannot connect to {}: {cause:?}", target.host))
}

async fn ask(dialect: &Dialect, caller: &mut Caller, ask: &Ask<'_>) -> anyhow::Result<Answer> {
    dialect.write(ask, caller.out());
    let said = caller.answer(|bytes| {
        let said = dialect.read(ask, bytes)?;
        Ok(said.map(|(said, used)| {
            let answer = match said {
                Said::Done => Answer::Done,
                Said::Id(id) => Answer::Id(id),
                Said::Numbers(numbers) => Answer::Numbers(numbers),
                Said::Content(_) | Said::Nothing | Said::Refused => Answer::Refused,
            };
            (answer, used)
        }))
    });
    said.await.map_err(|cause| anyhow::anyhow!("no answer to {ask:?}: {cause:?}"))
}

async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task ended early")??;
    }
    Ok(())
}
