//! What batches of the store held and cost at each point, where a workload waits until all is stored.

use std::collections::BTreeMap;

use super::engines::STORE;
use super::results::{Figure, Results, label};
use crate::report::{Table, figure};

/// Medians of what `persist` reports of batches, and of each message in them.
const FIGURES: [Figure; 7] = [
    Figure { name: "operations of a batch", places: &["/batches/operationsMean"] },
    Figure { name: "batch ms", places: &["/batches/meanMs"] },
    Figure { name: "batch p95 ms", places: &["/batches/quantiles/1/ms"] },
    Figure { name: "confirm p95 ms", places: &["/latency/p95Ms", "/confirmLatency/p95Ms"] },
    Figure { name: "statements of a message", places: &["/asked/statements"] },
    Figure { name: "round trips of a message", places: &["/asked/roundTrips"] },
    Figure { name: "server µs of a message", places: &["/cpuUs/server"] },
];
/// Of the embedded store it would be somebody else's database.
const DATABASE: Figure =
    Figure { name: "database µs of a message", places: &["/cpuUs/database", "/cpuUs/postgres"] };

/// A row for each point, a column for each figure that one of them has; no row where there were no batches.
pub(super) fn table(results: &Results) -> Table {
    let known = FIGURES.iter().chain((results.store != STORE.own).then_some(&DATABASE));
    let medians = known.map(|one| (one.name, results.medians(one).into_iter().collect::<BTreeMap<_, _>>()));
    let columns: Vec<(&str, BTreeMap<String, f64>)> =
        medians.filter(|(_, medians)| !medians.is_empty()).collect();
    let mut table = Table::new(std::iter::once("batches").chain(columns.iter().map(|(name, _)| *name)));
    let Some((_, batches)) =
        columns.first().filter(|(name, _)| FIGURES.first().is_some_and(|it| it.name == *name))
    else {
        return Table::default();
    };
    for run in results.last_of_each() {
        let point = label(&run.point);
        if batches.contains_key(&point) {
            let cell = |(_, medians): &(&str, BTreeMap<String, f64>)| {
                medians.get(&point).map_or_else(String::new, |it| figure(*it))
            };
            table.row(std::iter::once(results.marked(&run.point)).chain(columns.iter().map(cell)));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn results(store: &str, summary: &Value) -> Results {
        let run = json!({"point": {"window": "50"}, "repetition": 1, "isClean": true, "others": 0.0, "faults": [],
                         "summary": summary});
        serde_json::from_value(json!({
            "version": 1, "scenario": "batch-size", "store": store, "title": "x", "about": "", "isQuick": false,
            "machine": "m", "started": "2026-01-01T00:00:00Z", "text": "", "runs": [run],
        }))
        .unwrap()
    }

    #[test]
    fn batches_have_a_table() {
        let summary = json!({
            "storedPerSecond": 9.0, "latency": {"p95Ms": 40.0}, "cpuUs": {"server": 5.0, "postgres": 20.0},
            "batches": {"operationsMean": 500.0, "meanMs": 8.0,
                        "quantiles": [{"quantile": 0.5, "ms": 7.0}, {"quantile": 0.95, "ms": 16.0}]},
            "asked": {"statements": 0.03, "roundTrips": 0.015},
        });
        let shown = table(&results("postgres", &summary)).markdown();
        let row = "| window 50 | 500.000 | 8.000 | 16.000 | 40.000 | 0.0300 | 0.0150 | 5.000 | 20.000 |\n";
        assert!(shown.ends_with(row), "{shown}");
        let embedded = table(&results("embedded", &summary)).markdown();
        assert!(!embedded.contains("database"), "{embedded}");
        assert!(table(&results("postgres", &json!({"latency": {"p95Ms": 40.0}}))).is_empty());
        let mut disturbed = results("postgres", &summary);
        disturbed.runs[0].others = Some(0.3);
        let marked = table(&disturbed).markdown();
        assert!(marked.contains("| window 50; 30 % of the machine taken by others | 500.000 |"), "{marked}");
    }
}
