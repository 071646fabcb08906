//! The format of a scenario: a workload with its options as the command line has them, points to sweep over, settings of
//! the server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use hubbub_core::suggestion::nearest;
use serde::Deserialize;
use serde_json::Value;

use super::engines::{LOG, STORE};
use super::keys::{CGROUP, CORES, REQUIRED, SETTINGS, flat, is_in, points};
use super::threshold::Threshold;
use super::workload::WorkloadKind;
use crate::host::lab::cgroup::ResourceLimit;
use crate::host::lab::cores::Cores;
use crate::options::duration;

/// Keys and values as text. What has a dot in its name is a setting of the server, everything else an option.
pub(crate) type Point = BTreeMap<String, String>;

/// A file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    title: String,
    #[serde(default)]
    about: String,
    workload: WorkloadKind,
    #[serde(default = "once")]
    repetitions: usize,
    seed: Option<u64>,
    #[serde(alias = "target")]
    server: Option<String>,
    network_delay: Option<String>,
    #[serde(default)]
    watch: Vec<String>,
    #[serde(default)]
    cores: toml::Table,
    #[serde(default)]
    cgroup: toml::Table,
    store: Option<String>,
    log: Option<String>,
    #[serde(default)]
    options: toml::Table,
    #[serde(default)]
    settings: toml::Table,
    #[serde(default)]
    sweep: toml::Table,
    #[serde(default)]
    point: Vec<toml::Table>,
    #[serde(default)]
    quick: toml::Table,
    #[serde(default)]
    thresholds: Vec<String>,
}

/// Which processors each part may use.
#[derive(Debug, Default)]
pub(super) struct Placement {
    pub(super) server: Option<Cores>,
    pub(super) database: Option<Cores>,
    pub(super) load: Option<Cores>,
}

/// Limits of each server, and of the database.
#[derive(Debug, Default)]
pub(super) struct PartLimits {
    pub(super) server: Vec<ResourceLimit>,
    pub(super) database: Vec<ResourceLimit>,
}

fn once() -> usize {
    1
}

/// A scenario whose keys and values are checked.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) workload: WorkloadKind,
    pub(super) repetitions: usize,
    pub(super) seed: Option<u64>,
    pub(super) server: Option<String>,
    /// Names, or ids, of processes to look at, besides those that are anyway.
    pub(super) watch: Vec<String>,
    /// What its servers store in, and behind what: kinds, or URLs.
    pub(super) store: Option<String>,
    pub(super) log: Option<String>,
    /// What is measured, one after another: each with what all have in common.
    pub(super) points: Vec<Measurement>,
    pub(super) thresholds: Vec<Threshold>,
}

/// One point of a scenario.
#[derive(Debug)]
pub(super) struct Measurement {
    /// What tells it from the others.
    pub(super) point: Point,
    /// All options and settings.
    pub(super) all: Point,
}

impl Measurement {
    pub(super) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_option = |key: &str| !key.contains('.') && ![SERVERS, NETWORK_DELAY].contains(&key);
        self.all.iter().filter(move |(key, _)| is_option(key)).map(|(key, value)| (&**key, &**value))
    }

    /// URLs among all that is given: of databases, brokers and whatever else its servers use.
    pub(super) fn urls(&self) -> impl Iterator<Item = &str> {
        self.all.values().map(String::as_str).filter(|value| value.contains("://"))
    }

    /// How many servers are started, on one store and log.
    pub(super) fn servers(&self) -> anyhow::Result<usize> {
        let Some(text) = self.all.get(SERVERS) else { return Ok(1) };
        let count = text.parse().ok().filter(|count| (1..=SERVERS_MAX).contains(count));
        count.with_context(|| format!("options: {SERVERS} = {text} must be a number from 1 to {SERVERS_MAX}"))
    }

    /// How much longer than they are round trips to the server become; `None` where nothing is said, and for 0.
    pub(super) fn network_delay(&self) -> anyhow::Result<Option<Duration>> {
        let Some(text) = self.all.get(NETWORK_DELAY) else { return Ok(None) };
        let delay = duration(text).map_err(|rule| anyhow!("{NETWORK_DELAY} = {text}: {rule}"))?;
        ensure!(delay <= DELAY_MAX, "{NETWORK_DELAY} = {text} must be at most {} s", DELAY_MAX.as_secs());
        Ok((!delay.is_zero()).then_some(delay))
    }

    /// Where its parts may run.
    pub(super) fn placement(&self) -> anyhow::Result<Placement> {
        let cores = |what: &str| {
            let text = self.all.get(&format!("{CORES}.{what}"));
            let parsed = text.map(|text| Cores::try_from(text.clone()));
            parsed.transpose().map_err(|rule| anyhow!("{CORES}: {what}: {rule}"))
        };
        Ok(Placement { server: cores("server")?, database: cores("database")?, load: cores("load")? })
    }

    /// What control groups are to limit.
    pub(super) fn limits(&self) -> anyhow::Result<PartLimits> {
        let limits = |part: &str| {
            let prefix = format!("{CGROUP}.{part}.");
            let of_part = self.all.iter().filter(|(key, _)| key.starts_with(&prefix));
            of_part.map(|(key, text)| ResourceLimit::parse(key, text)).collect::<anyhow::Result<_>>()
        };
        Ok(PartLimits { server: limits("server")?, database: limits("database")? })
    }

    /// Whether it is measured where its limits cannot be put in place, too.
    pub(super) fn requires_limits(&self) -> anyhow::Result<bool> {
        let Some(text) = self.all.get(REQUIRED) else { return Ok(true) };
        text.parse().with_context(|| format!("{REQUIRED} = {text} must be true or false"))
    }

    /// Measures it without its limits; the point says so where it has some.
    pub(super) fn leave_out_limits(&mut self) {
        self.all.retain(|key, _| !is_in(key, CGROUP));
        for (_, limit) in self.point.iter_mut().filter(|(key, _)| is_in(key, CGROUP) && *key != REQUIRED) {
            limit.push_str(" (not in force)");
        }
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_setting = |key: &str| key.contains('.') && !is_in(key, CORES) && !is_in(key, CGROUP);
        self.all.iter().filter(move |(key, _)| is_setting(key)).map(|(key, value)| (&**key, &**value))
    }
}

/// What is wrong with a file, on one line, with the name that may be meant.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let (line, message) = (before.matches('\n').count() + 1, error.message().replace('\n', ", "));
    // "unknown field `titel`, expected one of `title`, `about`"
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (Some((written, known)), true) = (names.split_first(), message.starts_with("unknown ")) else {
        return format!("line {line}: {message}");
    };
    let kind = if message.starts_with("unknown field") { "key" } else { "value" };
    let meant = match nearest(written, known.iter().map(|name| (*name, *name))) {
        Some(meant) => format!("did you mean '{meant}'?"),
        None => format!("there are {}", known.join(", ")),
    };
    format!("line {line}: there is no {kind} '{written}'; {meant}")
}

impl Scenario {
    /// Reads a scenario. A quick one has one repetition, the options of `[quick]`, and no points but the first and the last;
    /// it is there to try things, so its thresholds do not count.
    ///
    /// # Errors
    /// The first key or value that is wrong, with its rule.
    pub(super) fn parse(text: &str, is_quick: bool) -> anyhow::Result<Self> {
        let written: ScenarioFile = toml::from_str(text).map_err(|error| anyhow!(fault(text, &error)))?;
        ensure!(written.repetitions > 0, "repetitions must be at least 1");
        for (part, said) in [(&STORE, &written.store), (&LOG, &written.log)] {
            said.as_deref().map_or(Ok(()), |said| part.check(said))?;
        }
        let mut common = flat("options", "", &written.options)?;
        common.extend(flat("settings", SETTINGS, &written.settings)?);
        common.extend(flat("cores", CORES, &written.cores)?);
        common.extend(flat("cgroup", CGROUP, &written.cgroup)?);
        common.extend(written.network_delay.map(|delay| (NETWORK_DELAY.to_owned(), delay)));
        let quick = flat("quick", "", &written.quick)?;
        let mut points = points(&written.sweep, &written.point)?;
        let (mut repetitions, mut thresholds) = (written.repetitions, Vec::new());
        for line in &written.thresholds {
            thresholds.push(line.parse::<Threshold>()?);
        }
        if is_quick {
            points =
                points.first().into_iter().chain(points.get(1..).and_then(<[_]>::last)).cloned().collect();
            (repetitions, thresholds) = (1, Vec::new());
        }
        let measurement = |point: &Point, is_quick: bool| {
            let mut all = common.clone();
            all.extend(point.clone());
            all.extend(quick.clone().into_iter().filter(|_| is_quick));
            Measurement { point: point.clone(), all }
        };
        // Both ways, so that a quick look does not hide what is wrong, nor the whole run what a quick look has.
        for point in &points {
            written.workload.check(&measurement(point, true))?;
            written.workload.check(&measurement(point, false))?;
        }
        let points: Vec<Measurement> = points.iter().map(|point| measurement(point, is_quick)).collect();
        Ok(Self {
            title: written.title,
            about: written.about,
            workload: written.workload,
            repetitions,
            seed: written.seed,
            server: written.server,
            watch: written.watch,
            store: written.store,
            log: written.log,
            points,
            thresholds,
        })
    }
}

impl Scenario {
    /// Thresholds that a summary does not keep.
    pub(super) fn faults(&self, summary: &Value) -> Vec<String> {
        self.thresholds.iter().filter_map(|threshold| threshold.fault(summary)).collect()
    }
}

/// The option of how many servers are started, which is the run's own, not the workload's.
pub(super) const SERVERS: &str = "servers";
const SERVERS_MAX: usize = 64;
/// The option of how far away the server is: the run's own, too.
const NETWORK_DELAY: &str = "network_delay";
const DELAY_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "title = 'x'\nworkload = 'chat'\n";

    fn parse(rest: &str, is_quick: bool) -> anyhow::Result<Scenario> {
        Scenario::parse(&format!("{BASE}{rest}"), is_quick)
    }

    #[test]
    fn points_are_combined() {
        let text = "repetitions = 3\n[options]\nmessages = 10\n[settings.kv]\ncache_bytes = '1MiB'\n\
             [sweep]\nconnections = [1, 2, 3]\n[[point]]\nrooms = 4\n[[point]]\nrooms = 5\nsettings.server.threads = 2\n\
             [quick]\nmessages = 1\n";
        let whole = parse(text, false).unwrap();
        let shown: Vec<Vec<&str>> =
            whole.points.iter().map(|one| one.point.values().map(String::as_str).collect()).collect();
        assert_eq!(
            shown,
            [&["1", "4"][..], &["1", "5", "2"], &["2", "4"], &["2", "5", "2"], &["3", "4"], &["3", "5", "2"]]
        );
        assert_eq!(whole.repetitions, 3);
        let limited =
            parse("[cgroup]\nserver.cpus = 1.5\n[settings.limits]\nuser_rooms = 7\n", false).unwrap();
        let limits: Vec<String> =
            limited.points[0].limits().unwrap().server.iter().map(ResourceLimit::to_string).collect();
        assert_eq!(limits, ["cgroup.server.cpus = 1.5"]);
        assert_eq!(limited.points[0].settings().collect::<Vec<_>>(), [("limits.user_rooms", "7")]);
        let settings: Vec<_> = whole.points[1].settings().collect();
        assert_eq!(settings, [("kv.cache_bytes", "1MiB"), ("server.threads", "2")]);
        let quick = parse(text, true).unwrap();
        assert_eq!((quick.repetitions, quick.points.len()), (1, 2));
        assert!(quick.points.iter().all(|one| one.all["messages"] == "1"));
        assert_eq!(quick.points[1].all["connections"], "3");
    }

    #[test]
    fn a_limit_that_is_left_out_is_no_name_of_a_point() {
        let text =
            "[options]\nconnections = 3\n[sweep]\ncgroup.server.cpus = [1, 2]\ncgroup.required = [false]\n";
        let mut point = parse(text, false).unwrap().points.remove(1);
        assert_eq!(point.point["cgroup.server.cpus"], "2");
        point.leave_out_limits();
        assert_eq!(point.point["cgroup.server.cpus"], "2 (not in force)");
        assert_eq!(point.point["cgroup.required"], "false");
        assert!(point.limits().unwrap().server.is_empty());
    }

    #[test]
    fn a_list_of_rates_is_a_rate_in_steps() {
        let text = "[options]\nrate = [100, '200@2s']\nduration = '1s'\nwarmup = '1s'\ncooldown = '1s'\n";
        let scenario = parse(text, false).unwrap();
        assert!(scenario.points[0].options().any(|option| option == ("rate", "100,200@2s")));
    }

    #[test]
    fn urls_are_found_wherever_they_stand() {
        let text = "[settings.x]\nlog = 'amqp://a'\n[sweep]\nsettings.x.store = ['postgres://b']\n";
        let scenario = parse(text, false).unwrap();
        assert_eq!(scenario.points[0].urls().collect::<Vec<_>>(), ["amqp://a", "postgres://b"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_rule() {
        for (rest, parts) in [
            ("colour = 1", &["line 3: there is no key 'colour'; there are title, about"][..]),
            ("repetition = 1", &["line 3: there is no key 'repetition'; did you mean 'repetitions'?"]),
            ("seed = 'x'", &["line 3: invalid type", "expected u64"]),
            ("seed 1", &["line 3: "]),
            ("repetitions = 0", &["repetitions", "at least 1"]),
            ("[options]\nconections = 4", &["--conections", "--connections"]),
            ("[options]\nconnections = 'many'", &["'many'", "--connections", "invalid digit"]),
            ("[options]\nduration = '5 parsecs'", &["--duration", "unknown unit"]),
            ("[options]\nserver = 'http://x'", &["server", "beside [options]"]),
            ("network_delay = '5 parsecs'", &["network_delay", "unknown unit"]),
            ("store = 'oracle'", &["store: 'oracle'", "embedded, postgres or scylla", "postgres://"]),
            ("log = 'kafka2://a'", &["log: 'kafka2://a'", "direct, kafka or rabbitmq", "amqp://"]),
            ("[sweep]\nnetwork_delay = ['1m']", &["network_delay = 1m", "at most 10 s"]),
            ("[cores]\nserver = 'two'", &["'two'", "numbers of processors"]),
            ("[cores]\nnetwork = '2'", &["cores.network", "cores.server"]),
            ("[cgroup]\nserver.cpu = 1", &["cgroup.server.cpu", "cpus, memory and iops"]),
            ("[cgroup]\nload.cpus = 1", &["cgroup.load.cpus", "cgroup.database"]),
            ("[cgroup]\nserver.cpus = 0", &["cgroup.server.cpus = 0", "number of processors"]),
            ("[sweep]\ncgroup.database.memory = ['1MB']", &["cgroup.database.memory = 1MB", "512MiB"]),
            ("[cgroup]\nrequired = 1", &["cgroup.required = 1", "true or false"]),
            ("[sweep]\nservers = [1, 0]", &["servers = 0", "from 1 to 64"]),
            ("[options]\nconnections = { a = 1 }", &["connections.a", "settings.SECTION.NAME"]),
            ("[settings]\nthreads = 1", &["settings.threads", "settings.SECTION.NAME"]),
            ("[sweep]\nconnections = 4", &["sweep", "connections", "list"]),
            ("[sweep]\nconnections = [1, 'few']", &["'few'", "--connections"]),
            ("[quick]\nnonsense = 1", &["--nonsense"][..]),
            ("[options]\nrate = 5\nduration = 1\nthink = '5ms'", &["--think", "--rate"]),
            ("[options]\nrate = [5, 'fast']\nduration = 1", &["--rate", "5,fast", "1000..10000"]),
            ("[options]\ncooldown = '1s'", &["--cooldown", "--duration"]),
            ("thresholds = ['perSecond 5']", &["perSecond 5", "FIGURE < NUMBER"]),
        ] {
            let error = parse(rest, false).err().unwrap_or_else(|| panic!("{rest} is taken"));
            let error = format!("{error:#}");
            assert!(parts.iter().all(|part| error.contains(part)), "{rest}: {error}");
        }
    }
}
