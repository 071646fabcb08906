//! `hubbub migrate`: migrates the schema of a store in a database, or prints the plan.

use std::fmt::Write;

use anyhow::bail;
#[cfg(feature = "postgres")]
use hubbub_postgres::{Pending, Touched};

use crate::cli::{MigrateArgs, ServeArgs};
use crate::config::{self, Environment};
use crate::output::{UsageError, print};
use crate::stores;

pub(crate) async fn migrate(args: MigrateArgs) -> anyhow::Result<()> {
    let MigrateArgs { plan, store, config, set } = args;
    let serve = ServeArgs { store, config, set, ..ServeArgs::default() };
    let config = config::load(&serve, &Environment::of_process()?)?;
    #[cfg(feature = "scylla")]
    if config.uses_scylla() {
        let steps = hubbub_scylla::migrate(&stores::scylla(&config), !plan).await?;
        let names = steps.iter().map(|step| (i64::from(step.number), step.name));
        return print(&if plan && !steps.is_empty() { show_cql(&steps) } else { summary(names) });
    }
    #[cfg(feature = "postgres")]
    if config.uses_postgres() {
        let steps = hubbub_postgres::migrate(&stores::postgres(&config), !plan).await?;
        let names = steps.iter().map(|step| (step.version, step.name.as_str()));
        return print(&if plan && !steps.is_empty() { show(&steps) } else { summary(names) });
    }
    let text = "only a database has a schema to migrate: name it with --store postgres://… or scylla://…";
    bail!(UsageError(text.to_owned()))
}

fn summary<'a>(steps: impl Iterator<Item = (i64, &'a str)>) -> String {
    let lines: String =
        steps.map(|(version, name)| format!("version {version} ({name}) is done\n")).collect();
    if lines.is_empty() { "the schema is up to date\n".to_owned() } else { lines }
}

#[cfg(feature = "scylla")]
fn show_cql(steps: &[hubbub_scylla::Version]) -> String {
    let mut out = String::new();
    for hubbub_scylla::Version { number, name, statements } in steps {
        let _ = writeln!(out, "-- version {number}: {name}");
        for statement in *statements {
            let _ = writeln!(out, "{statement};");
        }
    }
    out
}

#[cfg(feature = "postgres")]
fn show(steps: &[Pending]) -> String {
    let mut out = String::new();
    for Pending { version, name, sql, tables } in steps {
        let _ = writeln!(out, "-- version {version}: {name}, in one transaction");
        for Touched { table, rows, bytes } in tables {
            let bytes = crate::output::size(hubbub_core::invariant::saturate(*bytes));
            let _ = writeln!(
                out,
                "-- touches {table}: about {rows} rows, {bytes}; what it alters is locked until the step is through"
            );
        }
        if tables.is_empty() {
            let _ = writeln!(out, "-- touches no table that is there");
        }
        let _ = writeln!(out, "{}\n", sql.trim_end());
    }
    out
}
