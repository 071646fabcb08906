//! `hubbub bench` loads servers that ask for tokens and speak TLS, whatever the workload; and does not without either.

use serde_json::{Value, json};

use crate::harness::tokens::{SECRET, admin, token};
use crate::harness::{Certificates, Ran, Server, Setup, TlsClient, hubbub_at_length, program, until};

/// A server with tokens and TLS, whose certificate is for its address; the files of a client; its URL.
async fn guarded() -> (Server, Vec<String>, String) {
    let setup = Setup::new().line().with_tokens();
    let first = Certificates::make(&setup, "first");
    std::fs::write(setup.beside("secret"), format!("{SECRET}\n")).unwrap();
    let server = first.serve(setup.clone()).start();
    // Only now is its address known.
    let names = format!("DNS:localhost,IP:{}", server.address().ip());
    let own = Certificates::make_for(&setup, "own", &names);
    let (wanted, client) = (own.der(), TlsClient::trusting(&[&first, &own]));
    first.replace_with(&own);
    server.hang_up();
    until("the certificate for the address", async || client.certificate(&server).await == wanted).await;
    let secret = setup.beside("secret").display().to_string();
    let options = ["--secret-file".to_owned(), secret, "--ca".to_owned(), own.path("ca.pem")].into();
    let url = format!("https://{}", server.address());
    (server, options, url)
}

async fn bench(url: &str, line: &[&str], options: &[String]) -> Ran {
    let mut all = vec!["bench".to_owned()];
    all.extend(line.iter().map(|part| (*part).to_owned()));
    all.extend(["--json", "--quiet", "--server", url].map(str::to_owned));
    all.extend(options.iter().cloned());
    let ran = hubbub_at_length(all).await;
    for secret in [SECRET, "eyJ"] {
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran:?}");
    }
    ran
}

const CHAT: [&str; 6] = ["chat", "-n", "300", "--warmup-messages", "3", "--in-flight=4"];

#[tokio::test]
async fn every_workload_shows_its_tokens() {
    let (server, options, url) = guarded().await;
    let line = format!("https://{}:3456", server.address().ip());
    let http = ["http", "--closed", "-d", "1s", "-c", "4", "--listeners", "3", "--rooms", "3"];
    let queue = ["queue", "-d", "1s", "--clients", "5", "--queues", "3", "--depth", "20"];
    let by_line = [&queue[..], &["--via", "line", "--line", &line]].concat();
    let kv = ["kv", "-d", "1s", "--keys", "200", "-c", "4"];
    let fanout = ["fanout", "-d", "1s", "--subscribers", "5"];
    for workload in [&CHAT[..], &http, &queue, &by_line, &kv, &fanout] {
        let said: Value = serde_json::from_str(&bench(&url, workload, &options).await.success()).unwrap();
        let ledger = &said["ledger"];
        let accepted = ledger["accepted"].as_u64().unwrap();
        assert!(accepted > 0 && ledger["sent"] == accepted, "{workload:?}: {said}");
        assert_eq!(ledger["faults"], json!([]), "{workload:?}: {said}");
        assert_eq!(said["parameters"]["tokens"], "one for each user");
    }
}

#[tokio::test]
async fn without_the_right_token_nothing_is_accepted() {
    let (server, options, url) = guarded().await;
    let ca = &options[2..];
    let beside = |name: &str, text: &str| {
        let file = server.setup().beside(name);
        std::fs::write(&file, text).unwrap();
        ["--token-file".to_owned(), file.display().to_string()]
    };
    // An administrator's token serves all connections.
    let given = [&beside("admin", &admin())[..], ca].concat();
    let said: Value = serde_json::from_str(&bench(&url, &CHAT, &given).await.success()).unwrap();
    assert_eq!(said["ledger"]["accepted"], 300, "{said}");
    let quick = [&CHAT[..], &["--retries", "0", "--give-up", "1s"]].concat();
    for wrong in [vec![], beside("other", &token(json!({"sub": "ada", "rooms": {"1": "r"}}))).to_vec()] {
        let ran = bench(&url, &quick, &[&wrong, ca].concat()).await;
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(ran.code == Some(1) && said["ledger"]["accepted"] == 0, "{ran:?}");
        assert!(said["reconnects"]["handshake"].as_u64().is_some_and(|lost| lost > 0), "{said}");
    }
    // Nor with a certificate that nobody trusts, with no file, or with a text that is no token.
    let untrusted = bench(&url, &quick, &[]).await.refusal(1);
    assert!(
        untrusted.contains("no server can be measured") && untrusted.contains("certificate"),
        "{untrusted}"
    );
    for (options, said) in [
        (&["--secret-file", "/no/such"][..], "/no/such"),
        (&["--ca", "/no/such"], "/no/such"),
        (&["--token-file", &beside("spaces", "a b")[1]], "no spaces"),
    ] {
        let options: Vec<String> = options.iter().map(|part| (*part).to_owned()).collect();
        let refusal = bench(&url, &quick, &options).await.refusal(1);
        assert!(refusal.contains(said), "{refusal}");
    }
    // The environment has one, too.
    let mut command = program::command();
    command.args(["bench", "kv", "--keys", "50", "-c", "1", "-d", "100ms", "--server", &url]).args(ca);
    let ran = command.env("HUBBUB_TOKEN", admin()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// Whether the rates are near each other is not for a test; that there are some is.
#[tokio::test]
async fn the_suite_has_rows_with_both_and_failed_rows_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().display().to_string();
    let suite = async |line: &[&str]| {
        let all = [&["bench", "suite", "--rounds", "1", "--time", "1s", "--dir", &place], line].concat();
        hubbub_at_length(all.into_iter().map(str::to_owned).collect()).await.stdout
    };
    let table = suite(&["--only", "http-secured"]).await;
    for what in ["| `http` with HS256 tokens | ", "| `http` with TLS 1.3 | "] {
        assert!(table.contains(what) && !table.contains("| 0 messages/s"), "{table}");
    }
    assert!(!table.contains("not measured") && !table.contains("ledger does not balance"), "{table}");
    let table = suite(&["--only", "idle", "--program", "/no/such"]).await;
    assert!(table.contains("| idle | **not measured**: cannot start a server"), "{table}");
}
