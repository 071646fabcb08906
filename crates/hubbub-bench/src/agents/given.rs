//! The options of a command line as they were given, so that another process can be given them.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::Share;

/// Options that concern the coordinator, or that an agent has of its own.
pub(super) const LOCAL: [&str; 20] = [
    "agents",
    "agents-secret-file",
    "broker-pid",
    "bucket",
    "ca",
    "database",
    "json",
    "keep",
    "out",
    "overwrite",
    "price",
    "quiet",
    "rows-max",
    "secret-file",
    "seed",
    "server",
    "server-pid",
    "threads",
    "token-file",
    "watch",
];

/// What was read from the command line. It takes no option of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(ArgMatches);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Given {
    /// The words of a command line with the same options of `A`, but for those that are local and those in `share`, which
    /// stand as they are there.
    pub(super) fn line<A: Args>(&self, share: &Share) -> Vec<String> {
        let command = A::augment_args(Command::new("agent"));
        let mut line = Vec::new();
        for arg in command.get_arguments() {
            let (id, long) = (arg.get_id().as_str(), arg.get_long());
            let is_default = self.0.value_source(id).is_none_or(|source| source == ValueSource::DefaultValue);
            let is_other =
                |name: &str| LOCAL.contains(&name) || share.iter().any(|(shared, _)| *shared == name);
            if is_default || long.is_some_and(is_other) {
                continue;
            }
            match long {
                Some(long) if !arg.get_action().takes_values() => line.push(format!("--{long}")),
                long => {
                    let values =
                        self.0.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
                    line.extend(values.map(|value| match long {
                        Some(long) => format!("--{long}={value}"),
                        None => value.into_owned(),
                    }));
                }
            }
        }
        line.extend(share.iter().map(|(name, value)| format!("--{name}={value}")));
        line
    }
}
