//! What a report says of its agents.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::message::{Hello, boot};
use super::part::Part;
use crate::analysis::verdict::Figures;
use crate::analysis::verdict::figures::Processors;
use crate::report::{Report, grouped};

/// The agents of a run, one at least.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct Agents(Vec<AgentFigures>);

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentFigures {
    address: String,
    /// Messages or operations that were accepted.
    count: u64,
    per_second: f64,
    mean_ms: f64,
    /// Processors that it kept busy, and threads that it has for that.
    cpu: f64,
    threads: usize,
    /// How much later than the common start it began, by its own clock. When the common start was by this clock, is known
    /// within half a round trip.
    start_skew_ms: f64,
    round_trip_ms: f64,
    /// In what way it was the limit, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip)]
    processors: Processors,
    /// It runs on the machine of the coordinator.
    #[serde(skip)]
    is_here: bool,
}

impl Agents {
    /// Each with what it said of itself, the shortest round trip to it, and what it measured.
    pub(super) fn of<'a>(agents: impl Iterator<Item = (&'a str, &'a Hello, Duration, &'a Part)>) -> Self {
        let own = boot();
        let figures = |(address, hello, round_trip, part): (&str, &Hello, Duration, &Part)| {
            let (count, mean_ms, per_second) = part.rate();
            let effort = &part.effort;
            AgentFigures {
                address: address.to_owned(),
                count,
                per_second,
                mean_ms,
                cpu: effort.run,
                threads: effort.threads,
                start_skew_ms: effort.late_us as f64 / 1e3,
                round_trip_ms: round_trip.as_secs_f64() * 1e3,
                limit: effort.limit.clone(),
                processors: Processors {
                    run: effort.run,
                    waited: effort.waited,
                    may_use: effort.may_use,
                    hottest: None,
                },
                is_here: is_here(hello, &own),
            }
        };
        Self(agents.map(figures).collect())
    }

    /// Puts the agents in the place of this process, which only coordinated them. Of agents on other machines the rules of
    /// the verdict know nothing: a figure of theirs would be held against processors of this one.
    pub(crate) fn correct(&self, report: &mut Report, seen: &mut Figures) {
        if let Some(cpu) = &mut report.cpu {
            cpu.generator = self.0.iter().map(|agent| agent.cpu).sum();
        }
        seen.generator_stopped = None;
        let wanted = |one: &&AgentFigures| one.processors.run / one.threads.max(1) as f64;
        let busiest = self.0.iter().max_by(|one, other| wanted(one).total_cmp(&wanted(other)));
        if let Some(busiest) = busiest.filter(|_| self.0.iter().all(|agent| agent.is_here)) {
            seen.generator = Some(busiest.processors.clone());
            seen.generator_threads = busiest.threads;
            seen.generators_run = Some(self.0.iter().map(|agent| agent.cpu).sum());
        } else {
            (seen.generator, seen.generator_threads, seen.empty_ms) = (None, 0, None);
            report.notes.push("the verdict does not know the generators: see agents".to_owned());
        }
    }

    /// In what way the generators were the limit, if one of them was.
    pub(crate) fn limit(&self) -> Option<String> {
        self.0.iter().find_map(|agent| Some(format!("agent {}: {}", agent.address, agent.limit.as_ref()?)))
    }
}

pub(super) fn is_here(hello: &Hello, own_boot: &str) -> bool {
    !own_boot.is_empty() && hello.boot == own_boot
}

/// A line for each.
impl fmt::Display for Agents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, agent) in self.0.iter().enumerate() {
            let AgentFigures { address, mean_ms, cpu, threads, start_skew_ms, round_trip_ms, .. } = agent;
            let (title, rate) = (if index == 0 { "agents" } else { "" }, grouped(agent.per_second));
            writeln!(
                out,
                "  {title:<12} {address}: {rate}/s, mean {mean_ms:.3} ms, {cpu:.2} processors for {threads} threads, \
                 started {start_skew_ms:.2} ms late (round trip {round_trip_ms:.2} ms)"
            )?;
        }
        Ok(())
    }
}
