//! A way of a message: its stages, what is in none of them, and how these are told from what was measured.

use serde::{Deserialize, Serialize};

use super::Generated;
use crate::report::{Table, figure};
use crate::results::followed::Means;

/// Share of the whole that may be in no stage, or in two, before a way is marked.
const UNACCOUNTED_MAX: f64 = 0.05;

/// Standard errors that the mean of those followed may be off by chance: once in 400 runs it is more.
const CHANCE: f64 = 3.0;

/// How long the average message waits in each place where those that were followed say nothing of it, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) client: f64,
    pub(super) log: f64,
    pub(super) queue: f64,
}

/// A way, and the stages on it in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StagePath {
    pub(crate) whole_ms: f64,
    pub(crate) stages: Vec<Stage>,
    /// What is in no stage, as a share of the whole; negative where stages are longer than it.
    pub(crate) unaccounted: f64,
    /// The stages that were measured are longer than 105 % of the whole: they overlap, or count other messages, too.
    pub(crate) overlaps: bool,
    /// Messages that were followed, if the stages are theirs, in proportion to the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed: Option<u64>,
    /// How long these took themselves, with the mean time of all in the client: not in proportion to anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed_ms: Option<f64>,
    /// Standard error of that, where the variance is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed_error_ms: Option<f64>,
    /// What is to be known where the stages do not add up to the whole within 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub(crate) name: String,
    /// Mean of a message.
    pub(crate) ms: f64,
    /// Of the whole.
    pub(crate) share: f64,
}

impl StagePath {
    /// `None` where nothing was measured.
    pub(super) fn of(whole_ms: f64, stages: Vec<(&'static str, f64)>, empty_ms: Option<f64>) -> Option<Self> {
        if whole_ms <= 0.0 {
            return None;
        }
        let measured: f64 = stages.iter().map(|(_, ms)| ms).sum();
        let network = empty_ms.map(|ms| ("network", ms.min(whole_ms - measured).max(0.0)));
        Some(Self::with(whole_ms, stages.into_iter().chain(network)))
    }

    /// Of requests that were `inside_ms` in the server, and there in `stages`.
    pub(super) fn of_requests(
        whole_ms: f64,
        client: (&str, f64),
        stages: Vec<(&str, f64)>,
        inside_ms: f64,
    ) -> Option<Self> {
        let measured: f64 = stages.iter().map(|(_, ms)| ms).sum();
        let handling = ("handling", (inside_ms - measured).max(0.0));
        let outside = (BOTH_WAYS, (whole_ms - client.1 - inside_ms).max(0.0));
        let all = [client, handling].into_iter().chain(stages).chain([outside]);
        (whole_ms > 0.0).then(|| Self::with(whole_ms, all))
    }

    /// Of all messages, by those that were followed. How long the average message was in the client is known of all. Where the
    /// rest differs from that of all by more than chance explains, if that is known, the difference is in no stage. How long the
    /// average message was in the broker and in the server's queue, servers know themselves: timelines are of batches.
    pub(super) fn of_followed(
        known: &Generated,
        whole_ms: f64,
        followed: &Means,
        waits: Waits,
        [told, read]: [&str; 2],
    ) -> Option<Self> {
        if whole_ms <= 0.0 || followed.rest <= 0.0 {
            return None;
        }
        let client = waits.client.min(whole_ms);
        let rest_ms = whole_ms - client;
        let is_chance = |off_ms: f64| followed.error.is_none_or(|error| off_ms <= CHANCE * error);
        let scale = if is_chance((rest_ms - followed.rest).abs()) { rest_ms / followed.rest } else { 1.0 };
        let [_, until_taken, commit, bus, until_told, until_read] = followed.steps.map(|ms| ms * scale);
        // By two clocks, only both ways together are known, with what the server did not yet take.
        let unseen = if known.is_one_clock { until_taken } else { until_taken + until_read };
        let queue = waits.queue.min(unseen);
        let beside_queue = unseen - queue;
        // What the broker took of all is longer than there is room for it: that it overlaps is to be seen.
        let log = if is_chance(waits.log - beside_queue) { waits.log.min(beside_queue) } else { waits.log };
        let outside = (beside_queue - log).max(0.0);
        let some = |name, ms: f64| (ms > 0.0).then_some((name, ms));
        let mut stages = vec![("client", client)];
        stages.extend(known.is_one_clock.then_some((TO_SERVER, outside)));
        stages.extend(some("log", log));
        stages.extend([("queue", queue), ("commit", commit)]);
        stages.extend(some("bus", bus));
        stages.push((told, until_told));
        stages.push(if known.is_one_clock { (read, until_read) } else { (BOTH_WAYS, outside) });
        let (count, followed_ms) = (Some(followed.count), Some(client + followed.rest));
        let followed_error_ms = followed.error;
        Some(Self {
            followed: count,
            followed_ms,
            followed_error_ms,
            ..Self::with(whole_ms, stages.into_iter())
        })
    }

    fn with<'a>(whole_ms: f64, stages: impl Iterator<Item = (&'a str, f64)>) -> Self {
        let stage = |(name, ms): (&str, f64)| Stage { name: name.to_owned(), ms, share: ms / whole_ms };
        let stages: Vec<Stage> = stages.map(stage).collect();
        // Without the rounding of what is nothing.
        let unaccounted =
            1e-9 * (1e9 * (1.0 - stages.iter().map(|stage| stage.share).sum::<f64>())).round() + 0.0;
        let overlaps = unaccounted < -UNACCOUNTED_MAX;
        Self {
            whole_ms,
            stages,
            unaccounted,
            overlaps,
            followed: None,
            followed_ms: None,
            followed_error_ms: None,
            mark: mark(unaccounted),
        }
    }

    /// The stages, what is in none of them, and the whole, each with its mean and its share.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let stages = self.stages.iter().map(|stage| (&*stage.name, stage.ms, stage.share));
        stages.chain([
            (UNACCOUNTED, self.unaccounted * self.whole_ms, self.unaccounted),
            (WHOLE, self.whole_ms, 1.0),
        ])
    }

    /// All of it, for people.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(["stage", "ms", "share"]);
        for (name, ms, share) in self.rows() {
            table.row([name.to_owned(), figure(ms), format!("{:.1} %", 100.0 * share)]);
        }
        table
    }

    /// What is to be known of it, if anything is; of a way that an older program wrote, too.
    pub(crate) fn mark(&self) -> Option<String> {
        mark(self.unaccounted)
    }
}

/// Says how far the stages are from the whole, where that is too far.
fn mark(unaccounted: f64) -> Option<String> {
    let percent = 100.0 * unaccounted;
    match unaccounted {
        share if share > UNACCOUNTED_MAX => Some(format!("{percent:.0} % {UNACCOUNTED}")),
        share if share < -UNACCOUNTED_MAX => {
            Some(format!("the stages add up to {:.0} % of the whole: they overlap", 100.0 - percent))
        }
        _ => None,
    }
}

impl std::fmt::Display for StagePath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Stage { name, ms, share } in &self.stages {
            write!(out, "{name} {} ({:.0} %), ", figure(*ms), 100.0 * share)?;
        }
        write!(out, "{UNACCOUNTED} {:.1} %", 100.0 * self.unaccounted)?;
        self.followed.map_or(Ok(()), |count| write!(out, "; by {count} messages that were followed"))
    }
}

pub(super) const TO_SERVER: &str = "to the server";
pub(super) const BOTH_WAYS: &str = "both ways";
pub(super) const UNACCOUNTED: &str = "not accounted for";
pub(super) const WHOLE: &str = "whole";

/// Several ways side by side, each with what it is of: a column for each stage that one of them has.
pub(crate) fn table(ways: &[(String, StagePath)]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for (name, _, _) in ways.iter().flat_map(|(_, way)| way.rows()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut table = Table::new(std::iter::once("ms").chain(names.iter().copied()));
    for (label, way) in ways {
        let cell = |name: &&str| {
            let found = way.rows().find(|(one, _, _)| one == name);
            found.map_or_else(String::new, |(_, ms, _)| figure(ms))
        };
        table.row(std::iter::once(label.clone()).chain(names.iter().map(cell)));
    }
    table
}
