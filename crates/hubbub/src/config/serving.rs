//! What `hubbub config check` refuses besides: what `serve` would be refused for before it opens anything, and a file of keys
//! (auth.jwks) without which it would start, but refuse every token.

use std::net::SocketAddr;

use hubbub_gateway::auth::KeySetSource;

use super::{Config, ConfigError};
use crate::{listening, tls};

/// All that a server would be refused for or miss, as far as files and settings tell.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    let mut note = |checked: Result<(), ConfigError>| {
        if let Err(ConfigError(found)) = checked {
            faults.extend(found);
        }
    };
    note(config.check_server());
    // What a name stands for, only the machine that serves knows.
    let address = |written: &str| written.parse::<SocketAddr>().ok();
    let (http, line) = (address(&config.listen), config.line.as_deref().and_then(address));
    for (key, address) in [("server.listen", http), ("server.line", line)] {
        if let Some(address) = address {
            note(listening::refuse_unauthenticated(config, key, address.ip()));
        }
    }
    if let (Some(http), Some(line)) = (http, line) {
        note(listening::refuse_shared(http, line));
    }
    note(tls::check(config));
    note(key_set(config).map_err(|fault| ConfigError(vec![fault])));
    if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
}

/// Reads the file of keys. A server would start without them, and refuse every token until it is there.
fn key_set(config: &Config) -> Result<(), String> {
    let (Some(KeySetSource::File(path)), Some(verifier)) = (config.auth_key_set()?, config.verifier()?)
    else {
        return Ok(());
    };
    let named = |error: String| format!("auth.jwks: {}: {error}", path.display());
    let text = std::fs::read(&path).map_err(|error| named(error.to_string()))?;
    verifier.replace_set(&text).map_err(named)
}
