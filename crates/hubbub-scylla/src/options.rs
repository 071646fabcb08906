//! Options of the store, and its URL.

use std::time::Duration;

use hubbub_tls::TlsFiles;
use percent_encoding::percent_decode_str;

/// Port of a host that names none.
const PORT: &str = "9042";

/// How the cluster is reached and used.
#[derive(Debug, Clone)]
pub struct ScyllaOptions {
    /// Where it is; see [`Address::parse`].
    pub url: String,
    /// For TLS. The names of a server's certificate must have its IP address.
    pub tls: TlsFiles,
    /// How many replicas must confirm a write or answer a read.
    pub consistency: Consistency,
    /// Replication of a keyspace that is created, as in `{'class': 'NetworkTopologyStrategy', 'dc1': 3}`.
    pub replication: String,
    /// Whether the keyspace and its tables are created and migrated at the start. Otherwise an old schema is refused.
    pub migrate: bool,
    /// Longest wait for one statement.
    pub statement_timeout: Duration,
    /// Statements under way at the same time.
    pub statements_max: usize,
    /// How long messages are kept, unless their room sets it; `None` = for ever.
    pub retention: Option<Duration>,
    /// Whether a room is created by its first message.
    pub autocreate: bool,
    /// When parts of a room are full. Only for tests: they keep the size that they were written with, and servers must agree.
    pub bucket: BucketLimits,
}

/// When a bucket of a room is full, at the first of both, and its first shard of ids; and how much changes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLimits {
    /// Messages.
    pub messages: i64,
    /// Bytes of texts and ids.
    pub bytes: i64,
    /// Ids in the room's first shard, of which there are no more than this ever after.
    pub first_ids: i64,
    /// Members whose unread counts change together with their room when a user is erased. More change before it. Servers
    /// need not agree.
    pub ranks: usize,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self { messages: 10_000, bytes: 32 << 20, first_ids: 100_000, ranks: 10_000 }
    }
}

/// Consistency levels that make an acknowledged write visible to the next read, and one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// A majority of the replicas in the data centre that is asked.
    #[default]
    LocalQuorum,
    /// A majority of all replicas.
    Quorum,
    /// One replica: only for clusters with one.
    One,
}

impl ScyllaOptions {
    /// The defaults, for a cluster at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: TlsFiles::default(),
            consistency: Consistency::default(),
            replication: "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}".into(),
            migrate: true,
            statement_timeout: Duration::from_secs(10),
            statements_max: 256,
            retention: None,
            autocreate: true,
            bucket: BucketLimits::default(),
        }
    }
}

/// A cluster and a keyspace in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) hosts: Vec<String>,
    pub(crate) login: Option<(String, String)>,
    pub(crate) is_tls: bool,
    pub(crate) keyspace: String,
}

impl Address {
    /// Parses `scylla://USER:PASSWORD@HOST:PORT,HOST2:PORT/KEYSPACE`, or `scyllas://` for TLS; user, password and ports may
    /// be missing.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let rule = || {
            "must be like scylla://USER:PASSWORD@HOST:PORT,HOST2:PORT/KEYSPACE, or scyllas:// for TLS"
                .to_owned()
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(rule)?;
        let is_tls = match scheme {
            "scylla" => false,
            "scyllas" => true,
            _ => return Err(rule()),
        };
        let (authority, keyspace) = rest.split_once('/').ok_or_else(rule)?;
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login.split_once(':').ok_or_else(rule)?), hosts),
            None => (None, authority),
        };
        let decode =
            |text: &str| percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| rule());
        let login = login.map(|(user, password)| Ok::<_, String>((decode(user)?, decode(password)?)));
        let is_name = |text: &str| {
            text.len() <= 48
                && text.starts_with(|first: char| first.is_ascii_lowercase())
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if !is_name(keyspace) {
            let rule = "must name a keyspace of a-z 0-9 _ (at most 48), as in scylla://HOST:9042/hubbub";
            return Err(rule.to_owned());
        }
        let hosts: Vec<String> = hosts.split(',').map(with_port).collect();
        if hosts.iter().any(|host| host.starts_with(':')) {
            return Err(rule());
        }
        Ok(Self { hosts, login: login.transpose()?, is_tls, keyspace: keyspace.to_owned() })
    }
}

fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

/// Whether the URL of a store is one of this crate's.
pub fn check_url(url: &str) -> Result<(), String> {
    Address::parse(url).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let address = Address::parse("scylla://ada:s%40cret@a,b:19042/hubbub").unwrap();
        assert_eq!(address.hosts, ["a:9042", "b:19042"]);
        assert_eq!(address.login, Some(("ada".into(), "s@cret".into())));
        assert_eq!((address.keyspace.as_str(), address.is_tls), ("hubbub", false));
        assert!(Address::parse("scyllas://a/k").unwrap().is_tls);
        assert_eq!(Address::parse("scylla://[::1]/k").unwrap().hosts, ["[::1]:9042"]);
        for wrong in
            ["scylla://a", "scylla:///k", "scylla://a/", "scylla://a/K", "scylla://u@a/k", "cql://a/k"]
        {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
