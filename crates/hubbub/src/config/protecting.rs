//! Settings that are to protect something, but concern what is not in use: whoever sets one believes that it does. A server refuses
//! them; commands that serve nothing read them, too, and leave them alone.

use std::path::Path;

use super::setting::Sourced;
use super::{Config, Source};

/// The setting's value, where it was set and is not off.
fn set<T>(setting: &Sourced<Option<T>>) -> bool {
    setting.is_some() && setting.source != Source::Default
}

impl Config {
    pub(super) fn check_protecting(&self, require: &mut impl FnMut(bool, &str)) {
        self.check_encryption(require);
        self.check_retention(require);
        // Whoever says that there are no authorities has not forgotten them.
        let wants_certificates = self.tls_client_auth.source != Source::Default
            && *self.tls_client_auth == super::ClientAuth::Required
            && self.tls_client_ca.is_none()
            && self.tls_client_ca.source == Source::Default;
        require(
            !wants_certificates,
            "tls.client_auth = required needs tls.client_ca, the authorities that sign clients' certificates: without it no client \
             needs one",
        );
    }

    /// Files of TLS, while the connection is not encrypted.
    fn check_encryption(&self, require: &mut impl FnMut(bool, &str)) {
        for (key, setting, url, plain, encrypted) in [
            ("kafka.ca", &self.kafka_ca, &self.log, "kafka", "log.url = kafkas"),
            ("kafka.cert", &self.kafka_cert, &self.log, "kafka", "log.url = kafkas"),
            ("kafka.key", &self.kafka_key, &self.log, "kafka", "log.url = kafkas"),
            ("amqp.ca", &self.amqp_ca, &self.log, "amqp", "log.url = amqps"),
            ("store.scylla.ca", &self.scylla_ca, &self.store, "scylla", "store.url = scyllas"),
            ("store.scylla.cert", &self.scylla_cert, &self.store, "scylla", "store.url = scyllas"),
            ("store.scylla.key", &self.scylla_key, &self.store, "scylla", "store.url = scyllas"),
        ] {
            require(
                !(set(setting) && url.0.starts_with(&format!("{plain}://"))),
                &format!("{key} needs {encrypted}://…: with {plain}:// nothing is encrypted"),
            );
        }
    }

    /// Retention of another store, while this one keeps everything.
    fn check_retention(&self, require: &mut impl FnMut(bool, &str)) {
        for (key, setting, store, is_used) in [
            ("store.embedded.retention", &self.retention, "the embedded store", self.uses_embedded()),
            ("store.postgres.retention", &self.postgres_retention, "PostgreSQL", self.uses_postgres()),
            ("store.scylla.retention", &self.scylla_retention, "Cassandra or ScyllaDB", self.uses_scylla()),
        ] {
            require(
                !set(setting) || is_used,
                &format!("{key} is for {store}, which store.url does not name: it would delete nothing"),
            );
        }
    }

    /// A directory on the command line is not passed over for what is written elsewhere.
    pub(super) fn check_data(&self, require: &mut impl FnMut(bool, &str)) {
        let dir = self.data_dir();
        require(
            !(self.uses_embedded() && Path::new(dir).is_file()),
            &format!("{dir} is a file: name a directory for the data (--data DIR, store.data)"),
        );
        let Source::Flag(flag) = &self.data.source else { return };
        let url = self.store.0.as_str();
        let is_other = match url.strip_prefix("embedded") {
            Some(_) => self.data_dir() != self.data.as_str(),
            None => !matches!(self.store.source, Source::Flag(_)),
        };
        require(
            !is_other,
            &format!(
                "{flag} {} is not used: store.url is {} ({}); leave one of them out, or add --store embedded",
                self.data.as_str(),
                hubbub_core::url::masked(url),
                self.store.source
            ),
        );
    }
}
