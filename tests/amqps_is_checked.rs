//! TLS to the broker: certificates are checked, with an authority of one's own if need be.

use crate::broker_refusals_are_told::refusal;
use crate::harness::{Broker, Setup, until};

#[tokio::test]
async fn amqps_is_checked() {
    let broker = Broker::start_with_tls();
    let at = |host: &str, port: u16| format!("amqps://guest:guest@{host}:{port}/");
    let (good, plain) = (at("localhost", broker.tls_port()), at("localhost", broker.plain_port()));
    let ca = broker.ca();
    let trusted = format!("amqp.ca={}", ca.display());
    let certificate = ["certificate", "amqp.ca", "log.url"];
    let key = format!("amqp.ca={}", ca.with_file_name("server.key").display());
    for (url, setting, parts) in [
        (&good, "amqp.shards=1", &certificate[..]),
        // The authority is trusted, but the certificate is not for this name.
        (&at("127.0.0.1", broker.tls_port()), &trusted, &certificate),
        (&good, "amqp.ca=/no/such/file.pem", &["amqp.ca", "/no/such/file.pem"]),
        (&good, &key, &["amqp.ca", "server.key"]),
        (&plain, &trusted, &["does not speak TLS", "log.url"]),
        (&good.replace("amqps", "amqp"), "amqp.shards=1", &["log.url"]),
    ] {
        let line = refusal(url, setting).await;
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
        assert!(!line.contains("guest:guest"), "{line}");
    }
    let server = Setup::new().set(&format!("log.url={good}")).set(&trusted).start();
    assert_eq!(server.send_as("r", "m", "hi").await.status, 202);
    until("it is stored", async || server.history("r").await.len() == 1).await;
}
