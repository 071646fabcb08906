//! Load that goes on through whatever happens to the servers, and what must be true in the end: what was acknowledged is
//! stored, once, in the order it was sent; nothing else is; and whoever follows saw just that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hubbub_core::clock::SeededRandom;
use hubbub_core::{RandomSource, Timestamp};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{Dialect, Follower, Server, Writer, in_time, number, until};

/// Pause before the next try to connect.
const PAUSE: Duration = Duration::from_millis(10);
/// So many messages are acknowledged at full speed behind those that a test waits for. After them writers pause each time
/// before they send more: the load goes on, but a fast machine does not write more than followers can read in time.
const SURPLUS: u64 = 5_000;
const SLOW_PAUSE: Duration = Duration::from_millis(100);
/// The last message of each room.
const END: &str = "end";

/// How many rounds there are, and what to choose by: `CRASH_ROUNDS=100` runs a test long, `CRASH_SEED=17` makes the same
/// choices again.
pub(crate) fn rounds(default: u64) -> (u64, SeededRandom) {
    let rounds = number("CRASH_ROUNDS").unwrap_or(default);
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the same choices again: CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    (rounds, SeededRandom::new(seed))
}

/// What writes to each room at each server.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) dialect: Dialect,
    /// Most messages unanswered at a time.
    pub(crate) window: usize,
    /// Whether refusals that may be tried again are outlived, too. See [`Writer::through_outages`].
    pub(crate) outlives_outages: bool,
}

#[derive(Default)]
struct Progress {
    acked: AtomicU64,
    /// What the test waited for.
    wanted: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    fn pause(&self) -> Duration {
        let surplus = self.acked.load(Ordering::SeqCst).saturating_sub(self.wanted.load(Ordering::SeqCst));
        if surplus < SURPLUS { Duration::ZERO } else { SLOW_PAUSE }
    }
}

pub(crate) struct Load {
    rooms: Vec<String>,
    progress: Arc<Progress>,
    writers: Vec<JoinHandle<Writer>>,
    followers: Vec<JoinHandle<Follower>>,
    /// Of each follower.
    lateness: Vec<Arc<Lateness>>,
}

/// How late messages reach a follower.
#[derive(Default)]
struct Lateness {
    /// The longest time from the receipt to the delivery, in ms.
    worst_ms: AtomicU64,
}

impl Lateness {
    fn note(&self, message: &Value) {
        let received_at = message["receivedAt"].as_str().and_then(Timestamp::parse).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let received_at = u64::try_from(received_at.as_micros() / 1_000).unwrap();
        let late = u64::try_from(now.as_millis()).unwrap().saturating_sub(received_at);
        self.worst_ms.fetch_max(late, Ordering::SeqCst);
    }
}

/// The servers that a client connects to, one after the other.
#[derive(Clone)]
struct Route {
    servers: Vec<SocketAddr>,
    next: usize,
}

impl Route {
    fn of(server: SocketAddr) -> Self {
        Self { servers: vec![server], next: 0 }
    }

    fn address(&self) -> SocketAddr {
        self.servers[self.next % self.servers.len()]
    }
}

impl Load {
    /// Writers of all kinds, and a follower, for each of so many rooms at each server.
    pub(crate) fn start(servers: &[SocketAddr], rooms: usize, kinds: &[Kind]) -> Self {
        let progress = Arc::new(Progress::default());
        let rooms: Vec<_> = (0..rooms).map(|number| format!("room-{number}")).collect();
        let (mut writers, mut followers) = (Vec::new(), Vec::new());
        for room in &rooms {
            for (number, server) in servers.iter().enumerate() {
                for kind in kinds {
                    let name = format!("{}{number}", kind.name);
                    let pace = progress.clone();
                    let mut writer = Writer::new(&name, room, kind.dialect, kind.window);
                    writer = writer.paced(Arc::new(move || pace.pause()));
                    if kind.outlives_outages {
                        writer = writer.through_outages();
                    }
                    writers.push(tokio::spawn(write(writer, Route::of(*server), progress.clone())));
                }
                followers.push(tokio::spawn(follow(Follower::new(room), Route::of(*server), None)));
            }
        }
        Self { rooms, progress, writers, followers, lateness: Vec::new() }
    }

    /// A writer of all kinds for each room, and for each room and server a follower, who all go to the next server when
    /// their own one is away. Writers pause as long as `pause` says, if it does.
    pub(crate) fn roaming(
        servers: &[SocketAddr],
        rooms: usize,
        kinds: &[Kind],
        pause: Option<Duration>,
    ) -> Self {
        let progress = Arc::new(Progress::default());
        let rooms: Vec<_> = (0..rooms).map(|number| format!("room-{number}")).collect();
        let (mut writers, mut followers, mut lateness) = (Vec::new(), Vec::new(), Vec::new());
        for (number, room) in rooms.iter().enumerate() {
            let route = |server: usize| Route { servers: servers.to_vec(), next: number + server };
            for kind in kinds {
                let pace = progress.clone();
                let writer = Writer::new(kind.name, room, kind.dialect, kind.window);
                let mut writer = writer.paced(Arc::new(move || pause.unwrap_or_else(|| pace.pause())));
                if kind.outlives_outages {
                    writer = writer.through_outages();
                }
                writers.push(tokio::spawn(write(writer, route(0), progress.clone())));
            }
            for server in 0..servers.len() {
                let late = Arc::new(Lateness::default());
                lateness.push(late.clone());
                followers.push(tokio::spawn(follow(Follower::new(room), route(server), Some(late))));
            }
        }
        Self { rooms, progress, writers, followers, lateness }
    }

    /// The longest time from the receipt of a message to its delivery since the last call: of the slowest follower, and of
    /// half of them.
    pub(crate) fn take_lateness(&self) -> (Duration, Duration) {
        let mut worst: Vec<u64> =
            self.lateness.iter().map(|late| late.worst_ms.swap(0, Ordering::SeqCst)).collect();
        worst.sort_unstable();
        let at = |place: usize| Duration::from_millis(worst.get(place).copied().unwrap_or(0));
        (at(worst.len().saturating_sub(1)), at(worst.len() / 2))
    }

    pub(crate) fn acked(&self) -> u64 {
        self.progress.acked.load(Ordering::SeqCst)
    }

    /// Waits until some more messages are acknowledged, at most so many, and a moment longer: not just behind an
    /// acknowledgement, but anywhere.
    pub(crate) async fn go_on(&self, random: &SeededRandom, messages_max: u64) {
        let wanted = self.acked() + 1 + random.next_u64() % messages_max;
        self.progress.wanted.store(wanted, Ordering::SeqCst);
        until("load", async || {
            let died = self.writers.iter().any(JoinHandle::is_finished);
            assert!(!died, "a writer met something it must not");
            self.acked() >= wanted
        })
        .await;
        tokio::time::sleep(Duration::from_micros(random.next_u64() % 20_000)).await;
    }

    /// Ends the load, restarts the server, and compares what it has with what writers and followers know.
    pub(crate) async fn finish(self, server: &mut Server) {
        self.progress.stop.store(true, Ordering::SeqCst);
        let mut writers = Vec::new();
        for writer in self.writers {
            writers.push(in_time("the writers", writer).await.unwrap());
        }
        for room in &self.rooms {
            let answer = server.send_as(room, &format!("{room}-{END}"), END).await;
            assert!(answer.status < 300, "{}", answer.text());
        }
        for room in &self.rooms {
            until("all is stored", async || {
                let newest = server.get(&format!("/v1/rooms/{room}/messages?limit=1")).await;
                newest.json()["messages"][0]["message"] == END
            })
            .await;
        }
        server.restart();
        let mut followers = Vec::new();
        for follower in self.followers {
            followers.push(in_time("the followers", follower).await.unwrap());
        }
        for room in &self.rooms {
            let history = server.history(room).await;
            check(&history, writers.iter().filter(|writer| writer.room == *room));
            for follower in followers.iter().filter(|follower| follower.room == *room) {
                follower.check(&history);
            }
        }
        println!("{} messages acknowledged", self.progress.acked.load(Ordering::SeqCst));
    }
}

/// Of each writer everything, once and in order, and the end; and nothing else.
fn check<'a>(history: &[Value], writers: impl Iterator<Item = &'a Writer>) {
    let mut count = 1;
    for writer in writers {
        writer.check(history);
        count += writer.acked.len();
    }
    assert_eq!(history.len(), count, "nothing is there that nobody sent");
}

/// Writes until told to stop, through every lost connection.
async fn write(mut writer: Writer, mut route: Route, progress: Arc<Progress>) -> Writer {
    let mut counted = 0;
    loop {
        let enough = |writer: &Writer| {
            let new = writer.acked.len() as u64 - counted;
            counted += new;
            progress.acked.fetch_add(new, Ordering::SeqCst);
            progress.stop.load(Ordering::SeqCst)
        };
        if writer.run(route.address(), enough).await.is_ok() {
            return writer;
        }
        route.next += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows to the end of the room.
async fn follow(mut follower: Follower, mut route: Route, lateness: Option<Arc<Lateness>>) -> Follower {
    while follower.seen.last().is_none_or(|message| message["message"] != END) {
        if follower.is_connected() || follower.resume(route.address()).await {
            // Nobody sends while a broker is blocked. The end of the load is waited for in bounded time.
            if follower.next_whenever().await.is_ok()
                && let (Some(late), Some(message)) = (&lateness, follower.seen.last())
            {
                late.note(message);
            }
        } else {
            route.next += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    follower
}
