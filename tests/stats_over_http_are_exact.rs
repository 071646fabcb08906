//! The statistics are what was sent, whoever asks gets what is for him, and an audit finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use hubbub_core::Timestamp;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Http, Server, Setup, until};

const TYPES: [&str; 3] = ["TEXT", "JOIN", "LEAVE"];

/// Sends `count` messages of many users, types and rooms; some users and rooms have more than others.
async fn send_some(server: &Server, begin: u64, count: u64) -> Vec<Value> {
    let body: String = (begin..begin + count)
        .map(|n| {
            let kind = TYPES[usize::try_from(n % 7 / 3).unwrap()];
            let (room, user) =
                (format!("r{}", (n % 11) * (n % 5) % 11), format!("u{}", (n % 13) * (n % 7) % 13));
            let message =
                json!({"roomId": room, "userId": user, "message": n.to_string(), "messageType": kind});
            format!("{message}\n")
        })
        .collect();
    let answers = server.http().await.post("/v1/messages", body).await.lines();
    assert!(answers.iter().all(|answer| answer["duplicate"] == false), "{answers:?}");
    answers
}

/// Everything that is stored.
async fn stored(server: &Server) -> Vec<Value> {
    let rooms = server.get("/v1/rooms?limit=1000").await.json();
    let mut all = Vec::new();
    for room in rooms["rooms"].as_array().unwrap() {
        all.extend(server.history(room["roomId"].as_str().unwrap()).await);
    }
    all
}

/// The figures of some messages, counted here.
fn figures(messages: &[&Value], count: &str, other: &str) -> Value {
    let times = || messages.iter().map(|message| message["receivedAt"].as_str().unwrap());
    let others: BTreeSet<&str> = messages.iter().map(|message| message[other].as_str().unwrap()).collect();
    json!({
        "messages": messages.len(), count: others.len(), "firstMessageAt": times().min(), "lastMessageAt": times().max(),
    })
}

/// The figures of each room or user, most messages first.
fn ranked(messages: &[Value], by: &str, count: &str, other: &str) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for message in messages {
        groups.entry(message[by].as_str().unwrap()).or_default().push(message);
    }
    let mut ranked: Vec<Value> = groups
        .into_iter()
        .map(|(id, group)| {
            let mut figures = figures(&group, count, other);
            figures[by] = json!(id);
            figures
        })
        .collect();
    // Stable: equal ones stay in the order of their ids.
    ranked.sort_by_key(|figures| std::cmp::Reverse(figures["messages"].as_u64()));
    ranked
}

fn by_type(messages: &[&Value]) -> Value {
    let count = |kind: &str| messages.iter().filter(|message| message["messageType"] == kind).count();
    json!({"TEXT": count("TEXT"), "JOIN": count("JOIN"), "LEAVE": count("LEAVE")})
}

/// The answer without `asOf`, once it is of now: what was just hidden may take a moment to be left out, and says so.
async fn told(http: &mut Http, path: &str) -> Value {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap());
    let mut told = Value::Null;
    until("an answer of now", async || {
        let answer = http.get(path).await;
        let kind = answer.header("content-type");
        assert_eq!((answer.status, kind), (200, Some("application/json")), "{answer:?}");
        told = answer.json();
        let as_of = told.as_object_mut().unwrap().shift_remove("asOf").unwrap();
        Timestamp::parse(as_of.as_str().unwrap()).unwrap() >= now
    })
    .await;
    told
}

/// Holds every figure against a count of the histories.
async fn check(server: &Server) {
    let all = stored(server).await;
    let every: Vec<&Value> = all.iter().collect();
    let (rooms, users) =
        (ranked(&all, "roomId", "uniqueUsers", "userId"), ranked(&all, "userId", "rooms", "roomId"));
    let mut http = server.http().await;

    let mut expected = figures(&every, "users", "userId");
    expected["rooms"] = json!(rooms.len());
    expected["messagesByType"] = by_type(&every);
    assert_eq!(told(&mut http, "/v1/stats").await, expected);

    assert_eq!(told(&mut http, "/v1/stats/rooms?limit=1000").await, json!({"rooms": rooms}));
    assert_eq!(told(&mut http, "/v1/stats/users?limit=1000").await, json!({"users": users}));
    let top = |all: &[Value], count: usize| all[..count.min(all.len())].to_vec();
    assert_eq!(told(&mut http, "/v1/stats/rooms?limit=2").await, json!({"rooms": top(&rooms, 2)}));
    assert_eq!(told(&mut http, "/v1/stats/users").await, json!({"users": top(&users, 10)}));
    for room in &rooms {
        let path = format!("/v1/stats/rooms?room={}", room["roomId"].as_str().unwrap());
        assert_eq!(told(&mut http, &path).await, json!({"rooms": [room]}));
    }
    assert_eq!(told(&mut http, "/v1/stats/rooms?room=none").await, json!({"rooms": []}));

    for user in &users {
        let id = user["userId"].as_str().unwrap();
        assert_eq!(told(&mut http, &format!("/v1/stats/users?user={id}")).await, json!({"users": [user]}));
        let own: Vec<Value> = all.iter().filter(|message| message["userId"] == id).cloned().collect();
        let mut expected = ranked(&own, "roomId", "x", "roomId");
        expected.sort_by(|one, other| one["roomId"].as_str().cmp(&other["roomId"].as_str()));
        expected.iter_mut().for_each(|room| drop(room.as_object_mut().unwrap().shift_remove("x")));
        let (mut rooms, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/stats/users/{id}/rooms?limit=4{after}");
            let mut page = told(&mut http, &path).await;
            assert_eq!(page["userId"], id);
            rooms.append(page["rooms"].as_array_mut().unwrap());
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(rooms, expected, "{id}");
    }
    check_hours(&mut http, &all).await;
    check_active(&mut http, &all).await;
    let audit = http.post("/v1/stats/audit", "").await;
    assert_eq!(audit.status, 200);
    let audit = audit.json();
    assert_eq!((&audit["messages"], &audit["differences"]), (&json!(all.len()), &json!([])));
    assert!(audit["tookMs"].is_f64() && audit["asOf"].is_string(), "{audit}");
}

async fn check_hours(http: &mut Http, all: &[Value]) {
    let mut hours: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for message in all {
        let hour = format!("{}:00:00.000Z", &message["receivedAt"].as_str().unwrap()[..13]);
        hours.entry(hour).or_default().push(message);
    }
    let expected: Vec<Value> = hours
        .iter()
        .map(|(hour, messages)| {
            let distinct =
                |name: &str| messages.iter().map(|m| m[name].as_str()).collect::<BTreeSet<_>>().len();
            json!({
                "hour": hour, "messages": messages.len(), "messagesByType": by_type(messages),
                "uniqueUsers": distinct("userId"), "activeRooms": distinct("roomId"),
            })
        })
        .collect();
    assert_eq!(told(http, "/v1/stats/hourly").await, json!({"hours": expected, "next": null}));
    let first = hours.keys().next().unwrap();
    // Hours are in the window as a whole, if they begin in it.
    let within = format!("{}:59:59.999Z", &first[..13]);
    let answer = told(http, &format!("/v1/stats/hourly?from={within}&limit=1000")).await;
    assert_eq!(answer["hours"], json!(expected));
    let answer = told(http, &format!("/v1/stats/hourly?to={first}")).await;
    assert_eq!(answer, json!({"hours": [], "next": null}));
}

async fn check_active(http: &mut Http, all: &[Value]) {
    let mut times: Vec<&str> = all.iter().map(|message| message["receivedAt"].as_str().unwrap()).collect();
    times.sort_unstable();
    let (first, middle, last) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    for (from, to) in
        [(first, None), (first, Some(middle)), (middle, None), (middle, Some(last)), (last, Some(last))]
    {
        let users: BTreeSet<&str> = all
            .iter()
            .filter(|message| {
                let time = message["receivedAt"].as_str().unwrap();
                from <= time && to.is_none_or(|to| time < to)
            })
            .map(|message| message["userId"].as_str().unwrap())
            .collect();
        let window = format!("from={from}{}", to.map(|to| format!("&to={to}")).unwrap_or_default());
        let path = format!("/v1/stats/active-users?{window}");
        let expected = json!({"count": users.len(), "users": users, "from": from, "to": to, "next": null});
        assert_eq!(told(http, &path).await, expected, "{window}");
        let mut expected = json!({"count": users.len(), "users": [], "from": from, "to": to, "next": null});
        let answer = told(http, &format!("{path}&limit=0")).await;
        // Whether a page of nobody has a next one means nothing.
        expected["next"] = answer["next"].clone();
        assert_eq!(answer, expected, "{window}");
        let (mut paged, mut after) = (Vec::new(), String::new());
        loop {
            let page = told(http, &format!("{path}&limit=3{after}")).await;
            assert_eq!(page["count"], users.len());
            paged.extend(
                page["users"].as_array().unwrap().iter().map(|user| user.as_str().unwrap().to_owned()),
            );
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(paged, users.iter().copied().collect::<Vec<_>>(), "{window}");
    }
    let everybody: BTreeSet<&str> = all.iter().map(|message| message["userId"].as_str().unwrap()).collect();
    let answer = told(http, "/v1/stats/active-users?limit=1000").await;
    assert_eq!((&answer["users"], &answer["to"]), (&json!(everybody), &Value::Null), "the last 24 hours");
    let day = told(http, "/v1/stats/active-users?to=2026-01-02T00:00:00Z").await;
    assert_eq!((&day["from"], &day["count"]), (&json!("2026-01-01T00:00:00.000Z"), &json!(0)), "{day}");
}

#[tokio::test]
async fn figures_are_what_was_sent_across_restarts() {
    let mut server = Server::start();
    let empty = told(&mut server.http().await, "/v1/stats").await;
    assert_eq!(
        empty,
        json!({
            "messages": 0, "messagesByType": {"TEXT": 0, "JOIN": 0, "LEAVE": 0}, "users": 0, "rooms": 0,
            "firstMessageAt": null, "lastMessageAt": null,
        })
    );
    send_some(&server, 0, 500).await;
    check(&server).await;
    server.restart();
    check(&server).await;
    // Enough for several sealed segments.
    for round in 1..=8 {
        send_some(&server, round * 10_000, 2_500).await;
    }
    check(&server).await;
    server.restart();
    check(&server).await;
    server.terminate();
    server.exit().await;
    server.restart();
    send_some(&server, 1_000_000, 100).await;
    check(&server).await;
    // A repeated id is counted once.
    for _ in 0..2 {
        server.send_as("r0", "again", "twice sent").await;
    }
    check(&server).await;
    // What is gone is not counted.
    server.call("", Method::DELETE, "/v1/users/u1", Value::Null).await;
    server.call("", Method::DELETE, "/v1/rooms/r1", Value::Null).await;
    check(&server).await;
}

/// What a crash left half done is counted neither too much nor too little.
#[tokio::test]
async fn figures_are_right_after_a_crash_under_load() {
    let mut server = Server::start();
    for round in 0..3_u64 {
        let before = server.metric("store_messages").await;
        let mut writers = Vec::new();
        for writer in 0..4_u64 {
            let body: String = (0..20_000_u64)
                .map(|n| {
                    let (room, user) = (format!("r{}", (n + writer) % 9), format!("u{}", n % 7));
                    let message = json!({"roomId": room, "userId": user, "message": format!("{round} {n}")});
                    format!("{message}\n")
                })
                .collect();
            let mut http = server.http().await;
            writers.push(tokio::spawn(async move {
                http.try_request(Method::POST, "/v1/messages", &[], body).await
            }));
        }
        until("some are stored", async || server.metric("store_messages").await >= before + 300).await;
        server.restart();
        for writer in writers {
            drop(writer.await);
        }
        check(&server).await;
    }
}

/// A parameter that makes no sense is named, with its rule, wherever it is taken.
#[tokio::test]
async fn garbage_is_named() {
    let server = Server::start();
    server.send("r", "x").await;
    let mut http = server.http().await;
    for (path, fields) in [
        ("/v1/stats/rooms?limit=0", &["limit"][..]),
        ("/v1/stats/rooms?limit=1001", &["limit"]),
        ("/v1/stats/rooms?limit=x&room=a%20b", &["limit", "room"]),
        ("/v1/stats/users?limit=-1&user=a%20b", &["limit", "user"]),
        ("/v1/stats/users/a%20b/rooms", &["userId"]),
        ("/v1/stats/users/ada/rooms?after=a%20b&limit=0", &["after", "limit"]),
        ("/v1/stats/hourly?from=soon&to=later&limit=0", &["from", "to", "limit"]),
        (
            "/v1/stats/active-users?from=soon&to=later&after=%C3%A4&limit=1001",
            &["from", "to", "after", "limit"],
        ),
        ("/v1/stats/active-users?limit=00x", &["limit"]),
        ("/v1/stats/report?room=a%20b&user=%20", &["room", "user"]),
        ("/v1/users/a%20b/messages", &["userId"]),
        ("/v1/users/ada/messages?before=7&from=soon&to=later&limit=0", &["before", "from", "to", "limit"]),
        ("/v1/users/ada/messages?limit=1001", &["limit"]),
        ("/v1/stats?user=a%20b", &["user"]),
    ] {
        let answer = http.get(path).await;
        assert_eq!(answer.status, 422, "{path}: {}", answer.text());
        answer.faults(fields);
    }
    for (method, path, allow) in [
        (Method::GET, "/v1/stats/audit", "POST"),
        (Method::POST, "/v1/stats", "GET, HEAD"),
        (Method::PUT, "/v1/stats/report", "GET, HEAD"),
        (Method::DELETE, "/v1/users/ada/messages", "GET, HEAD"),
        (Method::POST, "/v1/stats/users/ada/rooms", "GET, HEAD"),
    ] {
        let answer = http.request(method, path, &[], "").await;
        answer.problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
    }
    http.get("/v1/stats/nothing").await.problem(404, "not_found");
    http.get("/v1/stats/report?room=nowhere").await.problem(404, "unknown_room");
}

#[tokio::test]
async fn a_user_sees_only_the_own() {
    let server = Server::start();
    for user in ["ada", "bob"] {
        let message = json!({"userId": user, "message": "hello"});
        server.post("/v1/rooms/r/messages", &message).await;
    }
    for path in [
        "/v1/users/ada/messages",
        "/v1/stats/users/ada/rooms",
        "/v1/stats/users?user=ada",
        "/v1/stats",
        "/v1/stats/rooms",
        "/v1/stats/rooms?room=r",
        "/v1/stats/users",
        "/v1/stats/hourly",
        "/v1/stats/active-users",
        "/v1/stats/report",
        "/v1/stats/report?user=bob",
    ] {
        server.call("bob", Method::GET, path, Value::Null).await.problem(403, "forbidden");
        assert_eq!(server.get(path).await.status, 200, "{path}: an administrator");
    }
    server.call("bob", Method::POST, "/v1/stats/audit", Value::Null).await.problem(403, "forbidden");
    let json = [("hubbub-user", "bob"), ("accept", "application/json")];
    server.http().await.request(Method::GET, "/metrics", &json, "").await.problem(403, "forbidden");
    let own = server.call("bob", Method::GET, "/v1/users/bob/messages", Value::Null).await.json();
    assert_eq!(own["messages"][0]["userId"], "bob");
    assert_eq!(own["messages"].as_array().unwrap().len(), 1);
    for path in
        ["/v1/stats/users/bob/rooms", "/v1/stats/users?user=bob", "/v1/stats/users/bob/rooms?user=bob"]
    {
        assert_eq!(server.call("bob", Method::GET, path, Value::Null).await.status, 200, "{path}");
    }
    // The query says who calls, where it says nothing else.
    server.get("/v1/stats?user=bob").await.problem(403, "forbidden");
    server.get("/v1/users/ada/messages?user=bob").await.problem(403, "forbidden");
}

#[tokio::test]
async fn metrics_are_text_or_report_as_one_likes() {
    let mut server = Server::start();
    let kind = async |server: &Server, accept: &str| {
        let headers = [("accept", accept)];
        let headers = if accept.is_empty() { &[][..] } else { &headers[..] };
        let answer = server.http().await.request(Method::GET, "/metrics", headers, "").await;
        assert_eq!((answer.status, answer.header("vary")), (200, Some("accept")), "{accept}");
        let is_json = answer.header("content-type") == Some("application/json");
        assert_eq!(is_json, answer.text().starts_with("{\"coreQueries\":"), "{accept}");
        assert_eq!(!is_json, answer.text().contains("\nhubbub_store_up 1\n"), "{accept}");
        is_json
    };
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (setting, default) in [("prometheus", false), ("report", true)] {
        server.restart_with(&[&format!("metrics.default={setting}")]);
        for (accept, expected) in [
            ("", default),
            ("*/*", default),
            ("application/json", true),
            ("application/json;q=0.9, */*;q=0.1", true),
            (prometheus, false),
            ("text/plain", false),
            ("application/json;q=0.2, text/plain;q=0.3", false),
        ] {
            assert_eq!(kind(&server, accept).await, expected, "{setting}: {accept}");
        }
    }
    let refused = Setup::new().arguments("127.0.0.1:0");
    let mut arguments: Vec<&str> = refused.iter().map(String::as_str).collect();
    arguments.extend(["--set", "metrics.default=xml"]);
    let line = crate::harness::hubbub(&arguments, "").refusal(2);
    assert!(line.contains("metrics.default must be prometheus or report"), "{line}");
}
