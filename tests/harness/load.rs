//! Load that goes on through whatever happens to the servers, and what must be true in the end: what was acknowledged is
//! stored, once, in the order it was sent; nothing else is; and whoever follows saw just that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

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
    writers: Vec<Writing>,
    followers: Vec<Following>,
}

/// A writer at work.
struct Writing {
    room: String,
    name: String,
    keeps_order: bool,
    /// How many of its messages are acknowledged, or a few less.
    acked: Arc<AtomicU64>,
    task: JoinHandle<Writer>,
}

/// A follower at work.
struct Following {
    room: String,
    sight: Arc<Sight>,
    task: JoinHandle<Follower>,
}

/// What a follower has seen so far.
#[derive(Default)]
struct Sight {
    /// The longest time from the receipt of a message to its delivery, in ms.
    worst_ms: AtomicU64,
    /// How many messages of each writer, and whether they must come in their order.
    of_writers: Mutex<BTreeMap<String, (u64, bool)>>,
}

impl Sight {
    fn note(&self, message: &Value) {
        let received_at = message["receivedAt"].as_str().and_then(Timestamp::parse).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let received_at = u64::try_from(received_at.as_micros() / 1_000).unwrap();
        let late = u64::try_from(now.as_millis()).unwrap().saturating_sub(received_at);
        self.worst_ms.fetch_max(late, Ordering::SeqCst);
        let Some((name, number)) = message["message"].as_str().unwrap().rsplit_once('-') else { return };
        let mut of_writers = self.of_writers.lock().unwrap();
        if let Some((count, keeps_order)) = of_writers.get_mut(name) {
            let is_next = number == count.to_string();
            assert!(is_next || !*keeps_order, "{name}: {number} came after {count} messages: {message}");
            *count += 1;
        }
    }

    fn count(&self, writer: &str) -> u64 {
        self.of_writers.lock().unwrap().get(writer).map_or(0, |(count, _)| *count)
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
        let mut load = Self::of(rooms);
        for room in load.rooms.clone() {
            for (number, server) in servers.iter().enumerate() {
                for kind in kinds {
                    let name = format!("{}{number}", kind.name);
                    load.write(&room, &name, kind, Route::of(*server), None);
                }
            }
            servers.iter().for_each(|server| load.follow(&room, Route::of(*server)));
        }
        load
    }

    /// A writer of all kinds for each room, and for each room and server a follower, who all go to the next server when
    /// their own one is away. Writers pause as long as `pause` says, if it does.
    pub(crate) fn roaming(
        servers: &[SocketAddr],
        rooms: usize,
        kinds: &[Kind],
        pause: Option<Duration>,
    ) -> Self {
        let mut load = Self::of(rooms);
        for (number, room) in load.rooms.clone().iter().enumerate() {
            let route = |server: usize| Route { servers: servers.to_vec(), next: number + server };
            kinds.iter().for_each(|kind| load.write(room, kind.name, kind, route(0), pause));
            (0..servers.len()).for_each(|server| load.follow(room, route(server)));
        }
        load
    }

    fn of(rooms: usize) -> Self {
        let rooms = (0..rooms).map(|number| format!("room-{number}")).collect();
        Self { rooms, progress: Arc::default(), writers: Vec::new(), followers: Vec::new() }
    }

    fn write(&mut self, room: &str, name: &str, kind: &Kind, route: Route, pause: Option<Duration>) {
        let pace = self.progress.clone();
        let writer = Writer::new(name, room, kind.dialect, kind.window);
        let mut writer = writer.paced(Arc::new(move || pause.unwrap_or_else(|| pace.pause())));
        if kind.outlives_outages {
            writer = writer.through_outages();
        }
        let (keeps_order, acked) = (writer.keeps_order(), Arc::new(AtomicU64::default()));
        let task = tokio::spawn(write(writer, route, self.progress.clone(), acked.clone()));
        let (room, name) = (room.to_owned(), name.to_owned());
        self.writers.push(Writing { room, name, keeps_order, acked, task });
    }

    /// After the room's writers.
    fn follow(&mut self, room: &str, route: Route) {
        let writers = self.writers.iter().filter(|writer| writer.room == room);
        let of_writers = writers.map(|writer| (writer.name.clone(), (0, writer.keeps_order))).collect();
        let sight = Arc::new(Sight { of_writers: Mutex::new(of_writers), ..Sight::default() });
        let task = tokio::spawn(follow(Follower::new(room), route, sight.clone()));
        self.followers.push(Following { room: room.to_owned(), sight, task });
    }

    /// The longest time from the receipt of a message to its delivery since the last call: of the slowest follower, and of
    /// half of them.
    pub(crate) fn take_lateness(&self) -> (Duration, Duration) {
        let late = |follower: &Following| follower.sight.worst_ms.swap(0, Ordering::SeqCst);
        let mut worst: Vec<u64> = self.followers.iter().map(late).collect();
        worst.sort_unstable();
        let at = |place: usize| Duration::from_millis(worst.get(place).copied().unwrap_or(0));
        (at(worst.len().saturating_sub(1)), at(worst.len() / 2))
    }

    /// Waits until each writer has had an answer, and each follower everything that was acknowledged until then: none lost,
    /// none twice, in its order. Returns how long that took.
    pub(crate) async fn catch_up(&self) -> Duration {
        let began = Instant::now();
        let acked = || self.writers.iter().map(|writer| writer.acked.load(Ordering::SeqCst));
        let before: Vec<u64> = acked().collect();
        until("every writer gets answers", async || {
            self.check_tasks();
            acked().zip(&before).all(|(now, before)| now > *before)
        })
        .await;
        let wanted: Vec<u64> = acked().collect();
        let is_behind = |follower: &Following| {
            let mut of_room =
                self.writers.iter().zip(&wanted).filter(|(writer, _)| writer.room == follower.room);
            of_room.any(|(writer, wanted)| follower.sight.count(&writer.name) < *wanted)
        };
        until("every follower has everything", async || {
            self.check_tasks();
            !self.followers.iter().any(is_behind)
        })
        .await;
        began.elapsed()
    }

    fn check_tasks(&self) {
        let died = self.writers.iter().any(|writer| writer.task.is_finished());
        assert!(!died, "a writer met something it must not");
        let died = self.followers.iter().any(|follower| follower.task.is_finished());
        assert!(!died, "a follower met something it must not");
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
            self.check_tasks();
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
            writers.push(in_time("the writers", writer.task).await.unwrap());
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
            followers.push(in_time("the followers", follower.task).await.unwrap());
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
async fn write(
    mut writer: Writer,
    mut route: Route,
    progress: Arc<Progress>,
    acked: Arc<AtomicU64>,
) -> Writer {
    loop {
        let enough = |writer: &Writer| {
            let now = writer.acked.len() as u64;
            progress.acked.fetch_add(now - acked.swap(now, Ordering::SeqCst), Ordering::SeqCst);
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
async fn follow(mut follower: Follower, mut route: Route, sight: Arc<Sight>) -> Follower {
    while follower.seen.last().is_none_or(|message| message["message"] != END) {
        if follower.is_connected() || follower.resume(route.address()).await {
            // Nobody sends while a broker is blocked. The end of the load is waited for in bounded time.
            if follower.next_whenever().await.is_ok()
                && let Some(message) = follower.seen.last()
            {
                sight.note(message);
            }
        } else {
            route.next += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    follower
}
