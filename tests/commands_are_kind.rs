//! What commands do for people and scripts beside their work: progress, notices, addresses, errors as JSON.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{MAKE_CERTIFICATES, Ran, Server, Setup, free_ports, hubbub, hubbub_aside, program};

/// Runs a command with a terminal as its standard error, and returns what was drawn on that.
#[cfg(target_os = "linux")]
fn on_a_terminal(arguments: Vec<String>) -> String {
    typed_on_a_terminal(arguments, None)
}

/// The same; what is `typed` makes the terminal its standard input, too.
#[cfg(target_os = "linux")]
fn typed_on_a_terminal(arguments: Vec<String>, typed: Option<&str>) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    // Until this one is gone, too, reading finds an end.
    let ours = open();
    let mut command = program::command();
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::from(open())).env("TERM", "xterm");
    let mut terminal = File::from(terminal);
    if let Some(typed) = typed {
        command.stdin(Stdio::from(open()));
        terminal.write_all(typed.as_bytes()).unwrap();
    }
    let mut child = command.spawn().unwrap();
    drop(command);
    let reader = std::thread::spawn(move || {
        let mut drawn = Vec::new();
        // Ends with an error when the last one has closed it.
        let _ = terminal.read_to_end(&mut drawn);
        String::from_utf8_lossy(&drawn).into_owned()
    });
    assert!(child.wait().unwrap().success());
    drop(ours);
    reader.join().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn progress_is_shown_on_terminals_only() {
    let server = Server::start();
    for n in 0..100 {
        server.send("r", &n.to_string()).await;
    }
    let setup = server.setup();
    let path = |name: &str| setup.beside(name).display().to_string();
    let url = server.url();
    for (arguments, shown) in [
        (vec!["backup", "BACKUPS", "--server", &url], "backing up"),
        (vec!["restore", "BACKUPS", "--to", "RESTORED"], "restoring"),
        (vec!["verify", "RESTORED"], "verifying"),
        (vec!["export", "--out", "FILE", "--server", &url], "exported"),
        (vec!["import", "FILE", "--server", &url], "importing"),
    ] {
        let place = |argument: &str, round: &str| match argument {
            "RESTORED" => path(&format!("restored-{round}")),
            "BACKUPS" | "FILE" => path(argument),
            argument => argument.to_owned(),
        };
        let of_round = |round| arguments.iter().map(|argument| place(argument, round)).collect::<Vec<_>>();
        let on_terminal = of_round("terminal");
        let drawn = tokio::task::spawn_blocking(|| on_a_terminal(on_terminal)).await.unwrap();
        assert!(drawn.contains(shown), "{arguments:?}: {drawn:?}");
        let ran = hubbub_aside(of_round("pipe"), String::new()).await;
        let expected = if arguments[0] == "export" { "exported 100 messages of 1 room\n" } else { "" };
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), expected), "{ran:?}");
    }
}

/// Without a word, a command that waits for somebody to type looks as if it hung.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_typed_is_sent_and_asked_for() {
    let server = Server::start();
    server.run(&["queue", "create", "jobs"], "").await.success();
    for command in [&["send", "r"][..], &["queue", "send", "jobs"]] {
        let url = server.url();
        let arguments = command.iter().chain(&["--server", &url]).map(|word| (*word).to_owned()).collect();
        let drawn = move || typed_on_a_terminal(arguments, Some("hello\n\u{4}"));
        let drawn = tokio::task::spawn_blocking(drawn).await.unwrap();
        assert!(drawn.contains("until Ctrl-D"), "{drawn:?}");
    }
    assert_eq!(server.history("r").await.len(), 1);
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_command_in_silence() {
    let server = Server::start();
    server.send("r", "hello").await;
    for arguments in [&["history", "r"][..], &["rooms"], &["stats"], &["export"], &["kv", "ls"], &["man"]] {
        let mut command = program::command();
        // Nobody reads it from the beginning on.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.args(arguments).stdout(writer).stderr(Stdio::piped());
        if arguments != ["man"] {
            command.args(["--server", &server.url()]);
        }
        // A key, so that there is something to list.
        server.call("", hyper::Method::PUT, "/kv/k", json!("v")).await;
        let child = command.spawn().unwrap();
        let ran = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        assert_eq!(
            (ran.status.code(), ran.stderr.as_slice()),
            (Some(141), &b""[..]),
            "{arguments:?}: {ran:?}"
        );
    }
}

/// The one line of JSON on standard error of a command that failed.
fn json_error(ran: Ran, code: i32) -> Value {
    serde_json::from_str(&ran.refusal(code)).unwrap()
}

#[tokio::test]
async fn errors_of_json_are_json() {
    let mut server = Server::start();
    let error = json_error(server.run(&["history", "nosuch", "--json"], "").await, 1);
    assert_eq!((&error["code"], &error["status"]), (&json!("unknown_room"), &json!(404)), "{error}");
    let error = json_error(hubbub(&["history", "a b", "--json"], ""), 2);
    assert!(error["error"].as_str().unwrap().contains("'a b' for '<ROOM>'"), "{error}");
    let error = json_error(hubbub(&["verify", "/nowhere", "--json"], ""), 2);
    assert_eq!(error["error"], "/nowhere: there is no such directory");
    // Behind "--" it is a text.
    let ran = hubbub(&["send", "a b", "--", "--json"], "");
    assert!(ran.code == Some(2) && ran.stderr.starts_with("error: "), "{ran:?}");
    server.kill();
    for command in [["rooms", "--json"].as_slice(), &["tail", "r", "--json"], &["kv", "watch", "k", "--json"]]
    {
        let error = json_error(server.run(command, "").await, 1);
        let hint = "is it running? (hubbub serve, --server)";
        assert!(error["error"].as_str().unwrap().contains(hint), "{error}");
    }
}

#[tokio::test]
async fn tail_says_that_there_is_no_such_room_yet() {
    let server = Server::start();
    let mut command = program::command();
    command.args(["tail", "r", "--count", "1", "--server", &server.url()]);
    let mut tail = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(tail.stderr.take().unwrap());
    let first = move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    let line = tokio::task::spawn_blocking(first).await.unwrap();
    assert_eq!(line, "hubbub: there is no room 'r' yet; waiting for its first message\n");
    server.send("r", "hello").await;
    let ran = tokio::task::spawn_blocking(|| tail.wait_with_output().unwrap()).await.unwrap();
    assert!(ran.status.success() && String::from_utf8_lossy(&ran.stdout).contains("hello"), "{ran:?}");
}

/// A port alone is one on this machine; so is one behind a colon. The line about the start tells what runs where.
#[tokio::test]
async fn a_port_is_an_address_and_the_start_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    for colon in ["", ":"] {
        let port = free_ports(1);
        let listen = format!("{colon}{port}");
        let mut command = program::command();
        command.args(["serve", "--listen", &listen, "--data", &data]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let id = rustix::process::Pid::from_child(&child);
        let server = format!("localhost:{port}");
        let ping = ["ping", "--wait", "60s", "--json", "--server", &server].map(str::to_owned);
        let answer = hubbub_aside(ping.into(), String::new()).await.success();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["url"], format!("http://{server}"));
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let said = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap().stderr;
        let said = String::from_utf8(said).unwrap();
        let version = hubbub(&["--version"], "").success();
        let start: Vec<&str> = said.lines().filter(|line| line.contains(version.trim())).collect();
        let [start] = start[..] else { panic!("not one line about the start: {said}") };
        for part in [&format!("http://127.0.0.1:{port}"), &data, "fsync"] {
            assert!(start.contains(part), "{part}: {start}");
        }
    }
}

#[tokio::test]
async fn ping_and_status_tell_how_a_server_is() {
    let mut server = Server::start();
    server.send("r", "hello").await;
    let answers = server.run(&["ping", "--count", "3"], "").await.success();
    assert_eq!(answers.matches("answers in").count(), 3, "{answers}");
    let status: Value = serde_json::from_str(&server.run(&["status", "--json"], "").await.success()).unwrap();
    assert_eq!((&status["status"], &status["version"]), (&json!("UP"), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!((&status["figures"]["rooms"], &status["figures"]["messages"]), (&json!(1), &json!(1)));
    assert_eq!(status["components"]["store"]["status"], "UP");
    let version = hubbub(&["--version"], "").success();
    let text = server.run(&["status"], "").await.success();
    assert!(text.starts_with("UP ") && text.contains(version.trim()), "{text}");
    // Sizes are for people here, and for programs there.
    assert!(status["figures"]["storeBytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{status}");
    for name in ["on disk ", "memory "] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(" MiB"), "{line}");
    }
    server.kill();
    for command in ["ping", "status"] {
        assert!(server.run(&[command], "").await.refusal(1).contains("is it running?"));
    }
    assert!(
        server.run(&["ping", "--wait", "200ms"], "").await.refusal(1).contains("did not answer in 200ms")
    );
}

#[test]
fn completions_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = hubbub(&["completions", shell], "").success();
        for word in ["queue", "restore", "status", "retention"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    let script = hubbub(&["completions", "bash"], "").success();
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
    let page = hubbub(&["man"], "").success();
    assert!(page.contains(".TH hubbub 1") && page.contains("hubbub\\-serve(1)"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    hubbub(&["man", "--out", pages.to_str().unwrap()], "").success();
    for name in ["hubbub.1", "hubbub-serve.1", "hubbub-queue-send.1"] {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
}

#[tokio::test]
async fn names_keep_their_columns() {
    let server = Server::start();
    let long = "x".repeat(64);
    for name in ["r", &long] {
        server.send(name, "hello").await;
        server.add_member(name, &long).await;
        server.run(&["queue", "create", name], "").await.success();
        server.run(&["kv", "put", name, "v"], "").await.success();
    }
    for arguments in [&["rooms"][..], &["queue", "ls"], &["room", "members", "r"], &["kv", "ls"]] {
        let text = server.run(arguments, "").await.success();
        // Where the second column ends.
        let ends: Vec<usize> = text
            .lines()
            .map(|line| {
                let name = line.find(' ').unwrap();
                let number = name + line[name..].find(|c: char| c != ' ').unwrap();
                number + line[number..].find(' ').unwrap_or(line.len() - number)
            })
            .collect();
        assert!(ends.len() > 1 && ends.iter().all(|end| *end == ends[0]), "{ends:?}\n{text}");
    }
}

/// Passes what clients send by TLS on to `server`. Returns the port, and the file with the authority.
#[cfg(feature = "https")]
async fn tls_before(server: &Server, setup: &Setup) -> (u16, String) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use std::sync::Arc;
    let dir = setup.beside("tls");
    std::fs::create_dir(&dir).unwrap();
    let made = Command::new("bash").args(["-e", "-c", MAKE_CERTIFICATES]).current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let chain = CertificateDer::pem_file_iter(dir.join("server.crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), server.address());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut plain = tokio::net::TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut plain).await;
            });
        }
    });
    (port, dir.join("ca.pem").display().to_string())
}

#[cfg(feature = "https")]
#[tokio::test]
async fn commands_speak_tls() {
    let server = Server::start();
    let (port, authority) = tls_before(&server, &server.setup()).await;
    let run = async |arguments: &[&str], trusted: &str| {
        let mut command = program::command();
        command.args(arguments).args(["--server", &format!("https://localhost:{port}")]);
        command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    for arguments in [&["send", "r", "hello"][..], &["history", "r"], &["tail", "r", "--count", "1"]] {
        let ran = run(arguments, &authority).await;
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    }
    assert_eq!(server.history("r").await.len(), 1);
    let ran = run(&["rooms"], "/dev/null").await;
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && said.contains("TLS with localhost"), "{said}");
    // The other way round, too, there is an answer that helps.
    let encrypted = format!("https://{}", server.address());
    let said = hubbub_aside(["rooms", "--server", &encrypted].map(str::to_owned).into(), String::new()).await;
    assert!(said.refusal(1).contains("TLS with"));
    // A file that is not there is named, and not passed over.
    let said = String::from_utf8(run(&["rooms"], "/nowhere/ca.pem").await.stderr).unwrap();
    assert!(said.contains("SSL_CERT_FILE: reading /nowhere/ca.pem"), "{said}");
}

#[tokio::test]
async fn an_answer_of_something_else_is_described() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            let answer =
                "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    for command in ["ping", "status", "rooms"] {
        let arguments = [command, "--server", &url].map(str::to_owned);
        let said = hubbub_aside(arguments.into(), String::new()).await.refusal(1);
        assert!(said.contains("not answered with JSON (status 404, text/html)"), "{said}");
    }
}

/// A line of the load tool's progress, if it showed one that begins so and has this part.
fn progress_of(shown: &str, start: &str, part: &str) -> Option<String> {
    let mut lines = shown.split(['\r', '\n']);
    lines.find(|line| line.contains(start) && line.contains(part)).map(str::to_owned)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_measurement_on_a_terminal_shows_how_far_it_is() {
    let server = Server::start();
    let setup = server.setup();
    let file = setup.beside("small.toml");
    let text = "title = 'Small'\nworkload = 'chat'\nrepetitions = 2\n[options]\nmessages = 60\nwarmup-connections = 1\n\
                warmup-messages = 10\n[sweep]\nconnections = [1, 2]\n";
    std::fs::write(&file, text).unwrap();
    let url = server.url();
    let run = ["bench", "run", file.to_str().unwrap(), "--server", &url];
    let chat = ["bench", "chat", "-n", "60", "-c", "2", "--warmup-connections", "0", "--server", &url];
    let owned = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let drawn = |line: Vec<String>| tokio::task::spawn_blocking(|| on_a_terminal(line));
    let shown = drawn(owned(&chat)).await.unwrap();
    assert!(progress_of(&shown, "main: ", " of 60, ").is_some(), "{shown:?}");
    let shown = drawn(owned(&run)).await.unwrap();
    for place in
        ["point 1 of 2, repetition 1 of 2, connections 1", "point 2 of 2, repetition 2 of 2, connections 2"]
    {
        assert!(shown.contains(place), "{place}: {shown:?}");
    }
    assert!(progress_of(&shown, "main: ", " of 50, ").is_some(), "{shown:?}");
    // What it found is shown to the quiet, too.
    let shown = drawn(owned(&[&run[..], &["--quiet"]].concat())).await.unwrap();
    assert!(!shown.contains("point 1") && !shown.contains("main: "), "{shown:?}");
    assert!(shown.contains("connections 2: chat on "), "{shown:?}");
}

#[tokio::test]
async fn a_measurement_without_a_terminal_says_now_and_then_how_far_it_is() {
    let server = Server::start();
    let url = server.url();
    let line = ["bench", "http", "--rate", "20", "--duration", "16s", "--listeners", "1", "--server", &url];
    let owned = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (said, quiet) = tokio::join!(
        hubbub_aside(owned(&line), String::new()),
        hubbub_aside(owned(&[&line[..], &["--quiet"]].concat()), String::new())
    );
    let shown = progress_of(&said.stderr, "sending: ", " of 320, ").unwrap_or_default();
    for part in ["/s, ", "p50 ", "p99 ", "subscriber"] {
        assert!(shown.contains(part), "{part}: {said:?}");
    }
    assert_eq!(quiet.stderr, "");
}
