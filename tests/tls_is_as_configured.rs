//! TLS: what it carries, what it refuses, and what it costs those who do not finish a handshake.

use std::process::{Command, Stdio};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Certificates, Server, Setup, TlsClient, hubbub, in_time, program, texts, until};

fn encrypted() -> (Server, TlsClient, Certificates) {
    let setup = Setup::new().line().set("store.embedded.journal_slot=64MiB");
    let certificates = Certificates::make(&setup, "tls");
    let client = TlsClient::trusting(&[&certificates]);
    (certificates.serve(setup).start(), client, certificates)
}

#[tokio::test]
async fn everything_is_spoken_over_tls() {
    let (server, client, _certificates) = encrypted();
    // Many frames in one write, long ones among them: the answers come in order, and so do the messages.
    let mut socket = client.ws(&server, "/v1/ws").await;
    let mut follower = client.ws(&server, "/v1/ws").await;
    follower.subscribe("r", json!({})).await;
    let sent: Vec<String> = (0..300).map(|n| format!("{n} {}", "x".repeat(n * 211 % 60_000))).collect();
    let frame = |text: &String| json!({"type": "send", "roomId": "r", "userId": "ada", "message": text});
    let frames: Vec<_> = sent.iter().map(frame).collect();
    let (answers, heard) = tokio::join!(
        async {
            socket.send_all(&frames).await;
            socket.receive_many(frames.len()).await
        },
        follower.receive_many(frames.len()),
    );
    let acknowledged: Vec<_> = answers.iter().map(|answer| answer["seq"].as_u64().unwrap()).collect();
    assert!(acknowledged.iter().copied().eq(1..=300), "{acknowledged:?}");
    assert_eq!(texts(&heard), sent.iter().map(String::as_str).collect::<Vec<_>>());
    // Some MB of history.
    let page = client.get(&server, "/v1/rooms/r/messages?after=0&limit=300").await.json();
    let page = texts(page["messages"].as_array().unwrap());
    assert!(page.len() > 30 && page.iter().eq(&sent[..page.len()]), "{}", page.len());
    // The line protocol, whose clients may end their side first.
    let mut line = client.connect_line(&server).await;
    line.write_all(b"ping\nx:y\nbogus\nping\n\n").await.unwrap();
    line.shutdown().await.unwrap();
    let mut answers = String::new();
    in_time("the line's answers", line.read_to_string(&mut answers)).await.unwrap();
    assert_eq!(answers.lines().collect::<Vec<_>>(), ["OK", "Bad Request", "OK"]);
    assert!(client.get(&server, "/health").await.header("strict-transport-security").is_some());
    // Whoever speaks without TLS gets nowhere.
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = in_time("the end of a plain connection", plain.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

/// Mistakes with TLS that a client notices are told in words of people.
#[cfg(feature = "https")]
#[tokio::test]
async fn mistakes_with_tls_are_told() {
    let setup = Setup::new();
    let certificates = Certificates::make(&setup, "tls");
    let authority = certificates.path("ca.pem");
    let setup = setup.set(&format!("tls.cert={authority}"));
    let server = setup.set(&format!("tls.key={}", certificates.path("ca.key"))).start();
    let said = async |scheme: &str, arguments: &[&str]| {
        let mut command = program::command();
        command.args(arguments).args(["--server", &format!("{scheme}://{}", server.address())]);
        command.env("SSL_CERT_FILE", &authority).env_remove("SSL_CERT_DIR");
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        String::from_utf8(ran.stderr).unwrap()
    };
    for arguments in [&["rooms"][..], &["tail", "r"]] {
        let plain = said("http", arguments).await;
        assert!(plain.contains("speak") && plain.contains("TLS") && plain.contains("https://"), "{plain}");
        let wrong = said("https", arguments).await;
        assert!(wrong.contains("basicConstraints=CA:FALSE") && !wrong.contains("OtherError"), "{wrong}");
    }
}

fn s_client(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &server.address().to_string(), "-servername", "localhost"]);
    command.args(arguments);
    command
}

/// What `openssl s_client` says with `arguments`.
fn openssl(server: &Server, arguments: &[&str]) -> String {
    let ran = s_client(server, arguments).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
}

#[tokio::test]
async fn weak_protocols_are_refused() {
    let (server, _client, certificates) = encrypted();
    for (version, shown) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said =
            openssl(&server, &[version, "-CAfile", &certificates.path("ca.pem"), "-verify_return_error"]);
        assert!(said.contains("Verify return code: 0 (ok)") && said.contains(shown), "{said}");
    }
    // The client would: it is the server that says no.
    for weak in [
        &["-tls1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "DHE-RSA-AES256-GCM-SHA384:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"],
    ] {
        let said = openssl(&server, weak);
        let is_refused = said.contains("alert handshake failure") || said.contains("alert protocol version");
        assert!(is_refused && said.contains("Cipher is (NONE)"), "{weak:?}: {said}");
    }
}

/// All that TLS 1.2 may use: keys that are made for each connection, and authenticated encryption.
const STRONG_1_2: &[&str] = &[
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
];
const STRONG_1_3: &[&str] =
    &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The ciphers of `all` that the server agrees to when it is offered nothing else.
fn agreed<'c>(server: &Server, all: impl Iterator<Item = &'c str>, offer: [&str; 2]) -> Vec<&'c str> {
    let agrees = |cipher: &&str| {
        let level = if offer[1] == "-cipher" { "@SECLEVEL=0" } else { "" };
        let offered = if level.is_empty() { (*cipher).to_owned() } else { format!("{cipher}:{level}") };
        openssl(server, &[offer[0], offer[1], &offered]).contains(&format!("Cipher is {cipher}"))
    };
    all.filter(agrees).collect()
}

/// What an outside scanner does: each cipher that this openssl knows is offered alone.
#[tokio::test]
async fn no_cipher_but_strong_ones_is_agreed_to() {
    let (server, _client, _certificates) = encrypted();
    let known = Command::new("openssl")
        .args(["ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"])
        .output()
        .unwrap();
    let known = String::from_utf8(known.stdout).unwrap();
    // Among them are those without encryption, and without a certificate.
    for weak in ["NULL-SHA256", "AECDH-AES128-SHA", "AES128-SHA"] {
        assert!(known.trim().split(':').any(|cipher| cipher == weak), "{known}");
    }
    let mut found = agreed(&server, known.trim().split(':'), ["-tls1_2", "-cipher"]);
    found.sort_unstable();
    // The certificate has an RSA key.
    assert_eq!(found, STRONG_1_2[3..], "TLS 1.2");
    let known = [STRONG_1_3, &["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"]].concat();
    let found = agreed(&server, known.into_iter(), ["-tls1_3", "-ciphersuites"]);
    assert_eq!(found, STRONG_1_3, "TLS 1.3");
}

#[tokio::test]
async fn what_weakens_a_connection_is_refused() {
    let (server, _client, _certificates) = encrypted();
    for strong in ["X25519", "P-256", "P-384"] {
        assert!(openssl(&server, &["-groups", strong]).contains("Cipher is TLS_"), "{strong}");
    }
    for weak in [
        &["-groups", "ffdhe2048"][..],
        &["-groups", "sect163k1", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0"],
        &["-groups", "secp192r1", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0"],
        &["-sigalgs", "RSA+SHA1:ECDSA+SHA1", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0"],
    ] {
        let said = openssl(&server, weak);
        assert!(said.contains("Cipher is (NONE)"), "{weak:?}: {said}");
    }
    // Nothing is compressed, and a connection is not negotiated again.
    let mut client = s_client(&server, &["-tls1_2", "-comp"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().unwrap();
    // `R` at the beginning of what one read brings asks for it. The input stays open: its end would close the connection.
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"R\n").unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let ran = in_time("a second negotiation", ended).await.unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    assert!(
        said.contains("Compression: NONE") && said.contains("Secure Renegotiation IS supported"),
        "{said}"
    );
}

#[tokio::test]
async fn clients_show_their_certificates() {
    for (auth, needs_one) in [("required", true), ("optional", false)] {
        let setup = Setup::new();
        let (own, clients, strangers) = (
            Certificates::make(&setup, "own"),
            Certificates::make(&setup, "clients"),
            Certificates::make(&setup, "strangers"),
        );
        let setup = own.serve(setup).set(&format!("tls.client_ca={}", clients.path("ca.pem")));
        let server = setup.set(&format!("tls.client_auth={auth}")).start();
        let reaches = async |certificate: Option<&Certificates>| {
            let client = TlsClient::with(&[&own], certificate);
            let Some(mut http) = client.try_http(&server).await else { return false };
            let answer = http.try_request(hyper::Method::GET, "/health", &[], "").await;
            answer.is_some_and(|answer| answer.status == 200)
        };
        assert!(reaches(Some(&clients)).await, "{auth}");
        assert!(!reaches(Some(&strangers)).await, "{auth}");
        assert_eq!(reaches(None).await, !needs_one, "{auth}");
    }
}

#[tokio::test]
async fn handshakes_that_do_not_end_keep_nobody_out() {
    let setup = Setup::new().set("tls.handshakes=2").set("tls.handshake_timeout=1h");
    let certificates = Certificates::make(&setup, "tls");
    let client = TlsClient::trusting(&[&certificates]);
    let server = certificates.serve(setup).start();
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
        assert_eq!(client.get(&server, "/health/live").await.status, 200);
    }
    // The oldest were given up for it.
    let mut nothing = Vec::new();
    let _ = in_time("the end of the oldest", silent[0].read_to_end(&mut nothing)).await;
    assert_eq!(nothing, b"");
}

#[tokio::test]
async fn a_silent_handshake_is_dropped() {
    let setup = Setup::new().set("tls.handshake_timeout=500ms");
    let certificates = Certificates::make(&setup, "tls");
    let client = TlsClient::trusting(&[&certificates]);
    let server = certificates.serve(setup).start();
    // On a busy machine, the time may be too short for anybody.
    let mut http = None;
    until("a handshake that is quick enough", async || {
        http = client.try_http(&server).await;
        // With TLS 1.3, the client is done with the handshake before the server is.
        let Some(http) = &mut http else { return false };
        http.try_request(hyper::Method::GET, "/health/live", &[], "").await.is_some()
    })
    .await;
    let mut http = http.unwrap();
    let mut failed = async || {
        let text = http.get("/metrics").await.text();
        let name = "hubbub_tls_handshakes_failed_total ";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap()
    };
    let before = failed().await;
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let _ = in_time("the end of a silent handshake", stream.read_to_end(&mut Vec::new())).await;
    }
    // The client may see the end before it is counted.
    until("both are counted", async || failed().await >= before + 2).await;
    assert_eq!(failed().await, before + 2);
    until("only the open connection is left", async || {
        http.get("/metrics").await.text().contains("hubbub_connections 1\n")
    })
    .await;
}

#[test]
fn what_cannot_be_used_is_named_at_the_start() {
    let setup = Setup::new();
    let (own, other) = (Certificates::make(&setup, "own"), Certificates::make(&setup, "other"));
    let (crt, key) = (own.path("server.crt"), own.path("server.key"));
    for (cert, key, code, parts) in [
        (crt.as_str(), "off", 2, &["tls.cert and tls.key"][..]),
        ("/no/such.pem", &key, 1, &["tls.cert", "/no/such.pem"]),
        (&key, &key, 1, &["tls.cert", "no certificate"]),
        (&crt, &crt, 1, &["tls.key", "no private key"]),
        (&crt, &other.path("server.key"), 1, &["tls.cert", "tls.key"]),
    ] {
        let mut arguments = setup.arguments("127.0.0.1:0");
        arguments.extend([
            "--set".into(),
            format!("tls.cert={cert}"),
            "--set".into(),
            format!("tls.key={key}"),
        ]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = hubbub(&arguments, "").refusal(code);
        for part in parts {
            assert!(said.contains(part), "'{part}' is not in: {said}");
        }
    }
}
