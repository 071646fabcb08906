//! Which store and which log the servers of a scenario use: the scenario names a kind or gives a URL, and the command line says
//! where a kind is. Without a word in the scenario, what the command line gives is used.

use anyhow::{Context, ensure};
use hubbub_core::url::masked;

/// A store or a log that is not in the server itself.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// What its URLs begin with; the first stands for all.
    schemes: &'static [&'static str],
    /// The option that says where it is.
    option: &'static str,
    is_built: bool,
    /// What this program is built with to use it.
    features: &'static str,
}

/// What a key of a scenario is about.
#[derive(Debug)]
pub(super) struct Part {
    key: &'static str,
    /// The name of what the server has itself.
    pub(super) own: &'static str,
    pub(super) kinds: [Kind; 2],
}

pub(super) const STORE: Part = Part {
    key: "store",
    own: "embedded",
    kinds: [
        Kind {
            name: "postgres",
            schemes: &["postgres", "postgresql"],
            option: "postgres",
            is_built: cfg!(feature = "postgres"),
            features: "postgres",
        },
        Kind {
            name: "scylla",
            schemes: &["scylla", "scyllas"],
            option: "cql",
            is_built: cfg!(all(feature = "kafka", feature = "scylla")),
            features: "scylla, and kafka, which it needs",
        },
    ],
};

pub(super) const LOG: Part = Part {
    key: "log",
    own: "direct",
    kinds: [
        Kind {
            name: "kafka",
            schemes: &["kafka"],
            option: "kafka",
            is_built: cfg!(feature = "kafka"),
            features: "kafka",
        },
        Kind {
            name: "rabbitmq",
            schemes: &["amqp", "amqps"],
            option: "rabbitmq",
            is_built: cfg!(feature = "amqp"),
            features: "amqp",
        },
    ],
};

impl Kind {
    fn has(&self, url: &str) -> bool {
        url.split_once("://").is_some_and(|(scheme, _)| self.schemes.contains(&scheme))
    }

    fn form(&self) -> String {
        format!("{}://…", self.schemes.first().copied().unwrap_or_default())
    }
}

impl Part {
    /// Whether a scenario may say this.
    pub(super) fn check(&self, written: &str) -> anyhow::Result<()> {
        self.place(written).map(drop)
    }

    /// The place of the kind that is named, or whose URL it is; `None` for what the server has itself.
    fn place(&self, written: &str) -> anyhow::Result<Option<usize>> {
        if written == self.own {
            return Ok(None);
        }
        let found = self.kinds.iter().position(|kind| kind.name == written || kind.has(written));
        let [one, other] = &self.kinds;
        let rule = || {
            format!(
                "{}: '{}' must be {}, {} or {}, or a URL: {} or {}",
                self.key,
                masked(written),
                self.own,
                one.name,
                other.name,
                one.form(),
                other.form()
            )
        };
        found.map(Some).with_context(rule)
    }

    /// Where each kind is, of which one is used at most: by what the scenario says, and by what the options of the kinds give,
    /// which replaces the URL of the scenario.
    ///
    /// # Errors
    /// What is missing, given for nothing, or not built into this program.
    pub(super) fn choose(
        &self,
        written: Option<&str>,
        given: [Option<&str>; 2],
    ) -> anyhow::Result<[Option<String>; 2]> {
        let (key, [one, other]) = (self.key, &self.kinds);
        let place = match written {
            Some(written) => self.place(written)?,
            None => {
                ensure!(
                    given.contains(&None),
                    "--{} and --{}: leave one out, or let the scenario say which it is about ({key} = \"{}\")",
                    one.option,
                    other.option,
                    one.name
                );
                given.iter().position(Option::is_some)
            }
        };
        let mut chosen = [None, None];
        for (index, ((kind, given), chosen)) in self.kinds.iter().zip(given).zip(&mut chosen).enumerate() {
            let Kind { name, option, .. } = kind;
            if place != Some(index) {
                ensure!(
                    given.is_none(),
                    "this is about {key} = \"{}\": leave out --{option}",
                    masked(written.unwrap_or_default())
                );
                continue;
            }
            let url = given.or(written.filter(|written| kind.has(written)));
            let url =
                url.with_context(|| format!("this is about {key} = \"{name}\": give --{option} URL"))?;
            ensure!(kind.has(url), "--{option} must be a URL: {}", kind.form());
            ensure!(kind.is_built, "{name}: this program was built without the features {}", kind.features);
            *chosen = Some(url.to_owned());
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PG: &str = "postgres://ada:secret@db/x";
    const CQL: &str = "scylla://ada:secret@db";

    fn chosen(written: Option<&str>, given: [Option<&str>; 2]) -> Result<[Option<String>; 2], String> {
        // Whatever this program is built with.
        let kinds = STORE.kinds.map(|kind| Kind { is_built: true, ..kind });
        let chosen = Part { kinds, ..STORE }.choose(written, given);
        chosen.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_scenario_says_what_and_the_command_line_where() {
        let [pg, cql] = [PG, CQL].map(|url| Some(url.to_owned()));
        for (written, given, wanted) in [
            (None, [None, None], [None, None]),
            (None, [None, Some(CQL)], [None, cql.clone()]),
            (Some("embedded"), [None, None], [None, None]),
            (Some("postgres"), [Some(PG), None], [pg.clone(), None]),
            (Some("scylla"), [None, Some(CQL)], [None, cql.clone()]),
            (Some(CQL), [None, None], [None, cql]),
            (Some("postgresql://elsewhere/x"), [Some(PG), None], [pg, None]),
        ] {
            assert_eq!(chosen(written, given), Ok(wanted), "{written:?}");
        }
    }

    #[test]
    fn what_is_missing_or_given_for_nothing_is_named_without_secrets() {
        for (written, given, said) in [
            (Some("postgres"), [None, None], "store = \"postgres\": give --postgres URL"),
            (Some("scylla"), [None, None], "store = \"scylla\": give --cql URL"),
            (Some("scylla"), [Some(PG), Some(CQL)], "store = \"scylla\": leave out --postgres"),
            (Some("embedded"), [Some(PG), None], "store = \"embedded\": leave out --postgres"),
            (Some(PG), [None, Some(CQL)], "store = \"postgres://ada:***@db/x\": leave out --cql"),
            (None, [Some(PG), Some(CQL)], "--postgres and --cql: leave one out"),
            (None, [None, Some(PG)], "--cql must be a URL: scylla://…"),
            (
                Some("mysql://ada:secret@db/x"),
                [None, None],
                "'mysql://ada:***@db/x' must be embedded, postgres or scylla",
            ),
        ] {
            let error = chosen(written, given).unwrap_err();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
        let kinds = LOG.kinds.map(|kind| Kind { is_built: false, ..kind });
        let unbuilt = Part { kinds, ..LOG }.choose(Some("amqp://ada:secret@mq"), [None, None]).unwrap_err();
        assert_eq!(unbuilt.to_string(), "rabbitmq: this program was built without the features amqp");
    }
}
