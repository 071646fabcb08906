//! `hubbub config print | check | example`.

use std::fmt::Write;

use super::{Config, Environment, SETTINGS, Source, load};
use crate::cli::ConfigAction;

pub(crate) fn run(action: &ConfigAction) -> anyhow::Result<()> {
    let text = match action {
        ConfigAction::Print(serve) => print(&load(serve, &Environment::of_process()?)?),
        ConfigAction::Check(serve) => {
            load(serve, &Environment::of_process()?)?;
            "the configuration is valid\n".to_owned()
        }
        ConfigAction::Example => example(),
    };
    crate::output::print(&text)
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
