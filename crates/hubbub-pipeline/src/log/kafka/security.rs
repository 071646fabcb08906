//! TLS and SASL: settings of the client library, and its errors explained with a remedy for the operator.

use std::path::PathBuf;

use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::{ClientConfig, ClientContext};

use super::address::{Brokers, KafkaError};
use super::producer;

/// How connections are encrypted and authenticated. Whether they are says the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaSecurity {
    /// PEM file of certificates to trust; `None` = the system's.
    pub ca: Option<PathBuf>,
    /// PEM file of the client's own certificate; needs `key`.
    pub cert: Option<PathBuf>,
    /// PEM file of its private key.
    pub key: Option<PathBuf>,
    /// How user and password of the address are sent.
    pub mechanism: SaslMechanism,
}

/// How a user proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaslMechanism {
    /// The password itself is sent.
    Plain,
    /// Salted and hashed with SHA-256.
    ScramSha256,
    /// Salted and hashed with SHA-512.
    #[default]
    ScramSha512,
}

impl SaslMechanism {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl KafkaSecurity {
    pub(super) fn apply(&self, brokers: &Brokers, config: &mut ClientConfig) {
        let protocol = match (brokers.is_tls(), brokers.login()) {
            (false, None) => return,
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some((user, password)) = brokers.login() {
            config.set("sasl.mechanisms", self.mechanism.name());
            config.set("sasl.username", user).set("sasl.password", password);
        }
        if brokers.is_tls() {
            let path = |path: &PathBuf| path.display().to_string();
            config.set("ssl.ca.location", self.ca.as_ref().map_or("probe".to_owned(), path));
            if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
                config.set("ssl.certificate.location", path(cert)).set("ssl.key.location", path(key));
            }
        }
    }

    /// Looks at the files, so that what is wrong with one names its setting.
    pub(super) fn check(&self) -> Result<(), KafkaError> {
        for (setting, path, begin) in [
            ("kafka.ca", &self.ca, "-----BEGIN CERTIFICATE-----"),
            ("kafka.cert", &self.cert, "-----BEGIN CERTIFICATE-----"),
            ("kafka.key", &self.key, "PRIVATE KEY-----"),
        ] {
            let Some(path) = path else { continue };
            let unreadable = |reason: &str| {
                KafkaError(format!("the file of {setting} ({}) cannot be read: {reason}", path.display()))
            };
            let pem = std::fs::read_to_string(path).map_err(|error| unreadable(&error.to_string()))?;
            if !pem.contains(begin) {
                let what = if setting == "kafka.key" { "private key" } else { "certificate" };
                return Err(unreadable(&format!("it contains no PEM {what}")));
            }
        }
        Ok(())
    }
}

/// Remembers why the library's last connection failed: its errors do not say.
#[derive(Debug, Default)]
pub(super) struct LastFault(Mutex<Option<String>>);

impl ClientContext for LastFault {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        if facility == "FAIL" {
            // Behind the names of the thread and the broker.
            let text = text.splitn(2, "]: ").last().unwrap_or(text);
            *self.0.lock() = Some(text.replace('\n', " "));
        }
        if !matches!(level, RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug) {
            producer::log(level, facility, text);
        }
    }
}

impl ConsumerContext for LastFault {}

impl LastFault {
    /// For a client that this is the context of: a connection that was closed is no warning.
    pub(super) fn listening(mut config: ClientConfig) -> ClientConfig {
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Whether waiting does not help.
pub(super) fn is_final(fault: &str) -> bool {
    ["SSL handshake failed", "SASL "].iter().any(|text| fault.contains(text))
}

/// What to do about a fault of a connection.
pub(super) fn advice(fault: &str) -> Option<&'static str> {
    let has = |text: &str| fault.contains(text);
    if has("certificate verify failed") || has("broker certificate") {
        Some(
            "name the authority that signed it in kafka.ca; the host in log.url, and those that the brokers advertise, \
             must be among the certificate's names",
        )
    } else if has("certificate required") || has("bad certificate") || has("unknown ca") {
        Some("the brokers refuse this client's certificate: correct kafka.cert and kafka.key")
    } else if has("Unsupported SASL mechanism") || has("SASL mechanism handshake failed") {
        Some("choose one that the brokers support with kafka.sasl")
    } else if has("SASL") && (has("uthentication") || has("credentials")) {
        Some("the user or the password is wrong: correct log.url, or kafka.sasl")
    } else if has("SSL handshake failed") {
        Some("the brokers do not speak TLS there: use kafka://, or correct the port in log.url")
    } else if has("APIVERSION_QUERY") || has("incorrect security.protocol configuration") {
        Some(
            "the brokers there want TLS or a user and a password: use kafkas://USER:PASSWORD@HOST:PORT in log.url",
        )
    } else {
        None
    }
}
