//! Rules of the configuration that concern several settings or need context.

use std::time::Duration;

use super::Config;

/// The kind of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Embedded,
    Postgres,
}

/// The kind of the message log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    Direct,
    Amqp,
}

/// Error of a program built without RabbitMQ.
pub(crate) const NO_AMQP: &str = "log.url names RabbitMQ, which this hubbub was built without: build it with the \
    feature amqp (cargo build --features amqp)";

/// Error of a program built without PostgreSQL.
pub(crate) const NO_POSTGRES: &str = "store.url names PostgreSQL, which this hubbub was built without: build it with \
    the feature postgres (cargo build --features postgres)";

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
        match self.store_kind() {
            StoreKind::Embedded => require(
                url == "embedded" || url.starts_with("embedded:"),
                "store.url must be embedded, embedded:DIR or postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ),
            StoreKind::Postgres => self.check_postgres(&mut require),
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
        for (key, value) in [
            ("server.connections", *self.connections),
            ("pipeline.queue_operations", *self.queue_operations),
            ("pipeline.queue_bytes", self.queue_bytes.0),
            ("kv.cache_entries", *self.kv_cache_entries),
            ("limits.queue_message_bytes", self.queue_message_bytes.0),
            ("limits.value_bytes", self.value_bytes.0),
            ("limits.subscriptions", *self.subscriptions),
            ("limits.all_rooms", *self.all_rooms),
            ("limits.page_messages", *self.page_messages),
            ("limits.outbox_messages", *self.outbox_messages),
            ("limits.outbox_bytes", self.outbox_bytes.0),
        ] {
            require(value > 0, &format!("{key} must be at least 1"));
        }
        require(self.page_messages.value <= 10_000, "limits.page_messages must be at most 10000");
        for (key, value) in [
            ("server.header_timeout", *self.header_timeout),
            ("server.body_timeout", *self.body_timeout),
            ("server.ping_interval", *self.ping_interval),
            ("server.pong_timeout", *self.pong_timeout),
            ("server.terms_timeout", *self.terms_timeout),
            ("clock.trust_after", *self.clock_trust_after),
        ] {
            require(!value.is_zero(), &format!("{key} must be longer than 0"));
        }
    }

    fn check_log(&self, require: &mut impl FnMut(bool, &str)) {
        if self.log_kind() == LogKind::Direct {
            let url = self.log.0.as_str();
            require(url == "direct", "log.url must be direct or amqp://USER:PASSWORD@HOST:PORT/VHOST");
            return;
        }
        require(cfg!(feature = "amqp"), NO_AMQP);
        #[cfg(feature = "amqp")]
        if let Err(error) = hubbub_pipeline::log::amqp::Address::parse(&self.log.0) {
            require(false, &format!("log.url {error}"));
        }
        for (key, value, most) in
            [("amqp.shards", *self.amqp_shards, 64), ("amqp.prefetch", *self.amqp_prefetch, 65_535)]
        {
            require((1..=most).contains(&value), &format!("{key} must be 1 to {most}"));
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
        for (key, value) in [
            ("store.postgres.pool.max", *self.postgres_pool_max),
            ("store.postgres.lanes", *self.postgres_lanes),
        ] {
            require(value > 0, &format!("{key} must be at least 1"));
        }
        require(
            *self.postgres_pool_min <= *self.postgres_pool_max,
            "store.postgres.pool.min must not be more than store.postgres.pool.max",
        );
        for (key, value) in [
            ("store.postgres.pool.acquire_timeout", *self.postgres_pool_acquire_timeout),
            ("store.postgres.pool.idle_timeout", *self.postgres_pool_idle_timeout),
            ("store.postgres.pool.max_lifetime", *self.postgres_pool_max_lifetime),
            ("store.postgres.apply_timeout", *self.postgres_apply_timeout),
            ("store.postgres.replica_lag", *self.postgres_replica_lag),
        ] {
            require(!value.is_zero(), &format!("{key} must be longer than 0"));
        }
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

    /// Which log the URL names.
    pub(crate) fn log_kind(&self) -> LogKind {
        let url = self.log.0.as_str();
        if url.starts_with("amqp://") || url.starts_with("amqps://") {
            LogKind::Amqp
        } else {
            LogKind::Direct
        }
    }

    /// Which store the URL names.
    pub(crate) fn store_kind(&self) -> StoreKind {
        if is_postgres(&self.store.0) { StoreKind::Postgres } else { StoreKind::Embedded }
    }

    /// The directory of the embedded store.
    pub(crate) fn data_dir(&self) -> &str {
        self.store.0.strip_prefix("embedded:").filter(|dir| !dir.is_empty()).unwrap_or(&self.data)
    }
}
