//! How far the store is behind when a load ends. Behind a broker, an answer says that the broker has the message, which is stored
//! later. Where the backlog grows, the rate of answers is that of the broker alone.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::Targets;
use crate::report::grouped;
use crate::results::ledger::ServerCounts;

/// Servers that have stored nothing for so long store nothing more.
const PATIENCE: Duration = Duration::from_secs(5);
/// Servers that have not answered for so long do not count any more.
const SILENCE: Duration = Duration::from_secs(30);
/// Behind a broker, a message may be stored again after all were: by then it is, as a rule.
pub(crate) const REPEATS: Duration = Duration::from_secs(1);
/// Between two questions whether all is stored.
const PAUSE: Duration = Duration::from_millis(20);
/// A store that is behind by more than this time, and by more than this share of the load, did not keep up.
const LAG_S_MAX: f64 = 1.0;
const LAG_SHARE_MAX: f64 = 0.05;

/// What came of waiting until all was stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settled {
    /// When the last message was seen to be stored.
    at: Instant,
    /// Messages that were accepted and not stored, at the first question and at the last.
    unstored: u64,
    left: u64,
}

impl Settled {
    /// Waits until the servers have stored all that was `accepted` since `before`, and nothing more for the time of `repeats`; or
    /// store nothing more, or one of them does not tell for long. `None` where it never did.
    pub(crate) async fn wait(
        targets: &Targets,
        before: &ServerCounts,
        accepted: u64,
        repeats: Duration,
    ) -> Option<Self> {
        let (mut settled, mut heard_at): (Option<Self>, _) = (None, Instant::now());
        let (mut seen, mut moved_at) = (None, heard_at);
        while heard_at.elapsed() <= SILENCE {
            if let Some(counts) = ServerCounts::ask(targets).await {
                let (stored, now) = (counts.since(before).stored, Instant::now());
                let left = accepted.saturating_sub(stored);
                heard_at = now;
                if seen.replace(stored) != Some(stored) {
                    moved_at = now;
                }
                let settled = settled.get_or_insert(Self { at: now, unstored: left, left });
                if left < settled.left {
                    (settled.left, settled.at) = (left, now);
                }
                let is_done = settled.left == 0 && moved_at.elapsed() >= repeats;
                if is_done || settled.at.elapsed() > PATIENCE {
                    break;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        settled
    }
}

/// What the report says of a load behind a broker.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Settling {
    /// Seconds from the beginning of the load to its end, all phases.
    pub(crate) load_s: f64,
    /// Seconds from the end of the load until all was stored, or nothing more was.
    pub(crate) lag_s: f64,
    /// Messages of all phases that were stored, for each second from the beginning of the load until then.
    #[serde(skip)]
    rate: f64,
    /// The same, where that of the answers is not the store's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stored_per_second: Option<f64>,
    /// Messages that were not stored when the load had ended.
    #[serde(rename = "unstoredAtEnd")]
    pub(crate) unstored: u64,
    /// Why the rate of answers is not that of the store, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_behind: Option<String>,
}

impl Settling {
    /// Of a load from `begun` to `ended` of which so many messages were `accepted`.
    pub(crate) fn of(settled: &Settled, accepted: u64, begun: Instant, ended: Instant) -> Self {
        let load_s = ended.saturating_duration_since(begun).as_secs_f64();
        let lag_s = settled.at.saturating_duration_since(ended).as_secs_f64();
        let stored = accepted.saturating_sub(settled.left) as f64;
        let rate = stored / (load_s + lag_s).max(1e-6);
        // Where all was stored at the first question, only its answer came late.
        let is_behind = settled.unstored > 0 && lag_s > LAG_S_MAX && lag_s > LAG_SHARE_MAX * load_s;
        let said = || {
            let rate = grouped(rate);
            format!(
                "the store was {lag_s:.1} s behind at the end: the rate is the broker's, stored were {rate}/s"
            )
        };
        let (stored_per_second, store_behind) = (is_behind.then_some(rate), is_behind.then(said));
        Self { load_s, lag_s, rate, stored_per_second, unstored: settled.unstored, store_behind }
    }
}

/// A line of a summary.
impl Display for Settling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rate, unstored] = [self.rate, self.unstored as f64].map(grouped);
        let lag_s = self.lag_s;
        writeln!(
            out,
            "  stored       {rate}/s; {unstored} were left at the end of the load, for {lag_s:.1} s"
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that has accepted 5 messages and stored them, and from its second answer on one of them again; and how often it
    /// was asked.
    pub(crate) async fn repeating() -> (Targets, Arc<AtomicU64>) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let targets = crate::client::Target::parse(&server.local_addr().unwrap().to_string()).unwrap().into();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut wire, _) = server.accept().await.unwrap();
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    let mut read = [0; 1 << 12];
                    while wire.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                        let stored = if count.fetch_add(1, Ordering::SeqCst) < 1 { 5 } else { 6 };
                        let body = format!(
                            "hubbub_messages_accepted_total 5\nhubbub_messages_stored_total {stored}\n"
                        );
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        wire.write_all((head + &body).as_bytes()).await.unwrap();
                    }
                });
            }
        });
        (targets, asked)
    }

    #[tokio::test]
    async fn what_is_stored_again_a_moment_later_is_waited_for() {
        let asked_by = async |repeats| {
            let (targets, asked) = repeating().await;
            let settled = Settled::wait(&targets, &ServerCounts::default(), 5, repeats).await.unwrap();
            assert_eq!(settled.left, 0);
            asked.load(Ordering::SeqCst)
        };
        assert_eq!(asked_by(Duration::ZERO).await, 1, "without a broker, answers come after the store");
        assert!(asked_by(REPEATS).await > 2, "the counter is read again after it has moved");
    }

    #[test]
    fn a_store_that_falls_behind_is_told() {
        let of = |load_s: u64, lag_ms: u64, [unstored, left]: [u64; 2]| {
            let begun = Instant::now();
            let ended = begun + Duration::from_secs(load_s);
            let settled = Settled { at: ended + Duration::from_millis(lag_ms), unstored, left };
            Settling::of(&settled, 12_000, begun, ended)
        };
        let settling = |load_s, lag_ms, left| of(load_s, lag_ms, [7_000, left]);
        let behind = settling(10, 2_000, 0);
        let told = (behind.load_s, behind.lag_s, behind.stored_per_second, behind.unstored);
        assert_eq!(told, (10.0, 2.0, Some(1_000.0), 7_000));
        let said =
            "the store was 2.0 s behind at the end: the rate is the broker's, stored were 1,000/s".to_owned();
        assert_eq!(behind.store_behind, Some(said));
        let line = "  stored       1,000/s; 7,000 were left at the end of the load, for 2.0 s\n";
        assert_eq!(behind.to_string(), line);
        let lossy = settling(10, 2_000, 6_000).stored_per_second;
        assert_eq!(lossy, Some(500.0), "what was lost was not stored");
        for (load_s, lag_ms) in [(1, 900), (100, 4_900), (10, 0)] {
            let in_time = settling(load_s, lag_ms, 0);
            assert_eq!(in_time.store_behind, None, "{lag_ms} ms after {load_s} s");
            assert_eq!(in_time.stored_per_second, None, "the rate of the answers counts");
        }
        assert_eq!(of(10, 2_000, [0, 0]).store_behind, None, "nothing was left when it was asked");
    }
}
