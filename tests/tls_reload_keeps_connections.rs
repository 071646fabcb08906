//! A certificate is replaced, at a signal or because its file changed, and nobody who is connected notices.

use serde_json::json;

use crate::harness::{Certificates, Setup, TlsClient, until};

#[tokio::test]
async fn tls_reload_keeps_connections() {
    let setup = Setup::new().line();
    let (first, second, third) = (
        Certificates::make(&setup, "first"),
        Certificates::make(&setup, "second"),
        Certificates::make(&setup, "third"),
    );
    let (second_der, third_der) = (second.der(), third.der());
    let server = first.serve(setup).start();
    let client = TlsClient::trusting(&[&first, &second, &third]);
    assert_eq!(client.certificate(&server).await, first.der());

    let mut follower = client.ws(&server, "/v1/ws").await;
    follower.subscribe("r", json!({})).await;
    let mut http = client.http(&server).await;
    let mut number = 0;
    let mut all_goes_on = async || {
        number += 1;
        let text = format!("message {number}");
        let body = json!({"userId": "ada", "message": text}).to_string();
        assert_eq!(http.post("/v1/rooms/r/messages", body).await.status, 201);
        assert_eq!(follower.receive().await["message"], text.as_str());
    };
    all_goes_on().await;

    first.replace_with(&second);
    server.hang_up();
    until("the second certificate", async || client.certificate(&server).await == second_der).await;
    all_goes_on().await;

    // Without a signal.
    first.replace_with(&third);
    until("the third certificate", async || client.certificate(&server).await == third_der).await;
    all_goes_on().await;

    // What cannot be used is told, and changes nothing.
    let health = async || client.get(&server, "/health").await.json();
    let crt = first.path("server.crt");
    let failed = async || {
        let metrics = client.get(&server, "/metrics").await.text();
        let mut lines = metrics.lines();
        let failed = lines.find_map(|line| line.strip_prefix("hubbub_tls_reloads_failed_total "));
        failed.unwrap().parse::<u64>().unwrap()
    };
    // Each fails for another reason than the one before: the same reason is told and counted once.
    for broken in ["nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""] {
        let before = failed().await;
        std::fs::write(&crt, broken).unwrap();
        server.hang_up();
        until("a bad certificate is told", async || {
            let tls = health().await["components"]["tls"].clone();
            failed().await > before
                && tls["status"] == "DEGRADED"
                && tls["reason"].as_str().is_some_and(|reason| reason.contains(&crt))
        })
        .await;
        assert_eq!(client.certificate(&server).await, third_der);
        all_goes_on().await;
    }
    assert_eq!(health().await["status"], "UP");
    assert!(server.log().contains("keeping the old TLS certificate"), "{}", server.log());
    // A certificate whose key is that of another one.
    std::fs::copy(second.path("server.crt"), &crt).unwrap();
    until("a foreign key is told", async || {
        health().await["components"]["tls"]["reason"].as_str().is_some_and(|r| r.contains("server.key"))
    })
    .await;
    assert_eq!(client.certificate(&server).await, third_der);
    // The key follows: it is tried again without a signal.
    std::fs::copy(second.path("server.key"), first.path("server.key")).unwrap();
    until("the certificate and its key", async || client.certificate(&server).await == second_der).await;
    until("health is good again", async || health().await["components"]["tls"]["status"] == "UP").await;
    assert_ne!(failed().await, 0);
    all_goes_on().await;
}
