//! Where the time of a message goes, stage by stage, so that the stages add up to the whole.
//!
//! The generator knows the whole: the mean latency until the answer, and until subscribers had the message. Where messages
//! could be followed ([`crate::followed`]), all of the way until the answer is known, step by step.
//!
//! Otherwise the servers' histograms have exact sums of what lies within them, and the generator knows how long messages waited
//! in it before they were sent; these stages follow each other, so their means add up. What is left lies between the two.
//! Where servers measured each of the requests from its header until its answer, that is both ways. Otherwise the round trip of
//! a request with nothing to do stands for the network, and nobody measures the rest: sockets, and threads of both ends that
//! wait for a processor.

use serde::{Deserialize, Serialize};

use crate::followed::Means;
use crate::ledger::exact_sum;
use crate::report::{Table, figure};
use crate::sample::buckets::Buckets;

/// Share of the whole that may be in no stage, or in two, before a way is marked.
const UNACCOUNTED_MAX: f64 = 0.05;

/// Standard errors that the mean of those followed may be off by chance: once in 400 runs it is more.
const CHANCE: f64 = 3.0;

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
}

impl ServerStages {
    pub(crate) fn between(before: &str, after: &str) -> Self {
        // Less than before is what a server counted that was started meanwhile: how much is not known.
        let added = |name| {
            let added = Buckets::parse(after, name).since(&Buckets::parse(before, name));
            if added.count() < 0.0 || added.sum < 0.0 { Buckets::default() } else { added }
        };
        let count = |metrics| exact_sum(metrics, "hubbub_log_messages_consumed_total").unwrap_or(0.0);
        Self {
            wait: added("hubbub_pipeline_wait_seconds"),
            answer: added("hubbub_pipeline_answer_seconds"),
            total: added("hubbub_pipeline_total_seconds"),
            confirm: added("hubbub_log_confirm_seconds"),
            way: added("hubbub_log_way_seconds"),
            fan_out: added("hubbub_pipeline_fan_out_seconds"),
            delivery: added("hubbub_delivery_seconds"),
            requests: ["hubbub_http_request_seconds", "hubbub_line_command_seconds"].map(added),
            consumed: count(after) - count(before),
        }
    }

    /// Milliseconds that one of `ended` requests was in the server; `None` where it counted others, or not all of them.
    fn inside_ms(&self, ended: f64) -> Option<f64> {
        let count: f64 = self.requests.iter().map(Buckets::count).sum();
        let sum: f64 = self.requests.iter().map(|requests| requests.sum).sum();
        let is_theirs = (count - ended).abs() <= STRANGERS_MAX * ended;
        (ended > 0.0 && is_theirs).then(|| 1e3 * sum / count)
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
    /// Messages or operations that came to an end.
    pub(crate) ended: f64,
    /// From the intended send until the answer.
    pub(crate) confirmed_ms: f64,
    /// Until subscribers had it; `None` where nobody was timed, or several servers passed messages on to each other.
    pub(crate) delivered_ms: Option<f64>,
    /// From the intended send until it was sent.
    pub(crate) waited_ms: f64,
    /// Whether the time until subscribers had it counts from the intended send, too.
    pub(crate) is_delivery_intended: bool,
    /// Round trip of a request with nothing to do.
    pub(crate) empty_ms: f64,
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
    pub(crate) confirmed: Option<Way>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivered: Option<Way>,
}

/// A way, and the stages on it in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Way {
    pub(crate) whole_ms: f64,
    pub(crate) stages: Vec<Stage>,
    /// What is in no stage, as a share of the whole; negative where stages are longer than it.
    pub(crate) unaccounted: f64,
    /// The stages that were measured are longer than 105 % of the whole: they overlap, or count other messages, too.
    pub(crate) overlaps: bool,
    /// Messages that were followed, if the stages are theirs, in proportion to the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed: Option<u64>,
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

impl Stages {
    pub(crate) fn of(server: &ServerStages, known: &Generated) -> Self {
        Self {
            confirmed: Self::confirmed(server, known),
            delivered: known.delivered_ms.and_then(|whole| Self::delivered(server, known, whole)),
        }
    }

    /// Behind a broker, the answer says that the broker has the message, and the rest comes later.
    fn confirmed(server: &ServerStages, known: &Generated) -> Option<Way> {
        let each = |counted: &Buckets| 1e3 * counted.sum / known.ended.max(1.0);
        let inside_ms = server.inside_ms(known.ended);
        let mut stages = Vec::new();
        if server.confirm.count() > 0.0 {
            stages.push(("log", each(&server.confirm)));
        } else if server.total.count() > 0.0 && server.consumed == 0.0 {
            if let Some(followed) = &known.followed {
                let queue = each(&server.wait);
                return Way::of_followed(
                    known,
                    known.confirmed_ms,
                    followed,
                    queue,
                    ["answer", "to the client"],
                );
            }
            stages.extend(server.stored(each));
        } else if inside_ms.is_none() {
            return None;
        }
        let client = ("client", known.waited_ms);
        match inside_ms {
            Some(inside_ms) => Way::of_requests(known.confirmed_ms, client, stages, inside_ms),
            None => Way::of(known.confirmed_ms, [client].into_iter().chain(stages).collect(), known.empty_ms),
        }
    }

    fn delivered(server: &ServerStages, known: &Generated, whole_ms: f64) -> Option<Way> {
        let mean = |counted: &Buckets| 1e3 * counted.mean();
        if server.total.count() == 0.0 || server.delivery.count() == 0.0 {
            return None;
        }
        if let Some(followed) = known.followed_to_subscribers.as_ref().filter(|_| server.way.count() == 0.0) {
            let names = ["delivery", "to subscribers"];
            return Way::of_followed(known, whole_ms, followed, mean(&server.wait), names);
        }
        let mut stages = Vec::new();
        stages.extend(known.is_delivery_intended.then_some(("client", known.waited_ms)));
        if server.way.count() > 0.0 {
            stages.push(("log", (mean(&server.way) - mean(&server.total)).max(0.0)));
        }
        let [queue, commit, _] = server.stored(mean);
        // Fan-out begins where a batch is durable.
        stages.extend([queue, commit, ("delivery", mean(&server.fan_out) + mean(&server.delivery))]);
        Way::of(whole_ms, stages, known.empty_ms)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Of several runs the ways whose stages are farthest from the whole.
    pub(crate) fn worst(all: impl IntoIterator<Item = Self>) -> Self {
        let worse = |one: Option<Way>, other: Option<Way>| {
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
    pub(crate) fn ways(&self) -> impl Iterator<Item = (&'static str, &Way)> {
        let confirmed = self.confirmed.iter().map(|way| ("until the answer", way));
        confirmed.chain(self.delivered.iter().map(|way| ("until subscribers had it", way)))
    }
}

impl Way {
    /// `None` where nothing was measured.
    fn of(whole_ms: f64, stages: Vec<(&'static str, f64)>, empty_ms: f64) -> Option<Self> {
        if whole_ms <= 0.0 {
            return None;
        }
        let measured: f64 = stages.iter().map(|(_, ms)| ms).sum();
        let network = ("network", empty_ms.min(whole_ms - measured).max(0.0));
        Some(Self::with(whole_ms, stages.into_iter().chain([network])))
    }

    /// Of requests that were `inside_ms` in the server, and there in `stages`.
    fn of_requests(
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

    /// Of all messages, by those that were followed. Where these differ from all by more than chance explains, the difference
    /// is in no stage. How long the average message was in the server's queue, it knows itself: timelines are of batches.
    fn of_followed(
        known: &Generated,
        whole_ms: f64,
        followed: &Means,
        queue_ms: f64,
        [told, read]: [&str; 2],
    ) -> Option<Self> {
        let Means { steps, whole, .. } = *followed;
        if whole_ms <= 0.0 || whole <= 0.0 {
            return None;
        }
        let is_chance = (whole_ms - whole).abs() <= CHANCE * followed.error;
        let scale = if is_chance { whole_ms / whole } else { 1.0 };
        let [client, until_taken, commit, until_told, until_read] = steps.map(|ms| ms * scale);
        let queue = queue_ms.min(until_taken);
        let to_server = until_taken - queue;
        let inner = [("queue", queue), ("commit", commit), (told, until_told)];
        let mut stages = vec![("client", client)];
        if known.is_one_clock {
            stages.push((TO_SERVER, to_server));
            stages.extend(inner);
            stages.push((read, until_read));
        } else {
            // By two clocks, only both ways together are known.
            stages.extend(inner);
            stages.push((BOTH_WAYS, to_server + until_read));
        }
        Some(Self { followed: Some(followed.count), ..Self::with(whole_ms, stages.into_iter()) })
    }

    fn with<'a>(whole_ms: f64, stages: impl Iterator<Item = (&'a str, f64)>) -> Self {
        let stage = |(name, ms): (&str, f64)| Stage { name: name.to_owned(), ms, share: ms / whole_ms };
        let stages: Vec<Stage> = stages.map(stage).collect();
        // Without the rounding of what is nothing.
        let unaccounted =
            1e-9 * (1e9 * (1.0 - stages.iter().map(|stage| stage.share).sum::<f64>())).round() + 0.0;
        let overlaps = unaccounted < -UNACCOUNTED_MAX;
        Self { whole_ms, stages, unaccounted, overlaps, followed: None, mark: mark(unaccounted) }
    }

    /// The stages, what is in none of them, and the whole, each with its mean and its share.
    fn rows(&self) -> impl Iterator<Item = (&str, f64, f64)> {
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

impl std::fmt::Display for Way {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Stage { name, ms, share } in &self.stages {
            write!(out, "{name} {} ({:.0} %), ", figure(*ms), 100.0 * share)?;
        }
        write!(out, "{UNACCOUNTED} {:.1} %", 100.0 * self.unaccounted)?;
        self.followed.map_or(Ok(()), |count| write!(out, "; by {count} messages that were followed"))
    }
}

const TO_SERVER: &str = "to the server";
const BOTH_WAYS: &str = "both ways";
const UNACCOUNTED: &str = "not accounted for";
const WHOLE: &str = "whole";

/// Several ways side by side, each with what it is of: a column for each stage that one of them has.
pub(crate) fn table(ways: &[(String, Way)]) -> Table {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics of a server; each histogram has its sum in seconds and its count.
    fn metrics(histograms: &[(&str, f64, u32)]) -> String {
        let one = |(name, sum, count): &(&str, f64, u32)| {
            format!("hubbub_{name}_seconds_bucket{{le=\"+Inf\"}} {count}\nhubbub_{name}_seconds_sum {sum}\n")
        };
        histograms.iter().map(one).collect()
    }

    fn shown(way: &Way) -> Vec<(&str, f64)> {
        way.rows().map(|(name, ms, _)| (name, (ms * 1e6).round() / 1e6)).collect()
    }

    const DIRECT: [(&str, f64, u32); 5] = [
        ("pipeline_wait", 0.2, 100),
        ("pipeline_answer", 0.01, 100),
        ("pipeline_total", 0.6, 100),
        ("pipeline_fan_out", 0.004, 2),
        ("delivery", 0.003, 3),
    ];

    /// A hundred messages, 7 ms until the answer, 10 ms until subscribers had them.
    fn known() -> Generated {
        Generated {
            ended: 100.0,
            confirmed_ms: 7.0,
            delivered_ms: Some(10.0),
            waited_ms: 0.5,
            is_delivery_intended: true,
            empty_ms: 0.3,
            followed: None,
            followed_to_subscribers: None,
            is_one_clock: true,
        }
    }

    #[test]
    fn stages_and_what_is_left_are_the_whole() {
        let before = metrics(&DIRECT.map(|(name, _, _)| (name, 5.0, 50)));
        let after = metrics(&DIRECT.map(|(name, sum, count)| (name, sum + 5.0, count + 50)));
        let stages = Stages::of(&ServerStages::between(&before, &after), &known());
        let confirmed = stages.confirmed.as_ref().unwrap();
        let wanted = [("client", 0.5), ("queue", 2.0), ("commit", 3.9), ("answer", 0.1), ("network", 0.3)];
        assert_eq!(shown(confirmed), [&wanted[..], &[(UNACCOUNTED, 0.2), (WHOLE, 7.0)]].concat());
        let delivered = stages.delivered.as_ref().unwrap();
        let wanted = [("client", 0.5), ("queue", 2.0), ("commit", 3.9), ("delivery", 3.0), ("network", 0.3)];
        assert_eq!(shown(delivered), [&wanted[..], &[(UNACCOUNTED, 0.3), (WHOLE, 10.0)]].concat());
        for (_, way) in stages.ways() {
            let shares: f64 = way.rows().map(|(_, _, share)| share).sum();
            assert!((shares - 2.0).abs() < 1e-9 && way.mark().is_none(), "all of it, and the whole: {way:?}");
        }
        let json = serde_json::to_value(&stages).unwrap();
        assert_eq!(serde_json::from_value::<Stages>(json).unwrap(), stages);
        let said = confirmed.to_string();
        assert!(
            said.starts_with("client 0.500 (7 %), queue 2.000 (29 %), ") && said.ends_with("2.9 %"),
            "{said}"
        );
        assert!(confirmed.table().markdown().contains("| commit | 3.900 | 55.7 % |"));
        let both = [("a".to_owned(), confirmed.clone()), ("b".to_owned(), delivered.clone())];
        let table = table(&both).csv();
        assert!(
            table.starts_with("ms,client,queue,commit,answer,network,not accounted for,whole,delivery\n")
        );
        assert!(table.ends_with("\nb,0.500,2.000,3.900,,0.300,0.300,10.000,3.000\n"), "{table}");
    }

    #[test]
    fn what_was_followed_leaves_nothing_out() {
        let server = ServerStages::between("", &metrics(&DIRECT));
        let means = Means { count: 300, steps: [0.5, 3.0, 1.0, 0.5, 1.0], whole: 6.0, error: 0.4 };
        let way = |followed: Means, is_one_clock| {
            let known = Generated {
                confirmed_ms: 6.6,
                delivered_ms: Some(6.0),
                followed: Some(followed),
                followed_to_subscribers: Some(followed),
                is_one_clock,
                ..known()
            };
            Stages::of(&server, &known)
        };
        let stages = way(means, true);
        let confirmed = stages.confirmed.as_ref().unwrap();
        let wanted = [
            ("client", 0.55),
            (TO_SERVER, 1.3),
            ("queue", 2.0),
            ("commit", 1.1),
            ("answer", 0.55),
            ("to the client", 1.1),
            (UNACCOUNTED, 0.0),
            (WHOLE, 6.6),
        ];
        assert_eq!(shown(confirmed), wanted);
        assert!(
            confirmed.mark().is_none()
                && confirmed.to_string().ends_with("; by 300 messages that were followed")
        );
        let wanted =
            [(TO_SERVER, 1.0), ("queue", 2.0), ("commit", 1.0), ("delivery", 0.5), ("to subscribers", 1.0)];
        assert_eq!(shown(stages.delivered.as_ref().unwrap())[1..6], wanted);
        // Those followed were faster than all, and that was not chance.
        let others = way(Means { error: 0.1, ..means }, true).confirmed.unwrap();
        assert_eq!(others.mark().as_deref(), Some("9 % not accounted for"));
        let apart = way(means, false);
        assert_eq!(shown(apart.confirmed.as_ref().unwrap())[4], ("both ways", 2.4));
        assert_eq!(shown(apart.delivered.as_ref().unwrap())[4], ("both ways", 2.0));
    }

    #[test]
    fn stages_that_leave_time_out_are_marked() {
        let server = ServerStages::between("", &metrics(&DIRECT));
        let at = |confirmed_ms| Stages::of(&server, &Generated { confirmed_ms, ..known() });
        // The stages are 6.8 ms, the network included.
        let [whole, most] = [7.1, 7.75].map(at);
        assert_eq!((whole.marks().next(), most.confirmed.as_ref().unwrap().overlaps), (None, false));
        let said = ["until the answer, 12 % not accounted for"];
        assert_eq!(most.marks().collect::<Vec<_>>(), said);
        let json = serde_json::to_value(&most).unwrap();
        assert_eq!(json["confirmed"]["mark"], "12 % not accounted for");
        assert!(json["delivered"].get("mark").is_none(), "{json}");
        let mut older = json.clone();
        older["confirmed"].as_object_mut().unwrap().remove("mark");
        let older: Stages = serde_json::from_value(older).unwrap();
        assert_eq!(older.marks().collect::<Vec<_>>(), said, "programs that wrote no mark");
        let worst = Stages::worst([whole, most, Stages::default()]);
        assert_eq!(worst.marks().collect::<Vec<_>>(), said, "the worst of several runs");
        let overlapping = Stages::worst([at(7.75), at(5.0)]);
        assert!(overlapping.marks().next().is_some_and(|mark| mark.contains("130 %")), "{overlapping:?}");
    }

    #[test]
    fn behind_a_broker_its_answer_counts() {
        let broker = [("log_confirm", 0.4, 100), ("log_way", 0.9, 100)];
        let text = metrics(&[&DIRECT[..], &broker[..]].concat()) + "hubbub_log_messages_consumed_total 100\n";
        let stages = Stages::of(&ServerStages::between("", &text), &known());
        let wanted = [("client", 0.5), ("log", 4.0), ("network", 0.3), (UNACCOUNTED, 2.2), (WHOLE, 7.0)];
        assert_eq!(shown(&stages.confirmed.unwrap()), wanted);
        // From publishing to the store are 9 ms, of which the pipeline has 6.
        let delivered = stages.delivered.unwrap();
        assert_eq!(shown(&delivered)[1], ("log", 3.0));
        // Published by others, so that the server confirmed nothing.
        let text = metrics(&DIRECT) + "hubbub_log_messages_consumed_total 100\n";
        assert_eq!(Stages::of(&ServerStages::between("", &text), &known()).confirmed, None);
    }

    #[test]
    fn requests_that_servers_measured_leave_only_both_ways() {
        let way = |others: &[(&str, f64, u32)]| {
            let text = metrics(&[&DIRECT[..], others].concat());
            Stages::of(&ServerStages::between("", &text), &known()).confirmed.unwrap()
        };
        // 6.2 ms each, over both protocols, and another one that somebody else asked.
        let requests = [("http_request", 0.4, 61), ("line_command", 0.2262, 40)];
        let wanted = [
            ("client", 0.5),
            ("handling", 0.2),
            ("queue", 2.0),
            ("commit", 3.9),
            ("answer", 0.1),
            (BOTH_WAYS, 0.3),
            (UNACCOUNTED, 0.0),
            (WHOLE, 7.0),
        ];
        assert_eq!(shown(&way(&requests)), wanted);
        // Mostly others', or not all: these say nothing of ours.
        for count in [97, 103] {
            let others = way(&[("http_request", 0.62, count)]);
            assert_eq!(shown(&others)[4], ("network", 0.3), "{others:?}");
        }
        // Stages that overlap are not hidden.
        let overlapping = way(&[("http_request", 0.5, 100)]);
        assert_eq!(shown(&overlapping)[5..7], [(BOTH_WAYS, 1.5), (UNACCOUNTED, -1.0)]);
        assert!(overlapping.mark().is_some());
        // Reads need no batch.
        let reads = ServerStages::between("", &metrics(&[("http_request", 0.62, 100)]));
        let reads = Stages::of(&reads, &known()).confirmed.unwrap();
        assert_eq!(shown(&reads)[..3], [("client", 0.5), ("handling", 6.2), (BOTH_WAYS, 0.3)]);
    }

    #[test]
    fn stages_longer_than_the_whole_are_marked() {
        let server = ServerStages::between("", &metrics(&DIRECT));
        let way = |confirmed_ms| Stages::of(&server, &Generated { confirmed_ms, ..known() }).confirmed;
        let way_of = |confirmed_ms| way(confirmed_ms).unwrap();
        // 6.5 ms were measured.
        assert_eq!((way_of(6.4).mark(), way_of(6.4).overlaps), (None, false));
        assert!(way_of(6.4).unaccounted < 0.0);
        assert_eq!(
            way_of(5.0).mark().as_deref(),
            Some("the stages add up to 130 % of the whole: they overlap")
        );
        assert_eq!(way(0.0), None);
        assert_eq!(Stages::of(&ServerStages::default(), &known()), Stages::default());
        let restarted = ServerStages::between(&metrics(&[("pipeline_total", 9.0, 900)]), &metrics(&DIRECT));
        assert_eq!(Stages::of(&restarted, &known()), Stages::default(), "who began anew says nothing");
    }
}
