//! Making, keeping and losing backups: whatever breaks off, no half looks like a whole.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{Answer, Http, Ran, Server, Setup, hubbub, hubbub_aside, program, until};

/// Names in a directory of backups, without what begins with a dot.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}

async fn backup(server: &Server, dir: &Path, more: &[&str]) -> Value {
    let dir = dir.display().to_string();
    let printed = server.run(&[&["backup", &dir, "--json"], more].concat(), "").await.success();
    serde_json::from_str(&printed).unwrap()
}

#[tokio::test]
async fn only_as_many_are_kept_as_wanted() {
    let server = Server::start();
    let dir = server.setup().beside("backups");
    let mut made = Vec::new();
    for number in 1..=4 {
        server.send("r", &format!("{number}")).await;
        let backup = backup(&server, &dir, &["--keep", "2"]).await;
        assert_eq!(backup["messages"], number);
        assert_eq!(backup["backupsRemoved"], u64::from(number > 2), "{backup}");
        made.push(PathBuf::from(backup["backup"].as_str().unwrap()));
    }
    let kept: Vec<_> = made[2..].iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names(&dir), kept);
    // Messages are in them, and in the data directory.
    for made in [&dir, &made[3], server.data()] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
    }
    // The older one is whole although files of it are in the newer one too.
    for (path, messages) in made[2..].iter().zip([3, 4]) {
        let printed = hubbub(&["restore", &path.display().to_string(), "--check", "--json"], "").success();
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["messages"], messages);
    }
    assert_eq!(names(&dir), kept, "the check left something");
    let printed = hubbub(&["restore", &dir.display().to_string(), "--check"], "").success();
    assert!(printed.contains(kept[1]) && printed.contains("4 messages"), "the newest: {printed}");
    let ran = server.run(&["backup", &dir.display().to_string(), "--keep", "0"], "").await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[tokio::test]
async fn a_file_that_went_bad_in_one_backup_is_fetched_anew() {
    let server = Server::start();
    server.send("r", "one").await;
    let dir = server.setup().beside("backups");
    let first = backup(&server, &dir, &[]).await;
    let file = Path::new(first["backup"].as_str().unwrap()).join("segments/00000001.seg");
    let mut bytes = fs::read(&file).unwrap();
    bytes[30] ^= 1;
    fs::write(&file, bytes).unwrap();
    let second = backup(&server, &dir, &[]).await;
    assert_eq!(second["filesFetched"], 1, "all but that one are as they were: {second}");
    hubbub(&["verify", second["backup"].as_str().unwrap()], "").success();
}

#[tokio::test]
async fn a_restore_takes_an_empty_place_only() {
    let server = Server::start();
    server.send("r", "one").await;
    let dir = server.setup().beside("backups");
    backup(&server, &dir, &[]).await;
    let (dir, used) = (dir.display().to_string(), server.data().display().to_string());
    let restore =
        |to: &str| hubbub_aside(vec!["restore".into(), dir.clone(), "--to".into(), to.into()], String::new());
    let line = restore(&used).await.refusal(1);
    assert!(line.contains("is not empty"), "{line}");
    server.send("r", "unharmed").await;
    let empty = server.setup().beside("empty");
    fs::create_dir(&empty).unwrap();
    restore(&empty.display().to_string()).await.success();
    // What a restore that was killed left is told apart from what somebody needs.
    let left = server.setup().beside("left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("LOCK"), "1\n").unwrap();
    let line = restore(&left.display().to_string()).await.refusal(1);
    assert!(line.contains("as an interrupted restore leaves it"), "{line}");
}

/// A backup is restored, not served: a server that is started on it by mistake changes nothing.
#[tokio::test]
async fn a_backup_stays_as_it_is() {
    let server = Server::start();
    server.send("r", "one").await;
    let dir = server.setup().beside("backups");
    let made = backup(&server, &dir, &[]).await;
    let made = made["backup"].as_str().unwrap();
    let before = names(Path::new(made));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", made].map(str::to_owned).to_vec();
    let line = hubbub_aside(serve, String::new()).await.refusal(3);
    assert!(line.contains("is a backup; restore it") && line.contains("hubbub restore"), "{line}");
    assert_eq!(names(Path::new(made)), before);
    // Earlier versions left a lock there.
    fs::write(Path::new(made).join("LOCK"), "1\n").unwrap();
    hubbub(&["verify", made], "").success();
}

/// Asks with a header that names the caller, unless it is empty.
async fn request(http: &mut Http, method: Method, path: &str, user: &str) -> Answer {
    let headers = [("hubbub-user", user)];
    http.request(method, path, if user.is_empty() { &[] } else { &headers }, "").await
}

#[tokio::test]
async fn the_protocol_is_for_the_administrator_and_leads_nowhere_else() {
    let mut server = Server::start();
    server.send("r", "one").await;
    let mut http = server.http().await;
    let path = "/v1/backups/b";
    request(&mut http, Method::PUT, path, "ada").await.problem(403, "forbidden");
    request(&mut http, Method::PUT, "/v1/backups/%2e%2e", "").await.faults(&["backup"]);
    request(&mut http, Method::POST, path, "").await.problem(405, "method_not_allowed");
    let begun = request(&mut http, Method::PUT, path, "").await;
    assert_eq!(begun.status, 201, "{begun:?}");
    server.send("r", "behind it").await;
    let again = request(&mut http, Method::PUT, path, "").await;
    assert_eq!((again.status, again.json()), (200, begun.json()));
    let begun = begun.json();
    let files = begun["files"].as_array().unwrap();
    let named: Vec<_> = files.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["segments/00000001.seg", "MANIFEST", "FORMAT"]);
    let file_path = |name: &str| format!("{path}/files/{}", name.replace('/', "%2F"));
    for file in files {
        let got = request(&mut http, Method::GET, &file_path(file["name"].as_str().unwrap()), "").await;
        assert_eq!((got.status, got.body.len() as u64), (200, file["bytes"].as_u64().unwrap()));
    }
    for name in
        ["LOCK", "../LOCK", "segments", "segments/../MANIFEST", "journal/slot-1", "", "/MANIFEST", "%252e"]
    {
        request(&mut http, Method::GET, &file_path(name), "").await.problem(404, "not_found");
    }
    request(&mut http, Method::GET, &format!("{path}/files/segments/../MANIFEST"), "")
        .await
        .problem(404, "not_found");
    request(&mut http, Method::GET, &file_path("MANIFEST"), "ada").await.problem(403, "forbidden");
    request(&mut http, Method::DELETE, path, "ada").await.problem(403, "forbidden");
    // A killed server forgets its backups, and nothing of them stays behind.
    server.kill();
    let mut left = names(server.data());
    // Where files have no time of birth it is not there.
    left.retain(|name| name != "PLACE");
    assert_eq!(left, ["FORMAT", "LOCK", "MANIFEST", "journal", "kv", "queues", "segments"]);
    server.restart();
    let mut http = server.http().await;
    request(&mut http, Method::GET, &file_path("MANIFEST"), "").await.problem(404, "not_found");
    assert_eq!(request(&mut http, Method::PUT, path, "").await.status, 201);
    let ended = request(&mut http, Method::DELETE, path, "").await;
    assert_eq!((ended.status, ended.body.len()), (204, 0));
    request(&mut http, Method::DELETE, path, "").await.problem(404, "not_found");
    request(&mut http, Method::GET, &file_path("FORMAT"), "").await.problem(404, "not_found");
    assert_eq!(server.history("r").await.len(), 2);
}

/// How a server that is no good answers when asked for a file.
#[derive(Clone, Copy)]
enum Fault {
    /// Half of it, then nothing.
    Hangs,
    /// Half of it, then the connection is closed.
    Breaks,
    /// All of it, but other bytes.
    Lies,
}

/// Listens, and answers as a server does until it comes to the first file.
async fn bad_server(fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {
                    if !request.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let body = json!({
                        "epoch": "e", "messages": 1,
                        "files": [{"name": "segments/00000001.seg", "bytes": 8, "crc32c": 1}],
                    });
                    let whole = |body: &str| {
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                    };
                    let half = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf".to_owned();
                    let answer = match (request.starts_with(b"GET"), fault) {
                        (false, _) => whole(&body.to_string()),
                        (true, Fault::Lies) => whole("8 bytes."),
                        (true, Fault::Hangs | Fault::Breaks) => half,
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if request.starts_with(b"GET") && matches!(fault, Fault::Breaks) {
                        return;
                    }
                    request.clear();
                }
            });
        }
    });
    url
}

async fn backup_from(url: &str, dir: &Path) -> Ran {
    let arguments = ["backup", &dir.display().to_string(), "--server", url].map(String::from).to_vec();
    hubbub_aside(arguments, String::new()).await
}

#[tokio::test]
async fn a_backup_that_breaks_off_is_none() {
    let dir = Setup::new().beside("backups");
    for (fault, reason) in [(Fault::Breaks, "ended early"), (Fault::Lies, "checksum")] {
        let line = backup_from(&bad_server(fault).await, &dir).await.refusal(1);
        assert!(line.contains("segments/00000001.seg") && line.contains(reason), "{line}");
        assert_eq!(names(&dir), [""; 0]);
    }
    let line = hubbub(&["restore", &dir.display().to_string(), "--check"], "").refusal(1);
    assert!(line.contains("holds none"), "{line}");
}

#[tokio::test]
async fn a_backup_that_is_killed_is_none() {
    let server = Server::start();
    server.send("r", "one").await;
    let dir = server.setup().beside("backups");
    let url = bad_server(Fault::Hangs).await;
    let mut command = program::command();
    command.args(["backup", &dir.display().to_string(), "--server", &url]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let half = async || dir.is_dir() && names(&dir).iter().any(|name| name.ends_with(".partial"));
    until("a partial backup", half).await;
    // A second one does not disturb the first.
    let line = server.run(&["backup", &dir.display().to_string()], "").await.refusal(1);
    assert!(line.contains("another backup"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(&dir).len(), 1);
    let line = hubbub(&["restore", &dir.display().to_string(), "--check"], "").refusal(1);
    assert!(line.contains("holds none"), "{line}");
    let made = backup(&server, &dir, &[]).await;
    assert_eq!(names(&dir).len(), 1, "what the killed one left is gone");
    assert!(made["backup"].as_str().unwrap().ends_with(&names(&dir)[0]));
}
