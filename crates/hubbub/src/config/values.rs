//! Types of settings, and their text.

use std::time::Duration;

use hubbub_core::duration;
use hubbub_gateway::MetricsDefault;
use hubbub_store::embedded::Durability;
use tracing_subscriber::filter::LevelFilter;

/// A type of settings.
pub(crate) trait SettingValue: Sized {
    /// The rule for error messages.
    const RULE: &'static str;
    /// Whether it may be "off".
    const IS_OPTIONAL: bool = false;
    /// The rule of settings that must not be 0.
    const NOT_ZERO: &'static str = "must be at least 1";
    fn parse(text: &str) -> Option<Self>;
    /// The text in the configuration file.
    fn show(&self) -> String;
    /// The value of a number.
    fn number(&self) -> Option<usize> {
        None
    }
}

impl SettingValue for String {
    const RULE: &'static str = "must be a text";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl SettingValue for bool {
    const RULE: &'static str = "must be true or false";
    fn parse(text: &str) -> Option<Self> {
        match text {
            "true" | "1" | "yes" => Some(true),
            "false" | "0" | "no" => Some(false),
            _ => None,
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for usize {
    const RULE: &'static str = "must be a whole number from 0 on";
    fn parse(text: &str) -> Option<Self> {
        text.replace('_', "").parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn number(&self) -> Option<usize> {
        Some(*self)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) usize);

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl SettingValue for Bytes {
    const RULE: &'static str = "must be a number of bytes such as 65536, 64KiB or 16MiB";
    fn parse(text: &str) -> Option<Self> {
        let unit = UNITS.into_iter().find(|(name, _)| text.ends_with(name));
        let (name, factor) = unit.unwrap_or(("", 1));
        let number: usize = text.strip_suffix(name)?.trim().replace('_', "").parse().ok()?;
        number.checked_mul(factor).map(Self)
    }
    fn show(&self) -> String {
        let unit = UNITS.into_iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (name, factor) = unit.unwrap_or(("B", 1));
        format!("\"{}{name}\"", self.0 / factor)
    }
    fn number(&self) -> Option<usize> {
        Some(self.0)
    }
}

/// A URL. Its password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url(pub(crate) String);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl SettingValue for Url {
    const RULE: &'static str = "must be a URL";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }
    fn show(&self) -> String {
        format!("{:?}", masked(&self.0))
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Several URLs. Their passwords are never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Urls(pub(crate) Vec<String>);

impl std::fmt::Debug for Urls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

impl SettingValue for Urls {
    const RULE: &'static str = "must be URLs, separated by commas";
    /// Accepts any text: later checks report errors without showing a URL.
    fn parse(text: &str) -> Option<Self> {
        Some(Self(list(text)))
    }
    fn show(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(|url| masked(url)).collect();
        format!("{:?}", shown.join(","))
    }
}

/// The URL with `***` instead of passwords, in the authority and in the query. If a password makes the parts ambiguous, too
/// much is hidden rather than too little.
pub(crate) fn masked(url: &str) -> String {
    let mut shown = url.to_owned();
    if let Some((scheme, rest)) = url.split_once("://")
        && let Some((user, behind)) = rest.rsplit_once('@')
        && let Some((name, _)) = user.split_once(':')
    {
        shown = format!("{scheme}://{name}:***@{behind}");
    }
    if let Some((before, password)) = shown.split_once("password=") {
        let behind = password.split_once('&').map_or(String::new(), |(_, behind)| format!("&{behind}"));
        shown = format!("{before}password=***{behind}");
    }
    shown
}

/// Origins, as browsers send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origins(pub(crate) Vec<String>);

impl SettingValue for Origins {
    const RULE: &'static str = "must be sites such as https://chat.example, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let is_site = |site: &str| {
            let rest = site.strip_prefix("https://").or_else(|| site.strip_prefix("http://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
        };
        Some(Self(list(text))).filter(|sites| sites.0.iter().all(|site| is_site(site)))
    }
    fn show(&self) -> String {
        format!("{:?}", self.0.join(","))
    }
}

impl SettingValue for Duration {
    const RULE: &'static str = "must be a time such as 500ms, 25s, 10min, 12h or 30d";
    const NOT_ZERO: &'static str = "must be longer than 0";
    fn parse(text: &str) -> Option<Self> {
        duration::parse(text)
    }
    fn show(&self) -> String {
        format!("\"{}\"", duration::show(*self))
    }
    fn number(&self) -> Option<usize> {
        Some(usize::from(!self.is_zero()))
    }
}

/// `None` is written as "off".
impl<T: SettingValue> SettingValue for Option<T> {
    const RULE: &'static str = T::RULE;
    const IS_OPTIONAL: bool = true;
    fn parse(text: &str) -> Option<Self> {
        if text == "off" { Some(None) } else { T::parse(text).map(Some) }
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "\"off\"".to_owned(), T::show)
    }
}

/// The pooler in front of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolerKind {
    Session,
    Transaction,
}

/// How many replicas of Cassandra or ScyllaDB confirm a write and answer a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaLevel {
    LocalQuorum,
    Quorum,
    One,
}

/// How events are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

macro_rules! choices {
    ($($kind:ty: $rule:literal, $($text:literal = $value:ident),+;)+) => { $(impl SettingValue for $kind {
        const RULE: &'static str = $rule;
        fn parse(text: &str) -> Option<Self> {
            match text { $($text => Some(Self::$value),)+ _ => None }
        }
        fn show(&self) -> String {
            let mut choices = [$((Self::$value, $text)),+].into_iter();
            format!("{:?}", choices.find(|(value, _)| value == self).map_or("", |(_, text)| text))
        }
    })+ };
}

choices! {
    Durability: "must be fsync or os", "fsync" = Fsync, "os" = Os;
    PoolerKind: "must be session or transaction", "session" = Session, "transaction" = Transaction;
    ReplicaLevel: "must be local_quorum, quorum or one", "local_quorum" = LocalQuorum, "quorum" = Quorum, "one" = One;
    MetricsDefault: "must be prometheus or report", "prometheus" = Prometheus, "report" = Report;
    LevelFilter: "must be error, warn, info or debug", "error" = ERROR, "warn" = WARN, "info" = INFO, "debug" = DEBUG;
    LogFormat: "must be text or json", "text" = Text, "json" = Json;
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn passwords_are_masked() {
        let cases = [
            ("embedded:./data", "embedded:./data"),
            ("postgres://ada@db:5432/chat", "postgres://ada@db:5432/chat"),
            (
                "postgres://ada:se/cr?et@db,db2/chat?sslmode=require",
                "postgres://ada:***@db,db2/chat?sslmode=require",
            ),
            ("postgres://ada:se@cret@db/chat", "postgres://ada:***@db/chat"),
            ("postgres://db/chat?password=secret&user=ada", "postgres://db/chat?password=***&user=ada"),
            ("amqp://guest:secret@mq/v", "amqp://guest:***@mq/v"),
            ("scylla://ada:secret@a,b:9042/chat", "scylla://ada:***@a,b:9042/chat"),
        ];
        for (url, shown) in cases {
            assert_eq!(masked(url), shown);
        }
    }
}
