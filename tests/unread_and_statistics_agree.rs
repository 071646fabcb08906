//! Random sends, reads on three devices, joins, erasures, deletions and restarts: after every step what is unread and
//! what is counted equals a recount. `PEOPLE_SEED=n` repeats a run, `PEOPLE_STEPS=n` makes it longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use hubbub_core::Timestamp;
use hubbub_core::clock::{RandomSource, SeededRandom};
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Server, Ws, number};

const ROOMS: [&str; 3] = ["r0", "r1", "r2"];
const USERS: [&str; 4] = ["u0", "u1", "u2", "u3"];
/// One of the users has three devices.
const DEVICES: usize = 3;

/// A room, kept as lists.
#[derive(Debug, Default, Clone)]
struct Room {
    exists: bool,
    head: u64,
    /// Seq, sender and type of what is there.
    kept: Vec<(u64, &'static str, &'static str)>,
    marks: BTreeMap<&'static str, u64>,
}

/// Room, sender and type of a message.
type MessageFacts = (&'static str, &'static str, &'static str);

struct World {
    server: Server,
    devices: Vec<Ws>,
    rooms: BTreeMap<&'static str, Room>,
    random: SeededRandom,
}

impl World {
    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn pick(&self, from: &[&'static str]) -> &'static str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    async fn connect(&mut self) {
        self.devices.clear();
        for _ in 0..DEVICES {
            self.devices.push(self.server.ws("/v1/ws?user=u0").await);
        }
    }

    async fn step(&mut self) {
        let (room, user) = (self.pick(&ROOMS), self.pick(&USERS));
        match self.below(24) {
            0 => {
                self.server.kill();
                self.server.restart();
                self.connect().await;
            }
            1 => self.erase(user).await,
            2 => self.delete(room).await,
            3 | 4 => self.join(room, user).await,
            5 => self.leave(room, user).await,
            6..12 => self.read(room, user).await,
            _ => self.send(room, user).await,
        }
    }

    async fn send(&mut self, name: &'static str, user: &'static str) {
        for _ in 0..1 + self.below(5) {
            let kind = self.pick(&["TEXT", "TEXT", "TEXT", "JOIN", "LEAVE"]);
            let body = json!({"userId": user, "message": "x", "messageType": kind});
            let answer = self.server.post(&format!("/v1/rooms/{name}/messages"), &body).await;
            assert_eq!(answer.status, 201, "{}", answer.text());
            let room = self.rooms.entry(name).or_default();
            room.exists = true;
            room.head += 1;
            assert_eq!(answer.json()["seq"], room.head);
            room.kept.push((room.head, user, kind));
            let head = room.head;
            if let Some(mark) = room.marks.get_mut(user).filter(|mark| **mark + 1 == head) {
                *mark = head;
            }
        }
    }

    async fn join(&mut self, name: &'static str, user: &'static str) {
        let path = format!("/v1/rooms/{name}/members/{user}");
        let answer = self.server.call("", Method::PUT, &path, Value::Null).await;
        let room = self.rooms.entry(name).or_default();
        assert_eq!(answer.status, if room.exists { 204 } else { 404 }, "{}", answer.text());
        if room.exists {
            let head = room.head;
            room.marks.entry(user).or_insert(head);
        }
    }

    async fn leave(&mut self, name: &'static str, user: &'static str) {
        let path = format!("/v1/rooms/{name}/members/{user}");
        let answer = self.server.call("", Method::DELETE, &path, Value::Null).await;
        let room = self.rooms.entry(name).or_default();
        assert_eq!(answer.status, if room.exists { 204 } else { 404 }, "{}", answer.text());
        room.marks.remove(user);
    }

    /// The first user reads on one of the devices, the others over HTTP.
    async fn read(&mut self, name: &'static str, user: &'static str) {
        let head = self.rooms.entry(name).or_default().head;
        let seq = self.below(head + 3);
        let device = usize::try_from(self.below(DEVICES as u64)).unwrap();
        let room = self.rooms.entry(name).or_default();
        let Some(mark) = room.marks.get_mut(user) else { return };
        *mark = (*mark).max(seq.min(room.head));
        let (mark, unread) = (*mark, room.kept.iter().filter(|kept| kept.0 > *mark).count());
        let told = if user == "u0" {
            let frame = json!({"type": "read", "ref": "mine", "roomId": name, "seq": seq});
            let device = &mut self.devices[device];
            device.send(&frame).await;
            // What the other devices did was told to this one before.
            let answer = loop {
                let heard = device.receive().await;
                if heard["ref"] == "mine" {
                    break heard;
                }
            };
            (answer["seq"].clone(), answer["unread"].clone())
        } else {
            let path = format!("/v1/rooms/{name}/read");
            let answer = self.server.call(user, Method::PUT, &path, json!({"seq": seq})).await.json();
            (answer["readSeq"].clone(), answer["unread"].clone())
        };
        assert_eq!(told, (json!(mark), json!(unread)), "{user} read {name} up to {seq}");
    }

    async fn erase(&mut self, user: &'static str) {
        let answer = self.server.call("", Method::DELETE, &format!("/v1/users/{user}"), Value::Null).await;
        let mut erased = 0;
        for room in self.rooms.values_mut() {
            erased += room.kept.iter().filter(|kept| kept.1 == user).count();
            room.kept.retain(|kept| kept.1 != user);
            room.marks.remove(user);
        }
        assert_eq!(answer.json(), json!({"userId": user, "messages": erased}));
    }

    async fn delete(&mut self, name: &'static str) {
        let answer = self.server.call("", Method::DELETE, &format!("/v1/rooms/{name}"), Value::Null).await;
        let room = self.rooms.entry(name).or_default();
        assert_eq!(answer.status, if room.exists { 204 } else { 404 }, "{}", answer.text());
        *room = Room { head: room.head, ..Room::default() };
    }

    /// What everybody is told of their rooms.
    async fn check_unread(&self) {
        for user in USERS {
            let mut told = BTreeMap::new();
            for (name, room) in self.server.rooms_of(user).await {
                let last = room["lastMessage"]["seq"].as_u64();
                let figures = ["head", "readSeq", "unread", "messages"];
                told.insert(name, (figures.map(|name| room[name].as_u64().unwrap()), last));
            }
            let mut expected = BTreeMap::new();
            for (name, room) in self.rooms.iter().filter(|(_, room)| room.exists) {
                let Some(mark) = room.marks.get(user) else { continue };
                let unread = room.kept.iter().filter(|kept| kept.0 > *mark).count() as u64;
                let figures = [room.head, *mark, unread, room.kept.len() as u64];
                expected.insert((*name).to_owned(), (figures, room.kept.last().map(|kept| kept.0)));
            }
            assert_eq!(told, expected, "rooms of {user}");
        }
    }

    /// An answer that is of now: what was just hidden may take a moment to be left out, and says so.
    async fn current(&self, path: &str) -> Value {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap());
        loop {
            let answer = self.server.get(path).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let answer = answer.json();
            if Timestamp::parse(answer["asOf"].as_str().unwrap()).unwrap() >= now {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn check_counts(&self) {
        let kept: Vec<_> = self
            .rooms
            .iter()
            .flat_map(|(name, room)| room.kept.iter().map(move |(_, user, kind)| (*name, *user, *kind)))
            .collect();
        let count = |is: &dyn Fn(&MessageFacts) -> bool| kept.iter().filter(|one| is(one)).count();
        let totals = self.current("/v1/stats").await;
        assert_eq!(totals["messages"], kept.len(), "{totals}");
        for kind in ["TEXT", "JOIN", "LEAVE"] {
            assert_eq!(totals["messagesByType"][kind], count(&|one| one.2 == kind), "{totals}");
        }
        let by_user: fn(&MessageFacts) -> &'static str = |one| one.1;
        let by_room: fn(&MessageFacts) -> &'static str = |one| one.0;
        for (path, list, id, of) in [
            ("/v1/stats/users?limit=100", "users", "userId", by_user),
            ("/v1/stats/rooms?limit=100", "rooms", "roomId", by_room),
        ] {
            let answer = self.current(path).await;
            let told: BTreeMap<String, u64> = answer[list]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| (entry[id].as_str().unwrap().to_owned(), entry["messages"].as_u64().unwrap()))
                .collect();
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for one in &kept {
                *expected.entry(of(one).to_owned()).or_default() += 1;
            }
            assert_eq!(told, expected, "{path}");
        }
        let active = self.current("/v1/stats/active-users?limit=100").await;
        let users: BTreeSet<&str> = kept.iter().map(|one| one.1).collect();
        let told: Vec<&str> =
            active["users"].as_array().unwrap().iter().map(|user| user.as_str().unwrap()).collect();
        assert!(told.iter().copied().eq(users), "{active}");
    }
}

#[tokio::test]
async fn every_step_equals_a_recount() {
    let seed = number("PEOPLE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let steps = number("PEOPLE_STEPS").unwrap_or(150);
    // Shown when the run fails.
    eprintln!("PEOPLE_SEED={seed} PEOPLE_STEPS={steps}");
    let mut world = World {
        server: Server::start(),
        devices: Vec::new(),
        rooms: BTreeMap::new(),
        random: SeededRandom::new(seed),
    };
    world.connect().await;
    for _ in 0..steps {
        world.step().await;
        world.check_unread().await;
        world.check_counts().await;
    }
    let audit = world.server.post("/v1/stats/audit", &json!({})).await.json();
    assert_eq!(audit["differences"], json!([]), "{audit}");
}
