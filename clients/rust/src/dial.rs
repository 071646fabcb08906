//! Connections to a host that may have several addresses, of which some may lead nowhere: each gets its turn soon (RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

/// How long an address is tried alone before the next one is tried, too.
const HEAD_START: Duration = Duration::from_millis(250);

/// A connection to the first address that answers. No time limit.
pub(crate) async fn dial(authority: &str) -> io::Result<TcpStream> {
    let addresses = lookup_host(authority).await?;
    first_of(in_turns(addresses.collect()), TcpStream::connect).await
}

/// The families in turns, beginning with that of the first address: what leads nowhere is often a whole family.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == begins_with_v6);
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    let mut turns = Vec::with_capacity(first.len() + other.len());
    while first.len() + other.len() > 0 {
        turns.extend(first.next().into_iter().chain(other.next()));
    }
    turns
}

/// What the first address brings that brings something, or the last error. Those that are late are given up.
async fn first_of<T, F>(addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(connect(address));
        }
        let head_start = if waiting.len() > 0 { HEAD_START } else { Duration::MAX };
        match tokio::time::timeout(head_start, attempts.join_next()).await {
            Ok(Some(Ok(Ok(connected)))) => return Ok(connected),
            Ok(Some(Ok(Err(error)))) => failed = error,
            Ok(Some(Err(ended))) => failed = io::Error::other(ended),
            Ok(None) => return Err(failed),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// One leads nowhere, one is refused, one answers.
    async fn connect(address: SocketAddr) -> io::Result<u16> {
        match address.port() {
            1 => std::future::pending().await,
            2 => Err(io::ErrorKind::ConnectionRefused.into()),
            port => Ok(port),
        }
    }

    /// Nobody waits by this clock.
    #[tokio::test(start_paused = true)]
    async fn an_address_that_leads_nowhere_holds_the_next_one_up_for_a_moment() {
        let begun = Instant::now();
        let found = first_of(addresses(&["[::1]:1", "127.0.0.1:3"]), connect);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), found).await.unwrap().unwrap(), 3);
        let waited = begun.elapsed();
        assert!((HEAD_START..HEAD_START + Duration::from_millis(2)).contains(&waited), "{waited:?}");
        // After a failure, the next one is tried at once.
        let begun = Instant::now();
        let found = first_of(addresses(&["[::1]:2", "127.0.0.1:4"]), connect).await;
        assert!(found.unwrap() == 4 && begun.elapsed() < HEAD_START);
    }

    #[tokio::test]
    async fn the_last_error_is_told() {
        let found = first_of(addresses(&["[::1]:2", "127.0.0.1:2"]), connect).await;
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(first_of(Vec::new(), connect).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_families_take_turns() {
        let turns = in_turns(addresses(&["[::1]:1", "[::1]:2", "[::1]:3", "127.0.0.1:4"]));
        assert_eq!(turns.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 4, 2, 3]);
        let turns = in_turns(addresses(&["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]));
        assert_eq!(turns.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 3, 2]);
    }

    #[tokio::test]
    async fn a_name_is_looked_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = format!("localhost:{}", listener.local_addr().unwrap().port());
        dial(&authority).await.unwrap();
    }
}
