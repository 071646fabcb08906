//! A prediction as text.

use std::fmt::Write as _;

use super::Prediction;
use super::compare::{ComparedPoint, Pair};
use super::costs::{Part, Per, SERVER, Share};
use super::prediction::{Capacity, Use};
use crate::report::grouped;

/// Stages of a message's way: what they are called, and which costs make them.
const STAGES: [(&str, &[Part], &[Per]); 9] = [
    ("accept", &[Part::Workers], &[Per::Message, Per::Request, Per::Kilobyte]),
    ("log: the node", &[Part::Log], &[Per::Message, Per::Kilobyte, Per::Batch]),
    ("log: the broker", &[Part::Broker], &[Per::Message, Per::Kilobyte, Per::Batch]),
    ("commit: the node", &[Part::Commit], &Per::ALL),
    ("commit: its share of a batch", &[Part::Workers], &[Per::Batch]),
    ("store: the database", &[Part::Database], &[Per::Message, Per::Kilobyte, Per::Batch]),
    (
        "bus: all nodes, broker and database",
        &[Part::Workers, Part::Log, Part::Broker, Part::Database],
        &[Per::BusCopy],
    ),
    ("delivery: all listeners", &[Part::Workers], &[Per::Delivery]),
    (
        "polls and heartbeats of all nodes",
        &[Part::Workers, Part::Log, Part::Broker, Part::Database],
        &[Per::NodeSecond],
    ),
];

impl Prediction {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        let capacity = Capacity { costs: &self.costs, demand: &self.demand, hardware: &self.hardware };
        let origin = &self.costs.origin;
        let whose = if self.is_built_in { "part of this program; yours differ" } else { "as given" };
        writeln!(
            out,
            "costs of {} behind {} ({whose}), from {} runs on",
            origin.store, origin.log, self.costs.runs
        )?;
        writeln!(out, "  {}, {}", origin.machine, origin.measured)?;
        let demand = &self.demand;
        writeln!(
            out,
            "load: {}/s into {} rooms, texts of {} bytes, {} in a request, {} listeners of each room: {} deliveries/s",
            grouped(demand.rate),
            grouped(demand.rooms),
            grouped(demand.bytes),
            demand.per_request,
            demand.listeners,
            grouped(demand.rate * demand.listeners)
        )?;
        self.write_need(out)?;
        let shown = capacity.shown(self.nodes);
        self.write_stages(&capacity.share(shown, demand.rate), out)?;
        writeln!(out, "  {:<8}{:>16}   first full", "nodes", "most/s")?;
        for growth in &self.growth {
            let full = growth.first_full.map_or("nothing", |resource| resource.name());
            writeln!(out, "  {:<8}{:>16}   {full}", growth.nodes, grouped(growth.most_per_second))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "  note: {note}"))?;
        self.write_compared(out)
    }

    fn write_need(&self, out: &mut String) -> std::fmt::Result {
        let percent = 100.0 * self.hardware.use_max;
        match self.nodes {
            Some(nodes) => {
                writeln!(out, "nodes: {nodes}, so that nothing is used for more than {percent:.0} %")?
            }
            None => {
                let full = self.used.first().map_or("nothing", |one| one.resource.name());
                writeln!(
                    out,
                    "nodes: no number of them is enough: {full} would be used for more than {percent:.0} %"
                )?;
            }
        }
        if let Some((fewest, roomy)) = self.partitions {
            writeln!(out, "partitions: {roomy} ({fewest} at least; their number can never change)")?;
        }
        for Use { resource, share } in &self.used {
            writeln!(out, "  {:>5.1} %  {}", 100.0 * share, resource.name())?;
        }
        if let Some(Use { resource, share }) = self.without_one {
            writeln!(out, "  {:>5.1} %  {}, when one node is away", 100.0 * share, resource.name())?;
        }
        Ok(())
    }

    fn write_stages(&self, share: &Share, out: &mut String) -> std::fmt::Result {
        let operations = 1.0 / share.batches;
        writeln!(out, "processor time of a message in µs, in batches of {operations:.0}:")?;
        for (name, parts, pers) in STAGES {
            let us: f64 = parts.iter().map(|part| self.costs.us_for(*part, share, pers)).sum();
            if us > 0.0 {
                writeln!(out, "  {us:>9.2}  {name}")?;
            }
        }
        let all = SERVER.into_iter().chain([Part::Database, Part::Broker]);
        writeln!(out, "  {:>9.2}  all", all.map(|part| self.costs.us(part, share)).sum::<f64>())
    }

    fn write_compared(&self, out: &mut String) -> std::fmt::Result {
        let Some(compared) = &self.compared else { return Ok(()) };
        writeln!(out, "measured and model, µs of processor time for a message (error of the model):")?;
        for point in &compared.points {
            let ComparedPoint { point, per_second, server, database, broker, all, .. } = point;
            write!(out, "  {point}, {}/s:", grouped(*per_second))?;
            for (name, pair) in [("nodes", server), ("database", database), ("broker", broker), ("all", all)]
            {
                if pair.measured > 0.0 {
                    let Pair { measured, model } = pair;
                    write!(out, " {name} {measured:.1} and {model:.1} ({:+.0} %);", 100.0 * pair.error())?;
                }
            }
            writeln!(out)?;
        }
        if compared.lacks_database {
            writeln!(
                out,
                "  note: not all of them have the processors of the database: there it seems to cost nothing"
            )?;
        }
        writeln!(out, "  mean error of all together {:.0} %", 100.0 * compared.mean_error)
    }
}
