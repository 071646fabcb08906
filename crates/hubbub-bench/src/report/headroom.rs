//! What was in use at the measured rate, the rate at which the first of it would be full, and the one at which to add
//! more. It takes for granted that the cost of a message stays the same: `bench model` knows how costs fall as batches grow.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use super::{Table, grouped};
use crate::analysis::capacity::prediction::{Resource, USE_MAX, Use};
use crate::analysis::verdict::Figures;
use crate::host::machine::CpuUse;
use crate::host::sample::series::average;
use crate::host::sample::{DISK_BUSY, SystemSample};

/// The same of the connections to the database that are in use.
const POOL_ACTIVE: &str = "pool active";

/// Rates are in each second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Headroom {
    per_second: f64,
    /// What was in use, the fullest first.
    used: Vec<Use>,
    /// When the fullest is full.
    maximum_per_second: f64,
    /// How much more that is than what was measured.
    headroom_per_second: f64,
    /// When the fullest is as full as it may be before queues grow.
    scale_at_per_second: f64,
}

impl Headroom {
    /// `None` where it is not known which processors the server has, or nothing was done.
    pub(crate) fn of(
        seen: &Figures,
        cpu: Option<&CpuUse>,
        samples: &[SystemSample],
        per_second: f64,
    ) -> Option<Self> {
        let server = seen.server.as_ref()?;
        let database = seen.database.as_ref();
        // A pool opens connections as they are wanted: how many there may be is known where some waited for one.
        let pool = seen.pool.as_ref().filter(|pool| pool.waiting >= 1.0);
        // What others took is not used for the load, and not more of it when that grows.
        let others = seen.others.unwrap_or(0.0);
        let parts = [
            (Resource::NodeProcessors, Some(server.run / server.may_use)),
            (Resource::Commits, seen.commit.as_ref().and_then(|commit| commit.busy)),
            (Resource::Database, database.map(|database| database.processors / database.may_use)),
            (Resource::Pool, pool.and_then(|pool| Some(average(samples, POOL_ACTIVE)? / pool.connections))),
            (Resource::Disk, average(samples, DISK_BUSY).map(|percent| percent / 100.0)),
            (Resource::Machine, cpu.map(|cpu| (cpu.machine - others) / cpu.cores as f64)),
        ];
        // Processor time and the time of a run are not read at the same moment.
        let part = |(resource, share): (Resource, Option<f64>)| {
            let share = share.filter(|share| share.is_finite())?;
            Some(Use { resource, share: share.min(1.0) })
        };
        Self::at(per_second, parts.into_iter().filter_map(part))
    }

    fn at(per_second: f64, used: impl Iterator<Item = Use>) -> Option<Self> {
        let mut used: Vec<Use> = used.filter(|one| one.share > 0.0).collect();
        used.sort_by(|one, other| other.share.total_cmp(&one.share));
        let fullest = used.first().filter(|_| per_second > 0.0)?;
        let maximum = per_second / fullest.share;
        Some(Self {
            per_second,
            maximum_per_second: maximum,
            headroom_per_second: maximum - per_second,
            scale_at_per_second: USE_MAX * maximum,
            used,
        })
    }

    /// Whether there is room for more than the rates say.
    fn is_at_least(&self) -> bool {
        self.used.first().is_some_and(|one| one.resource.is_shared_by_batches())
    }

    fn fullest(&self) -> &'static str {
        self.used.first().map_or("nothing", |one| one.resource.name())
    }

    /// The name of the fullest part, the share of it that was in use, and the rate at which it is full.
    pub(crate) fn fullest_use(&self) -> Option<(&'static str, f64, f64)> {
        let Use { resource, share } = self.used.first()?;
        Some((resource.name(), *share, self.maximum_per_second))
    }

    /// Each part, and the rate at which it is full.
    pub(super) fn table(&self) -> Table {
        let mut table =
            Table::new([&*format!("in use at {}/s", grouped(self.per_second)), "share", "full at"]);
        for Use { resource, share } in &self.used {
            let at_least = if resource.is_shared_by_batches() { "≥ " } else { "" };
            let full_at = format!("{at_least}{}/s", grouped(self.per_second / share));
            table.row([resource.name().to_owned(), percent(*share), full_at]);
        }
        table
    }
}

/// A row for each point.
pub(crate) fn headroom_table(points: &[(String, &Headroom)]) -> Table {
    let mut table = Table::new(["", "per second", "fullest", "in use", "full at", "headroom", "add more at"]);
    for (point, it) in points {
        let share = it.used.first().map_or(0.0, |one| one.share);
        let rates = [it.maximum_per_second, it.headroom_per_second, it.scale_at_per_second];
        let before =
            [point.clone(), grouped(it.per_second), it.fullest().to_owned(), percent(share)].into_iter();
        let at_least = if it.is_at_least() { "≥ " } else { "" };
        table.row(before.chain(rates.map(|rate| format!("{at_least}{}", grouped(rate)))));
    }
    table
}

/// What every projection takes for granted.
pub(crate) const ASSUMED: &str = "This assumes that each message goes on costing the same; costs that fall as batches grow are those of hubbub bench model.";

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Three lines of a summary.
impl Display for Headroom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used: Vec<String> =
            self.used.iter().map(|one| format!("{} {}", one.resource.name(), percent(one.share))).collect();
        let [maximum, headroom, scale] =
            [self.maximum_per_second, self.headroom_per_second, self.scale_at_per_second].map(grouped);
        writeln!(out, "  in use       {}", used.join("; "))?;
        if self.is_at_least() {
            let fullest = self.fullest();
            writeln!(
                out,
                "  capacity     {maximum}/s or more: the fuller {fullest}, the more messages share a batch"
            )?;
            return writeln!(
                out,
                "  add more     not before {scale}/s; hubbub bench find-max finds the highest rate"
            );
        }
        writeln!(
            out,
            "  capacity     {maximum}/s at most, {headroom}/s more, if each message goes on costing the same"
        )?;
        writeln!(out, "  add more     at {scale}/s: then {} are used to {}", self.fullest(), percent(USE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analysis::verdict::figures::{Commit, Database, Pool, Processors};

    fn seen() -> Figures {
        Figures {
            server: Some(Processors { run: 1.6, waited: 0.0, may_use: 4.0, hottest: None }),
            commit: Some(Commit {
                syncs: true,
                busy: Some(0.5),
                on_processor: None,
                batch_ms: 1.0,
                operations: 9.0,
                wait_ms: 1.0,
            }),
            ..Figures::default()
        }
    }

    #[test]
    fn what_is_fullest_bounds_the_rate() {
        let headroom = Headroom::of(&seen(), None, &[], 1_000.0).unwrap();
        let said = headroom.to_string();
        for line in [
            "  in use       the commits of a node, one after another 50 %; the processors of a node 40 %\n",
            "  capacity     2,000/s or more: the fuller the commits of a node, one after another, the more messages share a batch\n",
            "  add more     not before 1,400/s;",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let busy = Processors { run: 2.4, waited: 0.0, may_use: 4.0, hottest: None };
        let busy =
            Headroom::of(&Figures { server: Some(busy), ..seen() }, None, &[], 1_000.0).unwrap().to_string();
        for line in [
            "  capacity     1,667/s at most, 667/s more, if each message goes on costing the same\n",
            "  add more     at 1,167/s: then the processors of a node are used to 70 %\n",
        ] {
            assert!(busy.contains(line), "{line}: {busy}");
        }
        let table = headroom.table().markdown();
        assert!(table.contains("\n| the processors of a node | 40 % | 2,500/s |\n"), "{table}");
        let points = headroom_table(&[("all".to_owned(), &headroom)]).markdown();
        let row = "\n| all | 1,000 | the commits of a node, one after another | 50 % | ≥ 2,000 | ≥ 1,000 | ≥ 1,400 |\n";
        assert!(points.contains(row), "{points}");
        let json = serde_json::to_value(&headroom).unwrap();
        assert_eq!(
            (&json["maximumPerSecond"], &json["used"][0]["resource"]),
            (&2e3.into(), &"commits".into())
        );
        assert_eq!(serde_json::from_value::<Headroom>(json).unwrap(), headroom);
    }

    #[test]
    fn all_that_is_known_counts_and_nothing_is_more_than_full() {
        let values =
            BTreeMap::from([(DISK_BUSY.to_owned(), 30.0.into()), (POOL_ACTIVE.to_owned(), 12.0.into())]);
        let samples = [SystemSample { at_s: 1.0, values, ..SystemSample::default() }];
        let pool = |waiting| Some(Pool { waiting, connections: 16.0, wait_ms: 1.0 });
        let database = Some(Database { processors: 4.4, may_use: 4.0, lock_waiting: None });
        let cpu = CpuUse { seconds: 1.0, cores: 8, generator: 1.0, server: None, machine: 3.0, stolen: 0.0 };
        let of = |waiting| {
            let seen =
                Figures { pool: pool(waiting), database: database.clone(), others: Some(1.0), ..seen() };
            Headroom::of(&seen, Some(&cpu), &samples, 1_000.0).unwrap()
        };
        let shares = |it: &Headroom| it.used.iter().map(|one| one.share).collect::<Vec<_>>();
        let waited = of(2.0);
        assert_eq!(shares(&waited), [1.0, 0.75, 0.5, 0.4, 0.3, 0.25]);
        assert_eq!((waited.fullest(), waited.headroom_per_second), ("the processors of the database", 0.0));
        assert_eq!(shares(&of(0.1)), [1.0, 0.5, 0.4, 0.3, 0.25], "the pool may have more");
        assert_eq!(
            Headroom::of(&Figures::default(), Some(&cpu), &samples, 1_000.0),
            None,
            "no server is known"
        );
        assert_eq!(Headroom::of(&seen(), None, &[], 0.0), None);
    }
}
