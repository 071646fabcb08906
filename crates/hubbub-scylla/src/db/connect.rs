//! Connecting, and what to do where it fails.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use super::{OpenError, profile};
use crate::options::{Address, ScyllaOptions};

/// Pause between two questions whether all nodes have a change of the schema.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(20);

/// Connects, without a keyspace.
pub(crate) async fn connect(
    address: &Address,
    options: &ScyllaOptions,
) -> std::result::Result<Session, OpenError> {
    let profile = profile(options).build().into_handle();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.hosts)
        .default_execution_profile_handle(profile)
        .connection_timeout(options.statement_timeout)
        .schema_agreement_interval(AGREEMENT_INTERVAL)
        .refresh_metadata_on_auto_schema_agreement(false);
    if let Some((user, password)) = &address.login {
        builder = builder.user(user, password);
    }
    if address.is_tls {
        let config = options.tls.client("store.scylla").map_err(|error| OpenError(error.to_string()))?;
        builder = builder.tls_context(Some(Arc::new(config)));
    }
    let hosts = address.hosts.join(", ");
    builder.build().await.map_err(|error| unusable(&hosts, &error.to_string(), address.is_tls))
}

/// One line about a connection that failed, by the text of the library, some of which have several lines.
fn unusable(hosts: &str, error: &str, is_tls: bool) -> OpenError {
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let error = error.trim_end_matches('.');
    OpenError(format!("no CQL server can be used at {hosts}: {error}; {}", advice(error, is_tls)))
}

/// What to do about a connection that failed, by the text of the library.
fn advice(error: &str, is_tls: bool) -> &'static str {
    let has = |text: &str| error.contains(text);
    if has("invalid peer certificate") {
        "name the authority that signed it in store.scylla.ca; the server's IP address must be one of its names"
    } else if has("AlertReceived") || has("received fatal alert") {
        "the server refuses this client's certificate: correct store.scylla.cert and store.scylla.key"
    } else if has("Authentication is required") || has("Authentication failed") || has("BadCredentials") {
        "the user or the password is wrong: correct store.url"
    } else if is_tls && has("connection setup request") {
        // The refusal of a certificate comes after the handshake, and is lost where the connection ends at once behind it.
        "the server ended the connection behind the TLS handshake: if it asks clients for certificates, set or correct \
         store.scylla.cert and store.scylla.key"
    } else if is_tls {
        "start it, or correct store.url: scylla:// if it does not speak TLS"
    } else {
        "start it, or correct store.url: scyllas:// if it speaks TLS"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_explained_however_the_connection_ends() {
        let alert = "Connection pool error: received fatal alert: CertificateRequired";
        let broken = "The pool is broken; Last connection failed with: Failed to perform a connection setup request. \
                      Request: OPTIONS, reason: Connection broken";
        for error in [alert, broken] {
            assert!(advice(error, true).contains("store.scylla.cert"), "{error}");
        }
        assert!(advice(broken, false).contains("scyllas://"));
        let lines = format!("{broken}, reason: Failed to send.\n        The connection was already broken.");
        let OpenError(line) = unusable("db:9042", &lines, true);
        assert!(
            !line.contains('\n') && line.contains("broken, reason: Failed to send. The connection"),
            "{line}"
        );
        assert!(line.ends_with("store.scylla.key"), "{line}");
        assert!(advice("Connection refused", true).starts_with("start it"));
    }
}
