//! The one engine of every workload that loads a server: make ready, measure, close the ledger, report.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::agents::{Agents, Divided, Load};
use crate::analysis::backlog::{REPEATS, Settled, Settling};
use crate::analysis::main_phase::{EarlyEnd, MainPhase, ended_note};
use crate::analysis::price::{Price, Usage};
use crate::analysis::stages::{Generated, Stages};
use crate::analysis::verdict::{Counted, OpenLoop, Verdict, Watch};
use crate::client::access::Credentials;
use crate::client::{Target, Targets};
use crate::host::background_load::BackgroundLoadMeter;
use crate::host::cleanup::Makes;
use crate::host::sample::series::summaries;
use crate::host::sample::{Sampler, Source};
use crate::load::phases::{LoadStart, Timetable};
use crate::load::run::Run;
use crate::options::Common;
use crate::report::{Delivery, Headroom, MESSAGES, Report, cpu_us};
use crate::results::ledger::{Ledger, ServerCounts};
use crate::workloads::kv::KeyLedger;
use crate::workloads::persist::persisted::Persisted;
use crate::workloads::queue::QueueLedger;

/// A workload: its options, and the steps of a run.
pub(crate) trait Workload: Args + Serialize {
    const NAME: &'static str;
    /// Sends messages to rooms, and the servers' counters close the ledger; otherwise it does operations.
    const HAS_ROOMS: bool;
    /// What stands ready when the measured phase begins.
    type Stage;

    /// The URL of the broker that messages go through, where the workload knows it.
    fn log_url(&self) -> Option<&str> {
        None
    }

    /// How long server, database and machine are looked at before and after the measured phase, to see them idle.
    fn around(&self) -> [Duration; 2] {
        [Duration::ZERO; 2]
    }

    /// What is looked at.
    async fn source(&self, setup: &Setup, _stage: &Self::Stage) -> anyhow::Result<Source> {
        Source::open(setup, vec![std::process::id()]).await
    }

    /// Makes ready what the measured phase needs: rooms, clients, listeners, stored data.
    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Self::Stage>;

    /// The phases of its load. What begins in the main one is measured; [`Workload::drive`] says when the load begins.
    fn timetable(&self) -> Timetable {
        Timetable::default()
    }

    /// # Errors
    /// Options that do not fit each other; those that its command line refuses are not asked here.
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// What is in the servers afterwards.
    fn makes(&self) -> Makes {
        Makes::Nothing
    }

    /// The load, in all of its phases.
    async fn drive(&self, setup: &Setup, stage: &mut Self::Stage) -> anyhow::Result<Arc<Run>>;

    /// Its options in parts for so many agents.
    ///
    /// # Errors
    /// Options, or a workload, that cannot be divided.
    fn divide(&self, _setup: &Setup, _agents: usize) -> anyhow::Result<Divided> {
        bail!("--agents: {} is sent by one process: only chat, http and kv can be divided", Self::NAME)
    }

    /// Whether the server's counters before and after close the ledger.
    fn has_server_counts(&self) -> bool {
        Self::HAS_ROOMS
    }

    /// Messages that were accepted while it was prepared, which the ledger counts, too.
    fn accepted_before(_stage: &Self::Stage) -> u64 {
        0
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
    pub(crate) load_start: LoadStart,
    /// Where a run waited for what never came: its end, which is when it last moved.
    pub(crate) early_end: OnceLock<EarlyEnd>,
}

impl Setup {
    pub(crate) fn new(common: Common, targets: Targets) -> Self {
        let seed = common.seed.unwrap_or_else(crate::host::machine::seed);
        Self { common, targets, seed, load_start: LoadStart::default(), early_end: OnceLock::new() }
    }

    /// Begins the load of a run, whose phases count from now on.
    pub(crate) fn begin(&self, run: &Run, timetable: &Timetable) {
        run.begin_phases(timetable);
        self.load_start.set(run.instant(0));
    }

    /// The server; the first of several.
    pub(crate) fn target(&self) -> &Target {
        self.targets.first()
    }

    /// Counts what others take of the machine from now on; `broker` and `agents` are no others.
    fn others(&self, broker: Option<&str>, agents: Vec<u32>) -> BackgroundLoadMeter {
        let Common { server_pid, broker_pid, .. } = &self.common;
        let pids: Vec<u32> = server_pid.iter().chain(broker_pid).copied().chain(agents).collect();
        BackgroundLoadMeter::beside(self.engines(broker), &pids)
    }

    /// The URLs of what is measured. A broker whose process is given is not looked for.
    fn engines<'s>(&'s self, broker: Option<&'s str>) -> impl Iterator<Item = &'s str> {
        let Common { servers, database, broker_pid, .. } = &self.common;
        let broker = broker.filter(|_| broker_pid.is_empty());
        servers.iter().chain(database).map(String::as_str).chain(broker)
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
    /// Messages under way, or thought about, at any time, in a closed loop.
    pub(crate) concurrency: Option<f64>,
    /// Messages or operations that an open loop asks for.
    pub(crate) asked_per_second: Option<f64>,
    /// Messages or operations of it that may be under way at most.
    pub(crate) window: Option<f64>,
    pub(crate) note: Option<String>,
    /// Who sent the load, if that was not this process.
    pub(crate) agents: Option<Agents>,
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
    own.check()?;
    let credentials = common.access.credentials()?;
    let targets = Targets::parse(&common.servers, &credentials)?;
    let setup = Setup::new(common.clone(), targets);
    for target in setup.targets.iter() {
        let opened = target.open().await;
        opened
            .context("no server can be measured; start one with hubbub serve, or name one with --server")?;
    }
    common.made.announce(&setup.targets, common.shared, &own.makes()).await;
    let has_counts = own.has_server_counts() && !common.beside_others;
    let counts = async || if has_counts { ServerCounts::ask(&setup.targets).await } else { None };
    let unit = if W::HAS_ROOMS { MESSAGES } else { "operations" };
    let mut report = Report::new(W::NAME, unit, parameters(args, &credentials)?);

    let before = counts().await;
    let mut load = Load::ready(args, &setup).await?;
    let source = load.source(&setup).await?;
    report.notes.extend(source.notes());
    let sampler = Sampler::start(source);
    let [idle_before, idle_after] = own.around();
    tokio::time::sleep(idle_before).await;
    let empty_ms = Watch::probe(&setup).await;
    load.begin(&setup).await;
    let (timetable, pids) = (own.timetable(), load.pids());
    let meter = setup.others(own.log_url(), pids);
    let (run, main) = MainPhase::of(&setup, timetable, empty_ms, meter, load.drive(&setup)).await;
    let (run, mut seen) = (run?, main.seen);
    report.notes.extend(ended_note(common, &main.cpu));
    (report.cpu, report.taken, report.generator) = (Some(main.cpu), main.taken, Some(main.timing));
    let mut asked = run.followed.asked_in_main();
    let accepted = load.accepted(&run);
    // What is not stored yet is not to be told of yet.
    let repeats = if main.counted.stages.has_broker() { REPEATS } else { Duration::ZERO };
    let settling = settled(&setup, before.as_ref(), accepted, repeats);
    let settled = run.followed.ask_during(&run, settling).await;
    run.followed.ask_rest(&run).await;
    tokio::time::sleep(idle_after).await;
    let span = sampler.span(main.begun, main.ended);
    report.samples = sampler.stop().await;
    report.series = summaries(&report.samples, &span);

    let account = load.close(&setup, &run).await?;
    let rows = run.close_rows().await?;
    report.notes.extend(rows.notes);
    let runs: Vec<&Run> = account.warm_up.as_deref().into_iter().chain([&*run]).collect();
    let after = counts().await;
    // Without a broker, what was answered is stored.
    let Counted { stages, between, note } = main.counted;
    report.notes.extend(note.map(str::to_owned));
    let stored = stages.stored_behind_broker().filter(|_| before.is_some());
    report.settling = settled.filter(|_| stages.has_broker()).map(|settled| {
        let begun = setup.load_start.at().unwrap_or(main.begun);
        Settling::of(&settled, accepted[1], begun, main.load_ended)
    });
    report.ledger = Some(Ledger::of(&runs, before.zip(after), &account));
    (report.delivery, report.persisted) = (account.delivery, account.persisted);
    report.add_run(&run, common.bucket);
    if let Some(concurrency) = account.concurrency {
        report.audit(concurrency, run.counts.thought_us.load(Ordering::Relaxed));
    }
    report.notes.extend(account.note);
    report.notes.extend(main.note);
    if let Some(agents) = account.agents {
        agents.correct(&mut report, &mut seen);
        asked = run.followed.asked_in_main();
        // This process only waited.
        report.generator = None;
        report.agents = Some(agents);
    }
    let known = Generated { asked, ..generated(&report, &run, seen.empty_ms, &setup.targets, &between) };
    report.analysis.stages = Stages::of(&stages, &known);
    let samples = span.of(&report.samples);
    report.analysis.trends.add(samples);
    let answered = run.record.lock().answered_in_main as f64;
    let cpu = report.cpu.as_ref();
    let (done, rate) = done_meanwhile(&report, answered, stored.zip(cpu.map(|cpu| cpu.seconds)));
    report.analysis.usage = cpu.filter(|_| !main.has_warmup).and_then(|cpu| Usage::of(done, cpu, samples));
    let open = OpenLoop {
        asked_per_second: account.asked_per_second,
        sending_s: timetable.sending_s(&run, account.asked_per_second),
        window: account.window,
        waited_ms: known.waited_ms,
    };
    let seen = seen.with(&run.record.lock(), &report, samples, open);
    report.analysis.capacity = Headroom::of(&seen, report.cpu.as_ref(), samples, rate);
    report.cpu_us = cpu_us(&report.series, rate);
    report.verdict = Some(Verdict::of(seen));
    if let Some(price) = common.price.price {
        set_price(&mut report, price, rows.bytes);
    }
    report.add_notes(common.threads);
    report.faults = report.faults();
    Ok(report)
}

/// Waits until the servers have stored what was `accepted`, and what they store again; `None` where they do not count.
async fn settled(
    setup: &Setup,
    before: Option<&ServerCounts>,
    accepted: [u64; 2],
    repeats: Duration,
) -> Option<Settled> {
    Settled::wait(&setup.targets, before?, accepted.iter().sum(), repeats).await
}

/// Messages or operations that were done in the time that the processors are looked at, whenever they began, and their rate.
///
/// Behind a broker, these are the messages that were `stored` in so many seconds, and not those that the broker confirmed. What
/// servers did for messages that were stored later counts as well, so that no message seems cheaper than it is.
fn done_meanwhile(report: &Report, answered: f64, stored: Option<(f64, f64)>) -> (f64, f64) {
    match (&report.persisted, stored) {
        (Some(persisted), _) => (persisted.stored_meanwhile(), persisted.stored_per_second),
        (None, Some((stored, seconds))) => (stored, stored / seconds),
        (None, None) => (answered, report.per_second),
    }
}

/// Adds what the load costs, and what is to be known of that; `rows_bytes` are those of `metrics.csv`.
fn set_price(report: &mut Report, price: Price, rows_bytes: u64) {
    report.analysis.set_price(price);
    let is_known = report.cpu.as_ref().is_some_and(|cpu| cpu.server.is_some());
    let unknown = || "--price: the servers' processes are not known, give --server-pid".to_owned();
    report.notes.extend((!is_known).then(unknown));
    let counted = || {
        let mib = rows_bytes as f64 / (1024.0 * 1024.0);
        format!(
            "--price: {mib:.1} MiB of metrics.csv, written meanwhile, count too (--rows-max 0 leaves them out)"
        )
    };
    report.notes.extend((rows_bytes > 0).then(counted));
}

/// What the generator knows of the time of a message.
fn generated(
    report: &Report,
    run: &Run,
    empty_ms: Option<f64>,
    servers: &Targets,
    counted: &Range<Instant>,
) -> Generated {
    let record = run.record.lock();
    let (ended, ended_off) = record.ended_between(run.us_at(counted.start)..run.us_at(counted.end));
    let send_delay = record.open.as_ref().map(|open| open.send_delay.stats());
    let from_send = record.open.as_ref().map_or(&record.all, |open| &open.from_send).stats();
    drop(record);
    let delivered = report.delivery.as_ref().filter(|delivery| delivery.latency.count > 0);
    // Who waits long before the send does not take less time from there on: the whole varies by both at least.
    let waited = send_delay.as_ref().filter(|_| run.times.is_some()).map_or(0.0, |delay| delay.variance_ms2);
    let until_read = delivered.map(|delivered| (delivered.latency.variance_ms2 - waited).max(0.0));
    let main_from_us = run.main_us().start;
    let answered = |second| run.record.lock().answered_in(second, main_from_us);
    let [followed, followed_to_subscribers] =
        run.followed.means(answered, [Some(from_send.variance_ms2), until_read]);
    Generated {
        ended,
        ended_off,
        confirmed_ms: report.latency.mean_ms,
        delivered_ms: delivered.map(|delivery| delivery.latency.mean_ms),
        has_several_servers: servers.len() > 1,
        asked: (0.0, 0.0),
        waited_ms: send_delay.map_or(0.0, |delay| delay.mean_ms),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;
    use crate::workloads::persist::PersistArgs;

    #[test]
    fn the_broker_belongs_to_what_is_measured() {
        let engines = |line: &[&str]| -> Vec<String> {
            let line =
                [&["--server", "http://127.0.0.1:1", "--database", "postgres://localhost"], line].concat();
            let Loading { common, own } = arguments::<Loading<PersistArgs>>("persist", &line).unwrap();
            let targets = Targets::parse(&common.servers, &Credentials::default()).unwrap();
            let setup = Setup::new(common, targets);
            setup.engines(own.log_url()).map(str::to_owned).collect()
        };
        let others = ["http://127.0.0.1:1", "postgres://localhost"];
        assert_eq!(engines(&["--log", "direct"]), others);
        let log = ["--log", "amqp://localhost"];
        assert_eq!(engines(&log), [&others[..], &["amqp://localhost"]].concat());
        assert_eq!(engines(&[&log[..], &["--broker-pid", "7"]].concat()), others, "its process is known");
    }
}
