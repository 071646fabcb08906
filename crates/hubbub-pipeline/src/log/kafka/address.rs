//! The brokers' address.

use std::fmt;

use percent_encoding::percent_decode_str;

/// Why Kafka cannot be used: one line with the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KafkaError(pub(super) String);

/// Hosts and ports of some brokers; the others are found through them. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Brokers {
    hosts: String,
    is_tls: bool,
    login: Option<(String, String)>,
}

impl Brokers {
    /// From `kafka://user:password@host:9092,host:9092`, or `kafkas://` for TLS; user and password may be missing.
    pub fn parse(url: &str) -> Result<Self, KafkaError> {
        let bad = || {
            let form = "must be kafka://USER:PASSWORD@HOST:PORT, or kafkas:// for TLS, with further brokers behind commas, and \
                        without a path; escape other characters than letters and digits in user and password, such as / \
                        as %2F";
            KafkaError(form.to_owned())
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        let is_tls = match scheme {
            "kafka" => false,
            "kafkas" => true,
            _ => return Err(bad()),
        };
        let (login, brokers) = match rest.trim_end_matches('/').rsplit_once('@') {
            Some((login, brokers)) => (Some(login.split_once(':').ok_or_else(bad)?), brokers),
            None => (None, rest.trim_end_matches('/')),
        };
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| bad())?;
            if text.is_empty() { Err(bad()) } else { Ok(text.into_owned()) }
        };
        let login = login.map(|(user, password)| Ok((decode(user)?, decode(password)?))).transpose()?;
        let is_broker = |broker: &str| {
            let (host, port) = broker.rsplit_once(':').unwrap_or_default();
            let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            !host.is_empty() && host.chars().all(is_host) && port.parse().is_ok_and(|port: u16| port > 0)
        };
        if !brokers.split(',').all(is_broker) {
            return Err(bad());
        }
        Ok(Self { hosts: brokers.to_owned(), is_tls, login })
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.hosts
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// User and password.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.login.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }
}

impl fmt::Display for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "kafkas" } else { "kafka" };
        let user = self.login().map(|(user, _)| format!("{user}@")).unwrap_or_default();
        write!(f, "{scheme}://{user}{}", self.hosts)
    }
}

impl fmt::Debug for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (url, bootstrap) in [
            ("kafka://h:9092", Some("h:9092")),
            ("kafka://a.b-c:1,10.0.0.1:2,[::1]:3/", Some("a.b-c:1,10.0.0.1:2,[::1]:3")),
            ("kafka://h", None),
            ("kafka://h:0", None),
            ("kafka://h:9092/x", None),
            ("kafka://u:p@h:9092", Some("h:9092")),
            ("kafkas://h:9093", Some("h:9093")),
            ("kafka://u@h:9092", None),
            ("kafka://:p@h:9092", None),
            ("kafkass://h:9092", None),
            ("kafka://h:9092,", None),
            ("amqp://h:9092", None),
        ] {
            assert_eq!(Brokers::parse(url).ok().as_ref().map(Brokers::bootstrap), bootstrap, "{url}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let brokers = Brokers::parse("kafkas://ada:s%2Fecret@h:1,i:2").unwrap();
        assert_eq!(brokers.login(), Some(("ada", "s/ecret")));
        for shown in [format!("{brokers}"), format!("{brokers:?}")] {
            assert_eq!(shown, "kafkas://ada@h:1,i:2");
        }
        assert!(!Brokers::parse("kafkas://ada:secret@h").unwrap_err().to_string().contains("secret"));
    }
}
