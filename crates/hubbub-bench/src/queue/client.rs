//! One client of queues: it sends, asks which queues hold something for it, takes or reads, and thinks.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};

use super::ask::{Ask, Dialect, Said};
use super::ledger::MessageLedger;
use crate::caller::Caller;
use crate::client::Cause;
use crate::record::Ending;
use crate::worker::{Begun, Worker};

/// Operations, in the order of their numbers in the record.
pub(super) const KINDS: [&str; 4] = ["send", "get", "read", "list"];
const SEND: u8 = 0;
const GET: u8 = 1;
const READ: u8 = 2;
const LIST: u8 = 3;

/// What a client does in each turn, and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// Probability that it sends.
    pub(super) send: f64,
    /// Probability that a message is for whoever takes it first.
    pub(super) unaddressed: f64,
    /// Probability that it asks which queues hold something for it, and takes from one of those; otherwise from any.
    pub(super) ask: f64,
    /// Probability that it takes, or else reads.
    pub(super) take: f64,
    /// Whether it does either.
    pub(super) is_taking: bool,
    pub(super) think: Duration,
    /// How often it asks for the lists of clients and queues; zero = it knows them all and never asks.
    pub(super) refresh: Duration,
    /// Messages acknowledged to all clients together after which it ends.
    pub(super) ends_after: Option<u64>,
    /// Whether it ends when there is nothing left to take.
    pub(super) ends_when_empty: bool,
    /// The server answers everything with the same message.
    pub(super) is_echo: bool,
}

pub(super) struct Client {
    pub(super) worker: Worker,
    pub(super) dialect: Dialect,
    pub(super) ledger: Arc<MessageLedger>,
    pub(super) habits: Habits,
    pub(super) me: u64,
    /// Whom and where it sends, as far as it knows.
    pub(super) clients: Arc<[u64]>,
    pub(super) queues: Arc<[u64]>,
    pub(super) random: SeededRandom,
}

impl Client {
    pub(super) async fn run(mut self) {
        let mut caller = None;
        let mut refreshed_us = None;
        while !self.worker.is_over()
            && self.habits.ends_after.is_none_or(|all| self.ledger.sent_so_far() < all)
        {
            if caller.is_none() {
                caller = self.worker.connect().await;
            }
            let Some(connected) = &mut caller else { continue };
            match self.turn(connected, &mut refreshed_us).await {
                Ok(false) if self.habits.ends_when_empty => break,
                Ok(_) if self.habits.think.is_zero() => {}
                Ok(_) => tokio::time::sleep(self.habits.think).await,
                Err(cause) => {
                    caller = None;
                    self.worker.lost(cause).await;
                }
            }
        }
        self.worker.hand_over();
    }

    /// Says whether there was anything to take.
    async fn turn(&mut self, caller: &mut Caller, refreshed_us: &mut Option<u64>) -> Result<bool, Cause> {
        let now_us = self.worker.run.now_us();
        let every_us = self.habits.refresh.as_micros() as u64;
        if every_us > 0 && refreshed_us.is_none_or(|at_us| now_us.saturating_sub(at_us) >= every_us) {
            *refreshed_us = Some(now_us);
            if let Some(clients) = self.list(caller, &Ask::Clients).await? {
                self.clients = clients.into();
            }
            if let Some(queues) = self.list(caller, &Ask::Queues).await? {
                self.queues = queues.into();
            }
        }
        if self.chance(self.habits.send) {
            self.send(caller).await?;
        }
        if !self.habits.is_taking {
            return Ok(true);
        }
        let queue = if self.chance(self.habits.ask) {
            let holding = self.list(caller, &Ask::Holding(self.me)).await?.unwrap_or_default();
            pick(&holding, &self.random)
        } else {
            pick(&self.queues, &self.random)
        };
        let Some(queue) = queue else { return Ok(false) };
        let is_away = self.chance(self.habits.take);
        self.take(caller, queue, is_away).await
    }

    async fn send(&mut self, caller: &mut Caller) -> Result<(), Cause> {
        let is_addressed = !self.chance(self.habits.unaddressed);
        let receiver = if is_addressed { pick(&self.clients, &self.random) } else { None };
        let Some(queue) = pick(&self.queues, &self.random) else { return Ok(()) };
        let mut content = Vec::new();
        self.ledger.write_content(&self.random, &mut content);
        let ask = Ask::Send { sender: self.me, receiver, queue, content: &content };
        let begun = self.worker.begin(None);
        let said = self.call(caller, &ask, |said| matches!(said, Said::Done)).await;
        match said {
            Ok(true) => self.ledger.sent(1),
            Ok(false) => {}
            Err(_) => self.ledger.unconfirmed(1),
        }
        self.end(begun, SEND, queue, said.as_ref().ok().copied());
        said.map(|_| ())
    }

    async fn take(&mut self, caller: &mut Caller, queue: u64, is_away: bool) -> Result<bool, Cause> {
        let ask = Ask::Take { queue, receiver: self.me, is_away };
        let (ledger, is_echo) = (Arc::clone(&self.ledger), self.habits.is_echo);
        let begun = self.worker.begin(None);
        let said = self
            .call(caller, &ask, |said| match said {
                Said::Content(content) => {
                    if is_away && !is_echo {
                        ledger.taken(content);
                    }
                    Some(true)
                }
                Said::Nothing => Some(false),
                _ => None,
            })
            .await;
        if said.is_err() && is_away {
            self.ledger.take_lost();
        }
        let kind = if is_away { GET } else { READ };
        self.end(begun, kind, queue, said.as_ref().ok().map(Option::is_some));
        said.map(|found| found.unwrap_or(false))
    }

    async fn list(&mut self, caller: &mut Caller, ask: &Ask<'_>) -> Result<Option<Vec<u64>>, Cause> {
        let begun = self.worker.begin(None);
        let said = self
            .call(caller, ask, |said| if let Said::Numbers(numbers) = said { Some(numbers) } else { None })
            .await;
        self.end(begun, LIST, 0, said.as_ref().ok().map(Option::is_some));
        said
    }

    async fn call<R>(
        &self,
        caller: &mut Caller,
        ask: &Ask<'_>,
        mut hear: impl FnMut(Said<'_>) -> R,
    ) -> Result<R, Cause> {
        self.dialect.write(ask, caller.out());
        caller
            .answer(|bytes| {
                let said = self.dialect.read(ask, bytes)?;
                Ok(said.map(|(said, used)| (hear(said), used)))
            })
            .await
    }

    /// `is_accepted` is `None` when no answer came.
    fn end(&mut self, begun: Begun, kind: u8, queue: u64, is_accepted: Option<bool>) {
        let ending = match is_accepted {
            Some(true) => Ending::Accepted,
            Some(false) => Ending::Rejected,
            None => Ending::Unconfirmed,
        };
        self.worker.end(begun, kind, u16::try_from(queue).unwrap_or(u16::MAX), ending);
    }

    fn chance(&self, probability: f64) -> bool {
        probability >= 1.0 || (self.random.next_u64() >> 11) as f64 / ((1_u64 << 53) as f64) < probability
    }
}

fn pick(from: &[u64], random: &SeededRandom) -> Option<u64> {
    from.get((random.next_u64() % from.len().max(1) as u64) as usize).copied()
}
