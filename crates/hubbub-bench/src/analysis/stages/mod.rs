//! Where the time of a message goes, stage by stage, so that the stages add up to the whole.
//!
//! The generator knows the whole: the mean latency until the answer, and until subscribers had the message. Where messages
//! could be followed ([`crate::results::followed`]), all of the way until the answer is known, step by step.
//!
//! Otherwise the servers' histograms have exact sums of what lies within them, and the generator knows how long messages waited
//! in it before they were sent; these stages follow each other, so their means add up. What is left lies between the two.
//! Where servers measured each of the requests from its header until its answer, that is both ways. Otherwise the round trip of
//! a request with nothing to do stands for the network, and nobody measures the rest: sockets, and threads of both ends that
//! wait for a processor.

mod path;

use serde::{Deserialize, Serialize};

use path::Waits;
pub(crate) use path::{StagePath, table};

use crate::host::sample::buckets::Buckets;
use crate::results::followed::Means;
use crate::results::ledger::exact_sum;

/// Share of its requests by which what servers answered may differ from what ended here: others ask them, too.
const STRANGERS_MAX: f64 = 0.02;

/// What servers counted of each stage between two readings of their metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerStages {
    wait: Buckets,
    answer: Buckets,
    total: Buckets,
    confirm: Buckets,
    way: Buckets,
    fan_out: Buckets,
    delivery: Buckets,
    /// Requests over HTTP, and commands of the line protocol.
    requests: [Buckets; 2],
    /// Messages that came from a broker.
    consumed: f64,
    stored_messages: f64,
}

impl ServerStages {
    pub(crate) fn between(before: &str, after: &str) -> Self {
        // Less than before is what a server counted that was started meanwhile: how much is not known.
        let added = |name| {
            let added = Buckets::parse(after, name).since(&Buckets::parse(before, name));
            if added.count() < 0.0 || added.sum < 0.0 { Buckets::default() } else { added }
        };
        let count = |name| exact_sum(after, name).unwrap_or(0.0) - exact_sum(before, name).unwrap_or(0.0);
        Self {
            wait: added("hubbub_pipeline_wait_seconds"),
            answer: added("hubbub_pipeline_answer_seconds"),
            total: added("hubbub_pipeline_total_seconds"),
            confirm: added("hubbub_log_confirm_seconds"),
            way: added("hubbub_log_end_to_end_seconds"),
            fan_out: added("hubbub_pipeline_fan_out_seconds"),
            delivery: added("hubbub_delivery_seconds"),
            requests: ["hubbub_http_request_seconds", "hubbub_line_command_seconds"].map(added),
            consumed: count("hubbub_log_messages_consumed_total"),
            stored_messages: count("hubbub_messages_stored_total"),
        }
    }

    /// Answers are those of a broker.
    pub(crate) fn has_broker(&self) -> bool {
        self.confirm.count() > 0.0
    }

    /// Messages that were stored, where answers are those of a broker and do not say it; `None` where a server began anew
    /// meanwhile, too.
    pub(crate) fn stored_behind_broker(&self) -> Option<f64> {
        (self.has_broker() && self.stored_messages >= 0.0).then_some(self.stored_messages)
    }

    /// Milliseconds that one of the requests that ended was in the server; `None` where it counted others, or not all of them.
    /// Questions about messages that were followed are no others.
    fn inside_ms(&self, known: &Generated) -> Option<f64> {
        let Generated { ended, ended_off, asked: (questions, asking_ms), .. } = known;
        let count: f64 = self.requests.iter().map(Buckets::count).sum::<f64>() - questions;
        let sum_ms = 1e3 * self.requests.iter().map(|requests| requests.sum).sum::<f64>() - asking_ms;
        let is_theirs = (count - ended).abs() <= STRANGERS_MAX * ended + ended_off;
        (*ended > 0.0 && is_theirs).then(|| sum_ms.max(0.0) / count)
    }

    /// From submission to the sender's answer. `mean` says how long one message was in what a histogram counts.
    fn stored(&self, mean: impl Fn(&Buckets) -> f64) -> [(&'static str, f64); 3] {
        let [wait, answer, total] = [&self.wait, &self.answer, &self.total].map(mean);
        [("queue", wait), ("commit", (total - wait - answer).max(0.0)), ("answer", answer)]
    }
}

/// What the generator knows of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Generated {
    /// Messages or operations that came to an end while the servers counted, and how many more or less it may be.
    pub(crate) ended: f64,
    pub(crate) ended_off: f64,
    /// From the intended send until the answer.
    pub(crate) confirmed_ms: f64,
    /// Until subscribers had it; `None` where nobody was timed.
    pub(crate) delivered_ms: Option<f64>,
    /// Servers passed messages on to each other: only of those that were followed is it known how long that took.
    pub(crate) has_several_servers: bool,
    /// Questions about messages that were followed, which servers count as requests, and how long all together took.
    pub(crate) asked: (f64, f64),
    /// From the intended send until it was sent.
    pub(crate) waited_ms: f64,
    /// Whether the time until subscribers had it counts from the intended send, too.
    pub(crate) is_delivery_intended: bool,
    /// Round trip of a request with nothing to do.
    pub(crate) empty_ms: Option<f64>,
    /// Of messages that were followed until their answer, and until subscribers had them; `None` where none could be.
    pub(crate) followed: Option<Means>,
    pub(crate) followed_to_subscribers: Option<Means>,
    /// The servers have the clock of the generator.
    pub(crate) is_one_clock: bool,
}

/// Until the sender had its answer, and until subscribers had the message. What cannot be told is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stages {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) confirmed: Option<StagePath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivered: Option<StagePath>,
}

impl Stages {
    pub(crate) fn of(server: &ServerStages, known: &Generated) -> Self {
        Self {
            confirmed: Self::confirmed(server, known),
            delivered: known.delivered_ms.and_then(|whole| Self::delivered(server, known, whole)),
        }
    }

    /// Behind a broker, the answer says that the broker has the message, and the rest comes later.
    fn confirmed(server: &ServerStages, known: &Generated) -> Option<StagePath> {
        let each = |counted: &Buckets| 1e3 * counted.sum / known.ended.max(1.0);
        let inside_ms = server.inside_ms(known);
        let mut stages = Vec::new();
        if server.confirm.count() > 0.0 {
            stages.push(("log", each(&server.confirm)));
        } else if server.total.count() > 0.0 && server.consumed == 0.0 {
            if let Some(followed) = &known.followed {
                let waits = Waits { client: known.waited_ms, log: 0.0, queue: each(&server.wait) };
                return StagePath::of_followed(
                    known,
                    known.confirmed_ms,
                    followed,
                    waits,
                    ["answer", "to the client"],
                );
            }
            stages.extend(server.stored(each));
        } else if inside_ms.is_none() {
            return None;
        }
        let client = ("client", known.waited_ms);
        match inside_ms {
            Some(inside_ms) => StagePath::of_requests(known.confirmed_ms, client, stages, inside_ms),
            None => StagePath::of(
                known.confirmed_ms,
                [client].into_iter().chain(stages).collect(),
                known.empty_ms,
            ),
        }
    }

    fn delivered(server: &ServerStages, known: &Generated, whole_ms: f64) -> Option<StagePath> {
        let mean = |counted: &Buckets| 1e3 * counted.mean();
        if server.total.count() == 0.0 || server.delivery.count() == 0.0 {
            return None;
        }
        // From publishing to the pipeline.
        let log = (mean(&server.way) - mean(&server.total)).max(0.0);
        if let Some(followed) = known.followed_to_subscribers.as_ref() {
            let client = if known.is_delivery_intended { known.waited_ms } else { 0.0 };
            let waits = Waits { client, log, queue: mean(&server.wait) };
            return StagePath::of_followed(known, whole_ms, followed, waits, ["delivery", "to subscribers"]);
        }
        if known.has_several_servers {
            return None;
        }
        let mut stages = Vec::new();
        stages.extend(known.is_delivery_intended.then_some(("client", known.waited_ms)));
        if server.way.count() > 0.0 {
            stages.push(("log", log));
        }
        let [queue, commit, _] = server.stored(mean);
        // Fan-out begins where a batch is durable.
        stages.extend([queue, commit, ("delivery", mean(&server.fan_out) + mean(&server.delivery))]);
        StagePath::of(whole_ms, stages, known.empty_ms)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Of several runs the ways whose stages are farthest from the whole.
    pub(crate) fn worst(all: impl IntoIterator<Item = Self>) -> Self {
        let worse = |one: Option<StagePath>, other: Option<StagePath>| {
            let ways = one.into_iter().chain(other);
            ways.max_by(|one, other| one.unaccounted.abs().total_cmp(&other.unaccounted.abs()))
        };
        all.into_iter().fold(Self::default(), |worst, one| Self {
            confirmed: worse(worst.confirmed, one.confirmed),
            delivered: worse(worst.delivered, one.delivered),
        })
    }

    /// What is to be known of both ways, if anything is.
    pub(crate) fn marks(&self) -> impl Iterator<Item = String> {
        self.ways().filter_map(|(when, way)| Some(format!("{when}, {}", way.mark()?)))
    }

    /// Both ways, each with its name.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (&'static str, &StagePath)> {
        let confirmed = self.confirmed.iter().map(|way| ("until the answer", way));
        confirmed.chain(self.delivered.iter().map(|way| ("until subscribers had it", way)))
    }
}

#[cfg(test)]
mod tests;
