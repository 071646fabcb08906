//! The client commands, for people and with `--json` for scripts.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ran, Server, hubbub, hubbub_aside, seqs, texts};

/// Runs a client command against `server` without blocking the test's other tasks.
async fn client(server: &Server, arguments: &[&str], input: &str) -> Ran {
    let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(["--server".to_owned(), server.url()]);
    let input = input.to_owned();
    let run = move || hubbub(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &input);
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn send_stores_and_prints_the_receipt() {
    let server = Server::start();
    let text = client(&server, &["send", "r", "hello", "--user", "ada", "--id", "one"], "").await.success();
    assert_eq!(text, "stored as message 1 of r\n");
    let text = client(&server, &["send", "r", "hello", "--user", "ada", "--id", "one"], "").await.success();
    assert_eq!(text, "was stored before as message 1 of r\n");
    let text = client(&server, &["send", "r", "bye", "--type", "leave", "--json"], "").await.success();
    let receipt = &json_lines(&text)[0];
    assert_eq!((&receipt["seq"], &receipt["duplicate"]), (&json!(2), &json!(false)));
    let text = client(&server, &["send", "r", "-", "--json"], "line 1\n\nline 2").await.success();
    assert_eq!(seqs(&json_lines(&text)), [3, 4]);
    assert_eq!(client(&server, &["send", "r"], "line 3\n").await.success(), "stored as message 5 of r\n");

    let history = server.history("r").await;
    assert_eq!(texts(&history), ["hello", "bye", "line 1", "line 2", "line 3"]);
    assert_eq!((&history[0]["userId"], &history[1]["userId"]), (&json!("ada"), &json!("cli")));
    assert_eq!(history[1]["messageType"], "LEAVE");
}

#[tokio::test]
async fn commands_fail_with_one_line() {
    let server = Server::start();
    server.send_as("r", "one", "hello").await;
    for (arguments, part) in [
        (&["send", "r", "other", "--id", "one"][..], "id_reused"),
        (&["history", "unknown"], "unknown_room"),
        (&["history", "r", "--after", "9"], "reset"),
    ] {
        let line = client(&server, arguments, "").await.refusal(1);
        assert!(line.starts_with("hubbub: ") && line.contains(part), "{arguments:?}: {line}");
    }
    let mut gone = Server::start();
    gone.kill();
    for arguments in [&["rooms"][..], &["history", "r"], &["tail", "r"]] {
        let line = client(&gone, arguments, "").await.refusal(1);
        assert!(line.contains("is it running?"), "{line}");
    }
}

#[tokio::test]
async fn history_and_rooms_show_what_is_stored() {
    let server = Server::start();
    let body: String = (1..=1_200)
        .map(|n| json!({"roomId": "r", "userId": "ada", "message": n.to_string()}).to_string() + "\n")
        .collect();
    server.http().await.post("/v1/messages", body).await;
    server.send("other", "\u{1b}[31mred\u{7}").await;
    // `--limit` over as many pages as it takes, oldest first in either direction.
    for (arguments, expected) in [
        (&["history", "r", "--limit", "1100"][..], 101..=1_200),
        (&["history", "r"], 1_151..=1_200),
        (&["history", "r", "--after", "10", "--limit", "1050"], 11..=1_060),
        (&["history", "r", "--before", "1000", "--limit", "2"], 998..=999),
        (&["history", "r", "--from", "2000-01-01T00:00:00Z", "--limit", "3"], 1..=3),
    ] {
        let arguments = [arguments, &["--json"]].concat();
        let shown = json_lines(&client(&server, &arguments, "").await.success());
        assert_eq!(seqs(&shown), expected.collect::<Vec<u64>>(), "{arguments:?}");
    }
    let shown =
        json_lines(&client(&server, &["history", "r", "--json", "--limit", "2000"], "").await.success());
    assert_eq!(shown, server.history("r").await);

    let text = client(&server, &["history", "other"], "").await.success();
    assert!(
        text.contains("ada: \u{FFFD}[31mred\u{FFFD}\n"),
        "escape sequences do not reach the terminal: {text:?}"
    );
    let text = client(&server, &["rooms"], "").await.success();
    let lines: Vec<_> =
        text.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    assert_eq!(lines, [["room", "messages", "head"], ["other", "1", "1"], ["r", "1200", "1200"]]);
    let rooms = json_lines(&client(&server, &["rooms", "--json"], "").await.success());
    assert_eq!(rooms, *server.get("/v1/rooms").await.json()["rooms"].as_array().unwrap());
}

#[tokio::test]
async fn tail_begins_where_it_is_told() {
    let server = Server::start();
    for n in 1..=20 {
        server.send("r", &n.to_string()).await;
    }
    for (arguments, expected) in [
        (&["tail", "r", "--count", "10"][..], 11..=20),
        (&["tail", "r", "--last", "3", "--count", "3"], 18..=20),
        (&["tail", "r", "--after", "0", "--count", "20"], 1..=20),
        (&["tail", "r", "--after", "15", "--count", "2"], 16..=17),
    ] {
        let arguments = [arguments, &["--json"]].concat();
        let shown = json_lines(&client(&server, &arguments, "").await.success());
        assert_eq!(seqs(&shown), expected.collect::<Vec<u64>>(), "{arguments:?}");
    }
    // Beyond the newest message: what is shown is what there is, and nothing is said to be replaced.
    let beyond = client(&server, &["tail", "r", "--after", "999", "--count", "20", "--json"], "").await;
    assert_eq!(
        beyond.stderr,
        "{\"notice\":\"999 is beyond the newest message, which is 20; showing the room from its oldest message\"}\n"
    );
    assert_eq!(seqs(&json_lines(&beyond.success())), (1..=20).collect::<Vec<u64>>());
    let text = client(&server, &["tail", "r", "--last", "1", "--count", "1"], "").await.success();
    assert!(text.ends_with("20  ada: 20\n"), "{text}");
}

/// Whoever started the server may be gone, and with it what reads its standard error.
#[tokio::test]
async fn a_closed_standard_error_stops_nothing() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let mut command = crate::harness::program::command();
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &dir.path().join("data").display().to_string(),
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("ready ").unwrap();
    let ping = ["ping", "--count", "3", "--server", url].map(str::to_owned).to_vec();
    hubbub_aside(ping, String::new()).await.success();
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn rooms_and_members_are_changed() {
    let server = Server::start();
    let run = async |arguments: &[&str]| client(&server, arguments, "").await;
    let made = run(&["room", "set", "tea", "--title", "Tea", "--members-only", "--retention", "30d"]).await;
    assert_eq!(made.success(), "created: tea\n");
    assert_eq!(run(&["room", "set", "tea"]).await.success(), "unchanged: tea\n");
    let changed = run(&["room", "set", "tea", "--title", "", "--retention", "off", "--json"]).await.success();
    let room = &json_lines(&changed)[0];
    assert_eq!(
        (&room["title"], &room["membersOnly"], &room["retention"]),
        (&Value::Null, &json!(true), &Value::Null)
    );
    for user in ["ada", "bob"] {
        assert_eq!(run(&["room", "add", "tea", user]).await.success(), format!("added: {user}\n"));
    }
    assert_eq!(run(&["room", "remove", "tea", "bob"]).await.success(), "removed: bob\n");
    let again = run(&["room", "add", "tea", "ada", "--json"]).await.success();
    assert_eq!(json_lines(&again), [json!({"added": "ada"})]);
    let members = run(&["room", "members", "tea", "--json"]).await.success();
    assert_eq!(json_lines(&members), [json!({"userId": "ada", "readSeq": 0})]);
    let members = run(&["room", "members", "tea"]).await.success();
    assert!(members.lines().last().unwrap().starts_with("ada "), "{members}");
    assert_eq!(run(&["room", "delete", "tea"]).await.success(), "deleted: tea\n");
    // Whoever wants to delete a room would not make it.
    let line = run(&["room", "delete", "tea"]).await.refusal(1);
    assert_eq!(line, "hubbub: the server answered 404: there is no room 'tea' (unknown_room)\n");
    let line = run(&["history", "tea"]).await.refusal(1);
    let named = "there is no room 'tea'; PUT /v1/rooms/tea makes one (hubbub room set tea)";
    assert!(line.contains(named), "{line}");
}

/// What an administrator may read as history, it may follow as well, and unseen.
#[tokio::test]
async fn an_administrator_follows_every_room() {
    let server = Server::start();
    client(&server, &["room", "set", "secret", "--members-only"], "").await.success();
    client(&server, &["room", "add", "secret", "ada"], "").await.success();
    client(&server, &["send", "secret", "hello", "--user", "ada"], "").await.success();
    let tailed = client(&server, &["tail", "secret", "--count", "1"], "").await.success();
    assert!(tailed.contains("ada: hello"), "{tailed}");
    let stranger = client(&server, &["tail", "secret", "--count", "1", "--user", "eve"], "").await;
    assert!(stranger.refusal(1).contains("not_member"));
}
