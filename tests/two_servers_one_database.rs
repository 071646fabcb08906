//! Two servers on one database are one: whatever is done at either of them is seen at both, once and in order.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{
    Dialect, Follower, Http, Pooler, Postgres, Server, Setup, UnreadCounter, Watch, Writer, in_time, seqs,
    until,
};

struct Two {
    // End before the database.
    servers: [Server; 2],
    _postgres: Postgres,
}

impl Two {
    fn start() -> Self {
        let postgres = Postgres::start("");
        let servers = [(); 2].map(|()| Setup::new().store(&postgres.url("postgres")).start());
        Self { servers, _postgres: postgres }
    }
}

/// Follows a room at a server until nothing more comes that is not in `end`, which is known only later.
async fn follow(address: SocketAddr, room: String, mut end: tokio::sync::watch::Receiver<u64>) -> Follower {
    let mut follower = Follower::new(&room);
    assert!(follower.resume(address).await);
    loop {
        let known = *end.borrow_and_update();
        if known > 0 && follower.position >= known {
            return follower;
        }
        tokio::select! {
            taken = follower.next() => taken.unwrap_or_else(|closed| panic!("{room}: closed with {closed:?}")),
            changed = end.changed(), if known == 0 => changed.unwrap(),
        }
    }
}

#[tokio::test]
async fn messages_sent_at_both_are_one_history() {
    const EACH: usize = 300;
    let Two { servers, _postgres } = &Two::start();
    let mut running = Vec::new();
    for room in ["r", "s"] {
        let (end, known) = tokio::sync::watch::channel(0);
        let followers: Vec<_> = servers
            .iter()
            .map(|server| tokio::spawn(follow(server.address(), room.to_owned(), known.clone())))
            .collect();
        let writers: Vec<_> = [(0, 1), (0, 40), (1, 1), (1, 40)]
            .into_iter()
            .map(|(server, window)| {
                let address = servers[server].address();
                let name = format!("{room}{server}w{window}");
                let room = room.to_owned();
                tokio::spawn(async move {
                    let mut writer = Writer::new(&name, &room, Dialect::Api, window);
                    let enough = if window == 1 { EACH / 5 } else { EACH };
                    writer.run(address, |writer| writer.acked.len() >= enough).await.unwrap();
                    writer
                })
            })
            .collect();
        running.push((room, end, followers, writers));
    }
    for (room, end, followers, writers) in running {
        let writers = in_time("the writers", join_all(writers)).await;
        let history = servers[0].history(room).await;
        assert_eq!(history, servers[1].history(room).await);
        let all = seqs(&history);
        assert!(all.iter().copied().eq(1..=all.len() as u64), "{all:?}");
        let mut acked = 0;
        for writer in writers.into_iter().map(Result::unwrap) {
            writer.check(&history);
            acked += writer.acked.len();
        }
        assert_eq!(acked, history.len(), "nothing else is there");
        end.send(all.len() as u64).unwrap();
        for follower in in_time("the followers", join_all(followers)).await {
            follower.unwrap().check(&history);
        }
    }
}

#[tokio::test]
async fn a_repeated_id_is_one_message_wherever_it_is_sent() {
    let Two { servers: [here, there], _postgres } = &Two::start();
    for round in 0..20 {
        let id = format!("m{round}");
        let (one, other) = tokio::join!(here.send_as("r", &id, "x"), there.send_as("r", &id, "x"));
        let statuses = BTreeSet::from([one.status, other.status]);
        assert_eq!(statuses, BTreeSet::from([200, 201]), "one is stored, one is the repeated one");
        assert_eq!(one.json()["seq"], other.json()["seq"]);
    }
    assert_eq!(there.history("r").await.len(), 20);
}

#[tokio::test]
async fn whoever_is_removed_at_one_is_sent_away_from_the_other() {
    let Two { servers: [here, there], _postgres } = &Two::start();
    here.put_room("closed", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        here.add_member("closed", user).await;
    }
    let mut bob = there.ws("/v1/ws?user=bob").await;
    bob.subscribe("closed", json!({})).await;
    here.send("closed", "for both").await;
    assert_eq!(bob.receive_type("message").await["message"], "for both");
    here.remove_member("closed", "bob").await;
    assert_eq!(bob.receive_error().await["code"], "removed");
    here.send("closed", "not for bob").await;
    let answer =
        there.call("bob", Method::POST, "/v1/rooms/closed/messages", json!({"message": "hello?"})).await;
    answer.problem(403, "not_member");
    let mut ada = there.ws("/v1/ws?user=ada").await;
    ada.subscribe("closed", json!({"after": 0})).await;
    for text in ["for both", "not for bob"] {
        assert_eq!(ada.receive_type("message").await["message"], text);
    }
    assert_eq!(here.call("", Method::DELETE, "/v1/rooms/closed", Value::Null).await.status, 204);
    assert_eq!(ada.receive_error().await["code"], "removed");
}

/// Removing a member ends that member's subscriptions also where everybody may read: at the other server, too, and
/// whether they are live, of all rooms, or still catching up. Guests and other members notice nothing.
#[tokio::test]
async fn a_member_removed_from_an_open_room_is_sent_away_from_the_other() {
    const LARGE: usize = 60_000;
    const BEHIND: usize = 250;
    let Two { servers: [here, there], _postgres } = &Two::start();
    here.put_room("open", json!({"membersOnly": false})).await;
    // More than the sockets in between hold, so that who does not read it stays behind.
    let mut http = here.http().await;
    for number in 0..BEHIND {
        let body = json!({"userId": "w", "message": "x".repeat(LARGE), "messageId": number.to_string()});
        assert_eq!(http.post("/v1/rooms/open/messages", body.to_string()).await.status, 201);
    }
    for user in ["ada", "bob"] {
        here.add_member("open", user).await;
    }
    let mut behind = there.ws("/v1/ws?user=bob").await;
    let begun = behind.subscribe("open", json!({"after": 0})).await;
    assert_eq!(begun["head"], BEHIND);
    let mut live = there.ws("/v1/ws?user=bob").await;
    live.subscribe("open", json!({})).await;
    let mut all = there.ws("/v1/ws?user=bob").await;
    all.send(&json!({"type": "subscribe", "roomId": "*"})).await;
    all.receive_until("subscribed", "open").await;
    let mut guest = there.ws("/v1/ws?user=guest").await;
    guest.subscribe("open", json!({})).await;
    let mut ada = there.ws("/v1/ws?user=ada").await;
    ada.subscribe("open", json!({})).await;
    until("four are live", async || there.metric("subscriptions").await == 4).await;
    // Behind the room that is caught up with; it goes live all the same.
    behind.send(&json!({"type": "subscribe", "roomId": "other"})).await;

    here.remove_member("open", "bob").await;
    for socket in [&mut live, &mut all, &mut behind] {
        let end = in_time("the end of what was followed", socket.receive_error()).await;
        assert_eq!((&end["code"], &end["roomId"]), (&json!("removed"), &json!("open")), "{end}");
    }
    // Only what is sent after this is promised to it.
    behind.receive_until("subscribed", "other").await;
    here.send("other", "for who was behind").await;
    assert_eq!(behind.receive_until("message", "other").await["message"], "for who was behind");
    here.send("open", "not for bob").await;
    for socket in [&mut guest, &mut ada] {
        assert_eq!(socket.receive_until("message", "open").await["message"], "not for bob");
    }
    for socket in [&mut live, &mut all, &mut behind] {
        let heard = socket.receive_pending().await;
        assert!(!heard.iter().any(|frame| frame["roomId"] == "open"), "{heard:?}");
    }
    // Anybody may read it, also who was removed: as a guest, from then on.
    live.subscribe("open", json!({})).await;
    here.add_member("open", "eve").await;
    here.send("open", "for guests").await;
    assert_eq!(live.receive_until("message", "open").await["message"], "for guests");
}

#[tokio::test]
async fn each_message_of_a_queue_is_taken_once() {
    const SENT: usize = 240;
    let Two { servers, _postgres } = &Two::start();
    servers[0].put_queue("q", json!({})).await;
    servers[0].register(&["boss", "w0", "w1"]).await;
    let sending = join_all((0..4).map(async |part| {
        let mut http = servers[part % 2].http().await;
        for number in (0..SENT).filter(|number| number % 4 == part) {
            let message = json!({"sender": "boss", "message": number.to_string()});
            let answer = http.post("/v1/queues/q/messages", message.to_string()).await;
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
    }));
    let taken = std::sync::Mutex::new(Vec::new());
    let taking = join_all((0..4).map(async |part| {
        let mut http = servers[part % 2].http().await;
        until("all are taken", async || {
            let body = json!({"receiver": format!("w{}", part % 2), "max": 5});
            let some = http.take("get", "q", body).await;
            let some =
                some.iter().map(|message| message["message"].as_str().unwrap().parse::<usize>().unwrap());
            let mut taken = taken.lock().unwrap();
            taken.extend(some);
            taken.len() >= SENT
        })
        .await;
    }));
    tokio::join!(sending, taking);
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..SENT), "{taken:?}");
    for server in servers {
        assert!(server.waiting("q").await.is_empty());
    }
}

/// Adds one to a number, as often as it takes until nobody else did so in between.
async fn add_one(http: &mut Http, key: &str) {
    in_time("adding", async {
        loop {
            let found = http.get(&format!("/kv/{key}")).await;
            let (condition, value) = match found.status {
                404 => (("if-none-match", "*"), 0),
                _ => (("if-match", found.header("etag").unwrap()), found.text().parse().unwrap()),
            };
            let next = (value + 1_u64).to_string();
            let put = http.request(Method::PUT, &format!("/kv/{key}"), &[condition], next).await;
            match put.status {
                201 | 204 => return,
                _ => _ = put.problem(412, "condition_failed"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn keys_are_the_same_at_both() {
    const EACH: u64 = 20;
    let Two { servers: [here, there], _postgres } = &Two::start();
    // Nobody's change is lost.
    join_all((0..6).map(async |part| {
        let mut http = if part % 2 == 0 { here.http().await } else { there.http().await };
        for _ in 0..EACH {
            add_one(&mut http, "count").await;
        }
    }))
    .await;
    assert_eq!(here.get("/kv/count").await.text(), (6 * EACH).to_string());
    // What was put at one is read at the other, and heard of by who watches there.
    let mut watching = Watch::open(there, "?prefix=k", None).await;
    let (mut put_at, mut got_at) = (here.http().await, there.http().await);
    for round in 0..50 {
        let put = put_at.request(Method::PUT, "/kv/k", &[], round.to_string()).await;
        let got = got_at.get("/kv/k").await;
        assert_eq!((got.text(), got.header("etag")), (round.to_string(), put.header("etag")));
        let revision = put.header("etag").unwrap().trim_matches('"').parse().unwrap();
        let listed = got_at.get("/v1/kv?prefix=k").await.json();
        assert_eq!(listed["keys"][0]["revision"], revision, "{listed}");
        watching.receive(&[("put", "k", revision)]).await;
        std::mem::swap(&mut put_at, &mut got_at);
    }
    let deleted = put_at.request(Method::DELETE, "/kv/k", &[], "").await;
    assert_eq!((deleted.status, got_at.get("/kv/k").await.status), (204, 404));
    let last = watching.next().await.unwrap();
    assert_eq!((last.1.as_str(), &last.2["key"]), ("delete", &json!("k")));
}

/// How many connections for notifications there are.
const NOTIFYING: &str = "select count(*) from pg_stat_activity where application_name = 'hubbub notifications' and state = 'idle'";

/// Messages sent at one server come to subscribers of the other, in order and once, while the connections that tell of
/// them are lost again and again; and where they cannot be had.
#[tokio::test]
async fn messages_come_without_a_gap_whether_anybody_tells_of_them_or_not() {
    const ROUNDS: usize = 6;
    const EACH: usize = 40;
    let Two { servers: [here, there], _postgres: postgres } = &Two::start();
    let pooler = Pooler::start(postgres);
    let migrate = format!("store.postgres.migrate_url={}", postgres.url("postgres"));
    let deaf =
        Setup::new().store(&pooler.url("postgres")).set("store.postgres.pooler=transaction").set(&migrate);
    let deaf = deaf.start();
    let mut subscribers = [
        there.subscriber("r", json!({})).await,
        deaf.subscriber("r", json!({})).await,
        here.subscriber("r", json!({})).await,
    ];
    let mut sent = 0;
    for round in 0..ROUNDS {
        // Two that tell; with the first message they do so at once, or are connecting anew.
        until("both tell", async || postgres.query("postgres", NOTIFYING).await == "2").await;
        for number in 0..EACH {
            let server = if number % 7 == 0 { &deaf } else { here };
            server.send("r", &format!("{round}.{number}")).await;
            if number == EACH / 2 && round > 0 {
                postgres
                    .run("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'hubbub n%'")
                    .await;
            }
        }
        for subscriber in &mut subscribers {
            for number in 0..EACH {
                let frame = subscriber.receive_type("message").await;
                assert_eq!(frame["message"], format!("{round}.{number}"));
                assert_eq!(frame["seq"], sent + number + 1);
            }
        }
        sent += EACH;
    }
}

/// A server hears late of marks that another one moved: a device that knows a later one is not told of those.
#[tokio::test]
async fn marks_never_go_back_on_a_device() {
    const ROUNDS: u64 = 12;
    let Two { servers, _postgres } = &Two::start();
    servers[0].put_room("r", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        servers[0].add_member("r", user).await;
    }
    let mut sockets = Vec::new();
    for server in servers {
        let mut socket = server.ws("/v1/ws?user=ada").await;
        socket.subscribe("r", json!({})).await;
        sockets.push(socket);
    }
    for _ in 0..2 * ROUNDS {
        let sent = servers[0].post("/v1/rooms/r/messages", &json!({"userId": "bob", "message": "x"})).await;
        assert_eq!(sent.status, 201);
    }
    let mut frames = [Vec::new(), Vec::new()];
    for seq in 1..=ROUNDS {
        let at = (seq % 2) as usize;
        sockets[at].send(&json!({"type": "read", "ref": seq, "roomId": "r", "seq": seq})).await;
        loop {
            let frame = sockets[at].receive().await;
            let is_answer = frame["ref"] == seq;
            frames[at].push(frame);
            if is_answer {
                break;
            }
        }
    }
    for (socket, frames) in sockets.iter_mut().zip(&mut frames) {
        let told = |frames: &Vec<Value>| {
            frames.iter().any(|frame| frame["seq"] == ROUNDS && frame["type"] == "read")
        };
        while !told(frames) {
            frames.push(socket.receive().await);
        }
        frames.extend(socket.receive_pending().await);
        let marks: Vec<u64> = frames
            .iter()
            .filter(|frame| frame["type"] == "read")
            .map(|frame| frame["seq"].as_u64().unwrap())
            .collect();
        assert!(marks.is_sorted() && marks.last() == Some(&ROUNDS), "{marks:?}");
    }
}

/// Messages and marks come to a device on different ways. Whatever overtook what, it counts as the servers do in the end.
#[tokio::test]
async fn devices_at_two_servers_count_as_they_do() {
    // A multiple of 5: at the end, too, everything has come everywhere.
    const ROUNDS: u64 = 60;
    let Two { servers, _postgres } = &Two::start();
    servers[0].put_room("r", json!({})).await;
    for user in ["ada", "bob"] {
        servers[0].add_member("r", user).await;
    }
    let mut devices = Vec::new();
    for server in servers {
        let mut socket = server.ws("/v1/ws?user=ada").await;
        socket.send(&json!({"type": "subscribe", "roomId": "*"})).await;
        socket.receive_until("subscribed", "*").await;
        devices.push((socket, UnreadCounter::new("ada")));
    }
    let mut bobs = [servers[0].ws("/v1/ws?user=bob").await, servers[1].ws("/v1/ws?user=bob").await];
    let say = json!({"type": "send", "roomId": "r", "message": "x"});
    let mut total = 0;
    for round in 1..=ROUNDS {
        let (at, other) = ((round % 2) as usize, (round / 2 % 2) as usize);
        for _ in 0..round % 4 {
            bobs[other].send(&say).await;
        }
        let mark =
            json!({"type": "read", "roomId": "r", "seq": if round % 3 == 0 { total + 9 } else { total }});
        devices[at].0.send_all(&[mark, say.clone()]).await;
        devices[other].0.send(&say).await;
        total += round % 4 + 2;
        // Now and then everything has come everywhere, so that marks move from the head and from behind it.
        let target = if round % 5 == 0 { total } else { 0 };
        for (socket, counter) in &mut devices {
            while counter.newest() < target {
                counter.take(&socket.receive().await);
            }
        }
    }
    let rooms = servers[0].rooms_of("ada").await;
    let expected = (rooms["r"]["readSeq"].as_u64().unwrap(), rooms["r"]["unread"].as_u64().unwrap());
    for (socket, counter) in &mut devices {
        // Marks that moved before the last one came are not told again.
        while (counter.read, counter.unread) != expected {
            counter.take(&socket.receive().await);
        }
        socket.receive_pending().await.iter().for_each(|frame| counter.take(frame));
        assert_eq!((counter.read, counter.unread), expected);
    }
}

/// Whoever asked for a room before it was there has no standing in it that a server remembers.
#[tokio::test]
async fn a_room_made_for_members_is_closed_on_the_other_server() {
    let Two { servers, _postgres } = &Two::start();
    for round in 0..3 {
        let room = format!("r{round}");
        let path = format!("/v1/rooms/{room}/messages");
        let before = servers[0].call("eve", Method::GET, &path, Value::Null).await;
        assert_ne!(before.status, 403);
        let body = json!({"membersOnly": true});
        servers[1].call("ada", Method::PUT, &format!("/v1/rooms/{room}"), body).await;
        let sent = servers[1].post(&path, &json!({"userId": "ada", "message": "secret"})).await;
        assert_eq!(sent.status, 201);
        servers[0].call("eve", Method::GET, &path, Value::Null).await.problem(403, "not_member");
    }
}
