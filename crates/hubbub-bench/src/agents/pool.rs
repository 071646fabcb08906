//! The agents of a run, as the coordinator has them: a task for each talks with it until it says what it measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep_until, timeout};

use super::lines::{Incoming, Outgoing, PART_BYTES_MAX, lines};
use super::message::{FromAgent, FromCoordinator, Hello, Task, boot};
use super::part::{Part, merge};
use super::secret::Secret;
use super::{ALIVE, Agents, PROTOCOL, SILENCE, divide::Divided};
use crate::host::process_tree::Processes;
use crate::load::run::Run;
use crate::options::Common;
use crate::workloads::engine::{Account, Loading, Setup, Workload};

/// Round trips that are measured, of which the shortest counts.
const PINGS: usize = 5;
/// The common start is so long after the last agent is prepared: longer than any round trip.
const START_AFTER: Duration = Duration::from_millis(500);
/// Each agent has other random choices.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Agents that are prepared.
pub(crate) struct AgentPool {
    tasks: JoinSet<anyhow::Result<Ended>>,
    start: watch::Sender<Option<Instant>>,
    agents: Vec<(String, Hello)>,
    whole: Arc<Run>,
    ended: Vec<Ended>,
}

/// What an agent measured.
struct Ended {
    /// Its place in the list of agents.
    who: usize,
    round_trip: Duration,
    part: Part,
}

impl AgentPool {
    /// Divides the load, and has each agent prepare its part of it.
    ///
    /// # Errors
    /// Options that cannot be divided, and an agent that does not answer, refuses or fails, which is named.
    pub(super) async fn gather<W: Workload>(args: &Loading<W>, setup: &Setup) -> anyhow::Result<Self> {
        let Loading { common, own } = args;
        let addresses = &common.agents.agents;
        ensure!(
            !setup.target().has_own_users(),
            "--agents: the servers' secret does not leave this machine; give an administrator's token (--token-file) here and \
             to each agent"
        );
        let Divided { shares, whole } = own.divide(setup, addresses.len())?;
        // Single messages stay with the agents.
        let whole = whole.with_rows(&Common { rows_max: 0, ..common.clone() })?;
        let timetable = own.timetable();
        if let Some(main) = timetable.main.filter(|_| timetable.main_end().is_some()) {
            whole.main_lasts(main);
        }
        let read = |path| Secret::read("--agents-secret-file", path);
        let secret = common.agents.agents_secret_file.as_deref().map(read).transpose()?;
        let (tokens, mut line_of) = (common.access.credentials()?.kind(), Vec::new());
        for (who, share) in (0_u64..).zip(shares) {
            let mut line = common.given.line::<Loading<W>>(&share);
            line.extend(setup.common.servers.iter().map(|url| format!("--server={url}")));
            line.push(format!("--seed={}", setup.seed.wrapping_add(who.wrapping_mul(SEED_STEP))));
            line_of.push(line);
        }
        let (mut tasks, mut agents) = (JoinSet::new(), Vec::new());
        let (start, started) = watch::channel(None);
        let (prepared, mut ready) = mpsc::channel(addresses.len().max(1));
        for (who, (address, line)) in addresses.iter().zip(line_of).enumerate() {
            let met = Member::meet(who, address, tokens).await;
            let (member, hello) = met.with_context(|| named(address))?;
            let proof = secret.as_ref().map(|secret| secret.prove(&hello.nonce)).transpose()?;
            ensure!(
                proof.is_some() || !hello.asks_for_secret,
                "{} asks for a secret: give --agents-secret-file",
                named(address)
            );
            let task = Task { workload: W::NAME.to_owned(), line, proof };
            let (address, prepared, started) = (address.clone(), prepared.clone(), started.clone());
            agents.push((address.clone(), hello));
            tasks.spawn(async move {
                member.follow(task, prepared, started).await.with_context(|| named(&address))
            });
        }
        for _ in addresses {
            tokio::select! {
                Some(()) = ready.recv() => {}
                Some(ended) = tasks.join_next() => {
                    ended.context("an agent was lost")??;
                    bail!("an agent ended before it was told to start");
                }
            }
        }
        Ok(Self { tasks, start, agents, whole: Arc::new(whole), ended: Vec::new() })
    }

    /// Process ids of those that run on this machine.
    pub(super) fn pids(&self) -> Vec<u32> {
        let own = boot();
        let here = self.agents.iter().filter(|(_, hello)| super::figures::is_here(hello, &own));
        here.map(|(_, hello)| hello.pid).collect()
    }

    /// All that send, with the processes of their runs; none where some run elsewhere, as those here are not the whole then.
    pub(super) fn generators(&self) -> Vec<u32> {
        let pids = self.pids();
        if pids.len() < self.agents.len() { Vec::new() } else { Processes::now().all_of(&pids) }
    }

    /// Tells all when to start, and waits until then.
    pub(super) async fn begin(&mut self, setup: &Setup) {
        let at = Instant::now() + START_AFTER;
        let now_us = crate::host::machine::now().as_micros();
        if let Some(whole) = Arc::get_mut(&mut self.whole) {
            let after_us = saturate(START_AFTER.as_micros());
            whole.starts(at, Timestamp::from_micros(now_us.saturating_add(after_us)));
        }
        setup.load_start.set(at);
        // Who is gone shows when they are waited for.
        let _ = self.start.send(Some(at));
        sleep_until(at.into()).await;
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// The first that fails or is silent; the others are left alone, and end by that.
    pub(super) async fn drive(&mut self) -> anyhow::Result<Arc<Run>> {
        while let Some(ended) = self.tasks.join_next().await {
            self.ended.push(ended.context("an agent was lost")??);
        }
        self.ended.sort_by_key(|ended| ended.who);
        Ok(Arc::clone(&self.whole))
    }

    /// Messages that were accepted in warm-ups, and in all phases of the load.
    pub(super) fn accepted(&self) -> [u64; 2] {
        let parts = self.ended.iter().map(|ended| ended.part.accepted());
        parts.fold([0; 2], |[before, all], [warmed, own]| {
            [before.saturating_add(warmed), all.saturating_add(own)]
        })
    }

    /// What all know together of the run, which has their parts then.
    pub(super) fn close(self) -> anyhow::Result<Account> {
        let both = || self.agents.iter().zip(&self.ended);
        let figures =
            both().map(|((address, hello), ended)| (&**address, hello, ended.round_trip, &ended.part));
        let agents = Agents::of(figures);
        let note = |((address, _), ended): (&(String, Hello), &Ended)| {
            ended.part.note.as_ref().map(|note| format!("{}: {note}", named(address)))
        };
        let notes: Vec<String> = both().filter_map(note).collect();
        let account = merge(&self.whole, self.ended.iter().map(|ended| &ended.part))?;
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Account { note, agents: Some(agents), ..account })
    }
}

fn named(address: &str) -> String {
    format!("agent {address}")
}

/// The connection to an agent.
struct Member {
    who: usize,
    incoming: Incoming,
    outgoing: Outgoing,
}

impl Member {
    /// Connects, and hears what the agent is.
    async fn meet(who: usize, address: &str, tokens: &str) -> anyhow::Result<(Self, Hello)> {
        let connected = timeout(SILENCE, TcpStream::connect(address)).await;
        let stream = connected.context("no answer in time")?.context("cannot connect")?;
        let (mut incoming, outgoing) = lines(stream, PART_BYTES_MAX)?;
        let FromAgent::Hello(hello) = incoming.next().await.context("it is no agent")? else {
            bail!("it did not say what it is");
        };
        let own = Hello::here(String::new(), false, tokens);
        let is_same = (hello.protocol, &hello.version) == (PROTOCOL, &own.version);
        ensure!(
            is_same,
            "it is hubbub {} (protocol {}), and this is {} ({PROTOCOL}): use the same program everywhere",
            hello.version,
            hello.protocol,
            own.version
        );
        ensure!(
            hello.tokens == own.tokens,
            "it has tokens for the servers: {}, and this has: {}; give both --token-file, or neither",
            hello.tokens,
            own.tokens
        );
        Ok((Self { who, incoming, outgoing }, hello))
    }

    /// Talks with the agent until it says what it measured.
    async fn follow(
        mut self,
        task: Task,
        prepared: mpsc::Sender<()>,
        mut started: watch::Receiver<Option<Instant>>,
    ) -> anyhow::Result<Ended> {
        self.outgoing.say(&FromCoordinator::Prepare(task)).await?;
        // Nothing may follow the task before the process of the run has the connection: it says something at once.
        let mut said = heard(self.incoming.next().await?)?;
        let (mut alive, mut round_trip, mut is_started) = (interval(ALIVE), Duration::ZERO, false);
        loop {
            match said {
                Some(FromAgent::Prepared) if round_trip.is_zero() => {
                    round_trip = self.round_trip().await?;
                    let _ = prepared.send(()).await;
                }
                Some(FromAgent::Done(part)) if is_started => {
                    return Ok(Ended { who: self.who, round_trip, part: *part });
                }
                Some(_) => bail!("it said something else than was asked for"),
                None => {}
            }
            said = tokio::select! {
                said = self.incoming.next() => heard(said?)?,
                at = begun(&mut started), if !is_started => {
                    let at = at.context("the run ended before it began")?;
                    is_started = true;
                    let after = at.saturating_duration_since(Instant::now()).saturating_sub(round_trip / 2);
                    let after_us = u64::try_from(after.as_micros())?;
                    self.outgoing.say(&FromCoordinator::Start { after_us }).await?;
                    None
                }
                _ = alive.tick() => {
                    self.outgoing.say(&FromCoordinator::Alive).await?;
                    None
                }
            };
        }
    }

    /// The shortest of some.
    async fn round_trip(&mut self) -> anyhow::Result<Duration> {
        let mut shortest = Duration::MAX;
        for _ in 0..PINGS {
            let asked = Instant::now();
            self.outgoing.say(&FromCoordinator::Ping).await?;
            loop {
                match heard(self.incoming.next().await?)? {
                    Some(FromAgent::Pong) => break,
                    Some(_) => bail!("it said something else than was asked for"),
                    None => {}
                }
            }
            shortest = shortest.min(asked.elapsed());
        }
        Ok(shortest)
    }
}

/// When all are to start; `None` where nobody is to.
async fn begun(started: &mut watch::Receiver<Option<Instant>>) -> Option<Instant> {
    *started.wait_for(Option::is_some).await.ok()?
}

/// What was said, but for signs of life.
fn heard(said: FromAgent) -> anyhow::Result<Option<FromAgent>> {
    match said {
        FromAgent::Alive => Ok(None),
        FromAgent::Failed { error } => bail!("{error}"),
        said => Ok(Some(said)),
    }
}
