//! Where the server is.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpStream;

use crate::wire::Wire;

#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `host:port`, for the `Host` header.
    pub(crate) host: String,
    /// What stands before the paths; empty or `/something`.
    pub(crate) prefix: String,
    addr: SocketAddr,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Target {
    /// Takes `http://host:port[/prefix]`, also without the scheme.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        if let Some((scheme @ ("https" | "wss"), _)) = url.split_once("://") {
            bail!("{url}: {scheme} is not supported here; give the plain http address of the server");
        }
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("ws://")).unwrap_or(url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let addr = host
            .to_socket_addrs()
            .with_context(|| format!("{url} is no address of a server"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { host, prefix, addr })
    }

    pub(crate) async fn open(&self) -> anyhow::Result<Wire> {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.addr)).await;
        let stream = connecting.context("no answer in time").and_then(|connected| Ok(connected?));
        let wire = stream.and_then(|stream| Ok(Wire::new(stream)?));
        wire.with_context(|| format!("cannot connect to {}", self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = Target::parse("http://127.0.0.1:8080/chat-server/").expect("address");
        assert_eq!((target.host.as_str(), target.prefix.as_str()), ("127.0.0.1:8080", "/chat-server"));
        assert_eq!(Target::parse("127.0.0.1").expect("address").host, "127.0.0.1:80");
        assert!(Target::parse("https://127.0.0.1").is_err());
    }
}
