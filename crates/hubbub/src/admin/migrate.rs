//! `hubbub migrate`: migrates the schema of a PostgreSQL store, or prints the plan.

use std::fmt::Write;

use anyhow::bail;
use hubbub_core::invariant::saturate;
use hubbub_postgres::{Pending, Touched};

use super::size;
use crate::cli::{MigrateArgs, ServeArgs};
use crate::config::{self, Environment};
use crate::output::print;
use crate::stores;

pub(crate) async fn migrate(args: MigrateArgs) -> anyhow::Result<()> {
    let MigrateArgs { plan, store, config, set } = args;
    let serve = ServeArgs { store, config, set, ..ServeArgs::default() };
    let config = config::load(&serve, &Environment::of_process()?)?;
    if !config.uses_postgres() {
        bail!("only a PostgreSQL store has a schema to migrate: name it with --store postgres://…");
    }
    let steps = hubbub_postgres::migrate(&stores::postgres(&config), !plan).await?;
    print(&match steps.as_slice() {
        [] => "the schema is up to date\n".to_owned(),
        steps if plan => show(steps),
        steps => summary(steps),
    })
}

fn summary(steps: &[Pending]) -> String {
    steps.iter().fold(String::new(), |mut out, step| {
        let _ = writeln!(out, "version {} ({}) is done", step.version, step.name);
        out
    })
}

fn show(steps: &[Pending]) -> String {
    let mut out = String::new();
    for Pending { version, name, sql, tables } in steps {
        let _ = writeln!(out, "-- version {version}: {name}, in one transaction");
        for Touched { table, rows, bytes } in tables {
            let bytes = size(saturate(*bytes));
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
