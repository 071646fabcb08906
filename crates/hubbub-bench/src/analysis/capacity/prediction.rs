//! How many nodes and partitions a load needs, and what is full first, by what a message costs each part.
//!
//! The share of a resource that is used is rate × cost / what there is of it. Costs fall with the size of batches, which
//! grows with the rate: a node commits one batch after another, so while one of n operations takes t(n), the next one
//! collects rate × t(n). Queueing is not modelled; a share of 70 % or less keeps it short.

use serde::{Deserialize, Serialize};

use super::costs::{BatchTime, Costs, EMBEDDED, Part, Per, SERVER, Share};

/// What is to be carried.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Demand {
    /// Messages in a second.
    pub(crate) rate: f64,
    pub(crate) rooms: f64,
    /// Subscribers of each room, at nodes as the load balancer has it.
    pub(crate) listeners: f64,
    /// Of a message's text.
    pub(crate) bytes: f64,
    /// Messages in each request.
    pub(crate) per_request: f64,
}

/// What there is of everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hardware {
    pub(crate) node_cores: f64,
    pub(crate) database_cores: f64,
    pub(crate) broker_cores: f64,
    /// Of each node, in megabits a second.
    pub(crate) network_mbit: f64,
    /// Cores that all nodes, database, broker and load generator share.
    pub(crate) shared_cores: Option<f64>,
    /// The share of anything that may be used.
    pub(crate) use_max: f64,
}

/// Something that can be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Resource {
    NodeProcessors,
    /// A node commits one batch after another.
    Commits,
    Database,
    Broker,
    Network,
    /// Connections to the database.
    Pool,
    /// The busiest.
    Disk,
    /// Where one machine has everything.
    Machine,
}

impl Resource {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NodeProcessors => "the processors of a node",
            Self::Commits => "the commits of a node, one after another",
            Self::Database => "the processors of the database",
            Self::Broker => "the processors of the broker",
            Self::Network => "the network of a node",
            Self::Pool => "the connections to the database",
            Self::Disk => "the disk",
            Self::Machine => "the processors of the machine that has everything",
        }
    }

    /// Whether a message costs less of it the more it is used: then more of them share a batch, and a sync.
    pub(crate) const fn is_shared_by_batches(self) -> bool {
        matches!(self, Self::Commits | Self::Disk)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) resource: Resource,
    pub(crate) share: f64,
}

/// The share of anything that may be used so that queues stay short.
pub(crate) const USE_MAX: f64 = 0.7;

/// Bytes of a message's JSON besides its text: 216 in the measurements of `docs/benchmarks.md`.
const FRAME_BYTES: f64 = 216.0;
/// Operations of a batch, at most: of the embedded store, and of a database.
const BATCH_EMBEDDED: f64 = 2_000.0;
const BATCH_DATABASE: f64 = 5_000.0;
/// More nodes are not looked at.
const NODES_MAX: u32 = 256;
/// Between which rates a highest one is looked for, and by which factor they grow.
const RATE_MIN: f64 = 1e-3;
const RATE_MAX: f64 = 1e12;
const RATE_STEP: f64 = 1.02;
/// Partitions for each node, at least: with 4, a node that has one more than the others has a quarter more to do.
const PARTITIONS_EACH: u32 = 4;
/// What a topic has when nothing is said (`kafka.partitions`).
const PARTITIONS_USUAL: u32 = 12;

/// What is said of costs without those of their database.
const NO_DATABASE: &str = "the measurements do not have the processors of the database, which ran elsewhere or was not seen: here it \
                           costs nothing";

pub(crate) struct Capacity<'c> {
    pub(crate) costs: &'c Costs,
    pub(crate) demand: &'c Demand,
    pub(crate) hardware: &'c Hardware,
}

impl Capacity<'_> {
    pub(crate) fn is_embedded(&self) -> bool {
        self.costs.origin.store == EMBEDDED
    }

    fn batch_max(&self) -> f64 {
        if self.is_embedded() { BATCH_EMBEDDED } else { BATCH_DATABASE }
    }

    /// What goes with a message at this rate over so many nodes.
    pub(crate) fn share(&self, nodes: u32, rate: f64) -> Share {
        let Demand { listeners, bytes, per_request, .. } = *self.demand;
        Share {
            requests: 1.0 / per_request,
            kilobytes: bytes / 1e3,
            batches: 1.0 / batch(&self.costs.batch_time, rate / f64::from(nodes), self.batch_max()),
            bus_copies: bus_copies(f64::from(nodes), listeners),
            deliveries: listeners,
            node_seconds: f64::from(nodes) / rate,
        }
    }

    /// What is used of everything there is, the fullest first.
    pub(crate) fn used(&self, nodes: u32, rate: f64) -> Vec<Use> {
        let (share, count) = (self.share(nodes, rate), f64::from(nodes));
        let Hardware { node_cores, database_cores, broker_cores, network_mbit, shared_cores, .. } =
            *self.hardware;
        let cores =
            |parts: &[Part]| rate * parts.iter().map(|part| self.costs.us(*part, &share)).sum::<f64>() / 1e6;
        let BatchTime { fixed, operation } = self.costs.batch_time;
        let commits = rate / count * (operation.value + fixed.value / self.batch_max()) / 1e6;
        let each = self.demand.bytes + FRAME_BYTES;
        let bits = rate * each * 8.0 * (1.0 + share.deliveries + share.bus_copies) / count;
        let mut all = vec![
            Use { resource: Resource::Commits, share: commits },
            Use { resource: Resource::Network, share: bits / (network_mbit * 1e6) },
        ];
        match shared_cores {
            Some(shared) => all.push(Use { resource: Resource::Machine, share: cores(&Part::ALL) / shared }),
            None => all.extend([
                Use { resource: Resource::NodeProcessors, share: cores(&SERVER) / count / node_cores },
                Use { resource: Resource::Database, share: cores(&[Part::Database]) / database_cores },
                Use { resource: Resource::Broker, share: cores(&[Part::Broker]) / broker_cores },
            ]),
        }
        all.retain(|one| one.share > 0.0);
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }

    fn is_enough(&self, nodes: u32, rate: f64) -> bool {
        self.used(nodes, rate).iter().all(|one| one.share <= self.hardware.use_max)
    }

    /// As many nodes as are looked at.
    pub(crate) fn nodes_max(&self) -> u32 {
        if self.is_embedded() { 1 } else { NODES_MAX }
    }

    /// Fewest nodes for the demand; `None` where no number of them is enough.
    pub(crate) fn nodes(&self) -> Option<u32> {
        (1..=self.nodes_max()).find(|nodes| self.is_enough(*nodes, self.demand.rate))
    }

    /// Of how many nodes the figures are, where so many are needed.
    pub(crate) fn shown(&self, nodes: Option<u32>) -> u32 {
        nodes.unwrap_or_else(|| self.nodes_max())
    }

    /// The highest rate of so many nodes, and what is full then.
    ///
    /// It is looked for from above: at low rates a batch holds one message, so that there more can be used than at a higher rate,
    /// at which many share it.
    pub(crate) fn most(&self, nodes: u32) -> (f64, Option<Resource>) {
        let BatchTime { fixed, operation } = self.costs.batch_time;
        let us = operation.value + fixed.value / self.batch_max();
        let of_commits = f64::from(nodes) * self.hardware.use_max * 1e6 / us;
        let mut low = of_commits.min(RATE_MAX);
        let mut high = low;
        while low > 0.0 && !self.is_enough(nodes, low) {
            high = low;
            low = if low < RATE_MIN { 0.0 } else { low / RATE_STEP };
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.is_enough(nodes, middle) { low = middle } else { high = middle }
        }
        (low, self.used(nodes, high).first().map(|one| one.resource))
    }

    /// Partitions of the log, where there is one that has them: the fewest, and a number to grow into.
    pub(crate) fn partitions(&self, nodes: u32) -> Option<(u32, u32)> {
        let has = self.costs.origin.log == "kafka";
        has.then(|| (nodes, (PARTITIONS_EACH * nodes).max(PARTITIONS_USUAL)))
    }

    /// What a reader of the figures should know.
    pub(crate) fn notes(&self, nodes: u32) -> Vec<String> {
        let Demand { rate, rooms, listeners, per_request, .. } = *self.demand;
        let mut notes = Vec::new();
        if rooms < f64::from(nodes) && !self.is_embedded() {
            notes.push(format!(
                "a room is stored by one node at a time: with {rooms} rooms, at most {rooms} of {nodes} nodes store"
            ));
        }
        let BatchTime { fixed, operation } = self.costs.batch_time;
        let of_room = rate / rooms * (operation.value + fixed.value / self.batch_max()) / 1e6;
        if of_room > self.hardware.use_max && nodes > 1 {
            notes.push(format!(
                "one room alone keeps a node's commits busy for {:.0} % of the time: more nodes do not help it",
                100.0 * of_room
            ));
        }
        if self.costs.lacks_database() {
            notes.push(NO_DATABASE.to_owned());
        }
        let missing = |per: &Per, is_asked: bool| is_asked && !self.costs.told_apart.contains(per);
        for (per, is_asked, what) in [
            (Per::Delivery, listeners > 0.0, "deliveries"),
            (Per::BusCopy, listeners > 0.0 && nodes > 1, "copies between nodes"),
            (Per::Request, (per_request - 1.0).abs() > f64::EPSILON, "requests"),
        ] {
            if missing(&per, is_asked) {
                notes.push(format!("{what} were not varied in the measurements: here they cost nothing"));
            }
        }
        notes
    }
}

/// Operations of a batch: as many as come while one is committed.
fn batch(BatchTime { fixed, operation }: &BatchTime, rate: f64, most: f64) -> f64 {
    let busy = rate * operation.value / 1e6;
    if busy >= 1.0 {
        return most;
    }
    (rate * fixed.value / 1e6 / (1.0 - busy)).clamp(1.0, most)
}

/// Nodes that get a message from the one that stored it, where `listeners` of the room are at any node each.
fn bus_copies(nodes: f64, listeners: f64) -> f64 {
    let with_some = nodes * (1.0 - (1.0 - 1.0 / nodes).powf(listeners));
    with_some * (nodes - 1.0) / nodes
}

#[cfg(test)]
mod tests {
    use super::super::costs::Seen;
    use super::super::costs::tests::{origin, runs};
    use super::*;

    fn demand(rate: f64) -> Demand {
        Demand { rate, rooms: 1_000.0, listeners: 10.0, bytes: 120.0, per_request: 1.0 }
    }

    fn hardware() -> Hardware {
        Hardware {
            node_cores: 4.0,
            database_cores: 16.0,
            broker_cores: 8.0,
            network_mbit: 10_000.0,
            shared_cores: None,
            use_max: USE_MAX,
        }
    }

    #[test]
    fn shares_are_rate_times_cost() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        let (demand, hardware) = (demand(10_000.0), hardware());
        let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
        // While n operations take 800 µs + 10 µs each, 10,000/s bring n = 80 / (1 − 0.1).
        let share = capacity.share(1, 10_000.0);
        assert!((1.0 / share.batches - 800.0 * 1e-2 / 0.9).abs() < 1e-3, "{share:?}");
        // 3 + 9 + 0.12 + 20 / n + 10 × 0.5 + 5,000 / 10,000, 2, and 1 + 40 / n.
        let node =
            capacity.used(1, 10_000.0).into_iter().find(|one| one.resource == Resource::NodeProcessors);
        let wanted = 10_000.0 * (17.62 + 3.0 + 60.0 * share.batches) / 1e6 / 4.0;
        assert!((node.unwrap().share - wanted).abs() < 1e-6, "{wanted}");
        let commits = capacity.used(1, 10_000.0).into_iter().find(|one| one.resource == Resource::Commits);
        assert!((commits.unwrap().share - 0.1016).abs() < 1e-6);
    }

    #[test]
    fn copies_between_nodes_depend_on_where_listeners_are() {
        assert_eq!(bus_copies(1.0, 10.0), 0.0);
        assert_eq!(bus_copies(4.0, 0.0), 0.0);
        assert!((bus_copies(2.0, 1.0) - 0.5).abs() < 1e-9, "at the node that stored it, or at the other");
        assert!((bus_copies(4.0, 1e6) - 3.0).abs() < 1e-6, "everywhere");
    }

    #[test]
    fn as_many_nodes_as_are_needed_and_no_more() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        let hardware = hardware();
        let (mut last, mut first_full) = (0, Vec::new());
        for rate in [1e3, 1e5, 2e5, 3e5, 4e5] {
            let demand = demand(rate);
            let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
            let nodes = capacity.nodes();
            let Some(nodes) = nodes else {
                assert!(capacity.used(NODES_MAX, rate)[0].share > 0.7);
                first_full.push(capacity.used(NODES_MAX, rate)[0].resource);
                continue;
            };
            assert!(nodes >= last && capacity.most(nodes).0 >= rate, "{rate}: {nodes}");
            assert!(nodes == 1 || capacity.most(nodes - 1).0 < rate, "{rate}: {nodes} is too many");
            let (fewest, roomy) = capacity.partitions(nodes).unwrap();
            assert!(fewest == nodes && roomy >= 4 * nodes && roomy >= 12, "{fewest} {roomy}");
            last = nodes;
        }
        assert!(last > 1, "one node is not enough for all of these");
        assert!(
            !first_full.is_empty(),
            "nodes cannot make up for a broker that gets busier with each of them"
        );
        assert!(
            first_full.iter().all(|full| [Resource::Broker, Resource::Database].contains(full)),
            "{first_full:?}"
        );
    }

    /// At low rates a batch holds one message, whose costs many share at higher ones.
    #[test]
    fn the_highest_rate_is_found_behind_lower_ones_that_are_too_much() {
        // Of each run, the broker takes 2,000 µs for a batch more.
        let dear = |mut run: Seen| {
            *run.cpu_us.get_mut("broker").unwrap() += 2_000.0 * run.share.batches;
            run
        };
        let dear: Vec<_> = runs().into_iter().map(dear).collect();
        let costs = Costs::fit(origin("postgres", "kafka"), &dear).unwrap();
        let (demand, hardware) = (Demand { listeners: 0.0, ..demand(150_000.0) }, hardware());
        let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
        assert!(!capacity.is_enough(3, 5_000.0) && capacity.is_enough(3, 150_000.0), "what this is about");
        let (most, full) = capacity.most(3);
        assert!(most > 150_000.0 && capacity.is_enough(3, most), "{most}");
        assert!(full.is_some() && !capacity.is_enough(3, 1.001 * most), "{most}");
        let idle = Hardware { database_cores: 1e-3, ..hardware };
        let capacity = Capacity { costs: &costs, demand: &demand, hardware: &idle };
        assert_eq!(capacity.most(3), (0.0, Some(Resource::Database)), "polls fill it");
    }

    #[test]
    fn everything_on_one_machine_shares_its_cores() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        let (demand, hardware) =
            (demand(1e3), Hardware { shared_cores: Some(4.0), use_max: 1.0, ..hardware() });
        let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
        let [one, four] = [1, 4].map(|nodes| capacity.most(nodes));
        assert_eq!((one.1, four.1), (Some(Resource::Machine), Some(Resource::Machine)));
        assert!(four.0 < one.0, "more nodes only have copies to send: {one:?} {four:?}");
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let without = |run: Seen| Seen { share: Share { deliveries: 0.0, ..run.share }, ..run };
        let alone: Vec<_> = runs().into_iter().map(without).collect();
        let costs = Costs::fit(origin("embedded", "direct"), &alone).unwrap();
        let (demand, hardware) = (demand(1e3), hardware());
        let capacity = Capacity { costs: &costs, demand: &demand, hardware: &hardware };
        let notes = capacity.notes(1);
        assert!(notes.len() == 1 && notes[0].starts_with("deliveries were not varied"), "{notes:?}");
        assert_eq!((capacity.partitions(1), capacity.nodes()), (None, Some(1)));
        let hot = Demand { rate: 1e6, rooms: 1.0, ..demand.clone() };
        let capacity = Capacity { costs: &costs, demand: &hot, hardware: &hardware };
        assert_eq!(capacity.nodes(), None, "an embedded store is one node's");
    }

    #[test]
    fn a_database_that_nobody_saw_is_said() {
        let unseen = |mut run: Seen| {
            run.cpu_us.remove(&Part::Database.name());
            run
        };
        let unseen: Vec<_> = runs().into_iter().map(unseen).collect();
        let (demand, hardware) = (demand(1e3), hardware());
        for (store, runs, is_said) in
            [("scylla", &unseen, true), ("scylla", &runs(), false), ("embedded", &unseen, false)]
        {
            let costs = Costs::fit(origin(store, "kafka"), runs).unwrap();
            let notes = Capacity { costs: &costs, demand: &demand, hardware: &hardware }.notes(1);
            assert_eq!(notes.iter().any(|note| note == NO_DATABASE), is_said, "{store}: {notes:?}");
        }
    }
}
