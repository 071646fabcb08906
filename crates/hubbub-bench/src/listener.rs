//! Subscribers: WebSockets on `/v1/ws` that follow one room each, check the order of what arrives, and measure how
//! long it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Cause;
use crate::client::chat::leading_number;
use crate::client::follow::{Listener, follow};
use crate::record::Dist;
use crate::report::Delivery;
use crate::run::Run;

#[derive(Debug)]
pub(crate) struct Audience {
    run: Arc<Run>,
    /// Messages each subscriber received.
    counts: Vec<Received>,
    floor: AtomicU64,
    /// Who waits for `floor` to grow.
    waiting: Mutex<Option<Thread>>,
    latency: Mutex<Dist>,
    misordered: AtomicU64,
    lost: AtomicU64,
    last_arrival_us: AtomicU64,
    /// Of how many messages one is timed.
    stride: u64,
    subscribed: Semaphore,
    stop: AtomicBool,
}

/// On a cache line of its own: each is written by another thread.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Received(AtomicU64);

impl Audience {
    /// Subscribers of rooms `1..=rooms` in turn; answers once all are subscribed.
    pub(crate) async fn gather(
        run: &Arc<Run>,
        subscribers: usize,
        rooms: u16,
        seed: u64,
    ) -> anyhow::Result<(Arc<Self>, JoinSet<()>)> {
        let audience = Arc::new(Self {
            run: Arc::clone(run),
            counts: (0..subscribers).map(|_| Received::default()).collect(),
            floor: AtomicU64::new(0),
            waiting: Mutex::new(None),
            latency: Mutex::default(),
            misordered: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            last_arrival_us: AtomicU64::new(0),
            stride: if subscribers > 16 { 16 } else { 1 },
            subscribed: Semaphore::new(0),
            stop: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for who in 0..subscribers {
            let room = (who % usize::from(rooms.max(1))) as u16 + 1;
            tasks.spawn(attend(Arc::clone(&audience), who, room, seed.wrapping_add(who as u64)));
        }
        let all = u32::try_from(subscribers)?;
        let all_ready = audience.subscribed.acquire_many(all);
        let ready = tokio::time::timeout(Duration::from_secs(60), all_ready).await.map(drop);
        anyhow::ensure!(
            ready.is_ok(),
            "not all of the {subscribers} subscribers could subscribe within 60 s"
        );
        Ok((audience, tasks))
    }

    /// Messages that every subscriber has received.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::SeqCst)
    }

    /// Wakes the calling thread when [`Audience::floor`] grows; call before looking at it.
    pub(crate) fn watch_floor(&self) {
        *self.waiting.lock() = Some(std::thread::current());
    }

    /// Messages received, by subscriber.
    fn each(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|count| count.0.load(Ordering::SeqCst))
    }

    fn received(&self, who: usize, n: u64) {
        self.last_arrival_us.fetch_max(self.run.now_us(), Ordering::Relaxed);
        let Some(count) = self.counts.get(who) else { return };
        let before = count.0.fetch_add(n, Ordering::SeqCst);
        if before > self.floor() {
            return;
        }
        // Again after the floor was raised: others may have left it to this thread, which had seen less.
        loop {
            let floor = self.each().min().unwrap_or(0);
            if self.floor.fetch_max(floor, Ordering::SeqCst) >= floor {
                return;
            }
            if let Some(thread) = self.waiting.lock().take() {
                thread.unpark();
            }
        }
    }

    /// Waits until each subscriber of a room has what the room accepted, or nothing arrives any more; then tells what
    /// arrived. `expected` gives the accepted messages of a room.
    pub(crate) async fn finish(
        &self,
        rooms: u16,
        mut tasks: JoinSet<()>,
        expected: impl Fn(u16) -> u64,
    ) -> Delivery {
        let rooms = usize::from(rooms.max(1));
        let missing = || -> u64 {
            let short = |(who, count)| expected((who % rooms) as u16 + 1).saturating_sub(count);
            self.each().enumerate().map(short).sum()
        };
        let mut last = (self.each().sum::<u64>(), 0);
        while missing() > 0 && last.1 < 100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let total = self.each().sum();
            last = if total == last.0 { (total, last.1 + 1) } else { (total, 0) };
        }
        self.stop.store(true, Ordering::SeqCst);
        tasks.shutdown().await;
        let delivered = self.each().sum::<u64>();
        let seconds = self.last_arrival_us.load(Ordering::Relaxed) as f64 / 1e6;
        Delivery {
            subscribers: self.counts.len(),
            delivered,
            per_second: delivered as f64 / seconds.max(1e-6),
            missing: missing(),
            misordered: self.misordered.load(Ordering::Relaxed),
            lost_connections: self.lost.load(Ordering::Relaxed),
            latency: self.latency.lock().stats(),
        }
    }
}

/// Follows a room; after a broken connection it resumes after the last message.
async fn attend(audience: Arc<Audience>, who: usize, room: u16, seed: u64) {
    let run = Arc::clone(&audience.run);
    let mut subscriber = Subscriber {
        audience,
        who,
        is_subscribed: false,
        last_seq: None,
        heard: 0,
        unreported: 0,
        latencies: Vec::new(),
    };
    while !subscriber.audience.stop.load(Ordering::SeqCst) {
        let from =
            subscriber.last_seq.map_or_else(|| "\"last\":0".to_owned(), |seq| format!("\"after\":{seq}"));
        let room = std::iter::once((run.shape.room_name(room), from));
        let Err(_) = follow(&run.target, &format!("listener-{who}"), room, &mut subscriber, seed).await;
        subscriber.hand_over();
        subscriber.audience.lost.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(run.rules.patience.backoff).await;
    }
}

struct Subscriber {
    audience: Arc<Audience>,
    who: usize,
    is_subscribed: bool,
    last_seq: Option<u64>,
    heard: u64,
    /// Messages of the read under way.
    unreported: u64,
    latencies: Vec<u64>,
}

impl Listener for Subscriber {
    fn hear(&mut self, text: &str) -> Result<(), Cause> {
        if text.starts_with("{\"type\":\"message\"") {
            self.message(text)?;
            self.unreported += 1;
        } else if text.starts_with("{\"type\":\"subscribed\"") {
            let is_first = !std::mem::replace(&mut self.is_subscribed, true);
            self.audience.subscribed.add_permits(usize::from(is_first));
        }
        Ok(())
    }

    fn pause(&mut self) {
        let n = std::mem::take(&mut self.unreported);
        if n > 0 {
            self.audience.received(self.who, n);
        }
    }
}

impl Subscriber {
    fn message(&mut self, text: &str) -> Result<(), Cause> {
        let seq = seq_of(text).ok_or(Cause::Protocol)?;
        if self.last_seq.replace(seq).is_some_and(|last| seq <= last) {
            self.audience.misordered.fetch_add(1, Ordering::Relaxed);
        }
        self.heard += 1;
        if self.heard.is_multiple_of(self.audience.stride) {
            let id = text.split_once("\"messageId\":\"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some(index) = id.and_then(|(id, _)| self.audience.run.shape.index_of(id.as_bytes())) {
                let run = &self.audience.run;
                let sent_us = run.times.as_ref().map_or(0, |times| times.get(index));
                self.latencies.push(run.now_us().saturating_sub(sent_us));
            }
            if self.latencies.len() >= 256 {
                self.hand_over();
            }
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        let mut latency = self.audience.latency.lock();
        for us in self.latencies.drain(..) {
            latency.add(us);
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// `seq` stands near the end, after the text; within a JSON string its quotes would be escaped.
fn seq_of(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let near = bytes.get(bytes.len().saturating_sub(96)..)?;
    let place = |bytes: &[u8]| bytes.windows(6).rposition(|six| six == b"\"seq\":");
    let at = place(near).map(|at| at + bytes.len() - near.len()).or_else(|| place(bytes))?;
    Some(leading_number(text.get(at + 6..)?)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seq_is_found_where_it_stands() {
        let text = r#"{"type":"message","messageId":"a","message":"\"seq\":7","seq":42,"receivedAt":"x"}"#;
        assert_eq!(seq_of(text), Some(42));
        let early = format!(r#"{{"type":"message","seq":41,"message":"{}"}}"#, "x".repeat(500));
        assert_eq!(seq_of(&early), Some(41));
        assert_eq!(seq_of("{}"), None);
    }
}
