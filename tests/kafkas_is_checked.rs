//! TLS, certificates and passwords of Kafka: checked, and told in one line that names the setting.

use crate::harness::{Kafka, PASSWORD, Postgres, Setup, USER, hubbub_aside, until};

/// The line of a server that does not start, with its settings in a file.
pub(crate) async fn refusal(setup: Setup, config: &str) -> String {
    let file = setup.beside("hubbub.toml");
    std::fs::write(&file, config).unwrap();
    let mut arguments = setup.arguments("127.0.0.1:0");
    arguments.extend(["--config".to_owned(), file.display().to_string()]);
    let ran = hubbub_aside(arguments, String::new()).await;
    assert!(ran.code.is_some_and(|code| code != 0) && ran.stdout.is_empty(), "{ran:?}");
    let lines: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("hubbub: ")).collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    lines[0].to_owned()
}

fn escaped(password: &str) -> String {
    password.replace('/', "%2F")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafkas_is_checked() {
    let (kafka, postgres) = (Kafka::start_with_tls(), Postgres::start(""));
    let setup = || Setup::new().store(&postgres.url("postgres"));
    let right = escaped(PASSWORD);
    let at = |host: &str, port: u16, password: &str| format!("kafkas://{USER}:{password}@{host}:{port}");
    let sasl = at("localhost", kafka.sasl_port(), &right);
    let tls = format!("kafkas://localhost:{}", kafka.tls_port());
    let ca = format!("[kafka]\nca = {:?}\n", kafka.file("ca.pem"));
    let own = format!("cert = {:?}\nkey = {:?}\n", kafka.file("server.crt"), kafka.file("server.key"));
    let with_key = format!("[kafka]\nca = {:?}\n", kafka.file("server.key"));
    let plain = format!("kafkas://localhost:{}", kafka.port());
    for (url, settings, parts) in [
        (&sasl, "", &["certificate", "kafka.ca", "log.url"][..]),
        // The authority is trusted, but the certificate is not for this name.
        (&at("127.0.0.1", kafka.sasl_port(), &right), &ca, &["certificate", "kafka.ca", "log.url"]),
        (&at("localhost", kafka.sasl_port(), "s3cret"), &ca, &["password is wrong", "log.url"]),
        (
            &at("localhost", kafka.sasl_port(), "s3cret"),
            &format!("{ca}sasl = \"plain\"\n"),
            &["password is wrong"],
        ),
        (&sasl, "[kafka]\nca = \"/no/such.pem\"\n", &["kafka.ca", "/no/such.pem"]),
        (&sasl, &with_key, &["kafka.ca", "server.key", "no PEM certificate"]),
        (&sasl, &format!("{ca}cert = \"x\"\n"), &["kafka.cert and kafka.key"]),
        (&tls, &ca, &["kafka.cert", "kafka.key"]),
        (&plain, &ca, &["do not speak TLS", "kafka://"]),
        (&sasl.replace("kafkas", "kafka"), &ca, &["kafkas://"]),
        (&sasl, &format!("{ca}sasl = \"md5\"\n"), &["kafka.sasl must be"]),
    ] {
        let line = refusal(setup(), &format!("{settings}[log]\nurl = {url:?}\n")).await;
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    }
    let on_command_line = Setup::new().set(&format!("log.url={sasl}"));
    let line = refusal(on_command_line, "").await;
    assert!(line.contains("log.url") && line.contains("HUBBUB_LOG"), "{line}");

    for (number, (url, settings)) in [
        (&sasl, ca.clone()),
        (&sasl, format!("{ca}sasl = \"scram-sha-256\"\n")),
        (&sasl, format!("{ca}sasl = \"plain\"\n")),
        (&tls, format!("{ca}{own}")),
    ]
    .into_iter()
    .enumerate()
    {
        let setup = setup().env("HUBBUB_LOG", url);
        let file = setup.beside("hubbub.toml");
        std::fs::write(&file, settings).unwrap();
        let server = setup.env("HUBBUB_CONFIG", &file.display().to_string()).start();
        let id = format!("m-{number}");
        assert_eq!(server.send_as("r", &id, &id).await.status, 202);
        until("it is stored", async || server.history("r").await.len() == number + 1).await;
        assert!(!server.log().contains("s3cret"), "{}", server.log());
        // Changes go through the consumers, too.
        server.put_room("r", serde_json::json!({"title": id})).await;
    }
}
