//! `hubbub bench query`: the four questions that matter at a store full of messages, each alone and then all together
//! while messages come in. What they found is shown by [`show`].

mod show;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hubbub_core::Timestamp;
use hubbub_core::clock::SeededRandom;
use serde::Serialize;
use serde_json::Value;

use crate::client::caller::get;
use crate::client::{Target, Targets};
use crate::host::background_load::BackgroundLoadMeter;
use crate::load::run::Run;
use crate::options::{arguments, duration, seconds};
use crate::report::{Origin, Report};
use crate::results::record::Stats;
use crate::workloads::engine::{self, Account, Loading, Setup, Workload};
use crate::workloads::http::HttpArgs;
use crate::workloads::query_load::{QueryTemplate, ask, below, schedule};

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct QueryArgs {
    /// Questions per second
    #[arg(long, default_value_t = 50, value_name = "N")]
    rate: u32,
    /// How long each question is asked, and how long all together
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    duration: Duration,
    /// Windows of time are this share of the time there are messages of
    #[arg(long, default_value_t = 0.03, value_name = "SHARE")]
    window: f64,
    /// The question that is asked alone; without it, all are.
    #[arg(skip)]
    #[serde(skip)]
    alone: Option<usize>,
}

/// A question, and how long its answer may take.
const KINDS: [(&str, f64); 4] =
    [("room by time", 100.0), ("user's history", 200.0), ("active users", 500.0), ("user's rooms", 50.0)];

#[derive(Debug, Serialize)]
pub(crate) struct Answers {
    workload: &'static str,
    #[serde(flatten)]
    origin: Origin,
    parameters: QueryArgs,
    messages: u64,
    rows: Vec<QueryResult>,
    failed: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueryResult {
    question: &'static str,
    /// Alone, or beside the others and messages.
    is_mixed: bool,
    target_ms: f64,
    latency: Stats,
    /// Share of the machine that others took meanwhile, where it is known.
    others: Option<f64>,
    /// Why the ledger of the measurement did not balance.
    faults: Vec<String>,
}

impl QueryResult {
    fn how(&self) -> &'static str {
        if self.is_mixed { "mixed" } else { "alone" }
    }

    fn is_met(&self) -> bool {
        self.latency.count > 0 && self.latency.p99_ms <= self.target_ms
    }
}

/// The member `name` of each entry of a list.
fn names(page: &Value, list: &str, name: &str) -> Vec<String> {
    let entries = page.get(list).and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.get(name)?.as_str()?.to_owned())).collect()
}

/// What there is to ask about: names, and the time that messages are of.
#[derive(Debug, Clone)]
pub(crate) struct Holdings {
    rooms: Vec<String>,
    users: Vec<String>,
    first: Timestamp,
    span_us: u64,
    window_us: u64,
}

impl Holdings {
    /// Looks at what the server has, and says how many messages that are, too.
    async fn look(target: &Target, share: f64) -> anyhow::Result<(u64, Self)> {
        let page = async |path: &str| anyhow::Ok(serde_json::from_str::<Value>(&get(target, path).await?)?);
        let totals = page("/v1/stats").await?;
        let time = |name: &str| totals.get(name)?.as_str().and_then(Timestamp::parse);
        let (first, last) = time("firstMessageAt")
            .zip(time("lastMessageAt"))
            .context("the server holds no messages to ask for")?;
        let span_us = last.as_micros().abs_diff(first.as_micros()).max(1);
        let holdings = Self {
            rooms: names(&page("/v1/stats/rooms?limit=1000").await?, "rooms", "roomId"),
            users: names(&page("/v1/stats/users?limit=1000").await?, "users", "userId"),
            first,
            span_us,
            window_us: (span_us as f64 * share.clamp(0.0, 1.0)) as u64 + 1,
        };
        let messages = totals.get("messages").and_then(Value::as_u64);
        Ok((messages.context("the statistics do not count messages")?, holdings))
    }

    fn window(&self, random: &SeededRandom) -> String {
        let from = self.first.as_micros().saturating_add_unsigned(below(random, self.span_us));
        let to = from.saturating_add_unsigned(self.window_us);
        format!("from={}&to={}", Timestamp::from_micros(from), Timestamp::from_micros(to))
    }

    fn path(&self, kind: usize, random: &SeededRandom) -> String {
        let any = |names: &[String]| {
            let index = below(random, names.len() as u64) as usize;
            names.get(index).cloned().unwrap_or_default()
        };
        match kind {
            0 => format!("/v1/rooms/{}/messages?{}&limit=100", any(&self.rooms), self.window(random)),
            1 => format!("/v1/users/{}/messages?limit=100", any(&self.users)),
            2 => format!("/v1/stats/active-users?{}&limit=100", self.window(random)),
            _ => format!("/v1/stats/users/{}/rooms", any(&self.users)),
        }
    }

    fn question(&self, kind: usize) -> QueryTemplate {
        let holdings = self.clone();
        let name = KINDS.get(kind).map_or("", |kind| kind.0);
        QueryTemplate { name, path: Box::new(move |random| holdings.path(kind, random)) }
    }
}

impl Workload for QueryArgs {
    const NAME: &'static str = "query";
    const HAS_ROOMS: bool = false;
    type Stage = Holdings;

    async fn prepare(&self, setup: &Setup) -> anyhow::Result<Holdings> {
        Ok(Holdings::look(setup.target(), self.window).await?.1)
    }

    async fn drive(&self, setup: &Setup, holdings: &mut Holdings) -> anyhow::Result<Arc<Run>> {
        let kinds = self.alone.map_or(0..KINDS.len(), |kind| kind..kind + 1);
        let questions = kinds.map(|kind| holdings.question(kind)).collect();
        ask(setup.target(), questions, self.rate, self.duration, setup.seed, setup.common.quiet).await
    }

    async fn close(&self, _: &Setup, _: Holdings, run: &Run) -> anyhow::Result<Account> {
        let note = schedule(self.rate, self.duration).never_sent(run, "questions");
        Ok(Account { note, ..Account::default() })
    }
}

/// Asks each question alone, and then all of them beside messages: nine questions for each message.
pub(crate) async fn measure(args: &Loading<QueryArgs>) -> anyhow::Result<Answers> {
    let Loading { common, own } = args;
    let target = Target::with(common.server()?, &common.access.credentials()?)?;
    let (messages, _) = Holdings::look(&target, own.window).await?;
    let mut answers = Answers::new(own, messages);
    let engines = || common.servers.iter().chain(&common.database).map(String::as_str);
    let meter = || BackgroundLoadMeter::start(engines());
    for kind in 0..KINDS.len() {
        let own = QueryArgs { alone: Some(kind), ..own.clone() };
        let meter = meter();
        let asked = engine::measure(&Loading { own, common: common.clone() }).await?;
        answers.add(&asked, false, meter.share(), &asked.faults());
    }
    let (seconds, sends) = (format!("{}s", own.duration.as_secs_f64()), (own.rate / 9).max(1).to_string());
    let url = common.server()?;
    let line = ["--quiet", "--server", url, "--rate", &sends, "--duration", &seconds];
    let mut sending = arguments::<Loading<HttpArgs>>("http", &line)?;
    sending.common.access = common.access.clone();
    let targets = Targets::from(target);
    common.made.announce(&targets, false, &sending.own.makes()).await;
    let meter = meter();
    let (asked, sent) = tokio::try_join!(engine::measure(args), engine::measure(&sending))?;
    anyhow::ensure!(sent.per_second > 0.0, "no message was accepted beside the questions");
    answers.add(&asked, true, meter.share(), &[asked.faults(), sent.faults()].concat());
    Ok(answers)
}

impl Answers {
    fn new(own: &QueryArgs, messages: u64) -> Self {
        Self {
            workload: QueryArgs::NAME,
            origin: Origin::here(),
            parameters: own.clone(),
            messages,
            rows: Vec::new(),
            failed: 0,
        }
    }

    /// The questions of a run, with what makes their figures worth less than they seem.
    fn add(&mut self, report: &Report, is_mixed: bool, others: Option<f64>, faults: &[String]) {
        self.failed += report.ledger.as_ref().map_or(0, |ledger| ledger.rejected + ledger.unconfirmed);
        self.rows.extend(KINDS.iter().filter_map(|(question, target_ms)| {
            let latency = report.latency_by_type.get(question)?.clone();
            let faults = faults.to_vec();
            Some(QueryResult { question, is_mixed, target_ms: *target_ms, latency, others, faults })
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::background_load::marks;
    use crate::workloads::engine::Findings as _;

    #[test]
    fn questions_are_about_what_there_is() {
        let holdings = Holdings {
            rooms: vec!["r".into()],
            users: vec!["u".into()],
            first: Timestamp::from_micros(0),
            span_us: 1_000_000,
            window_us: 500_000,
        };
        let random = SeededRandom::new(1);
        let path = holdings.path(0, &random);
        assert!(path.starts_with("/v1/rooms/r/messages?from=1970-01-01T00:00:0"), "{path}");
        assert!(path.contains("&to=1970-01-01T00:00:0"), "{path}");
        assert_eq!(holdings.path(3, &random), "/v1/stats/users/u/rooms");
    }

    /// Of one question, which took 60 ms.
    fn answers_of(name: &'static str, others: Option<f64>, faults: &[String]) -> Answers {
        let mut dist = crate::results::record::Dist::default();
        dist.add(60_000);
        let mut answers = Answers::new(&arguments("query", &[]).unwrap(), 1);
        let mut report = Report::new("query", "operations", Value::Null);
        report.latency_by_type = [(name, dist.stats())].into();
        answers.add(&report, false, others, faults);
        answers
    }

    #[test]
    fn a_summary_of_answers_names_its_format() {
        let answers = Answers::new(&arguments("query", &["--rate", "7"]).unwrap(), 1);
        let summary = serde_json::to_value(&answers).unwrap();
        assert_eq!((&summary["schemaVersion"], &summary["workload"]), (&2.into(), &"query".into()));
        assert_eq!((&summary["parameters"]["rate"], &summary["messages"]), (&7.into(), &1.into()));
    }

    #[test]
    fn answers_are_written_as_files() {
        let answers = answers_of("room by time", Some(0.0), &[]);
        let dir = tempfile::tempdir().unwrap();
        answers.write_files(dir.path()).unwrap();
        let written = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let summary: Value = serde_json::from_str(&written("summary.json")).unwrap();
        assert_eq!(summary["rows"][0]["question"], "room by time");
        let rows = written("answers.csv");
        assert!(rows.starts_with("question,beside messages,count,p50 ms,"), "{rows}");
        let row = rows.lines().nth(1).unwrap();
        assert!(row.starts_with("room by time,no,1,") && row.ends_with(",100,yes"), "{rows}");
        let page = written("report.html");
        for part in ["<h1>hubbub bench query</h1>", "room by time", "class=\"fill\"", "How to repeat it"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_question_that_took_too_long_or_is_worth_less_is_marked() {
        let answers = |name| answers_of(name, Some(0.0), &[]);
        assert!(answers("room by time").is_clean());
        assert!(!answers("user's rooms").is_clean());
        assert!(answers("user's rooms").terminal().contains("missed"));
        let marked = |answers: &Answers| {
            let shown = answers.terminal();
            let line = shown.lines().find(|line| line.contains("room by time")).map(str::to_owned);
            line.and_then(|line| Some(line.split_once("   ! ")?.1.to_owned()))
        };
        assert_eq!(marked(&answers("room by time")), None);
        let beside = answers_of("room by time", Some(0.09), &[]);
        assert_eq!(marked(&beside), Some(marks(true, Some(0.09)).join("   ! ")));
        assert!(beside.is_clean(), "a mark is no fault");
        let lost = answers_of("room by time", Some(0.09), &["3 refused".to_owned()]);
        assert_eq!(marked(&lost), Some(marks(false, Some(0.09)).join("   ! ")));
        assert!(!lost.is_clean() && lost.terminal().contains("fault: room by time: 3 refused"));
    }
}
