//! `hubbub token` and `hubbub key`, client commands with a token, and what starts without one.

use std::io::Write;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{SECRET, admin, call, get, token};
use crate::harness::{Ran, Setup, hubbub, program};

fn with_secret(arguments: &[&str], input: &str) -> Ran {
    let mut command = program::command();
    command.env("HUBBUB_AUTH_SECRET", SECRET).args(arguments);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn tokens_are_minted_and_inspected() {
    let server = Setup::new().env("HUBBUB_AUTH_SECRET", SECRET).start();
    let minted =
        with_secret(&["token", "mint", "--user", "ada", "--rooms", "team-*=rw", "--for", "5min"], "");
    let token = minted.success();
    assert_eq!(get(server.address(), token.trim(), "/v1/rooms/team-1/messages").await.status, 404);
    get(server.address(), token.trim(), "/v1/rooms/lobby/messages").await.problem(403, "forbidden");
    let shown = with_secret(&["token", "inspect"], &token).success();
    for part in [
        "\"HS256\"",
        "\"ada\"",
        "\"team-*\": \"rw\"",
        "valid for this configuration; whether it was revoked, only the server knows",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let foreign = with_secret(&["token", "inspect"], &format!("{}x", token.trim()));
    assert!(foreign.code == Some(1) && foreign.stderr.contains("signature"), "{foreign:?}");
    // What no server takes is not made.
    for arguments in [
        &["token", "mint", "--user", "a b"][..],
        &["token", "mint", "--user", "ada", "--rooms", "a*b=r"],
        &["token", "mint", "--user", "ada", "--kv", "*=r"],
        &["token", "mint", "--user", "ada", "--for", "90d"],
    ] {
        let refused = with_secret(arguments, "");
        assert!(refused.code == Some(2) && refused.stdout.is_empty(), "{refused:?}");
    }
    // A token in the place of its file is not repeated.
    let token = token.trim();
    let refused = with_secret(&["token", "inspect", token], "").refusal(2);
    assert!(refused.contains("a file with the token") && !refused.contains(token), "{refused}");
    let refused = with_secret(&["token", "inspect"], "\n").refusal(1);
    assert!(refused.contains("standard input: there is no token in it"), "{refused}");
    // Nor is a file without one as good as none: the call would be that of an administrator where nobody needs a token.
    let refused = hubbub(&["rooms", "--token-file", "/dev/null"], "").refusal(1);
    assert!(refused.contains("--token-file /dev/null: the file has no token in it"), "{refused}");
    let refused = hubbub(&["token", "mint", "--user", "ada"], "").refusal(2);
    for part in ["HUBBUB_AUTH_SECRET", "none was read", "--config"] {
        assert!(refused.contains(part), "{refused}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let refused = hubbub(&["token", "mint", "--user", "ada", "--config", path], "").refusal(2);
    assert!(refused.contains(&format!("{path} was read; --config names another")), "{refused}");
}

/// Everybody may see whether a server takes writes, and nothing else.
#[tokio::test]
async fn status_without_a_token_shows_the_state() {
    let server = Setup::new().with_tokens().start();
    let ran = server.run(&["status"], "").await;
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("UP  {}\n", server.url())));
    assert!(ran.stderr.contains("a token with the scope health (--token-file)"), "{}", ran.stderr);
    let ran = server.run(&["status", "--json"], "").await;
    let status: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&status["status"], &status["components"]), (&json!("UP"), &Value::Null));
    let notice: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert!(notice["notice"].is_string(), "{notice}");
    // With the scope there is nothing to add.
    let mut command = program::command();
    let token = token(json!({"sub": "ada", "scopes": ["health"]}));
    command.args(["status", "--server", &server.url()]).env("HUBBUB_TOKEN", token);
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.stderr.is_empty() && text.contains("hubbub ") && text.contains("\nstore "), "{text}");
}

#[tokio::test]
async fn commands_take_a_token() {
    let setup = Setup::new().env("HUBBUB_AUTH_SECRET", SECRET);
    let file = setup.beside("token");
    let server = setup.start();
    let url = server.url();
    let path = file.display().to_string();
    let run = async |arguments: &[&str], input: &str| {
        let mut all = arguments.to_vec();
        all.extend(["--server", &url, "--token-file", &path]);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        crate::harness::hubbub_aside(all, input.to_owned()).await
    };
    let without = server.run(&["rooms"], "").await;
    assert!(without.code == Some(1) && without.stderr.contains("unauthorized"), "{without:?}");
    for command in [["tail", "lobby", "--json"].as_slice(), &["kv", "watch", "a", "--json"]] {
        let refused = server.run(command, "").await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let error: Value = serde_json::from_str(&refused.stderr).unwrap();
        assert_eq!((&error["code"], &error["status"]), (&json!("unauthorized"), &json!(401)), "{error}");
    }
    std::fs::write(&file, with_secret(&["token", "mint", "--user", "root", "--admin"], "").success())
        .unwrap();
    run(&["send", "lobby", "hello"], "").await.success();
    run(&["kv", "put", "a", "1"], "").await.success();
    let made = run(&["key", "create", "importer", "--user", "importer", "--rooms", "*=rw", "--json"], "")
        .await
        .success();
    let made: Value = serde_json::from_str(&made).unwrap();
    let listed = run(&["key", "list"], "").await.success();
    assert!(listed.contains("importer") && !listed.contains("hbk_"), "{listed}");
    assert!(listed.starts_with("key ") && listed.lines().count() == 2, "with a head: {listed}");
    std::fs::write(&file, made["apiKey"].as_str().unwrap()).unwrap();
    run(&["send", "lobby", "from a service"], "").await.success();
    let tailed = run(&["tail", "lobby", "--count", "2"], "").await.success();
    assert!(tailed.contains("root: hello") && tailed.contains("importer: from a service"), "{tailed}");
    let refused = run(&["kv", "get", "a"], "").await;
    assert!(refused.code == Some(1) && refused.stderr.contains("forbidden"), "{refused:?}");
    std::fs::write(&file, with_secret(&["token", "mint", "--user", "root", "--admin"], "").success())
        .unwrap();
    run(&["key", "revoke", made["keyId"].as_str().unwrap()], "").await.success();
    std::fs::write(&file, made["apiKey"].as_str().unwrap()).unwrap();
    let refused = run(&["rooms"], "").await;
    assert!(refused.stderr.contains("unauthorized"), "{refused:?}");
}

#[test]
fn secrets_are_shown_nowhere() {
    let printed = with_secret(&["config", "print"], "").success();
    assert!(printed.contains("secret = \"***\"") && !printed.contains(SECRET), "{printed}");
    let flag = format!("auth.secret={SECRET}");
    let refused = hubbub(&["config", "check", "--set", &flag], "").refusal(2);
    assert!(refused.contains("command line") && !refused.contains(SECRET), "{refused}");
    let short = hubbub(&["config", "check", "--set", "auth.jwks=https://idp.example/keys"], "").refusal(2);
    assert!(short.contains("auth.audience"), "{short}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("[auth]\nleeway = \"1s\"\nsecret = \"{SECRET}\n")).unwrap();
    let refused = hubbub(&["config", "check", "--config", &file.path().display().to_string()], "").refusal(2);
    assert!(refused.contains("line 3") && !refused.contains(SECRET), "{refused}");
    let plain = ["config", "check", "--set", "auth.jwks=http://idp.example/keys", "--set", "auth.audience=x"];
    let refused = hubbub(&plain, "").refusal(2);
    assert!(refused.contains("https://"), "{refused}");
}

/// Beyond this machine only with tokens, or with the word for it, which says at each start what it means.
#[test]
fn others_reach_it_only_with_tokens_or_insecure() {
    let setup = Setup::new();
    let arguments = setup.arguments("0.0.0.0:0");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let refused = hubbub(&arguments, "").refusal(2);
    assert!(refused.contains("auth.secret") && refused.contains("--insecure"), "{refused}");
    let log_of = |setup: Setup| {
        let server = setup.start();
        let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
        while !server.log().contains("WARN") && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        server.log()
    };
    let log = log_of(Setup::new().set("server.insecure=true"));
    assert!(log.contains("everybody who can reach this server is its administrator"), "{log}");
}

/// Where nobody has to prove anything, everybody could make a key that is an administrator's once tokens are asked for.
#[tokio::test]
async fn no_key_is_made_before_tokens_are_asked_for() {
    let server = Setup::new().start();
    let arguments = ["key", "create", "importer", "--user", "importer", "--admin"];
    let refused = server.run(&arguments, "").await;
    assert!(refused.code != Some(0) && refused.stderr.contains("auth.secret"), "{refused:?}");
    let draft = json!({"name": "importer", "user": "importer", "admin": true});
    let answer = server.call("", Method::POST, "/v1/auth/keys", draft.clone()).await;
    answer.problem(501, "not_supported");
    assert_eq!(server.get("/v1/auth/keys").await.json(), json!({"keys": []}));

    let mut server = Setup::new().with_tokens().start();
    for draft in [draft, json!({"name": "reader", "user": "reader", "rooms": {"*": "r"}})] {
        assert_eq!(call(server.address(), &admin(), Method::POST, "/v1/auth/keys", draft).await.status, 201);
    }
    assert!(!server.log().contains("API keys are accepted"), "{}", server.log());
    server.restart();
    let log = server.log();
    let line =
        log.lines().find(|line| line.contains("API keys are accepted")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("keys=2") && line.contains("administrators=1"), "{line}");
}
