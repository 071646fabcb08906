//! One client of queues: it sends, asks which queues hold something for it, takes or reads, and thinks.

use std::sync::Arc;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;

use super::command::{QueueCommand, Said};
use super::{Kind, QueueTarget, Stage};
use crate::client::Cause;
use crate::client::caller::Caller;
use crate::load::message_plan::share_of;
use crate::load::worker::Worker;
use crate::results::record::Ending;

/// Operations, in the order of their numbers in the record.
pub(super) const KINDS: [&str; 4] = ["send", "get", "read", "list"];
const SEND: u8 = 0;
const GET: u8 = 1;
const READ: u8 = 2;
const LIST: u8 = 3;

pub(super) struct Client {
    pub(super) worker: Worker,
    pub(super) stage: Arc<Stage>,
    pub(super) place: QueueTarget,
    pub(super) me: u64,
    /// Whom it sends to, as far as it knows; where, its place says.
    pub(super) clients: Arc<[u64]>,
    pub(super) random: SeededRandom,
    /// Nothing more is due, in an open loop.
    pub(super) is_due_over: bool,
}

impl Client {
    pub(super) async fn run(mut self) {
        let mut caller = None;
        let mut refreshed_us = None;
        let stage = Arc::clone(&self.stage);
        let is_populated =
            || stage.args.kind == Kind::Populate && stage.ledger.counts().sent >= stage.missing;
        while !self.worker.is_over() && !self.is_due_over && !is_populated() {
            if caller.is_none() {
                caller = self.worker.connect().await;
            }
            let Some(connected) = &mut caller else { continue };
            match self.turn(connected, &mut refreshed_us).await {
                Ok(false) if stage.args.kind == Kind::Consume => break,
                Ok(_) => self.worker.think(&self.random).await,
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
        let stage = Arc::clone(&self.stage);
        let args = &stage.args;
        let now_us = self.worker.run.now_us();
        let every_us = saturate::<_, u64>(args.refresh.as_micros());
        if every_us > 0 && refreshed_us.is_none_or(|at_us| now_us.saturating_sub(at_us) >= every_us) {
            *refreshed_us = Some(now_us);
            if let Some(clients) = self.list(caller, &QueueCommand::Clients).await? {
                self.clients = clients.into();
            }
            if let Some(queues) = self.list(caller, &QueueCommand::Queues).await? {
                self.place.queues = queues.into();
            }
        }
        if self.chance(args.send) {
            self.send(caller).await?;
        }
        if args.kind == Kind::Populate {
            return Ok(true);
        }
        let queue = if self.chance(args.ask) {
            let holding = self.list(caller, &QueueCommand::Holding(self.me)).await?.unwrap_or_default();
            pick(&holding, &self.random)
        } else {
            pick(&self.place.queues, &self.random)
        };
        let Some(queue) = queue else { return Ok(false) };
        let is_away = self.chance(args.take);
        self.take(caller, queue, is_away).await
    }

    async fn send(&mut self, caller: &mut Caller) -> Result<(), Cause> {
        let stage = Arc::clone(&self.stage);
        let is_addressed = !self.chance(stage.args.unaddressed);
        let receiver = if is_addressed { pick(&self.clients, &self.random) } else { None };
        let Some(queue) = pick(&self.place.queues, &self.random) else { return Ok(()) };
        let mut content = Vec::new();
        stage.ledger.write_content(&self.random, &mut content);
        let command = QueueCommand::Send { sender: self.me, receiver, queue, content: &content };
        let hear = |said: Said<'_>| (said == Said::Done).then_some(());
        let said = self.call(caller, SEND, queue, &command, hear).await;
        let mut counts = stage.ledger.counts();
        counts.sent += u64::from(matches!(said, Ok(Some(()))));
        counts.unconfirmed += u64::from(said.is_err());
        said.map(|_| ())
    }

    async fn take(&mut self, caller: &mut Caller, queue: u64, is_away: bool) -> Result<bool, Cause> {
        let stage = Arc::clone(&self.stage);
        let (kind, command) =
            (if is_away { GET } else { READ }, QueueCommand::Take { queue, receiver: self.me, is_away });
        let hear = |said: Said<'_>| match said {
            Said::Content(content) => {
                // An echo is always the same message.
                if is_away && !stage.args.echo {
                    stage.ledger.taken(content);
                }
                Some(true)
            }
            Said::Nothing => Some(false),
            _ => None,
        };
        let said = self.call(caller, kind, queue, &command, hear).await;
        if said.is_err() && is_away {
            stage.ledger.counts().lost_takes += 1;
        }
        said.map(|found| found.unwrap_or(false))
    }

    async fn list(
        &mut self,
        caller: &mut Caller,
        command: &QueueCommand<'_>,
    ) -> Result<Option<Vec<u64>>, Cause> {
        self.call(caller, LIST, 0, command, |said| said.numbers()).await
    }

    /// Asks, once it is due, and notes how it ended: refused is an answer that `hear` makes nothing of. Nothing is asked where
    /// nothing more is due.
    async fn call<R>(
        &mut self,
        caller: &mut Caller,
        kind: u8,
        queue: u64,
        command: &QueueCommand<'_>,
        hear: impl FnMut(Said<'_>) -> Option<R>,
    ) -> Result<Option<R>, Cause> {
        let mut intended_us = None;
        if let Some(due) = &self.stage.due {
            intended_us = due.next().await;
            self.is_due_over = intended_us.is_none();
            if self.is_due_over {
                return Ok(None);
            }
        }
        let begun = self.worker.begin(intended_us);
        let said = self.place.dialect.call(caller, command, hear).await;
        let ending = match &said {
            Ok(Some(_)) => Ending::Accepted,
            Ok(None) => Ending::Rejected,
            Err(_) => Ending::Unconfirmed,
        };
        self.worker.end(begun, kind, saturate(queue), ending);
        said
    }

    fn chance(&self, probability: f64) -> bool {
        probability >= 1.0 || share_of(self.random.next_u64()) < probability
    }
}

fn pick(from: &[u64], random: &SeededRandom) -> Option<u64> {
    from.get((random.next_u64() % from.len().max(1) as u64) as usize).copied()
}
