//! Types of settings, and their text.

use std::net::IpAddr;
use std::time::Duration;

use hubbub_core::duration;
use hubbub_core::url::masked;
use hubbub_gateway::{Compat, MetricsDefault};
use hubbub_store::embedded::Durability;
use ipnet::IpNet;
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

/// A secret. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

impl SettingValue for Secret {
    const RULE: &'static str = "must be a text";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }
    fn show(&self) -> String {
        "\"***\"".to_owned()
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

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// A port alone is one of this machine, for this machine.
    pub(crate) const HOST_DEFAULT: &str = "127.0.0.1";

    /// A port of this machine, for this machine.
    pub(super) fn local(port: u16) -> Self {
        Self(format!("{}:{port}", Self::HOST_DEFAULT))
    }
}

impl std::ops::Deref for Address {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl SettingValue for Address {
    const RULE: &'static str = "must be ADDR:PORT such as 127.0.0.1:8080, or PORT alone for 127.0.0.1:PORT";
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let host = if host.is_empty() { Self::HOST_DEFAULT } else { host };
        let is_port = !port.starts_with('+') && port.parse::<u16>().is_ok();
        (is_port && !host.contains('/')).then(|| Self(format!("{host}:{port}")))
    }
    fn show(&self) -> String {
        format!("{:?}", self.0)
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

/// Addresses and networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Networks(pub(crate) Vec<IpNet>);

impl SettingValue for Networks {
    const RULE: &'static str =
        "must be addresses or networks such as 192.0.2.7 or 10.0.0.0/8, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let network = |part: &String| part.parse().or_else(|_| part.parse::<IpAddr>().map(IpNet::from)).ok();
        list(text).iter().map(network).collect::<Option<_>>().map(Self)
    }
    fn show(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(IpNet::to_string).collect();
        format!("{:?}", shown.join(","))
    }
}

/// A share of a whole, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share(pub(crate) u32);

impl Share {
    const WHOLE: u32 = hubbub_pipeline::traces::WHOLE;
}

impl SettingValue for Share {
    const RULE: &'static str =
        "must be a share from 0 to 1 such as 0.05, with at most six digits behind the point";
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
            return None;
        }
        let millionths: u32 = format!("{fraction:0<6}").parse().ok()?;
        let share = whole.parse::<u32>().ok()?.checked_mul(Self::WHOLE)?.checked_add(millionths)?;
        (share <= Self::WHOLE).then_some(Self(share))
    }
    fn show(&self) -> String {
        let shown = format!("{}.{:06}", self.0 / Self::WHOLE, self.0 % Self::WHOLE);
        let shown = shown.trim_end_matches('0');
        if shown.ends_with('.') { format!("{shown}0") } else { shown.to_owned() }
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
    const NOT_ZERO: &'static str = T::NOT_ZERO;
    const IS_OPTIONAL: bool = true;
    fn parse(text: &str) -> Option<Self> {
        if text == "off" { Some(None) } else { T::parse(text).map(Some) }
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "\"off\"".to_owned(), T::show)
    }
    fn number(&self) -> Option<usize> {
        self.as_ref().and_then(T::number)
    }
}

/// The pooler in front of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolerKind {
    Session,
    Transaction,
}

/// When a server on PostgreSQL takes the lease of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExclusiveKind {
    Auto,
    Off,
}

/// Whether clients must have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    Required,
    Optional,
}

/// What a server does with Kafka as the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Serves clients, and stores records of the log.
    Both,
    /// Serves clients.
    Gateway,
    /// Stores records of the log, and serves only those who watch it.
    Committer,
}

/// How many replicas of Cassandra or ScyllaDB confirm a write and answer a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaLevel {
    LocalQuorum,
    Quorum,
    One,
}

/// How a user proves to Kafka who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sasl {
    Plain,
    Sha256,
    Sha512,
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
    ExclusiveKind: "must be auto or off", "auto" = Auto, "off" = Off;
    ClientAuth: "must be required or optional", "required" = Required, "optional" = Optional;
    Compat: "must be chats", "chats" = Chats;
    Role: "must be gateway,committer, gateway or committer", "gateway,committer" = Both, "committer,gateway" = Both,
        "gateway" = Gateway, "committer" = Committer;
    ReplicaLevel: "must be local_quorum, quorum or one", "local_quorum" = LocalQuorum, "quorum" = Quorum, "one" = One;
    Sasl: "must be plain, scram-sha-256 or scram-sha-512", "plain" = Plain, "scram-sha-256" = Sha256, "scram-sha-512" = Sha512;
    MetricsDefault: "must be prometheus or report", "prometheus" = Prometheus, "report" = Report;
    LevelFilter: "must be error, warn, info or debug", "error" = ERROR, "warn" = WARN, "info" = INFO, "debug" = DEBUG;
    LogFormat: "must be text or json", "text" = Text, "json" = Json;
}

#[cfg(test)]
mod tests {
    use super::{Address, SettingValue};

    #[test]
    fn addresses_may_be_a_port() {
        let parsed = |text| Address::parse(text).map(|address| address.to_string());
        for (text, expected) in [
            ("8099", "127.0.0.1:8099"),
            (":8099", "127.0.0.1:8099"),
            ("localhost:80", "localhost:80"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:8099", "[::1]:8099"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
        for text in
            ["", ":", "nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:+1", "http://127.0.0.1:1"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
