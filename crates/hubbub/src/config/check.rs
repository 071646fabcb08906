//! Rules of the configuration that concern several settings or need context.

use std::time::Duration;

use hubbub_core::url::masked;
use hubbub_gateway::auth::{AccountRules, AttemptLimits, KeySetSource, TokenRules, Verifier};

use super::setting::Sourced;
use super::values::{SettingValue, Url};
use super::{Config, ConfigError, Role, Source};

/// Error of a program built without RabbitMQ.
const NO_AMQP: &str = "log.url names RabbitMQ, which this hubbub was built without: build it with the \
    feature amqp (cargo build --features amqp)";

/// Error of a program built without Kafka.
const NO_KAFKA: &str = "log.url names Kafka, which this hubbub was built without: build it with the \
    feature kafka (cargo build --features kafka)";

/// Error of a program built without PostgreSQL.
const NO_POSTGRES: &str = "store.url names PostgreSQL, which this hubbub was built without: build it with \
    the feature postgres (cargo build --features postgres)";

/// Error of a program built without Cassandra.
const NO_SCYLLA: &str = "store.url names Cassandra or ScyllaDB, which this hubbub was built without: build it with \
    the feature scylla (cargo build --features scylla)";

/// Error of a program built without OTLP.
const NO_OTLP: &str = "telemetry.otlp.url is for a hubbub that was built with the feature otlp (cargo build --features \
    otlp)";

/// Whether a URL's password is on the command line.
fn is_open(url: &Sourced<Url>) -> bool {
    matches!(url.source, Source::Flag(_)) && masked(&url.0) != url.0
}

/// Whether a URL leads to PostgreSQL.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

impl Config {
    /// What single values cannot tell.
    pub(super) fn check(&self, faults: &mut Vec<String>) {
        let mut require = |fine: bool, text: &str| {
            if !fine {
                faults.push(text.to_owned());
            }
        };
        let url = self.store.0.as_str();
        if self.uses_postgres() {
            self.check_postgres(&mut require);
        } else if self.uses_scylla() {
            require(cfg!(feature = "scylla"), NO_SCYLLA);
            require(
                !is_open(&self.store),
                "store.url with a password must not be on the command line, where everybody on this \
                machine can read it: set HUBBUB_STORE, or write it into the configuration file",
            );
            require(
                self.scylla_cert.is_some() == self.scylla_key.is_some(),
                "store.scylla.cert and store.scylla.key must be set together: the certificate, and its private key",
            );
            #[cfg(feature = "scylla")]
            if let Err(error) = hubbub_scylla::check_url(url) {
                require(false, &format!("store.url {error}"));
            }
        } else {
            require(
                url == "embedded" || url.starts_with("embedded:"),
                "store.url must be embedded, embedded:DIR, postgres://USER:PASSWORD@HOST:PORT/DATABASE or \
                 scylla://USER:PASSWORD@HOST:PORT/KEYSPACE",
            );
        }
        self.check_log(&mut require);
        require(
            self.tls_cert.is_some() == self.tls_key.is_some(),
            "tls.cert and tls.key must be set together: the certificate, and its private key",
        );
        require(
            self.tls_client_ca.is_none() || self.tls_cert.is_some(),
            "tls.client_ca needs tls.cert and tls.key",
        );
        self.check_auth(&mut require);
        self.check_traces(&mut require);
        let message_max = hubbub_core::limits::MESSAGE_BYTES_MAX;
        require(
            (1..=message_max).contains(&self.message_bytes.0),
            "limits.message_bytes must be at most 16MiB, and at least 1B",
        );
        // A body is a message and a little JSON around it.
        require(
            self.body_bytes.0 >= self.message_bytes.0,
            "limits.body_bytes must not be less than limits.message_bytes",
        );
        // A batch is at most an eighth of a slot, or one message or value of any size; offsets in a slot have 32 bits.
        let largest = self.message_bytes.0.max(self.queue_message_bytes.0).max(self.value_bytes.0);
        require(
            (1 << 20..=2 << 30).contains(&self.journal_slot.0) && largest <= self.slot_text_max(),
            "store.embedded.journal_slot must be 1MiB to 2GiB, and at least twice limits.message_bytes, \
             limits.queue_message_bytes and limits.value_bytes",
        );
    }

    fn check_auth(&self, require: &mut impl FnMut(bool, &str)) {
        require(
            self.compat.is_none() || !self.has_auth(),
            "server.compat = \"chats\" cannot be served with authentication: its cookie proves nothing",
        );
        require(
            !matches!(self.auth_secret.source, Source::Flag(_)),
            "auth.secret must not be on the command line, where everybody on this machine can read it: set \
             HUBBUB_AUTH_SECRET, or write it into the configuration file",
        );
        require(
            self.auth_jwks.is_none() || self.auth_audience.is_some(),
            "auth.jwks needs auth.audience: other applications have tokens of the same keys",
        );
        require(
            !*self.auth_accounts || self.has_auth(),
            "auth.accounts needs auth.secret, auth.public_key or auth.jwks: accounts are added with an administrator's \
             token (hubbub token mint --admin)",
        );
        require(
            !(*self.auth_accounts && self.uses_scylla()),
            "auth.accounts cannot be set with Cassandra or ScyllaDB: accounts are keys of the store, and it has none",
        );
        if let Err(error) = self.auth_key_set() {
            require(false, &error);
        }
        if let Err(error) = self.verifier() {
            require(false, &error);
        }
    }

    fn check_traces(&self, require: &mut impl FnMut(bool, &str)) {
        require(
            !matches!(self.otlp_headers.source, Source::Flag(_)),
            "telemetry.otlp.headers must not be on the command line, where everybody on this machine can read it",
        );
        if self.otlp_url.is_none() {
            return;
        }
        require(cfg!(feature = "otlp"), NO_OTLP);
        require(
            self.timeline_memory.0 > 0,
            "telemetry.otlp.url needs timeline.memory: traces are made of its records",
        );
        #[cfg(feature = "otlp")]
        if let Err(error) = crate::otlp::check(self) {
            require(false, &error);
        }
    }

    /// Whether callers have to prove who they are.
    pub(crate) fn has_auth(&self) -> bool {
        self.auth_secret.is_some() || self.auth_public_key.is_some() || self.auth_jwks.is_some()
    }

    /// Where the keys of an identity provider are.
    pub(crate) fn auth_key_set(&self) -> Result<Option<KeySetSource>, String> {
        self.auth_jwks.as_deref().map(KeySetSource::parse).transpose()
    }

    /// What verifies tokens; `None` = nobody needs one.
    pub(crate) fn verifier(&self) -> Result<Option<Verifier>, String> {
        if !self.has_auth() {
            return Ok(None);
        }
        let pem = self.auth_public_key.as_deref().map(|path| {
            std::fs::read(path).map_err(|error| format!("auth.public_key: cannot read {path}: {error}"))
        });
        let rules = TokenRules {
            audience: (*self.auth_audience).clone(),
            issuer: (*self.auth_issuer).clone(),
            leeway: *self.auth_leeway,
            max_lifetime: *self.auth_max_lifetime,
        };
        let secret = self.auth_secret.as_ref().map(|secret| secret.0.as_str());
        Verifier::new(rules, secret, pem.transpose()?.as_deref(), self.auth_jwks.is_some()).map(Some)
    }

    /// How people log in with passwords; `None` = they do not.
    pub(crate) fn account_rules(&self) -> Option<AccountRules> {
        let attempts =
            AttemptLimits { account: *self.auth_login_attempts, address: *self.auth_login_attempts_address };
        let rules = AccountRules { login_lifetime: *self.auth_login_lifetime, attempts };
        self.auth_accounts.then_some(rules)
    }

    /// What a server needs, and other commands do not.
    pub(crate) fn check_server(&self) -> Result<(), ConfigError> {
        let mut faults = Vec::new();
        let mut require = |fine: bool, text: &str| {
            if !fine {
                faults.push(text.to_owned());
            }
        };
        self.check_protecting(&mut require);
        self.check_data(&mut require);
        if self.uses_scylla() {
            require(
                self.uses_kafka(),
                "--store scylla:// requires --log kafka:// (the settings store.url and log.url)",
            );
            require(
                self.line.is_none(),
                "server.line is for queues, which a store on scylla:// does not have",
            );
            require(
                self.compat.is_none(),
                "server.compat = \"chats\" keeps names as keys, which a store on scylla:// does not have",
            );
        }
        require(
            !(self.uses_kafka() && self.uses_embedded()),
            "--log kafka:// requires --store postgres:// or scylla:// (the settings log.url and store.url): the embedded \
             store cannot take rooms from Kafka",
        );
        if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
    }

    fn check_log(&self, require: &mut impl FnMut(bool, &str)) {
        if self.uses_kafka() {
            return self.check_kafka(require);
        }
        require(
            *self.role == Role::Both,
            "server.role other than gateway,committer needs Kafka as the log (log.url)",
        );
        if !self.uses_amqp() {
            let url = self.log.0.as_str();
            let rule = "log.url must be direct, amqp://USER:PASSWORD@HOST:PORT/VHOST or \
                        kafka://USER:PASSWORD@HOST:PORT";
            require(url == "direct", rule);
            return;
        }
        require(cfg!(feature = "amqp"), NO_AMQP);
        #[cfg(feature = "amqp")]
        if let Err(error) = hubbub_pipeline::log::amqp::Address::parse(&self.log.0) {
            require(false, &format!("log.url {error}"));
        }
        for (key, name) in
            [("amqp.exchange", &self.amqp_exchange), ("amqp.queue_prefix", &self.amqp_queue_prefix)]
        {
            require(
                (1..=200).contains(&name.len()) && !name.starts_with("amq."),
                &format!("{key} must be 1 to 200 bytes, and not begin with amq., which is the broker's own"),
            );
        }
    }

    fn check_kafka(&self, require: &mut impl FnMut(bool, &str)) {
        require(cfg!(feature = "kafka"), NO_KAFKA);
        require(
            !is_open(&self.log),
            "log.url with a password must not be on the command line, where everybody on this machine \
            can read it: set HUBBUB_LOG, or write it into the configuration file",
        );
        require(
            self.kafka_cert.is_some() == self.kafka_key.is_some(),
            "kafka.cert and kafka.key must be set together: the certificate, and its private key",
        );
        #[cfg(feature = "kafka")]
        if let Err(error) = hubbub_pipeline::log::kafka::Brokers::parse(&self.log.0) {
            require(false, &format!("log.url {error}"));
        }
        if *self.role == Role::Committer {
            let is_alone = self.line.is_none() && self.compat.is_none();
            require(
                is_alone,
                "server.line and server.compat are for clients, which server.role = committer does not serve",
            );
        }
        let prefix = self.kafka_topic_prefix.as_str();
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        require(
            prefix.len() <= 200 && prefix.chars().all(is_legal),
            "kafka.topic_prefix must be at most 200 characters out of A-Z a-z 0-9 . _ -",
        );
        require(*self.kafka_replication <= 100, "kafka.replication must be 0 to 100");
        #[cfg(feature = "kafka")]
        require(
            *self.kafka_retention >= hubbub_pipeline::log::kafka::RETENTION_MIN,
            "kafka.retention must be at least 1h: the store may be behind for that long",
        );
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(600));
        require(
            (shortest..=longest).contains(&*self.kafka_delivery_timeout),
            "kafka.delivery_timeout must be 1s to 10m",
        );
        require(
            (shortest..=longest).contains(&*self.kafka_session_timeout),
            "kafka.session_timeout must be 1s to 10m",
        );
    }

    fn check_postgres(&self, require: &mut impl FnMut(bool, &str)) {
        require(cfg!(feature = "postgres"), NO_POSTGRES);
        let migrate_url = self.postgres_migrate_url.iter().map(|url| ("store.postgres.migrate_url", &url.0));
        for (key, url) in migrate_url.chain([("store.url", &self.store.0)]) {
            require(
                is_postgres(url),
                &format!("{key} must be like postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
            );
            #[cfg(feature = "postgres")]
            if is_postgres(url)
                && let Err(error) = hubbub_postgres::check_url(url)
            {
                require(false, &format!("{key}: {error}"));
            }
        }
        self.check_replicas(require);
        require(
            *self.postgres_pool_min <= *self.postgres_pool_max,
            "store.postgres.pool.min must not be more than store.postgres.pool.max",
        );
        let hour = Duration::from_secs(3_600);
        require(*self.postgres_partition >= hour, "store.postgres.partition must be at least 1h");
    }

    fn check_replicas(&self, require: &mut impl FnMut(bool, &str)) {
        let urls = &self.postgres_replicas.0;
        if !urls.iter().all(|url| is_postgres(url)) {
            let shape = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            let text = format!(
                "store.postgres.replicas must be URLs like {shape}, each with one host, separated by commas"
            );
            return require(false, &text);
        }
        #[cfg(feature = "postgres")]
        if let Err(error) = hubbub_postgres::check_replica_urls(urls) {
            require(false, &format!("store.postgres.replicas: {error}"));
        }
    }

    /// Whether the message log is RabbitMQ, and not the direct one.
    pub(crate) fn uses_amqp(&self) -> bool {
        self.log.0.starts_with("amqp://") || self.log.0.starts_with("amqps://")
    }

    /// Whether the message log is Kafka.
    pub(crate) fn uses_kafka(&self) -> bool {
        self.log.0.starts_with("kafka://") || self.log.0.starts_with("kafkas://")
    }

    /// Whether the store is Cassandra or ScyllaDB.
    pub(crate) fn uses_scylla(&self) -> bool {
        self.store.0.starts_with("scylla://") || self.store.0.starts_with("scyllas://")
    }

    /// Whether the store is PostgreSQL, and not the embedded one.
    pub(crate) fn uses_postgres(&self) -> bool {
        is_postgres(&self.store.0)
    }

    /// Whether the store is the embedded one.
    pub(crate) fn uses_embedded(&self) -> bool {
        !self.uses_postgres() && !self.uses_scylla()
    }

    /// The largest text or value that a slot of the journal takes.
    pub(crate) fn slot_text_max(&self) -> usize {
        self.journal_slot.0 / 2
    }

    /// Where data is and how durable, for people: the whole path of the embedded store, or the URL of another.
    pub(crate) fn data_and_durability(&self) -> (String, String) {
        let url = self.store.0.as_str();
        if url != "embedded" && !url.starts_with("embedded:") {
            return (masked(url), "of that store".to_owned());
        }
        let path = std::path::absolute(self.data_dir()).unwrap_or_else(|_| self.data_dir().into());
        (path.display().to_string(), self.durability.show().trim_matches('"').to_owned())
    }

    /// The directory of the embedded store.
    pub(crate) fn data_dir(&self) -> &str {
        self.store.0.strip_prefix("embedded:").filter(|dir| !dir.is_empty()).unwrap_or(&self.data)
    }
}
