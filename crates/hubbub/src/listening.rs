//! The sockets that a server listens on: bound before the store is opened, listening when it can answer.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail};
use tokio::net::{TcpListener, TcpSocket};

use crate::config::{Address, Config, ConfigError};

/// Length of the accept queue, for thousands of clients that reconnect at once. The system may limit it
/// (net.core.somaxconn).
const PENDING_CONNECTIONS: u32 = 65_535;

/// Binds the address `wanted` of the setting `key`. Returns the socket and its actual address.
pub(crate) async fn bind(
    config: &Config,
    key: &str,
    wanted: &str,
) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let binding = || format!("listening on {wanted} ({key})");
    let mut bound = Err(io::Error::new(io::ErrorKind::InvalidInput, "the name has no address"));
    for address in tokio::net::lookup_host(wanted).await.with_context(binding)? {
        bound = bind_to(address);
        if bound.is_ok() {
            break;
        }
    }
    let socket = match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            bail!("{}: {error}; {}", binding(), another(key, wanted))
        }
        bound => bound.with_context(binding)?,
    };
    let address = socket.local_addr().context("asking for the address listened on")?;
    refuse_unauthenticated(config, key, address.ip())?;
    Ok((socket, address))
}

/// How to take another port than that of the address `wanted`.
fn another(key: &str, wanted: &str) -> String {
    let flag = key.strip_prefix("server.").unwrap_or(key);
    let next =
        |(host, port): (&str, &str)| Some((host.to_owned(), port.parse::<u16>().ok()?.checked_add(1)?));
    let address = match wanted.rsplit_once(':').and_then(next) {
        Some((host, port)) if host == Address::HOST_DEFAULT => port.to_string(),
        Some((host, port)) => format!("{host}:{port}"),
        None => "PORT".to_owned(),
    };
    format!("choose another port with --{flag} {address}")
}

fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that was stopped leaves connections behind, which are in nobody's way.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens on a socket of [`bind`].
pub(crate) fn listen(socket: TcpSocket, key: &str) -> anyhow::Result<TcpListener> {
    let address = socket.local_addr().context("asking for the address listened on")?;
    socket.listen(PENDING_CONNECTIONS).with_context(|| format!("listening on {address} ({key})"))
}

/// Refuses non-loopback addresses without authentication, unless `server.insecure` allows them.
pub(crate) fn refuse_unauthenticated(config: &Config, key: &str, address: IpAddr) -> Result<(), ConfigError> {
    let has_auth = config.has_auth();
    if has_auth && !address.is_loopback() && config.tls_cert.is_none() {
        tracing::warn!(
            "{key} {address} can be reached from other machines without TLS: tokens and messages can be read on the \
             way; put a proxy with TLS in front"
        );
    }
    if address.is_loopback() || has_auth || *config.insecure {
        return Ok(());
    }
    Err(ConfigError(vec![format!(
        "{key} {address} can be reached from other machines, and the server has no authentication; \
         set auth.secret (docs/security.md), listen on 127.0.0.1, or pass --insecure to allow it"
    )]))
}

/// Refuses one port for both protocols, as far as the addresses tell.
pub(crate) fn refuse_shared(http: SocketAddr, line: SocketAddr) -> Result<(), ConfigError> {
    // Every address of IPv6 has those of IPv4 in it.
    let has = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let meet = http.ip() == line.ip() || has(http.ip(), line.ip()) || has(line.ip(), http.ip());
    if http.port() == 0 || http.port() != line.port() || !meet {
        return Ok(());
    }
    Err(ConfigError(vec![format!(
        "server.line {line} is taken by server.listen {http}: each protocol needs a port of its own; {}",
        another("server.line", &line.to_string())
    )]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_is_not_for_two_protocols() {
        let refused =
            |http: &str, line: &str| refuse_shared(http.parse().unwrap(), line.parse().unwrap()).is_err();
        for (http, line) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("127.0.0.1:8080", "[::]:8080"),
            ("[::1]:8080", "[::]:8080"),
        ] {
            assert!(refused(http, line), "{http} {line}");
        }
        for (http, line) in [
            ("127.0.0.1:8080", "127.0.0.1:8081"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:8080", "127.0.0.2:8080"),
            ("[::1]:8080", "0.0.0.0:8080"),
        ] {
            assert!(!refused(http, line), "{http} {line}");
        }
    }

    #[test]
    fn another_port_is_the_next() {
        let told = |key, wanted| another(key, wanted);
        assert_eq!(told("server.listen", "127.0.0.1:8080"), "choose another port with --listen 8081");
        assert_eq!(told("server.line", "[::1]:7777"), "choose another port with --line [::1]:7778");
        assert_eq!(told("server.line", "0.0.0.0:65535"), "choose another port with --line PORT");
    }
}
