//! `hubbub stats`: the table, the line for each interval, its CSV, and the audit.

use serde_json::{Value, json};

use crate::harness::{Ran, Server, hubbub};

async fn stats(server: &Server, arguments: &[&str]) -> Ran {
    let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.insert(0, "stats".into());
    arguments.extend(["--server".to_owned(), server.url()]);
    let run = move || hubbub(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), "");
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn some_messages() -> Server {
    let server = Server::start();
    for (room, user, count) in [("lobby", "ada", 3), ("lobby", "bob", 1), ("garden", "ada", 2)] {
        for n in 0..count {
            let kind = if n == 1 { "JOIN" } else { "TEXT" };
            let message = json!({"userId": user, "message": "hello", "messageType": kind});
            server.post(&format!("/v1/rooms/{room}/messages"), &message).await;
        }
    }
    server
}

#[tokio::test]
async fn the_overview_shows_totals_rooms_and_users() {
    let server = some_messages().await;
    let text = stats(&server, &[]).await.success();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let first = text.lines().next().unwrap();
    assert!(first.ends_with("6  TEXT 4, JOIN 2, LEAVE 0"), "{text}");
    assert_eq!((&words[1][..2], &words[2][..2]), (&["users", "2"][..], &["rooms", "2"][..]));
    assert_eq!(words[7..10], [["room", "messages", "users"], ["lobby", "4", "2"], ["garden", "2", "1"]]);
    assert_eq!(words[11..], [["user", "messages", "rooms"], ["ada", "5", "2"], ["bob", "1", "1"]]);

    let shown: Value =
        serde_json::from_str(&stats(&server, &["--json", "--top", "1"]).await.success()).unwrap();
    assert_eq!(shown["totals"]["messages"], 6);
    assert_eq!(shown["topRooms"], server.get("/v1/stats/rooms?limit=1").await.json()["rooms"]);
    assert_eq!(shown["topUsers"], server.get("/v1/stats/users?limit=1").await.json()["users"]);
}

const COLUMNS: &str = "timestamp,connections,websockets,subscriptions,rooms,messages,messagesInPerSecond,\
    messagesOutPerSecond,waitingOperations,storeBytes,queueMessages,queueInPerSecond,keys";

#[tokio::test]
async fn every_interval_is_a_line() {
    let server = some_messages().await;
    let _subscriber = server.subscriber("lobby", json!({})).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stats.csv");
    let path = file.display().to_string();
    let text = stats(&server, &["--every", "20ms", "--count", "3", "--csv", &path]).await.success();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.starts_with("time  ") && text.lines().all(|line| line.split_whitespace().count() >= 13),
        "{text}"
    );
    let csv = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(csv.lines().next().unwrap(), COLUMNS);
    assert_eq!(lines.len(), 4, "{csv}");
    for line in &lines[1..] {
        assert_eq!((line.len(), line[2], line[3], line[4], line[5]), (13, "1", "1", "2", "6"), "{csv}");
        assert!(line[0].ends_with('Z') && line[9].parse::<u64>().unwrap() > 0, "{csv}");
    }
    assert_eq!((lines[1][6], lines[1][7], lines[2][6], lines[3][7]), ("", "", "0", "0"), "{csv}");
    // The next run goes on in the same file, under the same header.
    let shown =
        stats(&server, &["--every", "20ms", "--count", "1", "--csv", &path, "--json"]).await.success();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["messages"], &shown["messagesInPerSecond"]), (&json!(6), &Value::Null));
    assert_eq!(shown.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(","), COLUMNS);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 5);
    std::fs::write(&file, "a,b\n").unwrap();
    let line = stats(&server, &["--every", "1s", "--csv", &path]).await.refusal(1);
    assert!(line.contains("other columns"), "{line}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a,b\n");
}

#[tokio::test]
async fn the_audit_says_whether_the_counts_are_right() {
    let mut server = some_messages().await;
    let text = stats(&server, &["audit"]).await.success();
    assert!(text.starts_with("6 messages recounted in ") && text.ends_with(": 0 differences\n"), "{text}");
    server.restart();
    let audit: Value = serde_json::from_str(&stats(&server, &["audit", "--json"]).await.success()).unwrap();
    assert_eq!((&audit["messages"], &audit["differences"]), (&json!(6), &json!([])));
    server.kill();
    for arguments in [&["audit"][..], &[], &["--every", "1s"]] {
        let line = stats(&server, arguments).await.refusal(1);
        assert!(line.contains("is it running?"), "{line}");
    }
}

#[test]
fn wrong_intervals_are_wrong_usage() {
    for arguments in [
        &["stats", "--every", "soon"][..],
        &["stats", "--every", "0s"],
        &["stats", "--csv", "x.csv"],
        &["stats", "--top", "0"],
        &["stats", "--every", "1s", "--top", "3"],
    ] {
        let ran = hubbub(arguments, "");
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}
