//! Wrong usage and configuration: exit code 2, every fault named with what to do instead.

use std::io::Write;

use crate::harness::{Server, hubbub, hubbub_with, program};

fn must_contain(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn wrong_usage_is_told() {
    for (arguments, parts) in [
        (&["serv"][..], &["serv", "serve"][..]),
        (&["serve", "--lisen", "x"], &["--lisen", "--listen"]),
        (&["send"], &["<ROOM>"]),
        (&["tail", "r", "--after", "x"], &["--after", "must be a whole number from 0 on"]),
        (&["queue", "get", "q", "--wait", "21s"], &["--wait", "at most 20s"]),
        (&["tail", "r", "--after", "1", "--last", "1"], &["--after", "--last"]),
        (&["history", "r", "--limit", "many"], &["--limit", "many"]),
        (&["history", "r", "--from", "soon"], &["--from", "soon", "2026-01-31T12:00:00Z"]),
        (&["send", "a b", "x"], &["'a b'", "<ROOM>", "A-Z a-z 0-9"]),
        (&["send", "r", "x", "--user", "a b"], &["'a b'", "--user"]),
        (&["send", "r", "x", "--type", "SHOUT"], &["SHOUT", "TEXT, JOIN, LEAVE"]),
        (&["send", "r", "--id", "x"], &["--id", "standard input"]),
        (
            &["queue", "send", "q", "-", "--from", "ada", "--to", "bob", "--id", "x"],
            &["--id", "standard input"],
        ),
        (&["tail", "a/b"], &["'a/b'", "<ROOM>"]),
        (&["room", "add", "tea", "a b"], &["'a b'", "<USER>"]),
        (&["room", "set", "tea", "--retention", "soon"], &["--retention", "30d, or off"]),
        (&["queue", "ack", "a b", "1-1"], &["'a b'", "<QUEUE>"]),
        (&["queue", "nack", "q", "abc"], &["receipt 'abc'", "came with the message"]),
        (&["queue", "remove", "q", "abc"], &["'abc'", "<ID>"]),
        (&["verify", "postgres://localhost/x"], &["its own tools"]),
        (&["export", "--room", "a b"], &["'a b'", "--room"]),
        (&["rooms", "--server", "nonsense"], &["--server", "nonsense", "http://127.0.0.1:8080"]),
        (&["rooms", "--server", "ftp://x"], &["--server", "ftp://x"]),
        (&["rooms", "--server", "80800"], &["'80800'", "http://127.0.0.1:8080", "HOST:PORT", "PORT alone"]),
        (&["bench", "chat", "--server", "htp://x"], &["--server", "htp://x", "HOST:PORT", "PORT alone"]),
        (&["bench", "chat", "--out", "/proc/self"], &["--out /proc/self", "not empty", "--overwrite"]),
        (&["bench", "run", "nowhere"], &["cannot read nowhere: No such file", "websocket-single"]),
        (&["backup", "x", "--keep", "0"], &["--keep", "must be a whole number from 1 on"]),
        (&["backup", "x", "--rate", "fast"], &["--rate", "must be a whole number from 0 on"]),
        (&["stats", "--top", "0"], &["--top", "must be a whole number from 1 to 1000"]),
        (&["ping", "--count", "0"], &["--count", "from 1 on"]),
        (&["tail", "r", "--count", "0"], &["--count", "from 1 on"]),
        (&["history", "r", "--limit", "0"], &["--limit", "from 1 on"]),
        (&["token", "mint", "--user", "a b"], &["'a b'", "--user", "A-Z a-z 0-9"]),
        (&["restore", "/nowhere", "--check"], &["/nowhere: there is no such directory"]),
        (&["verify", "/dev/null"], &["/dev/null: this is no directory"]),
        (&["migrate"], &["only a database", "--store"]),
        (&["serve", "--listen", "nonsense"], &["server.listen", "'nonsense'", "PORT alone"]),
    ] {
        let ran = hubbub(arguments, "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ran:?}");
        must_contain(&ran.stderr, parts);
    }
    let help = hubbub(&["--help"], "").success();
    must_contain(
        &help,
        &["serve", "send", "tail", "history", "rooms", "config", "bench", "Exit codes: 0 success, 1 failure"],
    );
    must_contain(&hubbub(&["--version"], "").success(), &["hubbub ", env!("CARGO_PKG_VERSION")]);
    assert_eq!(hubbub(&[], "").code, Some(2));
    assert_eq!(hubbub(&["help", "--help"], "").success(), hubbub(&["help"], "").success());
    // Options that many commands have do not stand between those of one.
    let help = hubbub(&["key", "create", "--help"], "").success();
    assert!(help.find("--scope").unwrap() < help.find("--server").unwrap(), "{help}");
}

#[test]
fn a_wrong_variable_is_named() {
    for (arguments, name, value) in [
        (&["ping"][..], "HUBBUB_SERVER", "nonsense"),
        (&["ping"], "HUBBUB_SERVER", ""),
        (&["send", "r", "x"], "HUBBUB_USER", "a b"),
        (&["queue", "send", "q", "x"], "HUBBUB_USER", "a b"),
        (&["bench", "chat"], "HUBBUB_SERVER", "nonsense"),
    ] {
        let ran = hubbub_with(arguments, &[(name, value)]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        must_contain(&ran.stderr, &[&format!("'{name}'")]);
    }
    // What stands on the command line is wrong itself.
    let ran = hubbub_with(&["ping", "--server=nonsense"], &[("HUBBUB_SERVER", "http://127.0.0.1:1")]);
    must_contain(&ran.stderr, &["--server"]);
    assert!(!ran.stderr.contains("HUBBUB_SERVER"), "{}", ran.stderr);
}

#[test]
fn a_fault_of_a_scenario_is_one_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"titel = 'x'\nworkload = 'chat'\n").unwrap();
    let path = file.path().display().to_string();
    let line = hubbub(&["bench", "run", &path], "").refusal(2);
    assert_eq!(line, format!("hubbub: {path}: line 1: there is no key 'titel'; did you mean 'title'?\n"));
    let line = hubbub(&["serve", "--listen", "127.0.0.1:0", "--data", &path], "").refusal(2);
    must_contain(&line, &[&format!("{path} is a file"), "--data DIR"]);
}

#[test]
fn an_open_door_must_be_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let line = hubbub(&["serve", "--listen", listen, "--data", &data], "").refusal(2);
        must_contain(&line, &["server.listen", "127.0.0.1", "--insecure"]);
    }
    assert!(!directory.path().join("data").exists(), "nothing was made");
}

/// What checks a configuration finds what the server would be refused for.
#[test]
fn a_check_refuses_what_the_server_refuses() {
    for (arguments, parts) in [
        (&["--listen", "0.0.0.0:0"][..], &["server.listen", "--insecure"][..]),
        (&["--set", "tls.cert=/no/such.pem", "--set", "tls.key=/no/such.pem"], &["tls.cert", "/no/such.pem"]),
        (&["--set", "tls.client_auth=required"], &["tls.client_ca"]),
        (&["--log", "kafka://127.0.0.1:9"], &["log.url", "store.url"]),
        (
            &["--listen", "8080", "--line", "8080"],
            &["server.listen 127.0.0.1:8080", "server.line 127.0.0.1:8080", "--line 8081"],
        ),
    ] {
        let line = hubbub(&[&["config", "check"], arguments].concat(), "").refusal(2);
        must_contain(&line, parts);
    }
}

#[tokio::test]
async fn a_taken_port_is_told() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let line = hubbub(&["serve", "--listen", &server.address().to_string(), "--data", &data], "").refusal(1);
    let (ip, port) = (server.address().ip(), server.address().port());
    let next = format!("choose another port with --listen {ip}:{}", port + 1);
    must_contain(&line, &["server.listen", "in use", &next]);
}

/// One port for both protocols, though no configuration tells: a name stands for the address.
#[tokio::test]
async fn a_port_is_for_one_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (http, line) = (format!("localhost:{port}"), format!("0.0.0.0:{port}"));
    let line =
        hubbub(&["serve", "--insecure", "--listen", &http, "--line", &line, "--data", &data], "").refusal(2);
    must_contain(&line, &["server.listen 127.0.0.1:", "server.line 0.0.0.0:"]);
    assert!(!directory.path().join("data").exists(), "nothing was made");
}

#[test]
fn unknown_settings_are_refused_with_a_suggestion() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[server]\nlisen = '127.0.0.1:1'\nthreads = 'many'\n[limts]\nx = 1\n").unwrap();
    let path = file.path().display().to_string();
    for command in [&["serve"][..], &["config", "check"], &["config", "print"]] {
        let arguments = [
            command,
            &["--config", &path, "--set", "pipeline.lingr=1ms", "--set", "rooms.autocreate=perhaps"],
        ]
        .concat();
        let ran = hubbub(&arguments, "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        must_contain(
            &ran.stderr,
            &[
                "no setting 'server.lisen'; did you mean 'server.listen'?",
                "no setting 'limts.x'",
                "no setting 'pipeline.lingr'; did you mean 'pipeline.linger'?",
                "server.threads must be a whole number from 0 on, not 'many' (file ",
                "rooms.autocreate must be true or false, not 'perhaps' (flag --set)",
            ],
        );
        assert!(ran.stderr.lines().all(|line| line.starts_with("hubbub: ")), "{}", ran.stderr);
    }
    let line = hubbub(&["config", "check", "--config", "/nowhere/hubbub.toml"], "").refusal(2);
    must_contain(&line, &["/nowhere/hubbub.toml", "cannot read"]);
    file.as_file().set_len(0).unwrap();
    let nothing = hubbub(&["config", "check", "--config", &path], "").success();
    assert_eq!(nothing, format!("valid: {path} (no variables)\n"));
    // At the top, people leave out the section; what is near nothing is not guessed.
    std::fs::write(&path, "listen = '127.0.0.1:1'\nx = 1\n").unwrap();
    let ran = hubbub(&["config", "check", "--config", &path], "");
    must_contain(
        &ran.stderr,
        &[
            "no setting 'listen'; did you mean 'server.listen'?\n",
            "no setting 'x'; hubbub config example shows",
        ],
    );
}

/// A file that was not found, or a variable that did not arrive, is noticed.
#[test]
fn config_check_names_what_it_checked() {
    let dir = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = program::command();
        command.current_dir(&dir).args(["config", "check"]).args(arguments).envs(variables.iter().copied());
        let ran = command.output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let two = [("HUBBUB_LISTEN", "127.0.0.1:1"), ("HUBBUB_LIMITS_MESSAGE_BYTES", "32KiB")];
    let nothing = "valid, but no configuration file and no variable sets anything: these are the defaults\n";
    assert_eq!(check(&[], &[]), nothing);
    // That of commands sets nothing of a server.
    assert_eq!(check(&[], &[("HUBBUB_SERVER", "http://127.0.0.1:1")]), nothing);
    assert_eq!(check(&[], &two), "valid: 2 variables (no configuration file)\n");
    let flag = ["--listen", "127.0.0.1:1"];
    assert_eq!(check(&flag, &[]), "valid: flags (no configuration file, no variables)\n");
    std::fs::write(dir.path().join("hubbub.toml"), "[server]\nthreads = 2\n").unwrap();
    let file = dir.path().canonicalize().unwrap().join("hubbub.toml").display().to_string();
    assert_eq!(check(&[], &two[..1]), format!("valid: {file}, 1 variable\n"));
    // A flag overrides the variable.
    let flags = ["--listen", "127.0.0.1:2"];
    assert_eq!(check(&flags, &two), format!("valid: {file}, 1 variable, flags\n"));
    let named = [("HUBBUB_CONFIG", file.as_str())];
    assert_eq!(check(&[], &named), format!("valid: {file} (no variables)\n"));
}

/// With the defaults the server might ask for no token.
#[test]
fn a_configuration_that_leads_nowhere_is_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("nowhere.toml", dir.path().join("hubbub.toml")).unwrap();
    let ran = program::command().current_dir(&dir).args(["config", "check"]).output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && told.contains("hubbub.toml"), "{told}");
}

/// Neither a typo in the environment nor the long form of a short name is passed over in silence.
#[test]
fn unknown_variables_are_refused_with_a_suggestion() {
    // The address is not this machine's, and nobody answers: what lets the variable pass ends, too.
    for command in [
        &["serve", "--listen", "1.1.1.1:1"][..],
        &["config", "check"],
        &["config", "print"],
        &["rooms"],
        &["ping"],
    ] {
        let mut program = program::command();
        program.args(command).env("HUBBUB_LISTN", "127.0.0.1:1").env("HUBBUB_LISTEN", "127.0.0.1:0");
        // What a container finds there, and what clients are told, does not disturb.
        program.env("HUBBUB_SERVICE_HOST", "10.0.0.1").env("HUBBUB_SERVER", "http://127.0.0.1:1");
        let ran = program.output().unwrap();
        assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(2), &b""[..]), "{ran:?}");
        let said = "hubbub: environment: there is no setting HUBBUB_LISTN; did you mean HUBBUB_LISTEN?\n";
        assert_eq!(String::from_utf8(ran.stderr).unwrap(), said);
    }
}

#[test]
fn config_print_names_the_source_of_each_value() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[limits]\nmessage_bytes = '32KiB'\n").unwrap();
    let path = file.path().display().to_string();
    let text = hubbub(&["config", "print", "--config", &path, "--listen", "127.0.0.1:9"], "").success();
    must_contain(
        &text,
        &["[server]\n", "listen = \"127.0.0.1:9\"  # flag --listen\n", "ping_interval = \"25s\"\n"],
    );
    must_contain(&text, &[&format!("message_bytes = \"32KiB\"  # file {path}\n")]);
    // What it prints is a configuration.
    let mut again = tempfile::NamedTempFile::new().unwrap();
    again.write_all(text.as_bytes()).unwrap();
    hubbub(&["config", "check", "--config", &again.path().display().to_string()], "").success();
}
