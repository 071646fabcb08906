//! Rules of the configuration that concern several settings or need context.

use std::time::Duration;

use super::{Config, ConfigError};

/// Error of a program built without RabbitMQ.
const NO_AMQP: &str = "log.url names RabbitMQ, which this hubbub was built without: build it with the \
    feature amqp (cargo build --features amqp)";

/// Error of a program built without PostgreSQL.
const NO_POSTGRES: &str = "store.url names PostgreSQL, which this hubbub was built without: build it with \
    the feature postgres (cargo build --features postgres)";

/// Error of a program built without Cassandra.
const NO_SCYLLA: &str = "store.url names Cassandra or ScyllaDB, which this hubbub was built without: build it with \
    the feature scylla (cargo build --features scylla)";

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
        let message_max = hubbub_core::limits::MESSAGE_BYTES_MAX;
        require(
            (1..=message_max).contains(&self.message_bytes.0),
            "limits.message_bytes must be 1B to 16MiB",
        );
        // A body is a message and a little JSON around it.
        require(
            self.body_bytes.0 >= self.message_bytes.0,
            "limits.body_bytes must not be less than limits.message_bytes",
        );
        // A batch is at most an eighth of a slot, or one message or value of any size; offsets in a slot have 32 bits.
        let largest = self.message_bytes.0.max(self.queue_message_bytes.0).max(self.value_bytes.0);
        let slot_min = (1 << 20).max(largest.saturating_mul(2));
        require(
            (slot_min..=2 << 30).contains(&self.journal_slot.0),
            "store.embedded.journal_slot must be 1MiB to 2GiB, and at least twice limits.message_bytes, \
             limits.queue_message_bytes and limits.value_bytes",
        );
    }

    /// What a server needs, and other commands do not.
    pub(crate) fn check_server(&self) -> Result<(), ConfigError> {
        let mut faults = Vec::new();
        if self.uses_scylla() {
            if !self.log.0.starts_with("kafka://") {
                faults.push("--store scylla:// requires --log kafka://".to_owned());
            }
            if self.line.is_some() {
                faults.push("server.line is for queues, which a store on scylla:// does not have".to_owned());
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
    }

    fn check_log(&self, require: &mut impl FnMut(bool, &str)) {
        if !self.uses_amqp() {
            let url = self.log.0.as_str();
            require(url == "direct", "log.url must be direct or amqp://USER:PASSWORD@HOST:PORT/VHOST");
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

    /// Whether the store is Cassandra or ScyllaDB.
    pub(crate) fn uses_scylla(&self) -> bool {
        self.store.0.starts_with("scylla://")
    }

    /// Whether the store is PostgreSQL, and not the embedded one.
    pub(crate) fn uses_postgres(&self) -> bool {
        is_postgres(&self.store.0)
    }

    /// The directory of the embedded store.
    pub(crate) fn data_dir(&self) -> &str {
        self.store.0.strip_prefix("embedded:").filter(|dir| !dir.is_empty()).unwrap_or(&self.data)
    }
}
