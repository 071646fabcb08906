//! Messages into a file and back, whatever they hold.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Server, hubbub_aside, texts};

/// Longest text that a server takes as it is set up by itself, in bytes.
#[cfg(feature = "parquet")]
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Messages with everything that a file format could trip over.
fn difficult() -> Vec<Value> {
    let texts = [
        "plain",
        "with, comma",
        "say \"hi\"",
        "\"",
        "\"\"",
        "two\nlines",
        "cr\rlf\r\n",
        " padded ",
        "tab\tand 🙂 ünïcödé",
        ",",
        "\n",
        "=1+1",
        "{\"a\":1}",
        "\u{2028}\u{FEFF}",
    ];
    let mut messages: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| {
            json!({"roomId": format!("room-{}", n % 2), "userId": "ada", "message": text, "messageId": format!("m{n}"),
                   "timestamp": "2026-01-31T12:00:00.123Z"})
        })
        .collect();
    messages[1]["username"] = json!("Ada, \"the\" Countess");
    messages[2]["username"] = json!("🙂");
    messages[3]["messageType"] = json!("JOIN");
    messages
}

async fn put(server: &Server, messages: &[Value]) {
    let body: String = messages.iter().map(|message| message.to_string() + "\n").collect();
    for answer in server.http().await.post("/v1/messages", body).await.lines() {
        assert!(answer["seq"].is_u64(), "{answer}");
    }
}

/// A room's messages without what each server gives itself.
async fn content(server: &Server, room: &str) -> Vec<Value> {
    let mut messages = server.history(room).await;
    for message in &mut messages {
        message.as_object_mut().unwrap().retain(|name, _| name != "seq" && name != "receivedAt");
    }
    messages
}

#[tokio::test]
async fn what_is_exported_is_imported() {
    let server = Server::start();
    put(&server, &difficult()).await;
    // More than a page.
    let many: Vec<Value> = (0..1_300)
        .map(|n| json!({"roomId": "many", "userId": format!("u{n}"), "message": n.to_string(), "messageId": n}))
        .collect();
    put(&server, &many).await;
    for format in ["jsonl", "csv"] {
        let file = server.setup().beside(format!("all.{format}")).display().to_string();
        let ran = server.run(&["export", "--format", format, "--out", &file], "").await;
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "exported 1314 messages of 3 rooms\n"));
        let printed = server.run(&["export", "--format", format], "").await.success();
        assert_eq!(printed, fs::read_to_string(&file).unwrap(), "standard output gets the same");
        let other = Server::start();
        let ran = other.run(&["import", &file], "").await;
        assert_eq!(ran.stdout, "stored 1314, there before 0, refused 0\n");
        // Nothing else on standard error: every request was answered whole, none was repeated.
        let told: Vec<&str> = ran.stderr.lines().collect();
        assert!(told.len() == 1 && told[0].starts_with("the import made 3 rooms ("), "{told:?}");
        for room in ["room-0", "room-1", "many"] {
            assert_eq!(content(&other, room).await, content(&server, room).await, "{format}: {room}");
        }
        let printed =
            other.run(&["import", "-", "--format", format, "--json"], &printed_file(&file)).await.success();
        assert_eq!(
            serde_json::from_str::<Value>(&printed).unwrap(),
            json!({"stored": 0, "duplicate": 1_314, "refused": 0})
        );
    }
    let lines = server.run(&["export", "--room", "room-0"], "").await.success();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, server.history("room-0").await, "a line is the message as the server shows it");
}

/// What stands at the place is not replaced by something else: a link, a pipe, or a file that few may read.
#[cfg(unix)]
#[tokio::test]
async fn an_export_goes_where_its_name_leads() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let server = Server::start();
    put(&server, &difficult()).await;
    let printed = server.run(&["export"], "").await.success();
    let at = |name: &str| server.setup().beside(name);
    let export = async |name: &str| {
        let path = at(name).display().to_string();
        server.run(&["export", "--out", &path], "").await.success();
    };
    fs::write(at("private"), "old").unwrap();
    fs::set_permissions(at("private"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("private", at("link")).unwrap();
    export("link").await;
    assert!(at("link").is_symlink());
    assert_eq!(fs::read_to_string(at("private")).unwrap(), printed);
    assert_eq!(fs::metadata(at("private")).unwrap().permissions().mode() & 0o777, 0o600);

    let pipe = at("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reading = tokio::task::spawn_blocking(move || fs::read_to_string(pipe).unwrap());
    export("pipe").await;
    assert_eq!(crate::harness::in_time("what went through the pipe", reading).await.unwrap(), printed);
}

/// Limits that are lower than what commands ask for make them slower, and end nothing.
#[tokio::test]
async fn limits_of_the_server_are_kept_to() {
    let mut server = Server::start();
    let many: Vec<Value> = (0..45)
        .map(|n| json!({"roomId": "many", "userId": "ada", "message": n.to_string(), "messageId": n}))
        .collect();
    put(&server, &many).await;
    let expected = server.history("many").await;
    server.restart_with(&["limits.page_messages=10", "limits.address_requests=3"]);
    let file = server.setup().beside("many.jsonl").display().to_string();
    server.run(&["export", "--out", &file], "").await.success();
    let lines: Vec<Value> =
        printed_file(&file).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, expected);
    let shown = server.run(&["history", "many", "--limit", "45", "--json"], "").await.success();
    let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown, expected);
    for _ in 0..5 {
        assert!(server.run(&["rooms"], "").await.success().contains("many"));
    }
}

/// Rooms of messages alone are open. Those that were made before are as they were made, and nothing is said of them.
#[tokio::test]
async fn an_import_names_the_rooms_that_it_made() {
    let server = Server::start();
    server.put_room("closed", json!({"membersOnly": true})).await;
    let lines: String = ["closed", "new", "new", "a b"]
        .map(|room| json!({"roomId": room, "userId": "ada", "message": room}).to_string() + "\n")
        .concat();
    for told in ["the import made 1 room (new), which everybody can read who may read open rooms", ""] {
        let ran = server.run(&["import", "-"], &lines).await;
        let warnings: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("made")).collect();
        assert!(warnings.len() == usize::from(!told.is_empty()), "{ran:?}");
        assert!(warnings.iter().all(|line| line.starts_with(told)), "{ran:?}");
    }
    assert_eq!(texts(&server.history("new").await), ["new"; 2]);
}

/// A server that asks for a pause gets it, and not eight attempts in less time than that.
#[tokio::test]
async fn an_import_waits_as_long_as_it_is_asked_to() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut asked, mut times) = (Vec::new(), Vec::new());
        while stream.read_buf(&mut asked).await.unwrap() > 0 {
            if asked.starts_with(b"GET ") && asked.ends_with(b"\r\n\r\n") {
                let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
                asked.clear();
            }
            if !asked.ends_with(b"}\n") {
                continue;
            }
            times.push(std::time::Instant::now());
            let (head, body) = match times.len() {
                1 => (
                    "429 Too Many Requests\r\nretry-after: 2",
                    r#"{"code":"too_many_requests","retryable":true}"#,
                ),
                _ => ("200 OK", "{\"seq\":1}\n"),
            };
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            asked.clear();
        }
        times
    });
    let import = ["import", "-", "--server", &url].map(String::from).to_vec();
    let line = "{\"roomId\":\"r\",\"userId\":\"ada\",\"message\":\"one\"}\n";
    hubbub_aside(import, line.to_owned()).await.success();
    let times = serving.await.unwrap();
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= std::time::Duration::from_secs(2), "{:?}", times[1] - times[0]);
}

/// Neither Ctrl-C nor SIGTERM leaves anything behind that fills the disk.
#[tokio::test]
async fn an_interrupted_export_leaves_nothing() {
    use rustix::process::Signal;
    for signal in [Signal::INT, Signal::TERM] {
        interrupt_an_export(signal).await;
    }
}

async fn interrupt_an_export(signal: rustix::process::Signal) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.jsonl");
    let mut command = crate::harness::program::command();
    command.args(["export", "--out", &file.display().to_string(), "--server", &url]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // Connected, and asked for the rooms.
    let (mut stream, _) = listener.accept().await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
    assert!(dir.path().join("all.jsonl.partial").exists());
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, signal).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!((status.code(), fs::read_dir(&dir).unwrap().count()), (Some(1), 0), "{signal:?}");
}

fn printed_file(path: &str) -> String {
    fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn rooms_and_times_can_be_chosen() {
    let server = Server::start();
    for (room, text) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        server.send(room, text).await;
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    let second = server.history("a").await[1]["receivedAt"].as_str().unwrap().to_owned();
    let last = server.history("c").await[0]["receivedAt"].as_str().unwrap().to_owned();
    for (arguments, expected) in [
        (&["--room", "a"][..], &["1", "2"][..]),
        (&["--room", "b", "--room", "a"], &["3", "1", "2"]),
        (&["--from", &second], &["2", "3", "4"]),
        (&["--to", &second], &["1"]),
        (&["--from", &second, "--to", &last], &["2", "3"]),
        (&["--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z"], &[]),
    ] {
        let printed = server.run(&[&["export"], arguments].concat(), "").await.success();
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(texts(&lines), expected, "{arguments:?}");
    }
    for (arguments, part) in [
        (&["export", "--room", "none"][..], "no room none"),
        (&["export", "--room", "a", "--out", "/nowhere/x"], "/nowhere/x"),
        (&["import", "/nowhere/x"], "/nowhere/x"),
    ] {
        let line = server.run(arguments, "").await.refusal(1);
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test]
async fn refused_lines_are_named_and_the_others_stored() {
    let server = Server::start();
    let lines = concat!(
        "{\"roomId\":\"r\",\"userId\":\"ada\",\"message\":\"one\"}\n",
        "\n",
        "no json\n",
        "{\"roomId\":\"r\",\"userId\":\"a b\",\"message\":\"x\"}\n",
        "{\"roomId\":\"r\",\"userId\":\"ada\",\"message\":\"two\",\"messageId\":\"id-2\"}\n",
        "{\"roomId\":\"r\",\"userId\":\"bob\",\"message\":\"other\",\"messageId\":\"id-2\"}",
    );
    for (stored, duplicate, made) in [(2, 0, 1), (0, 2, 0)] {
        let ran = server.run(&["import", "-"], lines).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stdout, format!("stored {stored}, there before {duplicate}, refused 3\n"), "{ran:?}");
        let told: Vec<&str> = ran.stderr.lines().collect();
        for (line, parts) in
            told.iter().zip([["line 3:", "malformed"], ["line 4:", "userId"], ["line 6:", "id_reused"]])
        {
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
        assert_eq!(told.len(), 4 + made, "three lines, the room that was made, and the end: {ran:?}");
        // A message without an id gets the same one each time, so it is not stored twice.
        assert_eq!(texts(&server.history("r").await), ["one", "two"]);
    }
    let csv = "userId,message,roomId,mood\r\nada,three,r,good\r\nada,\"bad\"quotes,r,x\r\nada,too,r\r\nada,\"fo\nur\",r,\r\n";
    let ran = server.run(&["import", "-", "--format", "csv"], csv).await;
    assert_eq!(ran.stdout, "stored 2, there before 0, refused 2\n", "{ran:?}");
    assert!(ran.stderr.contains("line 3:") && ran.stderr.contains("line 4:"), "{ran:?}");
    assert_eq!(texts(&server.history("r").await)[2..], ["three", "fo\nur"]);
    let line = server.run(&["import", "-", "--format", "csv"], "a,b\n").await.refusal(1);
    assert!(line.contains("'roomId'"), "{line}");
    let mut gone = Server::start();
    gone.kill();
    let arguments = ["import", "-", "--server", &gone.url()].map(String::from).to_vec();
    assert!(hubbub_aside(arguments, lines.into()).await.refusal(1).contains("is it running?"));
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn parquet_goes_there_and_back() {
    let server = Server::start();
    let mut messages = difficult();
    messages[4]["message"] = json!("🙂".repeat(MESSAGE_BYTES_MAX / 4));
    put(&server, &messages).await;
    let path = |name: &str| server.setup().beside(name).display().to_string();
    let file = path("all.parquet");
    let ran = server.run(&["export", "--format", "parquet", "--out", &file], "").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "exported 14 messages of 2 rooms\n"));
    let other = Server::start();
    for printed in ["stored 14, there before 0, refused 0\n", "stored 0, there before 14, refused 0\n"] {
        assert_eq!(other.run(&["import", &file], "").await.success(), printed);
        for room in ["room-0", "room-1"] {
            assert_eq!(content(&other, room).await, content(&server, room).await, "{room}");
        }
    }
    let again = path("again.parquet");
    let from = server.history("room-1").await[2]["receivedAt"].as_str().unwrap().to_owned();
    let arguments = ["export", "--format", "parquet", "--room", "room-1", "--from", &from, "--out", &again];
    server.run(&arguments, "").await.success();
    let third = Server::start();
    third.run(&["import", &again, "--json"], "").await.success();
    let expected = content(&server, "room-1").await;
    let kept = expected.len() - content(&third, "room-1").await.len();
    assert!(
        kept <= 2 && content(&third, "room-1").await == expected[kept..],
        "what was received from then on"
    );
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn what_is_no_parquet_is_refused() {
    let server = Server::start();
    put(&server, &difficult()).await;
    let whole = server.setup().beside("whole.parquet");
    server.run(&["export", "--format", "parquet", "--out", &whole.display().to_string()], "").await.success();
    let bytes = fs::read(&whole).unwrap();
    let other = Server::start();
    let cut = other.setup().beside("cut.parquet");
    for content in [&bytes[..bytes.len() / 2], &bytes[..bytes.len() - 1], b"userId,message,roomId\n", b""] {
        fs::write(&cut, content).unwrap();
        let line = other.run(&["import", &cut.display().to_string()], "").await.refusal(1);
        assert!(line.contains("cut.parquet") && line.contains("no Parquet file, or damaged"), "{line}");
    }
    let line = other.run(&["import", "-", "--format", "parquet"], "").await.refusal(1);
    assert!(line.contains("name the file"), "{line}");
    assert_eq!(other.http().await.get("/v1/rooms").await.json()["rooms"], json!([]), "nothing was stored");
}

#[cfg(not(feature = "parquet"))]
#[tokio::test]
async fn a_program_without_parquet_says_so() {
    let server = Server::start();
    let file = server.setup().beside("x.parquet").display().to_string();
    for arguments in [&["export", "--format", "parquet", "--out", &file][..], &["import", &file]] {
        let line = server.run(arguments, "").await.refusal(1);
        assert!(line.contains("--features parquet"), "{line}");
    }
    assert!(!fs::exists(&file).unwrap());
}

/// A room that gets messages as fast as they are read is exported up to where it was when its export began.
#[tokio::test]
async fn a_room_that_grows_meanwhile_is_no_endless_export() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while stream.read_buf(&mut asked).await.unwrap() > 0 {
            let Some(request) = std::str::from_utf8(&asked).unwrap().split_once("\r\n\r\n") else { continue };
            let after = request.0.split_once("after=").unwrap().1;
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            let after: u64 = digits.parse().unwrap();
            // The end is always as far away as it was.
            let (next, head) = (after + 1, after + 10);
            let message = json!({"roomId": "r", "seq": next, "message": "x"});
            let page = json!({"messages": [message], "epoch": "e", "oldest": 1, "head": head, "next": next});
            let page = page.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
            stream.write_all(format!("{head}{page}").as_bytes()).await.unwrap();
            asked.clear();
        }
    });
    let export = ["export", "--room", "r", "--server", &url].map(String::from).to_vec();
    let exported = hubbub_aside(export, String::new()).await;
    assert_eq!((exported.code, exported.stdout.lines().count()), (Some(0), 10), "{}", exported.stderr);
}
