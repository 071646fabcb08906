//! Configuration: flags override the environment, which overrides the file, which overrides defaults. Each value knows its
//! source.

mod check;
pub(crate) mod command;
mod environment;
mod protecting;
mod serving;
mod setting;
mod settings;
mod suggestion;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::cli::ServeArgs;
pub(crate) use check::is_postgres;
pub(crate) use environment::Environment;
pub(crate) use settings::{Config, SETTINGS};
#[cfg(feature = "scylla")]
pub(crate) use values::ReplicaLevel;
#[cfg(feature = "kafka")]
pub(crate) use values::Sasl;
pub(crate) use values::{Address, Bytes, ClientAuth, LogFormat, Role};
#[cfg(feature = "postgres")]
pub(crate) use values::{ExclusiveKind, PoolerKind};

/// The configuration file if no other is named; it need not exist.
const FILE_DEFAULT: &str = "hubbub.toml";

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Errors of the configuration, one line for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\nhubbub: "))]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

/// A setting as text, not parsed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// All settings that are set, by key; later sources override earlier ones.
pub(crate) type WrittenSettings = BTreeMap<&'static str, Written>;

#[cfg(test)]
impl Config {
    pub(crate) fn of_defaults() -> Self {
        Self::from_written(&WrittenSettings::new(), &mut Vec::new())
    }
}

/// Loads the configuration from flags, environment and file.
pub(crate) fn load(args: &ServeArgs, environment: &Environment) -> Result<Config, ConfigError> {
    let mut faults = Vec::new();
    let mut written = WrittenSettings::new();
    if let Some(file) = file(args.config.as_deref(), environment) {
        read_file(&file, &mut written, &mut faults);
    }
    environment.read(&mut written, &mut faults);
    apply_flags(args, &mut written, &mut faults);
    let config = Config::from_written(&written, &mut faults);
    if faults.is_empty() {
        config.check(&mut faults);
    }
    if faults.is_empty() { Ok(config) } else { Err(ConfigError(faults)) }
}

/// The file that is read: the one that is named, else the default one if it is there.
fn file(named: Option<&Path>, environment: &Environment) -> Option<PathBuf> {
    let variable = || environment.get(environment::CONFIG).map(PathBuf::from);
    // A link that leads nowhere is there, too: without what it should say, the server might ask for no token.
    let default = || Some(PathBuf::from(FILE_DEFAULT)).filter(|file| file.symlink_metadata().is_ok());
    named.map(Path::to_owned).or_else(variable).or_else(default)
}

/// The whole path of the same file, for people.
pub(crate) fn file_text(named: Option<&Path>, environment: &Environment) -> Option<String> {
    let file = file(named, environment)?;
    Some(std::path::absolute(&file).unwrap_or(file).display().to_string())
}

fn read_file(path: &Path, written: &mut WrittenSettings, faults: &mut Vec<String>) {
    let shown = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return faults.push(format!("cannot read the configuration file {shown}: {error}")),
    };
    let table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => {
            // Not the whole error: it shows the line, which may have a secret.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            return faults.push(format!("{shown} is not valid TOML: line {line}: {}", error.message()));
        }
    };
    let mut flat = Vec::new();
    flatten("", &toml::Value::Table(table), &mut flat);
    for (key, value) in flat {
        match value {
            Some(value) => {
                if let Some(setting) = find_key(&key, &shown.to_string(), faults) {
                    written.insert(setting, Written { value, source: Source::File(path.to_owned()) });
                }
            }
            None => faults.push(format!("{shown}: {key} must be a string, a number or a boolean")),
        }
    }
}

/// Flattens tables to dotted keys, and scalars to their text; other values become `None`.
fn flatten(prefix: &str, value: &toml::Value, out: &mut Vec<(String, Option<String>)>) {
    let text = match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, out);
            }
            return;
        }
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) => None,
    };
    out.push((prefix.to_owned(), text));
}

/// The key of the setting, or an error with the most similar key.
fn find_key(key: &str, place: &str, faults: &mut Vec<String>) -> Option<&'static str> {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) {
        return Some(setting.key);
    }
    let known = SETTINGS.iter().flat_map(|setting| {
        suggestion::endings(setting.key).map(|name| (name.to_owned(), format!("'{}'", setting.key)))
    });
    faults.push(format!("{place}: there is no setting '{key}'{}", suggestion::suggestion(key, known)));
    None
}

fn apply_flags(args: &ServeArgs, written: &mut WrittenSettings, faults: &mut Vec<String>) {
    let insecure = args.insecure.then(|| "true".to_owned());
    let no_migrate = args.no_migrate.then(|| "false".to_owned());
    let named = [
        ("server.listen", "--listen", args.listen.clone()),
        ("server.line", "--line", args.line.clone()),
        ("store.data", "--data", args.data.clone()),
        ("store.url", "--store", args.store.clone()),
        ("log.url", "--log", args.log.clone()),
        ("server.role", "--role", args.role.clone()),
        ("server.insecure", "--insecure", insecure),
        ("server.compat", "--compat", args.compat.clone()),
        ("store.postgres.migrate", "--no-migrate", no_migrate.clone()),
        ("store.scylla.migrate", "--no-migrate", no_migrate),
    ];
    for (key, flag, value) in named {
        if let Some(value) = value {
            written.insert(key, Written { value, source: Source::Flag(flag.to_owned()) });
        }
    }
    for pair in &args.set {
        match pair.split_once('=') {
            Some((key, value)) => {
                if let Some(key) = find_key(key.trim(), "--set", faults) {
                    let value = value.trim().to_owned();
                    written.insert(key, Written { value, source: Source::Flag("--set".to_owned()) });
                }
            }
            None => faults.push(format!("--set {pair}: must be KEY=VALUE")),
        }
    }
}

#[cfg(test)]
mod tests;
