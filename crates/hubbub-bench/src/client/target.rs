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

/// The servers of a run, one at least. Connections and subscribers take them in turn.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    first: Target,
    others: Vec<Target>,
}

impl From<Target> for Targets {
    fn from(first: Target) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl Targets {
    /// Takes one URL at least.
    pub(crate) fn parse(urls: &[String]) -> anyhow::Result<Self> {
        let (first, others) = urls.split_first().context("there is no --server")?;
        let others = others.iter().map(|url| Target::parse(url)).collect::<anyhow::Result<_>>()?;
        Ok(Self { first: Target::parse(first)?, others })
    }

    pub(crate) fn first(&self) -> &Target {
        &self.first
    }

    /// The server of connection `who`.
    pub(crate) fn of(&self, who: usize) -> &Target {
        let turn = (who % self.len()).checked_sub(1);
        turn.and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Target> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The figures of all of them, one after another: whoever reads them adds up what has the same name.
    ///
    /// # Errors
    /// The first that does not answer.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        let mut all = String::new();
        for target in self.iter() {
            all.push_str(&crate::caller::get(target, "/metrics").await?);
        }
        Ok(all)
    }
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

    /// The first address that its name has.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addr
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

    #[test]
    fn servers_take_turns() {
        let urls = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(str::to_owned);
        let targets = Targets::parse(&urls).expect("addresses");
        let turns: Vec<&str> = (0..5).map(|who| targets.of(who).host.as_str()).collect();
        assert_eq!(turns, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2"]);
        assert!(targets.iter().map(|target| target.host.as_str()).eq(turns.into_iter().take(3)));
        assert!(Targets::parse(&[]).is_err());
    }
}
