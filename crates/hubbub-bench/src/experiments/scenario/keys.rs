//! The tables of a scenario, made flat: options, settings and conditions by their names, at each point.

use anyhow::{Context, bail, ensure};

use super::file::Point;
use crate::host::lab::cgroup::ResourceLimit;

/// What stands before the processors of a part.
pub(super) const CORES: &str = "cores";

/// What stands before limits of a part.
pub(super) const CGROUP: &str = "cgroup";
/// Whether there is no measurement without them.
pub(super) const REQUIRED: &str = "cgroup.required";

pub(super) fn is_in(key: &str, section: &str) -> bool {
    key.split_once('.').is_some_and(|(first, _)| first == section)
}

/// What stands before settings of the server.
pub(super) const SETTINGS: &str = "settings";

/// Every combination of what is swept over, with each of the points that are given as a whole.
pub(super) fn points(sweep: &toml::Table, given: &[toml::Table]) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for table in given {
        points.push(flat("point", "", table)?);
    }
    if points.is_empty() {
        points.push(Point::new());
    }
    let mut swept = Vec::new();
    flatten("", sweep, &mut |key, value| {
        let Some(values) = value.as_array().filter(|values| !values.is_empty()) else {
            bail!("sweep: {key} must be a list of values");
        };
        let texts = values.iter().map(|value| text_of(value).with_context(|| format!("sweep: {key}")));
        swept.push((name_of("sweep", &key)?, texts.collect::<anyhow::Result<Vec<String>>>()?));
        Ok(())
    })?;
    for (key, values) in swept {
        let mut combined = Vec::new();
        for value in &values {
            for point in &points {
                let mut point = point.clone();
                point.insert(key.clone(), value.clone());
                combined.push(point);
            }
        }
        points = combined;
    }
    Ok(points)
}

/// The option, or the setting with its section.
fn name_of(table: &str, key: &str) -> anyhow::Result<String> {
    match key.split_once('.') {
        None => Ok(key.to_owned()),
        Some((SETTINGS, setting)) if setting.contains('.') => Ok(setting.to_owned()),
        Some((CORES, "server" | "database" | "load")) => Ok(key.to_owned()),
        Some((CORES, _)) => bail!("{table}: {key} is none of cores.server, cores.database and cores.load"),
        Some((CGROUP, rest)) => {
            let limit = rest.strip_prefix("server.").or_else(|| rest.strip_prefix("database."));
            ensure!(
                key == REQUIRED || limit.is_some_and(ResourceLimit::is_known),
                "{table}: {key} is none of cpus, memory and iops of cgroup.server or cgroup.database, nor {REQUIRED}"
            );
            Ok(key.to_owned())
        }
        _ => {
            bail!("{table}: {key} is no option, nor a setting of the server: those are settings.SECTION.NAME")
        }
    }
}

/// A table whose values are text, numbers, booleans, or lists of these. Tables in it are parts of settings' names.
pub(super) fn flat(name: &str, prefix: &str, table: &toml::Table) -> anyhow::Result<Point> {
    let mut point = Point::new();
    flatten(prefix, table, &mut |key, value| {
        let text = match value.as_array() {
            Some(values) => {
                values.iter().map(text_of).collect::<anyhow::Result<Vec<_>>>().map(|v| v.join(","))
            }
            None => text_of(value),
        };
        point.insert(name_of(name, &key)?, text.with_context(|| format!("{name}: {key}"))?);
        Ok(())
    })?;
    Ok(point)
}

fn flatten(
    prefix: &str,
    table: &toml::Table,
    take: &mut impl FnMut(String, &toml::Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, take)?,
            value => take(key, value)?,
        }
    }
    Ok(())
}

fn text_of(value: &toml::Value) -> anyhow::Result<String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Ok(value.to_string()),
        _ => bail!("must be a text, a number, true or false"),
    }
}
