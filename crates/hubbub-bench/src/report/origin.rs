//! Where results come from, so that a run can be repeated.

use hubbub_core::url::masked;
use serde::Serialize;

use crate::host::machine::Machine;

/// Of the format of `summary.json`, in whatever workload: grows when a member is renamed, removed, or means something else,
/// not when there is one more.
pub(crate) const SCHEMA_VERSION: u32 = 2;

/// When, where and by which program something was measured, and how that is written.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Origin {
    #[serde(rename = "schemaVersion")]
    pub schema_version: u32,
    pub machine: Machine,
    /// RFC 3339.
    pub started: String,
    pub version: &'static str,
    /// Commit it was built from, if the build said so.
    pub commit: Option<&'static str>,
    pub command: String,
}

impl Origin {
    /// This program, here and now.
    pub(crate) fn here() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            machine: Machine::look(),
            started: crate::host::machine::now().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("HUBBUB_COMMIT"),
            command: shown_command(std::env::args()),
        }
    }
}

/// A command line as it may be shown.
fn shown_command(words: impl Iterator<Item = String>) -> String {
    words.map(|word| masked(&word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (word, shown) in [
            ("amqp://guest:secret@host/v", "amqp://guest:***@host/v"),
            ("amqp://guest:sec@ret@host/v", "amqp://guest:***@host/v"),
            ("postgres://host/db?password=sec@ret", "postgres://host/db?password=***"),
            (
                "postgres://me:secret@host/db?sslpassword=secret&password=sec@ret&user=me",
                "postgres://me:***@host/db?sslpassword=***&password=***&user=me",
            ),
            ("http://host:80/prefix", "http://host:80/prefix"),
        ] {
            let words = ["bench", "--log", word].map(str::to_owned);
            assert_eq!(shown_command(words.into_iter()), format!("bench --log {shown}"));
        }
    }
}
