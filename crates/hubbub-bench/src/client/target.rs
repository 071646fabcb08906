//! Where the server is.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Context;
use hubbub_client::Address;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use crate::client::access::{Credentials, Hidden};
use crate::client::stream::Encryption;
use crate::client::wire::Wire;

#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `host:port`, for the `Host` header.
    pub(crate) host: String,
    /// What stands before the paths; empty or `/something`.
    pub(crate) prefix: String,
    /// Lines that the head of every request has: the token.
    pub(crate) headers: Hidden,
    addr: SocketAddr,
    encryption: Option<Encryption>,
    credentials: Credentials,
    token: Option<Hidden>,
    /// It speaks the line protocol.
    is_line: bool,
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
    pub(crate) fn parse(urls: &[String], credentials: &Credentials) -> anyhow::Result<Self> {
        let (first, others) = urls.split_first().context("there is no --server")?;
        let parse = |url: &String| Target::with(url, credentials);
        Ok(Self { first: parse(first)?, others: others.iter().map(parse).collect::<anyhow::Result<_>>()? })
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
            all.push_str(&crate::client::caller::get(target, "/metrics").await?);
        }
        Ok(all)
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Target {
    /// A server that is open to everybody.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        Self::with(url, &Credentials::default())
    }

    /// Takes what `--server` takes; for WebSockets and the line protocol the same.
    pub(crate) fn with(url: &str, credentials: &Credentials) -> anyhow::Result<Self> {
        let address: Address = url.parse().with_context(|| format!("{url} is no address of a server"))?;
        let (host, prefix) = (address.authority(), address.prefix().to_owned());
        let addr = host
            .to_socket_addrs()
            .with_context(|| format!("{url} is no address of a server"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        let encryption = if address.is_encrypted() {
            let (name, _) = host.rsplit_once(':').unwrap_or((&host, ""));
            // In a URL, an IPv6 address stands in brackets.
            let name = name.trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(name).with_context(|| format!("{url} is no name of a server"))?;
            Some(Encryption { config: credentials.tls()?, name })
        } else {
            None
        };
        let (headers, credentials) = (Hidden::from(String::new()), credentials.clone());
        let target =
            Self { host, prefix, headers, addr, encryption, credentials, token: None, is_line: false };
        let token = target.credentials.of_service();
        Ok(target.with_token(token))
    }

    /// Whether it is on this machine, by its address.
    pub(crate) fn is_loopback(&self) -> bool {
        self.addr.ip().is_loopback()
    }

    /// Where the same server speaks the line protocol.
    pub(crate) fn line(&self, address: &str) -> anyhow::Result<Self> {
        Ok(Self { is_line: true, ..Self::with(address, &self.credentials)? })
    }

    fn with_token(self, token: Option<String>) -> Self {
        let headers = token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        Self { headers: headers.unwrap_or_default().into(), token: token.map(Into::into), ..self }
    }

    /// The same server for the connection of a user, who has a token of its own where each has.
    pub(crate) fn of_user(&self, name: &str) -> Self {
        if self.has_own_users() {
            self.clone().with_token(self.credentials.of_user(name))
        } else {
            self.clone()
        }
    }

    /// Whether each connection must be one user.
    pub(crate) fn has_own_users(&self) -> bool {
        self.credentials.has_own_users()
    }

    /// What a connection says first, if it has a token and no headers to put it into.
    pub(crate) fn greeting(&self) -> Option<String> {
        let token = self.token.as_deref().filter(|_| self.is_line)?;
        Some(format!("auth\ntoken:{token}\n"))
    }

    /// As `--server` takes it.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.encryption.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.host, self.prefix)
    }

    /// The first address that its name has.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) async fn open(&self) -> anyhow::Result<Wire> {
        let connecting = async {
            let stream = TcpStream::connect(self.addr).await?;
            Wire::connect(stream, self.encryption.as_ref()).await
        };
        // In a box: the task of a connection would keep the place of a TLS handshake for as long as it lives.
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(connecting)).await;
        let wire = connected.context("no answer in time").and_then(|connected| Ok(connected?));
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
        assert_eq!(target.url(), "http://127.0.0.1:8080/chat-server");
        assert_eq!(Target::parse("https://127.0.0.1").expect("address").url(), "https://127.0.0.1:443");
        assert_eq!(Target::parse("http://127.0.0.1/x").expect("address").host, "127.0.0.1:80");
        // Not the address that this number would be.
        assert_eq!(Target::parse("8080").expect("address").host, "127.0.0.1:8080");
        for wrong in ["ftp://127.0.0.1", "https://127.0.0.1:x", "127.0.0.1:1:2", "127.0.0.1"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn servers_take_turns() {
        let urls = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(str::to_owned);
        let targets = Targets::parse(&urls, &Credentials::default()).expect("addresses");
        let turns: Vec<&str> = (0..5).map(|who| targets.of(who).host.as_str()).collect();
        assert_eq!(turns, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2"]);
        assert!(targets.iter().map(|target| target.host.as_str()).eq(turns.into_iter().take(3)));
        assert!(Targets::parse(&[], &Credentials::default()).is_err());
    }
}
