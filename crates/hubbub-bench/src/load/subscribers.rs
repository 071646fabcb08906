//! Subscribers: WebSockets on `/v1/ws` that follow one room each, check the order of what arrives, and measure how
//! long it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Cause;
use crate::client::follow::{Listener, follow, member, seq_of};
use crate::load::run::Run;
use crate::report::Delivery;
use crate::results::record::Dist;
use crate::results::tally::Tally;
use crate::statistics::median;

#[derive(Debug)]
pub(crate) struct Audience {
    run: Arc<Run>,
    /// Messages each subscriber received.
    counts: Vec<Received>,
    /// Messages that all of them received in the main phase.
    in_main: AtomicU64,
    floor: AtomicU64,
    /// Who waits for `floor` to grow.
    waiting: Mutex<Option<Thread>>,
    latency: Mutex<Dist>,
    misordered: AtomicU64,
    lost: AtomicU64,
    /// Messages to be timed that came when it was not known any more when they were sent.
    untimed: AtomicU64,
    last_arrival_us: AtomicU64,
    /// Of how many messages one is timed.
    stride: u64,
    subscribed: Semaphore,
    stop: AtomicBool,
    /// How long the first subscriber rests after each read.
    slow_by: Duration,
    /// Sum, and number, of what [`Audience::look_behind`] saw.
    behind: Mutex<(f64, u64)>,
}

/// On a cache line of its own: each is written by another thread.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Received {
    count: AtomicU64,
    /// The messages of this run, by the first subscriber of a room: what is wrong in the room is so for all.
    own: Mutex<Tally>,
}

/// An audience that listens, until this is dropped.
pub(crate) struct Listeners {
    pub(crate) audience: Arc<Audience>,
    rooms: u16,
    tasks: JoinSet<()>,
}

impl Listeners {
    /// Subscribers of rooms `1..=rooms` in turn; answers once all are subscribed.
    pub(crate) async fn gather(
        run: &Arc<Run>,
        subscribers: usize,
        rooms: u16,
        seed: u64,
    ) -> anyhow::Result<Self> {
        Self::gather_slow(run, subscribers, rooms, seed, Duration::ZERO).await
    }

    /// The same, where the first one rests for some time after each read.
    pub(crate) async fn gather_slow(
        run: &Arc<Run>,
        subscribers: usize,
        rooms: u16,
        seed: u64,
        slow_by: Duration,
    ) -> anyhow::Result<Self> {
        let audience = Arc::new(Audience::new(run, subscribers, slow_by));
        let mut tasks = JoinSet::new();
        for who in 0..subscribers {
            let room = (who % usize::from(rooms.max(1))) as u16 + 1;
            run.followed.subscribes(room, who % run.targets.len());
            tasks.spawn(attend(Arc::clone(&audience), who, room, seed.wrapping_add(who as u64)));
        }
        let all = u32::try_from(subscribers)?;
        let all_ready = audience.subscribed.acquire_many(all);
        let ready = tokio::time::timeout(Duration::from_secs(60), all_ready).await.map(drop);
        anyhow::ensure!(
            ready.is_ok(),
            "not all of the {subscribers} subscribers could subscribe within 60 s"
        );
        Ok(Self { audience, rooms, tasks })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.audience.counts.is_empty()
    }

    /// Messages that the slowest subscriber has less than its room has accepted by now.
    pub(crate) fn behind(&self) -> u64 {
        let accepted = self.audience.run.record.lock().accepted_by_room.clone();
        self.audience.missing(&accepted, self.rooms).max().unwrap_or(0)
    }

    /// Waits until each subscriber of a room has what the room accepted, or nothing arrives any more; then tells what
    /// arrived.
    pub(crate) async fn finish(mut self) -> Delivery {
        let audience = &self.audience;
        let accepted = audience.run.record.lock().accepted_by_room.clone();
        let missing = || audience.missing(&accepted, self.rooms).sum::<u64>();
        let unlike = || audience.unlike(&accepted, self.rooms);
        let mut last = (audience.each().sum::<u64>(), 0);
        while (missing() > 0 || unlike() > 0) && last.1 < 100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let total = audience.each().sum();
            last = if total == last.0 { (total, last.1 + 1) } else { (total, 0) };
        }
        audience.stop.store(true, Ordering::SeqCst);
        self.tasks.shutdown().await;
        let delivered = audience.each().sum::<u64>();
        let last_us = audience.last_arrival_us.load(Ordering::Relaxed);
        let seconds = last_us.saturating_sub(audience.run.main_us().start) as f64 / 1e6;
        Delivery {
            subscribers: audience.counts.len(),
            delivered,
            per_second: audience.in_main.load(Ordering::Relaxed) as f64 / seconds.max(1e-6),
            missing: missing(),
            unlike: unlike(),
            misordered: audience.misordered.load(Ordering::Relaxed),
            lost_connections: audience.lost.load(Ordering::Relaxed),
            latency: audience.latency.lock().stats(),
            untimed: audience.untimed.load(Ordering::Relaxed),
            slowest_behind: audience.slowest_behind(),
            window: None,
        }
    }
}

impl Audience {
    fn new(run: &Arc<Run>, subscribers: usize, slow_by: Duration) -> Self {
        Self {
            run: Arc::clone(run),
            counts: (0..subscribers).map(|_| Received::default()).collect(),
            in_main: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            waiting: Mutex::new(None),
            latency: Mutex::default(),
            misordered: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            untimed: AtomicU64::new(0),
            last_arrival_us: AtomicU64::new(0),
            stride: if subscribers > 16 { 16 } else { 1 },
            subscribed: Semaphore::new(0),
            stop: AtomicBool::new(false),
            slow_by,
            behind: Mutex::default(),
        }
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
        self.counts.iter().map(|received| received.count.load(Ordering::SeqCst))
    }

    /// Messages that each subscriber has less than were accepted by its room.
    fn missing(&self, accepted: &[Tally], rooms: u16) -> impl Iterator<Item = u64> {
        let expected = move |who: usize| accepted_by(accepted, who % usize::from(rooms.max(1))).count;
        self.each().enumerate().map(move |(who, count)| expected(who).saturating_sub(count))
    }

    /// Rooms in which others arrived than were accepted, though not fewer: some came twice, and as many may be lost.
    fn unlike(&self, accepted: &[Tally], rooms: u16) -> usize {
        let [.., unconfirmed] = self.run.counts.totals();
        // What had no answer may have arrived.
        let rooms = if unconfirmed > 0 { 0 } else { rooms };
        let firsts = self.counts.iter().enumerate().take(rooms.into());
        let is_unlike = |(room, received): &(usize, &Received)| {
            let (own, accepted) = (*received.own.lock(), accepted_by(accepted, *room));
            own.count >= accepted.count && own != accepted
        };
        firsts.filter(is_unlike).count()
    }

    /// Sees, ten times a second of the main phase, how far the slowest is behind half of all; never ends.
    pub(crate) async fn look_behind(&self) {
        let mut tick = tokio::time::interval(LOOK_EVERY);
        loop {
            tick.tick().await;
            if !self.run.main_us().contains(&self.run.now_us()) {
                continue;
            }
            let all: Vec<f64> = self.each().map(|count| count as f64).collect();
            if let Some(least) = all.iter().copied().min_by(f64::total_cmp) {
                let mut behind = self.behind.lock();
                *behind = (behind.0 + median(&all) - least, behind.1 + 1);
            }
        }
    }

    /// The mean of that; `None` where nobody looked.
    fn slowest_behind(&self) -> Option<f64> {
        let (sum, count) = *self.behind.lock();
        (count > 0).then(|| sum / count as f64)
    }

    fn received(&self, who: usize, n: u64, own: Tally) {
        let now_us = self.run.now_us();
        if self.run.main_us().contains(&now_us) {
            self.last_arrival_us.fetch_max(now_us, Ordering::Relaxed);
            self.in_main.fetch_add(n, Ordering::Relaxed);
        }
        let Some(count) = self.counts.get(who) else { return };
        if own.count > 0 {
            count.own.lock().merge(own);
        }
        let before = count.count.fetch_add(n, Ordering::SeqCst);
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
}

/// The messages that a room accepted, by its place among them.
fn accepted_by(accepted: &[Tally], place: usize) -> Tally {
    accepted.get(place + 1).copied().unwrap_or_default()
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Follows a room; after a broken connection it resumes after the last message.
async fn attend(audience: Arc<Audience>, who: usize, room: u16, seed: u64) {
    let run = Arc::clone(&audience.run);
    let mut subscriber = Subscriber::new(audience, who, room);
    while !subscriber.audience.stop.load(Ordering::SeqCst) {
        let from =
            subscriber.last_seq.map_or_else(|| "\"last\":0".to_owned(), |seq| format!("\"after\":{seq}"));
        let room = std::iter::once((run.shape.room_name(room), from));
        let Err(_) =
            follow(run.targets.of(who), &format!("listener-{who}"), room, &mut subscriber, seed).await;
        subscriber.hand_over();
        subscriber.audience.lost.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(run.rules.patience.backoff).await;
    }
}

struct Subscriber {
    audience: Arc<Audience>,
    who: usize,
    room: u16,
    is_subscribed: bool,
    last_seq: Option<u64>,
    heard: u64,
    /// Messages of the read under way.
    unreported: u64,
    unreported_own: Tally,
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

    fn rest(&self) -> Duration {
        if self.who == 0 { self.audience.slow_by } else { Duration::ZERO }
    }

    fn pause(&mut self) {
        let n = std::mem::take(&mut self.unreported);
        if n > 0 {
            self.audience.received(self.who, n, std::mem::take(&mut self.unreported_own));
        }
    }
}

impl Subscriber {
    fn new(audience: Arc<Audience>, who: usize, room: u16) -> Self {
        Self {
            audience,
            who,
            room,
            is_subscribed: false,
            last_seq: None,
            heard: 0,
            unreported: 0,
            unreported_own: Tally::default(),
            latencies: Vec::new(),
        }
    }

    fn message(&mut self, text: &str) -> Result<(), Cause> {
        let seq = seq_of(text).ok_or(Cause::Protocol)?;
        if self.last_seq.replace(seq).is_some_and(|last| seq <= last) {
            self.audience.misordered.fetch_add(1, Ordering::Relaxed);
        }
        self.heard += 1;
        // The first of its room.
        if self.who + 1 == usize::from(self.room)
            && let Some(index) = self.index(text)
        {
            self.unreported_own.add(index);
        }
        let (run, now_us) = (&self.audience.run, self.audience.run.now_us());
        // Only messages of the main phase are noted: others would take the places of theirs.
        if now_us >= run.main_us().start
            && let Some(index) = run.followed.awaits(self.room, seq, || self.index(text))
            && run
                .times
                .as_ref()
                .is_none_or(|times| times.get(index).is_some_and(|sent_us| run.main_us().contains(&sent_us)))
        {
            run.followed.arrived(index, self.who % run.targets.len(), now_us);
        }
        if self.heard.is_multiple_of(self.audience.stride) {
            self.latencies.extend(self.latency_us(text));
            if self.latencies.len() >= 256 {
                self.hand_over();
            }
        }
        Ok(())
    }

    /// The number of the message in the run.
    fn index(&self, text: &str) -> Option<u64> {
        self.audience.run.shape.index_of(member(text, "\"messageId\":\"")?.as_bytes())
    }

    /// Since it was sent, as this process knows; or else since the time that it carries. `None` where that was not in the main
    /// phase, or is so long ago that it is not known any more, which is counted.
    fn latency_us(&self, text: &str) -> Option<u64> {
        let run = &self.audience.run;
        let Some(times) = &run.times else {
            let sent = Timestamp::parse(member(text, "\"timestamp\":\"")?)?;
            return Some(saturate(crate::host::machine::now().as_micros().saturating_sub(sent.as_micros())));
        };
        let Some(sent_us) = times.get(self.index(text)?) else {
            self.audience.untimed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        run.main_us().contains(&sent_us).then(|| run.now_us().saturating_sub(sent_us))
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

#[cfg(test)]
mod tests;
