//! TLS, certificates and passwords of Cassandra: checked, and told in one line that names the setting.

use crate::harness::{Cassandra, Kafka, Setup, until};
use crate::kafkas_is_checked::refusal;

fn url(cassandra: &Cassandra, login: &str) -> String {
    cassandra.url().replace("scylla://", &format!("scyllas://{login}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scyllas_is_checked() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::start_with_tls(false));
    let right = url(&cassandra, "cassandra:cassandra@");
    let ca = format!("[store.scylla]\nca = {:?}\n", cassandra.file("ca.pem"));
    let with_key = format!("[store.scylla]\nca = {:?}\n", cassandra.file("server.key"));
    let log = format!("[log]\nurl = {:?}\n", kafka.url());
    for (url, settings, parts) in [
        (&right, "", &["certificate", "store.scylla.ca"][..]),
        (&right.replace("127.0.0.1", "127.0.0.2"), &ca, &["store.url"]),
        (&url(&cassandra, "cassandra:s3cret@"), &ca, &["password is wrong", "store.url"]),
        (&url(&cassandra, ""), &ca, &["password", "store.url"]),
        (&right, &with_key, &["store.scylla.ca", "server.key", "no PEM certificate"]),
        (&right, &format!("{ca}cert = \"x\"\n"), &["store.scylla.cert and store.scylla.key"]),
        (&right.replace("scyllas", "scylla"), &ca, &["store.url", "scyllas://"]),
    ] {
        let line =
            refusal(Setup::new().elsewhere(), &format!("{settings}{log}[store]\nurl = {url:?}\n")).await;
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    }
    let on_command_line = Setup::new().store(&url(&cassandra, "cassandra:s3cret@"));
    let line = refusal(on_command_line, &log).await;
    assert!(line.contains("store.url") && line.contains("HUBBUB_STORE"), "{line}");
    works(&kafka, &cassandra, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_clients_are_shown() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::start_with_tls(true));
    let ca = format!("[store.scylla]\nca = {:?}\n", cassandra.file("ca.pem"));
    let log = format!("[log]\nurl = {:?}\n", kafka.url());
    let right = url(&cassandra, "cassandra:cassandra@");
    let line = refusal(Setup::new().elsewhere(), &format!("{ca}{log}[store]\nurl = {right:?}\n")).await;
    assert!(line.contains("store.scylla.cert"), "{line}");
    let own =
        format!("cert = {:?}\nkey = {:?}\n", cassandra.file("server.crt"), cassandra.file("server.key"));
    works(&kafka, &cassandra, &own).await;
}

async fn works(kafka: &Kafka, cassandra: &Cassandra, settings: &str) {
    let setup = kafka
        .log_of(Setup::new().elsewhere(), 1)
        .env("HUBBUB_STORE", &url(cassandra, "cassandra:cassandra@"));
    let setup = Cassandra::replicated(setup);
    let file = setup.beside("hubbub.toml");
    let ca = format!("[store.scylla]\nca = {:?}\n{settings}", cassandra.file("ca.pem"));
    std::fs::write(&file, ca).unwrap();
    let server = setup.env("HUBBUB_CONFIG", &file.display().to_string()).start();
    assert_eq!(server.send_as("r", "m", "hi").await.status, 202);
    until("it is stored", async || server.history("r").await.len() == 1).await;
}
