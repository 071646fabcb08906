//! The broker's address, and its errors explained with a remedy for the operator.

use std::fmt;

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::uri::AMQPUri;

/// Heartbeat in seconds: after this silence both sides consider the connection lost.
const HEARTBEAT_S: u16 = 10;
/// Time-out of connecting, in milliseconds.
const CONNECT_MS: u64 = 10_000;

/// Why the broker cannot be used: one line with the problem and the remedy, without the password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AmqpError(pub(super) String);

/// Address, credentials and virtual host of a broker. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(AMQPUri);

impl Address {
    /// From `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS. Without a virtual host `/` is meant.
    pub fn parse(url: &str) -> Result<Self, AmqpError> {
        let bad = || {
            AmqpError(
                "must be amqp://user:password@host:5672/vhost, or amqps:// for TLS; escape other characters \
                 than letters and digits in user, password and vhost, such as / as %2F"
                    .to_owned(),
            )
        };
        let mut uri: AMQPUri = url.parse().map_err(|_| bad())?;
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        uri.query.connection_timeout.get_or_insert(CONNECT_MS);
        Ok(Self(uri))
    }

    pub(super) fn uri(&self) -> AMQPUri {
        self.0.clone()
    }

    fn user(&self) -> &str {
        &self.0.authority.userinfo.username
    }

    fn grant(&self, what: &str) -> String {
        format!(
            "grant it {what} with: rabbitmqctl set_permissions -p '{}' '{}' '.*' '.*' '.*'",
            self.0.vhost,
            self.user()
        )
    }

    /// Explains an error of the operation `what`.
    pub(super) fn explain(&self, what: &str, error: &lapin::Error) -> AmqpError {
        AmqpError(format!("{what} at {self}: {}", self.meaning(error)))
    }

    fn meaning(&self, error: &lapin::Error) -> String {
        let (kind, text) = match error.kind() {
            ErrorKind::ProtocolError(error) => (error.kind(), error.get_message().as_str()),
            ErrorKind::IOError(error) => return transport_error(&error.to_string()),
            ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
                return "the server there does not speak AMQP 0-9-1: use amqps:// if it speaks TLS, or correct the \
                        port in log.url"
                    .to_owned();
            }
            _ => return error.to_string(),
        };
        let advice = match kind {
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if text.contains("not found") => {
                format!("create the virtual host with: rabbitmqctl add_vhost '{}', or correct log.url", self.0.vhost)
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => self.grant("the virtual host"),
            AMQPErrorKind::Hard(AMQPHardError::COMMANDINVALID) if text.contains("x-consistent-hash") => {
                "enable the plugin with: rabbitmq-plugins enable rabbitmq_consistent_hash_exchange, or set amqp.shards = 1"
                    .to_owned()
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) if text.contains("Login") || text.contains("login") => {
                "the user or the password is wrong: correct log.url".to_owned()
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => self.grant("that right"),
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
                "delete the existing one, or choose another name with amqp.exchange or amqp.queue_prefix".to_owned()
            }
            _ => return text.to_owned(),
        };
        format!("{text}; {advice}")
    }
}

/// Explains an error of the connection itself, by the text of the library or the system.
fn transport_error(words: &str) -> String {
    let advice = if words.contains("certificate") {
        "name the authority that signed it in amqp.ca; the host in log.url must be one of the certificate's names"
    } else if words.contains("InvalidContentType") {
        "the server there does not speak TLS: use amqp://, or correct the port in log.url"
    } else {
        "RabbitMQ does not answer there: start it, or correct log.url"
    };
    format!("{words}; {advice}")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.0;
        write!(
            f,
            "{scheme}://{}@{}:{}/{}",
            self.user(),
            authority.host,
            authority.port,
            vhost.trim_start_matches('/')
        )
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in ["amqp://ada:s%2Fecret@broker:5673/chat", "amqps://ada:s%2Fecret@broker:5673/chat"] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.uri().authority.userinfo.password, "s/ecret");
            for shown in [format!("{address}"), format!("{address:?}")] {
                assert!(!shown.contains("ecret") && shown.ends_with("://ada@broker:5673/chat"), "{shown}");
            }
        }
        for bad in ["http://x", "amqp", "amqp:secret", "amqp://u:secret@h:port/"] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_default_virtual_host_is_slash() {
        for url in ["amqp://h", "amqp://h/", "amqp://h/%2f"] {
            assert_eq!(Address::parse(url).unwrap().uri().vhost, "/", "{url}");
        }
    }
}
