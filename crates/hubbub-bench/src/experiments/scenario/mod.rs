//! Experiments as files: `hubbub bench run FILE`. A scenario is a workload with its options, points to sweep over,
//! repetitions, thresholds, and settings of the server that each measurement starts for itself.
//!
//! [`file`] reads and checks it → each point is measured by its [`workload`], as often as there are repetitions → the
//! [`results`] are shown, kept, and compared with others ([`compare`]). [`find_max`] measures at rates that it chooses itself.

mod agents;
mod backends;
mod batches;
mod chart;
mod compare;
mod compare_page;
mod conclusion;
mod engines;
#[cfg(feature = "amqp")]
mod exchange;
mod file;
mod find_max;
mod keys;
mod marks;
mod page;
mod provided;
mod publish;
mod results;
mod scaling;
mod sections;
mod shared;
mod threshold;
#[cfg(feature = "kafka")]
mod topics;
mod workload;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;

use backends::BackendArgs;
pub(crate) use compare::{CompareArgs, compare};
use engines::LOG;
pub(crate) use file::Point;
use file::{Measurement, PartLimits, Placement, Scenario};
pub(crate) use find_max::{FindMaxArgs, find_max};
pub(crate) use publish::{PublishArgs, publish};
use results::PointRun;
pub(crate) use results::{Results, label};
use workload::{Measured, WorkloadKind};

use crate::analysis::price::PriceArgs;
use crate::cli::UsageError;
use crate::host::background_load::BackgroundLoadMeter;
use crate::host::cleanup;
use crate::host::lab::cgroup::{self, ResourceLimit};
use crate::host::spawn::Server;
use crate::progress::Overall;
use crate::workloads::engine::Findings as _;

/// In place of a server's URL: a bare one, that stores nothing.
const BARE: &str = "bare";

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// A scenario: a file, or the name of one that `hubbub bench list` shows
    #[arg(value_name = "FILE")]
    scenario: String,
    /// A quick look of seconds: the options of [quick], one repetition, the first and the last point, no thresholds
    #[arg(long)]
    quick: bool,
    /// Measure each point this often, whatever the scenario says
    #[arg(long, value_name = "N", conflicts_with = "quick")]
    repeat: Option<NonZeroUsize>,
    /// Measure this server, or these; without it, each measurement starts its own
    #[arg(long, alias = "target", value_name = "URL")]
    server: Option<String>,
    /// Names, or ids, of processes whose processor time and memory are shown
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    watch: Vec<String>,
    #[command(flatten)]
    price: PriceArgs,
    #[command(flatten)]
    backends: BackendArgs,
    /// Write the results into this directory: results.json, and what each measurement writes
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write into the directory of --out even if it is not empty
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::host::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
    /// No live progress, only what each measurement found
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// The directory of the results
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    price: PriceArgs,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The names and titles of the scenarios that are provided.
pub(crate) fn list() -> anyhow::Result<String> {
    let mut out = String::new();
    for (name, text) in provided::PROVIDED {
        let scenario = Scenario::parse(text, false).context(*name)?;
        out.push_str(&format!("{name:<22} {}\n", scenario.title));
    }
    Ok(out)
}

/// The text of a scenario.
pub(crate) fn show(name: &str) -> anyhow::Result<String> {
    provided::text_of(name)
}

/// A scenario and its text, by its name or that of its file.
fn read(name: &str, is_quick: bool) -> anyhow::Result<(String, Scenario)> {
    let wrong = |error: anyhow::Error| UsageError(format!("{name}: {error:#}"));
    let text = provided::text_of(name)?;
    let scenario = Scenario::parse(&text, is_quick).map_err(wrong)?;
    Ok((text, scenario))
}

/// Measures every point, in turn, as often as the scenario repeats them.
pub(crate) async fn measure(args: &RunArgs) -> anyhow::Result<Results> {
    let (text, mut scenario) = read(&args.scenario, args.quick)?;
    let args = &args.on_backends_of(&scenario)?;
    let limits = args.check(&mut scenario).await?;
    let mut results = Results::new(args, &text, &scenario, limits);
    let repetitions = args.repeat.map_or(scenario.repetitions, NonZeroUsize::get);
    let progress = Progress { begun: Instant::now(), points: scenario.points.len(), repetitions };
    for repetition in 1..=repetitions {
        for (index, measurement) in scenario.points.iter().enumerate() {
            let name = format!("{:02}-{repetition}", index + 1);
            let place = progress.place(index, repetition, &results::shown(measurement), Instant::now());
            let measuring = measure_once(args, &scenario, measurement, repetition, &name);
            results.add(place.during(measuring).await?);
            // Each time, so that a run that is stopped leaves what it found.
            if let Some(dir) = &args.out {
                results.write_files(dir)?;
            }
        }
    }
    Ok(results)
}

/// How far a run is, for those who wait for it.
struct Progress {
    begun: Instant,
    points: usize,
    repetitions: usize,
}

impl Progress {
    /// What is measured now, and when all is done if the rest takes as long as what was measured before, on average.
    fn place(&self, index: usize, repetition: usize, point: &str, now: Instant) -> Overall {
        let Self { begun, points, repetitions } = *self;
        let of = |number, all| format!("{number} of {all}");
        let mut name = format!("point {}", of(index + 1, points));
        if repetitions > 1 {
            name += &format!(", repetition {}", of(repetition, repetitions));
        }
        name += &format!(", {point}");
        let (done, all) = ((repetition - 1) * points + index, points * repetitions);
        let elapsed = now.saturating_duration_since(begun).as_secs_f64();
        let whole = Duration::try_from_secs_f64(elapsed * all as f64 / done as f64);
        Overall::new(name, whole.ok().and_then(|whole| begun.checked_add(whole)))
    }
}

/// Measures a point once; what the workload writes goes into the directory `name`.
async fn measure_once(
    args: &RunArgs,
    scenario: &Scenario,
    measurement: &Measurement,
    repetition: usize,
    name: &str,
) -> anyhow::Result<PointRun> {
    let out = args.out.as_ref().map(|dir| dir.join(name));
    let given = given(args, scenario, measurement, repetition);
    let attempt = Attempt { args, scenario, measurement, out };
    let given_servers = args.server.as_ref().or(scenario.server.as_ref());
    let given_servers = given_servers.into_iter().flat_map(|servers| servers.split(','));
    let engines = args.backends.urls().chain(given_servers).chain(measurement.urls());
    let meter = BackgroundLoadMeter::start(engines.chain(measurement.agents()));
    // All that a workload does is in this future: on the heap, those around it stay small enough for a stack.
    let measured = Box::pin(attempt.run(given))
        .await
        .with_context(|| format!("{}: {}", args.scenario, results::shown(measurement)))?;
    let others = meter.share();
    progress(&measured, measurement);
    let mut run = PointRun {
        point: results::shown_point(measurement),
        repetition,
        is_clean: measured.is_clean,
        others,
        faults: Vec::new(),
        mishaps: measured.mishaps,
        summary: measured.summary,
    };
    run.find_faults(&args.scenario, scenario, args.quick);
    Ok(run)
}

/// The report of a directory that `run --out` or `find-max --out` wrote, made anew from its results.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<Results> {
    let mut results = Results::read(&args.dir)?;
    results.rebuild();
    results.set_price(&args.price)?;
    results.write_report(&args.dir)?;
    Ok(results)
}

/// What the run gives to a workload besides its options. Each repetition has a seed of its own.
fn given(args: &RunArgs, scenario: &Scenario, measurement: &Measurement, repetition: usize) -> Vec<String> {
    let mut given = vec![format!("--threads={}", args.threads)];
    given.extend(args.quiet.then(|| "--quiet".to_owned()));
    given.extend(scenario.seed.map(|seed| format!("--seed={}", seed.wrapping_add(repetition as u64))));
    given.extend(args.price.price.map(|price| format!("--price={price}")));
    // Not what the environment says of another server.
    if scenario.workload == WorkloadKind::Persist && measurement.options().all(|(key, _)| key != "log") {
        given.push("--log=direct".to_owned());
    }
    given
}

/// One measurement of a point.
struct Attempt<'r> {
    args: &'r RunArgs,
    scenario: &'r Scenario,
    measurement: &'r Measurement,
    out: Option<PathBuf>,
}

impl Attempt<'_> {
    /// At the server that is given, or at servers of its own.
    async fn run(&self, mut given: Vec<String>) -> anyhow::Result<Measured> {
        let watched = self.args.watch.iter().chain(&self.scenario.watch);
        let watched: Vec<&str> = watched.map(String::as_str).collect();
        if !watched.is_empty() {
            given.push(format!("--watch={}", watched.join(",")));
        }
        if self.scenario.workload == WorkloadKind::Store {
            given.push(format!("--dir={}", self.args.backends.dir().display()));
            given.push(format!("--database={}", self.args.backends.postgres().unwrap_or("none")));
            return self.load(&[], given).await;
        }
        match self.args.server.as_ref().or(self.scenario.server.as_ref()) {
            Some(bare) if bare == BARE => {
                let kind = self.scenario.workload.bare()?;
                let server = Server::bare(kind, self.args.backends.dir(), &[]).await?;
                given.extend([format!("--server-pid={}", server.pid), "--database=none".to_owned()]);
                return server
                    .during(async |server: &Server| self.measure(&[&server.url], given).await)
                    .await;
            }
            Some(url) => return self.measure(&[url], given).await,
            None => {}
        }
        let work = async |servers: &[Server], database: Option<&str>| {
            given.extend(servers.iter().map(|server| format!("--server-pid={}", server.pid)));
            given.extend((servers.len() > 1).then(|| "--shared".to_owned()));
            given.push(format!("--database={}", database.unwrap_or("none")));
            given.extend(self.args.backends.broker_pids().iter().map(|pid| format!("--broker-pid={pid}")));
            let urls: Vec<&str> = servers.iter().map(|server| server.url.as_str()).collect();
            self.measure(&urls, given).await
        };
        let measured = self.args.backends.during(self.measurement, work).await?;
        let note = self.args.backends.unseen_database();
        Ok(note.into_iter().fold(measured, |measured, note| measured.with_note(&note)))
    }

    /// As far away as the scenario says.
    async fn measure(&self, urls: &[&str], given: Vec<String>) -> anyhow::Result<Measured> {
        let Some(delay) = self.measurement.network_delay()? else { return self.load(urls, given).await };
        let mut proxies = Vec::new();
        for url in urls {
            proxies.push(Server::delaying(url, delay).await.context("network_delay: the proxy")?);
        }
        let through: Vec<&str> = proxies.iter().map(|proxy| proxy.url.as_str()).collect();
        let measured = self.load(&through, given).await;
        for proxy in proxies {
            proxy.kill().await?;
        }
        measured
    }

    async fn load(&self, urls: &[&str], mut given: Vec<String>) -> anyhow::Result<Measured> {
        let _pinned = self.measurement.pin_load()?;
        if !urls.is_empty() {
            given.push(format!("--server={}", urls.join(",")));
        }
        self.scenario.workload.measure(self.measurement, &given, self.out.as_deref()).await
    }
}

impl RunArgs {
    /// The same with nothing but the backends that the scenario is about. Servers that run already have theirs.
    fn on_backends_of(&self, scenario: &Scenario) -> anyhow::Result<Self> {
        if self.server.is_some() || scenario.server.is_some() {
            ensure!(
                self.backends.urls().next().is_none(),
                "{}: it measures a server that is given, which has its store and its log: leave out --postgres, --cql, --kafka \
                 and --rabbitmq",
                self.scenario
            );
            return Ok(self.clone());
        }
        let chosen = self.backends.chosen(scenario.store.as_deref(), scenario.log.as_deref());
        Ok(Self { backends: chosen.with_context(|| self.scenario.clone())?, ..self.clone() })
    }

    /// Refuses what the scenario says and this run cannot do. What it limits is returned in words; limits that it can do
    /// without, and cannot have, are left out of it. What runs that were killed left is removed first.
    async fn check(&self, scenario: &mut Scenario) -> anyhow::Result<String> {
        cgroup::remove_leftovers();
        let given = self.server.as_ref().or(scenario.server.as_ref());
        let is_given = given.is_some();
        let has_own =
            |point: &Measurement| point.settings().next().is_some() || point.servers().ok() != Some(1);
        ensure!(
            !is_given || !scenario.points.iter().any(has_own),
            "{}: settings, and several servers, are for servers of its own: leave out --server",
            self.scenario
        );
        for point in &scenario.points {
            let (Placement { server, database, load }, limits) = (point.placement()?, point.limits()?);
            let limited: Vec<&ResourceLimit> = limits.server.iter().chain(&limits.database).collect();
            for (what, cores) in [("server", &server), ("database", &database), ("load", &load)] {
                cores.as_ref().map_or(Ok(()), |cores| cores.check(what))?;
            }
            ensure!(
                !is_given || (server.is_none() && database.is_none() && limited.is_empty()),
                "{}: cores and cgroup of server and database are for servers of its own: leave out --server",
                self.scenario
            );
            let is_alone = scenario.workload == WorkloadKind::Store;
            ensure!(
                limited.is_empty() || !is_alone,
                "{}: cgroup: the store alone has no server to limit",
                self.scenario
            );
            let is_known = self.backends.cql().is_none() && self.backends.log() == LOG.own;
            ensure!(
                !is_alone || is_known,
                "{}: the store alone is measured embedded, or in PostgreSQL, without a log",
                self.scenario
            );
            self.backends.check(point).with_context(|| self.scenario.clone())?;
        }
        if let Some(given) = given.filter(|given| *given != BARE && !self.quiet) {
            let all = "the rooms, queues and keys of all measurements";
            cleanup::say(&format!(
                "leaves in {given} {all}: removing them would slow down those that follow"
            ));
        }
        self.try_limits(scenario).await.with_context(|| self.scenario.clone())
    }

    async fn try_limits(&self, scenario: &mut Scenario) -> anyhow::Result<String> {
        let mut shown = BTreeSet::new();
        for point in &scenario.points {
            match self.backends.try_limits(point).await {
                Err(error) if !point.requires_limits()? => {
                    scenario.points.iter_mut().for_each(Measurement::leave_out_limits);
                    return Ok(format!("without its limits by cgroups: {error:#}"));
                }
                tried => tried?,
            }
            let PartLimits { server, database } = point.limits()?;
            shown.extend(server.iter().chain(&database).map(ResourceLimit::to_string));
        }
        let shown: Vec<String> = shown.into_iter().collect();
        Ok(if shown.is_empty() { String::new() } else { format!("limited by cgroups: {}", shown.join(", ")) })
    }
}

/// Shows what a measurement found, as soon as it is there.
fn progress(measured: &Measured, measurement: &Measurement) {
    // Nobody can be told that the terminal is gone.
    let _ = writeln!(std::io::stderr(), "{}: {}", results::shown(measurement), measured.terminal.trim_end());
}

#[cfg(test)]
mod tests;
