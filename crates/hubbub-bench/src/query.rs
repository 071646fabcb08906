//! `hubbub bench query`: the four questions that matter at a store full of messages, each alone and then all together
//! while messages come in.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hubbub_core::Timestamp;
use hubbub_core::clock::SeededRandom;
use serde::Serialize;
use serde_json::Value;

use crate::asks::{Question, Times, ask, below};
use crate::caller::get;
use crate::client::Target;
use crate::engine::{self, Findings, Loading};
use crate::http::HttpArgs;
use crate::machine::Machine;
use crate::options::{Common, arguments, duration};
use crate::record::Stats;
use crate::report::grouped;

#[derive(Debug, Clone, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Questions per second
    #[arg(long, default_value_t = 50, value_name = "N")]
    rate: u32,
    /// How long each question is asked, and how long all together
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    duration: Duration,
    /// Windows of time are this share of the time there are messages of
    #[arg(long, default_value_t = 0.03, value_name = "SHARE")]
    window: f64,
}

/// A question, and how long its answer may take.
const KINDS: [(&str, f64); 4] =
    [("room by time", 100.0), ("user's history", 200.0), ("active users", 500.0), ("user's rooms", 50.0)];

#[derive(Debug, Serialize)]
pub(crate) struct Answers {
    machine: Machine,
    started: String,
    messages: u64,
    rows: Vec<Asked>,
    failed: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    question: &'static str,
    /// Alone, or beside the others and messages.
    is_mixed: bool,
    target_ms: f64,
    latency: Stats,
}

/// The member `name` of each entry of a list.
fn names(page: &Value, list: &str, name: &str) -> Vec<String> {
    let entries = page.get(list).and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.get(name)?.as_str()?.to_owned())).collect()
}

/// What there is to ask about: names, and the time that messages are of.
#[derive(Debug, Clone)]
struct Holdings {
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

    fn question(&self, kind: usize) -> Question {
        let holdings = self.clone();
        let name = KINDS.get(kind).map_or("", |kind| kind.0);
        Question { name, path: Box::new(move |random| holdings.path(kind, random)) }
    }
}

/// Asks each question alone, and then all of them beside messages: nine questions for each message.
pub(crate) async fn measure(args: &QueryArgs) -> anyhow::Result<Answers> {
    let target = args.common.target()?;
    let (messages, holdings) = Holdings::look(&target, args.window).await?;
    let mut answers = Answers {
        machine: Machine::look(),
        started: crate::machine::now().to_string(),
        messages,
        rows: Vec::new(),
        failed: 0,
    };
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    for kind in 0..KINDS.len() {
        let times = ask(&target, vec![holdings.question(kind)], args.rate, args.duration, seed).await?;
        answers.add(&times, false);
    }
    let all = (0..KINDS.len()).map(|kind| holdings.question(kind)).collect();
    let (seconds, sends) = (format!("{}s", args.duration.as_secs_f64()), (args.rate / 9).max(1).to_string());
    let url = args.common.targets.first().context("no --target")?;
    let line = ["--quiet", "--rows-max", "0", "--target", url, "--rate", &sends, "--duration", &seconds];
    let sending = arguments::<Loading<HttpArgs>>("http", &line)?;
    let (times, sent) =
        tokio::try_join!(ask(&target, all, args.rate, args.duration, seed), engine::measure(&sending))?;
    anyhow::ensure!(sent.per_second > 0.0, "no message was accepted beside the questions");
    answers.add(&times, true);
    Ok(answers)
}

impl Answers {
    fn add(&mut self, times: &Times, is_mixed: bool) {
        self.failed += times.failed;
        self.rows.extend(times.kinds.iter().map(|(question, dist)| Asked {
            question,
            is_mixed,
            target_ms: KINDS.iter().find(|kind| kind.0 == *question).map_or(0.0, |kind| kind.1),
            latency: dist.stats(),
        }));
    }
}

impl Findings for Answers {
    fn is_clean(&self) -> bool {
        self.failed == 0
            && self.rows.iter().all(|row| row.latency.count > 0 && row.latency.p99_ms <= row.target_ms)
    }

    fn terminal(&self) -> String {
        let mut out = format!("query on {}, {} messages\n", self.machine, grouped(self.messages as f64));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  {:<16}{:<7}{:>9}{:>10}{:>10}{:>10}{:>10}",
            "", "", "count", "p50 ms", "p95 ms", "p99 ms", "target"
        );
        for Asked { question, is_mixed, target_ms, latency } in &self.rows {
            let how = if *is_mixed { "mixed" } else { "alone" };
            let Stats { count, median_ms, p95_ms, p99_ms, .. } = latency;
            let met = if p99_ms <= target_ms && *count > 0 { "" } else { "  missed" };
            let _ = writeln!(
                out,
                "  {question:<16}{how:<7}{count:>9}{median_ms:>10.2}{p95_ms:>10.2}{p99_ms:>10.2}{target_ms:>10.0}{met}"
            );
        }
        if self.failed > 0 {
            let _ = writeln!(out, "  {} questions were not answered", self.failed);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_question_that_took_too_long_is_told() {
        let mut dist = crate::record::Dist::default();
        dist.add(60_000);
        let answers = |name| {
            let (machine, started) = (Machine::look(), String::new());
            let mut answers = Answers { machine, started, messages: 1, rows: Vec::new(), failed: 0 };
            answers.add(&Times { kinds: vec![(name, dist.clone())], failed: 0 }, false);
            answers
        };
        assert!(answers("room by time").is_clean());
        assert!(!answers("user's rooms").is_clean());
        assert!(answers("user's rooms").terminal().contains("missed"));
    }
}
