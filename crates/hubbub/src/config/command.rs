//! `hubbub config print | check | example`.

use std::fmt::Write;

use hubbub_core::text::counted;

use super::{Config, Environment, SETTINGS, Source, file_text, load, serving};
use crate::cli::ConfigAction;

pub(crate) fn run(action: &ConfigAction) -> anyhow::Result<()> {
    let text = match action {
        ConfigAction::Print(serve) => print(&load(serve, &Environment::of_process()?)?),
        ConfigAction::Check(serve) => {
            let environment = Environment::of_process()?;
            let config = load(serve, &environment)?;
            serving::check(&config)?;
            verdict(&config, file_text(serve.config.as_deref(), &environment))
        }
        ConfigAction::Example => example(),
    };
    crate::output::print(&text)
}

/// Says of a valid configuration where it comes from, so that a file that was not found is noticed.
fn verdict(config: &Config, file: Option<String>) -> String {
    let count = |is_one: fn(&Source) -> bool| {
        SETTINGS.iter().filter(|setting| is_one((setting.source)(config))).count()
    };
    let variables = count(|source| matches!(source, Source::Environment(_)));
    let flags = count(|source| matches!(source, Source::Flag(_)));
    if file.is_none() && variables + flags == 0 {
        let text = "valid, but no configuration file and no variable sets anything: these are the defaults\n";
        return text.to_owned();
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    match file {
        Some(file) => found.push(file),
        None => missing.push("no configuration file"),
    }
    match variables {
        0 => missing.push("no variables"),
        _ => found.push(counted(variables, "variable")),
    }
    if flags > 0 {
        found.push("flags".to_owned());
    }
    let missing = if missing.is_empty() { String::new() } else { format!(" ({})", missing.join(", ")) };
    format!("valid: {}{missing}\n", found.join(", "))
}

/// All settings as lines of TOML, with their sources as comments.
fn print(config: &Config) -> String {
    let mut out = String::new();
    each_setting(&mut out, |out, setting, name| {
        let source = match (setting.source)(config) {
            Source::Default => String::new(),
            source => format!("  # {source}"),
        };
        let _ = writeln!(out, "{name} = {}{source}", (setting.show)(config));
    });
    out
}

/// A configuration file with all settings at their defaults, commented out.
pub(super) fn example() -> String {
    let mut out = String::from(
        "# Hubbub configuration. Every setting is shown with its default; remove the '#' to change one.\n\
         # Each can also be given as --set section.name=value, or in the environment as shown.\n",
    );
    let defaults = Config::from_written(&super::WrittenSettings::new(), &mut Vec::new());
    each_setting(&mut out, |out, setting, name| {
        for line in setting.help {
            let _ = writeln!(out, "#{line}");
        }
        let _ =
            writeln!(out, "# [{}]\n#{name} = {}\n", setting.environment_name(), (setting.show)(&defaults));
    });
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Calls `write` for each setting with its name inside its section, and writes the section headers.
fn each_setting(out: &mut String, write: impl Fn(&mut String, &super::setting::Setting, &str)) {
    let mut section = "";
    for setting in SETTINGS {
        let (of, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
        if of != section {
            section = of;
            let _ = writeln!(out, "\n[{section}]");
        }
        write(out, setting, name);
    }
}
