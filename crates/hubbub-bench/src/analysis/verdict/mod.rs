//! Names the bottleneck of a run, with its evidence and what to try next.
//!
//! [`watch`] takes marks before and after the measured phase → [`figures`] makes figures of them → the rules, in their order,
//! say what each of them finds: the first is the bottleneck, the others are said beside it. Every figure a rule looks at
//! stands in `summary.json`, so that a reader can check it.

pub(crate) mod figures;
mod rules;
mod stall;
pub(crate) mod watch;

use serde::{Serialize, Serializer};

pub(crate) use figures::{Figures, REACHED, percent_missed};
pub(crate) use watch::{Counted, Mark, OpenLoop, Watch};

/// What limited a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    Generator,
    Network,
    Pool,
    Database,
    Broker,
    SlowSubscriber,
    ServerCpu,
    DiskFlush,
    HotThread,
    OtherProcesses,
    Load,
    Window,
    CommitWait,
    NotFound,
}

/// By its name.
impl Serialize for Bottleneck {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Bottleneck {
    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Network => "network",
            Self::Pool => "pool",
            Self::Database => "database",
            Self::Broker => "broker",
            Self::SlowSubscriber => "slow subscriber",
            Self::ServerCpu => "server CPU",
            Self::DiskFlush => "disk flush",
            Self::HotThread => "one hot thread",
            Self::OtherProcesses => "other processes",
            Self::Load => "the load itself",
            Self::Window => "the load's window",
            Self::CommitWait => "commit wait",
            Self::NotFound => "not found",
        }
    }

    fn next(self) -> &'static str {
        match self {
            Self::Generator => "give the generator more threads or cores, or start it on another machine",
            Self::Network => {
                "measure nearer to the server, or send more before the answers come (--in-flight, more connections)"
            }
            Self::Pool => "raise store.postgres.pool.max, if the database has processors left for it",
            Self::Database => {
                "look at what the database does (its locks, processors, disk), and give it more of that"
            }
            Self::Broker => "look at the broker: its processors, its disk, its partitions",
            Self::SlowSubscriber => {
                "find who reads slowly, or bound what waits for them (limits.outbox_messages)"
            }
            Self::ServerCpu => "give the server more cores (server.threads), or add servers",
            Self::DiskFlush => {
                "use a disk that syncs faster, or send more at a time, so that more share a sync"
            }
            Self::HotThread => "what this thread does cannot be divided: add servers, or give it less to do",
            Self::OtherProcesses => "stop what else runs, and measure again",
            Self::Load => "raise the rate to find the limit (hubbub bench find-max)",
            Self::Window => {
                "more senders, or more of each under way: the options --publishers and --window, or --connections and \
                 --in-flight"
            }
            Self::CommitWait => {
                "look for a lock, a linger or a serial section: compare waiting and store times in the figures"
            }
            Self::NotFound => "more connections, or more in flight, if nothing else shows",
        }
    }
}

/// What a rule found: a bottleneck, and the figures that say so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) bottleneck: Bottleneck,
    pub(crate) evidence: String,
}

/// The bottleneck of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    #[serde(flatten)]
    pub(crate) finding: Finding,
    try_next: &'static str,
    /// What else was found, in the order of the rules.
    pub(crate) also: Vec<Finding>,
    figures: Figures,
}

impl Verdict {
    /// Decides by what was seen. Whatever is found, that an open loop fell behind stands with it.
    pub(crate) fn of(figures: Figures) -> Self {
        let mut found = rules::RULES.iter().filter_map(|rule| rule(&figures));
        let mut finding = found.next().unwrap_or_else(|| rules::not_found(&figures));
        let also = found.collect();
        if let Some(behind) = figures.behind() {
            finding.evidence = format!("{}; {behind}", finding.evidence);
        }
        Self { try_next: finding.bottleneck.next(), finding, also, figures }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { bottleneck, evidence } = &self.finding;
        writeln!(out, "  bottleneck   {}: {evidence}", bottleneck.name())?;
        for Finding { bottleneck, evidence } in &self.also {
            writeln!(out, "               also {}: {evidence}", bottleneck.name())?;
        }
        writeln!(out, "               try next: {}", self.try_next)
    }
}
