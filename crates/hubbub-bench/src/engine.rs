//! The one engine of every workload that loads a server: make ready, measure, close the ledger, report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::Credentials;
use crate::client::{Target, Targets};
use crate::kv::KeyLedger;
use crate::ledger::{Ledger, ServerCounts};
use crate::machine::CpuMark;
use crate::options::Common;
use crate::others::OthersMeter;
use crate::persist::outcome::Persisted;
use crate::price::Usage;
use crate::queue::QueueLedger;
use crate::report::{Delivery, MESSAGES, Report};
use crate::run::Run;
use crate::sample::series::summaries;
use crate::sample::{Sampler, Source};
use crate::stages::{Generated, Stages};
use crate::verdict::{Verdict, Watch};

/// A workload: its options, and the steps of a run.
pub(crate) trait Workload: Args + Serialize {
    const NAME: &'static str;
    /// Sends messages to rooms, and the servers' counters close the ledger; otherwise it does operations.
    const HAS_ROOMS: bool;
    /// Looks at server, database and machine by itself, before and after the measured phase, too.
    const SAMPLES_ITSELF: bool = false;
    /// What stands ready when the measured phase begins.
    type Stage;

    /// Makes ready what the measured phase needs: rooms, clients, listeners, stored data.
    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Self::Stage>;

    /// The measured phase.
    async fn drive(&self, setup: &Setup, stage: &mut Self::Stage) -> anyhow::Result<Arc<Run>>;

    /// Whether the server's counters before and after close the ledger.
    fn has_server_counts(&self) -> bool {
        Self::HAS_ROOMS
    }

    /// What the ledger needs besides the record of the measured phase.
    async fn close(&self, setup: &Setup, stage: Self::Stage, run: &Run) -> anyhow::Result<Account>;
}

/// The options of a workload, and those that all have.
#[derive(Debug, Clone, Args)]
pub(crate) struct Loading<W: Args> {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) own: W,
}

/// Where a run goes to, and what its random choices begin with.
pub(crate) struct Setup {
    pub(crate) common: Common,
    pub(crate) targets: Targets,
    pub(crate) seed: u64,
}

impl Setup {
    /// The server; the first of several.
    pub(crate) fn target(&self) -> &Target {
        self.targets.first()
    }

    /// Counts what others take of the machine from now on.
    fn others(&self) -> OthersMeter {
        let Common { servers, database, server_pid, broker_pid, .. } = &self.common;
        let engines = servers.iter().chain(database).map(String::as_str);
        let pids: Vec<u32> = server_pid.iter().chain(broker_pid).copied().collect();
        OthersMeter::beside(engines, &pids)
    }
}

/// What a workload knows of its run besides the record.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) warm_up: Option<Arc<Run>>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) queues: Option<QueueLedger>,
    pub(crate) keys: Option<KeyLedger>,
    /// Messages stored, where the server's counters are not looked at for it.
    pub(crate) stored: Option<u64>,
    pub(crate) persisted: Option<Persisted>,
    /// Messages under way at any time, in a closed loop.
    pub(crate) concurrency: Option<f64>,
    /// Messages or operations that an open loop asks for.
    pub(crate) asked_per_second: Option<f64>,
    pub(crate) note: Option<String>,
}

/// What a command of `hubbub bench` found out.
pub(crate) trait Findings: Serialize {
    /// The summary for people.
    fn terminal(&self) -> String;

    /// Whether nothing was lost, and every target met.
    fn is_clean(&self) -> bool;

    /// Writes all files into `dir`; where there are none, nothing is written.
    fn write_files(&self, _dir: &Path) -> anyhow::Result<()> {
        Ok(())
    }
}

pub(crate) async fn measure<W: Workload>(args: &Loading<W>) -> anyhow::Result<Report> {
    let Loading { common, own } = args;
    let credentials = common.access.credentials()?;
    let targets = Targets::parse(&common.servers, &credentials)?;
    let setup =
        Setup { common: common.clone(), targets, seed: common.seed.unwrap_or_else(crate::machine::seed) };
    let counts =
        async || if own.has_server_counts() { ServerCounts::ask(&setup.targets).await } else { None };
    let unit = if W::HAS_ROOMS { MESSAGES } else { "operations" };
    let mut report = Report::new(W::NAME, unit, parameters(args, &credentials)?);

    let before = counts().await;
    let mut stage = own.prepare(&setup).await?;
    let sampler = if W::SAMPLES_ITSELF { None } else { Some(Sampler::start(Source::open(&setup).await?)) };
    let watch = Watch::begin(&setup).await;
    let meter = setup.others();
    let (begun, cpu) = (Instant::now(), CpuMark::now(&common.server_pid));
    let run = own.drive(&setup, &mut stage).await?;
    report.cpu = Some(cpu.until(&CpuMark::now(&common.server_pid)));
    report.taken = meter.taken();
    let ended = Instant::now();
    let (seen, server_stages) = watch.end(&setup).await;
    if let Some(sampler) = sampler {
        let span = sampler.span(begun, ended);
        report.samples = sampler.stop().await;
        report.series = summaries(&report.samples, &span);
    }

    run.followed.ask_rest(&run).await;
    let account = own.close(&setup, stage, &run).await?;
    let after = counts().await;
    let runs: Vec<&Run> = account.warm_up.as_deref().into_iter().chain([&*run]).collect();
    report.ledger = Some(Ledger::of(&runs, before.zip(after), &account));
    (report.delivery, report.persisted) = (account.delivery, account.persisted);
    report.add_run(&run, common.bucket);
    if let Some(concurrency) = account.concurrency {
        report.audit(concurrency);
    }
    report.notes.extend(account.note);
    let known = generated(&report, &run, seen.empty_ms.unwrap_or(0.0), &setup.targets);
    report.analysis.stages = Stages::of(&server_stages, &known);
    let samples = report.persisted.as_ref().map_or(&report.samples[..], Persisted::during);
    let [_, accepted, ..] = run.counts.totals();
    let done = report.persisted.as_ref().map_or(accepted as f64, Persisted::stored_meanwhile);
    report.analysis.usage = report.cpu.as_ref().and_then(|cpu| Usage::of(done, cpu, samples));
    report.verdict = Some(Verdict::of(seen.with(&report, samples, account.asked_per_second)));
    if let Some(price) = common.price.price {
        report.analysis.set_price(price);
        let unknown = || "--price: the servers' processes are not known, give --server-pid".to_owned();
        report.notes.extend(report.analysis.cost.is_none().then(unknown));
    }
    report.add_notes(common.threads);
    Ok(report)
}

/// What the generator knows of the time of a message.
fn generated(report: &Report, run: &Run, empty_ms: f64, servers: &Targets) -> Generated {
    let [_, accepted, rejected, unconfirmed] = run.counts.totals();
    let ended = (accepted + rejected + unconfirmed) as f64;
    let [followed, followed_to_subscribers] =
        run.followed.means(|second| run.record.lock().answered_in(second));
    let delivered =
        report.delivery.as_ref().filter(|delivery| servers.len() == 1 && delivery.latency.count > 0);
    Generated {
        ended,
        confirmed_ms: report.latency.mean_ms,
        delivered_ms: delivered.map(|delivery| delivery.latency.mean_ms),
        waited_ms: run.counts.waited_us.load(Ordering::Relaxed) as f64 / 1e3 / ended.max(1.0),
        is_delivery_intended: run.times.is_some(),
        empty_ms,
        followed,
        followed_to_subscribers,
        is_one_clock: servers.iter().all(Target::is_loopback),
    }
}

fn parameters<W: Workload>(
    Loading { common, own }: &Loading<W>,
    credentials: &Credentials,
) -> anyhow::Result<Value> {
    let mut parameters = serde_json::to_value(own)?;
    if let Some(map) = parameters.as_object_mut() {
        map.insert("servers".to_owned(), json!(common.servers));
        map.insert("tokens".to_owned(), json!(credentials.kind()));
        map.insert("threads".to_owned(), json!(common.threads));
        map.insert("seed".to_owned(), json!(common.seed));
    }
    Ok(parameters)
}
