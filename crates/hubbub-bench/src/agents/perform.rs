//! One run of an agent: prepares its part of the load, starts when it is told to, and says what it measured.

use std::io::{BufRead as _, Read as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_core::invariant::saturate;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval, sleep_until};

use super::ALIVE;
use super::lines::{TASK_BYTES_MAX, lines};
use super::message::{FromAgent, FromCoordinator, Task};
use super::part::{Effort, Measuring, Part};
use super::serve::OwnArgs;
use crate::client::Targets;
use crate::load::phases::beside_main;
use crate::options::{Common, arguments};
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::{Loading, Setup, Workload};
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;

/// The process of a run: its standard output is the connection to the coordinator, its task is the first line of its input,
/// and it ends when that does.
pub(crate) async fn perform_one(own: &OwnArgs) -> anyhow::Result<()> {
    let stream = std::net::TcpStream::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream).context("standard output is no connection")?;
    let (told, task) = oneshot::channel();
    let (held, gone) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        let heard = input.by_ref().take(TASK_BYTES_MAX as u64).read_until(b'\n', &mut line);
        // Who waits for it is told by the end of the channel.
        let _ = heard.map(|_| told.send(line));
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        drop(held);
    });
    let task: Task = serde_json::from_slice(&task.await.context("no task")?).context("no task")?;
    tokio::select! {
        performed = perform(&task, stream, own) => performed,
        _ = gone => bail!("the agent ended"),
    }
}

/// Does a task, and talks with the coordinator meanwhile.
///
/// # Errors
/// A coordinator that is gone. What else went wrong, the coordinator is told.
pub(super) async fn perform(task: &Task, stream: TcpStream, own: &OwnArgs) -> anyhow::Result<()> {
    let (mut incoming, mut outgoing) = lines(stream, TASK_BYTES_MAX)?;
    let (ready, mut prepared) = oneshot::channel();
    let (start, started) = oneshot::channel();
    let (mut start, mut is_prepared) = (Some(start), false);
    let mut run = Box::pin(work(task, own, Signals { ready, started }));
    let mut alive = interval(ALIVE);
    let ended = loop {
        tokio::select! {
            ended = &mut run => break ended,
            ready = &mut prepared, if !is_prepared => {
                is_prepared = true;
                if ready.is_ok() {
                    outgoing.say(&FromAgent::Prepared).await?;
                }
            }
            heard = incoming.next::<FromCoordinator>() => match heard.context("the coordinator is gone")? {
                FromCoordinator::Ping => outgoing.say(&FromAgent::Pong).await?,
                FromCoordinator::Start { after_us } => {
                    let at = Instant::now() + Duration::from_micros(after_us);
                    // A run that ended has said why.
                    let _ = start.take().map(|start| start.send(at));
                }
                FromCoordinator::Alive => {}
                FromCoordinator::Prepare(_) => bail!("the coordinator has another task"),
            },
            _ = alive.tick() => outgoing.say(&FromAgent::Alive).await?,
        }
    };
    let said = match ended {
        Ok(part) => FromAgent::Done(Box::new(part)),
        Err(error) => FromAgent::Failed { error: format!("{error:#}") },
    };
    outgoing.say(&said).await?;
    // Closed with something unread, the connection would take back what was said; the other one closes it.
    while incoming.next::<FromCoordinator>().await.is_ok() {}
    Ok(())
}

/// What a run says, and waits for.
struct Signals {
    ready: oneshot::Sender<()>,
    started: oneshot::Receiver<Instant>,
}

async fn work(task: &Task, own: &OwnArgs, signals: Signals) -> anyhow::Result<Part> {
    match task.workload.as_str() {
        ChatArgs::NAME => load::<ChatArgs>(task, own, signals).await,
        HttpArgs::NAME => load::<HttpArgs>(task, own, signals).await,
        KvArgs::NAME => load::<KvArgs>(task, own, signals).await,
        other => bail!("agents do not run '{other}'"),
    }
}

async fn load<W: Workload>(task: &Task, own: &OwnArgs, signals: Signals) -> anyhow::Result<Part> {
    let line: Vec<&str> = task.line.iter().map(String::as_str).collect();
    let Loading { common, own: workload } = arguments::<Loading<W>>(W::NAME, &line)?;
    let common = Common { access: own.access(), threads: own.threads, database: None, quiet: true, ..common };
    let targets = Targets::parse(&common.servers, &common.access.credentials()?)?;
    let setup = Setup::new(common, targets);
    workload.check()?;
    let mut stage = workload.prepare(&setup).await?;
    // A coordinator that is gone ends this anyway.
    let _ = signals.ready.send(());
    let start = signals.started.await.context("nobody said when to start")?;
    sleep_until(start).await;
    let late = start.elapsed();
    let begin = async || Effort::begin(own.threads, late);
    let driving = workload.drive(&setup, &mut stage);
    let end = async |measuring: Measuring| measuring.end();
    let (run, effort) = beside_main(&setup.load_start, workload.timetable(), driving, begin, end).await;
    let run = run?;
    let account = workload.close(&setup, stage, &run).await?;
    let begun = run.instant(run.main_us().start).saturating_duration_since(start.into_std());
    Part::of(&run, &account, effort, saturate(begun.as_micros()))
}
