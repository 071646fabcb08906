//! The report is what tools expect that know nothing of this server: numbers, and arrays of flat rows.

use std::io::Write;
use std::process::{Command, Stdio};

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Postgres, Server, Setup, until};

/// Three tools: one prints sums, one prints tables, one draws curves. Each fails where a member has another type.
const TOOLS: &str = r#"
import datetime, json, sys
report = json.load(sys.stdin)
core, analytics, metadata = report["coreQueries"], report["analyticsQueries"], report["metadata"]
is_empty = core["totalMessages"] == 0

def when(text):
    return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f")

def sums():
    print(f"{core['totalMessages']:,} messages, {core['activeUsersLast24h']:,} users, at {when(metadata['timestamp'])}")
    pool = metadata["databaseConnectionPool"]
    print(f"{pool['activeConnections']:d} of {pool['totalConnections']:d}, {pool['idleConnections']:d} idle, "
          f"{pool['threadsAwaiting']:d} waiting")
    for name in list(core) + list(analytics):
        timing = metadata["queries"][name]
        print(f"{name} {timing['tookMs']:.3f} {when(timing['asOf'])}")

def tables():
    for row in core["messagesPerRoom"]:
        print(f"{row['roomId']} {row['messageCount']:d}")
    for row in core["userParticipation"]:
        print(f"{row['roomId']} {row['userId']} {row['messageCount']:d}")
    for row in core["sampleRoomMessages"]:
        print(f"{row['messageId']} {row['userId']} {row['content'][:20]} {when(row['timestamp'])}")
    for row in core["sampleUserHistory"]:
        print(f"{row['messageId']} {row['roomId']} {row['content'][:20]} {when(row['timestamp'])}")
    for row in core["sampleUserRooms"]:
        print(f"{row['roomId']} {row['messageCount']:d} {when(row['lastActivity'])}")
    if not is_empty:
        assert sum(row["messageCount"] for row in core["messagesPerRoom"]) == core["totalMessages"]
        assert sum(row["messageCount"] for row in core["userParticipation"]) == core["totalMessages"]
        assert len(core["sampleUserRooms"]) > 0 and core["sampleRoomMessages"][0]["content"]

def curves():
    hours = [(when(row["hour"]), row["totalMessages"] + 0, row["uniqueUsers"] + 0, row["activeRooms"] + 0)
             for row in analytics["hourlyMessageDistribution"]]
    assert hours == sorted(hours, reverse=True) and len(hours) <= 24
    for row in analytics["topActiveUsers"][:10]:
        assert when(row["firstMessage"]) <= when(row["lastMessage"])
        print(f"{row['userId']} {row['totalMessages'] / row['roomsParticipated']:.1f}")
    for row in analytics["topActiveRooms"][:10]:
        assert when(row["firstMessage"]) <= when(row["lastActivity"])
        print(f"{row['roomId']} {row['totalMessages'] / row['uniqueUsers']:.1f}")
    if not is_empty:
        assert analytics["topActiveRooms"][0]["roomId"] == core["messagesPerRoom"][0]["roomId"]

sums(); tables(); curves()
"#;

/// Gives the report to the tools, where there is Python to run them.
fn read_by_tools(report: &str) {
    let mut command = Command::new("python3");
    command.args(["-c", TOOLS]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "there is no python3");
        return println!("SKIPPED: there is no python3");
    };
    child.stdin.take().unwrap().write_all(report.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success(), "{}\n{report}", String::from_utf8_lossy(&ran.stderr));
}

/// The report as `/metrics` gives it to those who say nothing of what they take.
async fn report(server: &Server) -> Value {
    let answer = server.get("/metrics").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    read_by_tools(&answer.text());
    answer.json()
}

/// Messages of `users` and `rooms` whose ids are numbers: the n-th pair of them has n.
async fn fill(server: &Server, rooms: u64, users: u64) {
    let mut lines = String::new();
    for pair in 1..=rooms * users {
        let (room, user) = (pair % rooms, pair / rooms % users + 100);
        for n in 0..pair {
            let message = json!({
                "messageId": format!("{room}-{user}-{n}"), "roomId": room.to_string(), "userId": user.to_string(),
                "message": format!("{n} of {pair}"),
            });
            lines.push_str(&format!("{message}\n"));
        }
    }
    let answers = server.http().await.post("/v1/messages", lines).await.lines();
    assert!(answers.iter().all(|answer| answer["duplicate"] == false), "{answers:?}");
}

fn strings<'a>(rows: &'a Value, name: &str) -> Vec<&'a str> {
    rows.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap()).collect()
}

async fn check(server: &Server) {
    let empty = report(server).await;
    let (core, analytics) = (&empty["coreQueries"], &empty["analyticsQueries"]);
    assert_eq!((&core["totalMessages"], &core["activeUsersLast24h"]), (&json!(0), &json!(0)));
    for list in
        ["messagesPerRoom", "userParticipation", "sampleRoomMessages", "sampleUserHistory", "sampleUserRooms"]
    {
        assert_eq!(core[list], json!([]), "{list}");
    }
    for list in ["topActiveUsers", "topActiveRooms", "hourlyMessageDistribution"] {
        assert_eq!(analytics[list], json!([]), "{list}");
    }

    fill(server, 4, 3).await;
    let full = report(server).await;
    let (core, analytics) = (&full["coreQueries"], &full["analyticsQueries"]);
    assert_eq!((&core["totalMessages"], &core["activeUsersLast24h"]), (&json!(78), &json!(3)));
    let per_room: Vec<Value> = [(0, 24), (3, 21), (2, 18), (1, 15)]
        .map(|(room, n)| json!({"roomId": room, "messageCount": n}))
        .into();
    assert_eq!(core["messagesPerRoom"], json!(per_room));
    let pairs = core["userParticipation"].as_array().unwrap();
    assert_eq!((pairs.len(), &pairs[0]), (12, &json!({"roomId": 0, "userId": 100, "messageCount": 12})));
    assert_eq!(pairs[11], json!({"roomId": 1, "userId": 100, "messageCount": 1}));
    let newest = &core["sampleRoomMessages"][0];
    assert_eq!((&newest["messageId"], &newest["content"]), (&json!("0-100-11"), &json!("11 of 12")));
    assert_eq!(
        (newest["userId"].as_u64(), core["sampleRoomMessages"].as_array().unwrap().len()),
        (Some(100), 10)
    );
    let times = strings(&core["sampleRoomMessages"], "timestamp");
    assert!(times.is_sorted_by(|one, next| one >= next), "newest first: {times:?}");

    let top = &analytics["topActiveUsers"][0];
    assert_eq!(
        (&top["userId"], &top["totalMessages"], &top["roomsParticipated"]),
        (&json!(102), &json!(38), &json!(4))
    );
    let activity = strings(&core["sampleUserRooms"], "lastActivity");
    assert!(activity.len() == 4 && activity.is_sorted_by(|one, next| one >= next), "{activity:?}");
    assert_eq!(core["sampleUserHistory"].as_array().unwrap().len(), 10);
    let top = &analytics["topActiveRooms"][0];
    assert_eq!(
        (&top["roomId"], &top["totalMessages"], &top["uniqueUsers"]),
        (&json!(0), &json!(24), &json!(3))
    );
}

/// Which room and user are the samples, and ids that are no numbers.
async fn check_samples(server: &Server) {
    for id in ["lobby", "007", "9007199254740993"] {
        let message = json!({"userId": id, "message": "hello"});
        server.post(&format!("/v1/rooms/{id}/messages"), &message).await;
        let report = server.get(&format!("/v1/stats/report?room={id}&user={id}")).await;
        read_by_tools(&report.text());
        let core = &report.json()["coreQueries"];
        assert_eq!(core["sampleRoomMessages"][0]["userId"], id, "a string, as a number would be another id");
        assert_eq!(
            (&core["sampleUserHistory"][0]["roomId"], &core["sampleUserRooms"][0]["roomId"]),
            (&json!(id), &json!(id))
        );
    }
    server.get("/v1/stats/report?room=nowhere").await.problem(404, "unknown_room");
}

#[tokio::test]
async fn report_is_read_by_tools() {
    let mut server = Setup::new().set("metrics.default=report").start();
    check(&server).await;
    check_samples(&server).await;
    // What was sealed and what came after a start counts alike; what is deleted is gone from every list.
    server.restart();
    server.call("", Method::DELETE, "/v1/users/100", Value::Null).await;
    until("a report without the user", async || {
        let report = report(&server).await;
        !report["coreQueries"]["userParticipation"].to_string().contains("\"userId\":100")
    })
    .await;
    let own = server.get("/v1/stats").await.json();
    assert!(own["messages"].is_u64() && own["messagesByType"].is_object(), "has a shape of its own: {own}");
}

#[tokio::test]
async fn report_of_a_database_is_read_by_tools() {
    let postgres = Postgres::start("");
    let server = Setup::new().store(&postgres.url("postgres")).set("metrics.default=report").start();
    check(&server).await;
    check_samples(&server).await;
}

#[tokio::test]
async fn the_report_says_what_it_took_and_how_the_server_does() {
    let server = Server::start();
    let mut follower = server.subscriber("quiet", json!({})).await;
    server.send("quiet", "hello").await;
    follower.receive_type("message").await;
    let report = server.get("/v1/stats/report").await.json();
    let metadata = &report["metadata"];
    let names: Vec<&str> = metadata.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "timestamp",
        "asOf",
        "version",
        "uptimeSeconds",
        "currentRates",
        "databaseConnectionPool",
        "queries",
    ];
    assert_eq!(names, expected);
    assert_eq!(metadata["version"], env!("CARGO_PKG_VERSION"));
    assert!(metadata["uptimeSeconds"].as_f64().unwrap() > 0.0);
    let rates = &metadata["currentRates"]["messagesPerSecond"];
    assert!(rates["in"].as_f64().unwrap() > 0.0 && rates["out"].as_f64().unwrap() > 0.0, "{metadata}");
    let pool =
        json!({"activeConnections": 0, "idleConnections": 0, "totalConnections": 0, "threadsAwaiting": 0});
    assert_eq!(metadata["databaseConnectionPool"], pool);
    let queries = ["coreQueries", "analyticsQueries"].map(|part| report[part].as_object().unwrap().keys());
    assert!(queries.into_iter().flatten().eq(metadata["queries"].as_object().unwrap().keys()), "{metadata}");
}
