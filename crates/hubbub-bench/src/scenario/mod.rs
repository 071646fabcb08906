//! Experiments as files: `hubbub bench run FILE`. A scenario is a workload with its options, points to sweep over,
//! repetitions, thresholds, and settings of the server that each measurement starts for itself.
//!
//! [`file`] reads and checks it → each point is measured by its [`workload`], as often as there are repetitions → the
//! [`results`] are shown, kept, and compared with others ([`compare`]).

mod compare;
mod file;
mod provided;
mod results;
mod workload;

use std::io::Write as _;
use std::path::PathBuf;

#[cfg(not(feature = "postgres"))]
use anyhow::bail;
use anyhow::{Context, ensure};
use clap::Args;

pub(crate) use compare::{CompareArgs, compare};
use file::{Measurement, Scenario};
use results::{PointRun, Results};
use workload::Measured;

use crate::engine::Findings as _;
#[cfg(feature = "postgres")]
use crate::limits::postgres::Database;
use crate::machine::scratch;
use crate::spawn::Server;

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// A scenario: a file, or the name of one that `hubbub bench list` shows
    #[arg(value_name = "FILE")]
    scenario: String,
    /// A quick look of seconds: the options of [quick], one repetition, the first and the last point, no thresholds
    #[arg(long)]
    quick: bool,
    /// Measure this server; without it, each measurement starts one for itself
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// The program to start servers with; by default this one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Directory for the data of servers, on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Store in PostgreSQL, postgres://…: a server where databases may be made
    #[arg(long, value_name = "URL", conflicts_with = "target")]
    postgres: Option<String>,
    /// Write the results into this directory: results.json, and what each measurement writes
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
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

/// Measures every point, in turn, as often as the scenario repeats them.
pub(crate) async fn measure(args: &RunArgs) -> anyhow::Result<Results> {
    let text = provided::text_of(&args.scenario)?;
    let scenario = Scenario::parse(&text, args.quick).with_context(|| args.scenario.clone())?;
    let target = args.target.as_ref().or(scenario.target.as_ref());
    ensure!(
        target.is_none() || scenario.points.iter().all(|point| point.settings().next().is_none()),
        "{}: settings are for a server of its own: leave out the target",
        args.scenario
    );
    let mut results = Results::new(&args.scenario, &text, args.quick, &scenario);
    for repetition in 1..=scenario.repetitions {
        for (index, measurement) in scenario.points.iter().enumerate() {
            let name = format!("{:02}-{repetition}", index + 1);
            let out = args.out.as_ref().map(|dir| dir.join(&name));
            let given = given(args, &scenario, measurement, repetition);
            let attempt = Attempt { args, scenario: &scenario, measurement, out };
            let measured = match target {
                Some(url) => attempt.measure(url, given).await,
                None => attempt.measure_fresh(given).await,
            };
            let measured =
                measured.with_context(|| format!("{}: {}", args.scenario, results::shown(measurement)))?;
            progress(&measured, measurement);
            let faults =
                scenario.thresholds.iter().filter_map(|threshold| threshold.fault(&measured.summary));
            results.runs.push(PointRun {
                point: results::shown_point(measurement),
                repetition,
                is_clean: measured.is_clean,
                faults: faults.collect(),
                summary: measured.summary,
            });
            // Each time, so that a run that is stopped leaves what it found.
            if let Some(dir) = &args.out {
                results.write_files(dir)?;
            }
        }
    }
    Ok(results)
}

/// What the run gives to a workload besides its options. Each repetition has a seed of its own.
fn given(args: &RunArgs, scenario: &Scenario, measurement: &Measurement, repetition: usize) -> Vec<String> {
    let mut given = vec!["--quiet".to_owned(), format!("--threads={}", args.threads)];
    given.extend(scenario.seed.map(|seed| format!("--seed={}", seed.wrapping_add(repetition as u64))));
    if args.out.is_none() {
        given.push("--rows-max=0".to_owned());
    }
    // Not what the environment says of another server.
    if scenario.workload == workload::WorkloadKind::Persist
        && measurement.options().all(|(key, _)| key != "log")
    {
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
    async fn measure(&self, url: &str, mut given: Vec<String>) -> anyhow::Result<Measured> {
        given.push(format!("--target={url}"));
        self.scenario.workload.measure(self.measurement, &given, self.out.as_deref()).await
    }

    /// At a server of its own, on an empty directory or database.
    async fn measure_fresh(&self, given: Vec<String>) -> anyhow::Result<Measured> {
        #[cfg(feature = "postgres")]
        if let Some(url) = &self.args.postgres {
            let database = Database::fresh(url).await?;
            let measured = self.measure_on(Some(&database.url), given).await;
            database.drop().await?;
            return measured;
        }
        #[cfg(not(feature = "postgres"))]
        if self.args.postgres.is_some() {
            bail!("this program was built without the feature postgres");
        }
        self.measure_on(None, given).await
    }

    async fn measure_on(&self, database: Option<&str>, mut given: Vec<String>) -> anyhow::Result<Measured> {
        let program = self.args.server.clone().map_or_else(std::env::current_exe, Ok)?;
        let dir = scratch("hubbub-run-", &self.args.dir)?;
        let (data, settings) = (dir.path().join("data"), self.measurement.settings());
        let server = Server::configured(&program, &data, settings, database).await?;
        given.push(format!("--server-pid={}", server.pid));
        if self.scenario.workload == workload::WorkloadKind::Persist {
            given.push(format!("--database={}", database.unwrap_or("none")));
        }
        let url = server.url.clone();
        server.during(async |_: &Server| self.measure(&url, given).await).await
    }
}

/// Shows what a measurement found, as soon as it is there.
fn progress(measured: &Measured, measurement: &Measurement) {
    // Nobody can be told that the terminal is gone.
    let _ = writeln!(std::io::stderr(), "{}: {}", results::shown(measurement), measured.terminal.trim_end());
}
